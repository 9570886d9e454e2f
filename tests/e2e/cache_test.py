"""`quintet cache`: the same bytes from one process, several ranks and a run that was killed; what a second run says;
what is refused; what a full disk leaves."""

import os
import pathlib
import random
import resource
import shutil
import subprocess
import time

import e2e
from e2e import QUINTET, quintet, start

TASK = """
seqio.ByteVocabulary.extra_ids = {extra_ids}
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
lines/quintet.data.TsvDataSource.split_to_filepattern = {{'train': '{folder}/train-*.tsv', 'validation': '{folder}/val.tsv'}}
words/seqio.Task:
  name = 'words:all'
  source = @lines/quintet.data.TsvDataSource()
  preprocessors = [@seqio.preprocessors.tokenize, @seqio.CacheDatasetPlaceholder(), @seqio.preprocessors.append_eos]
  output_features = {{'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}}
seqio.TaskRegistry.tasks = [@words/seqio.Task()]
"""


CHARACTERS = """
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
quintet.data.TsvDataSource.split_to_filepattern = {{'train': '{folder}/words.tsv'}}
seqio.Task:
  name = 'words'
  source = @quintet.data.TsvDataSource()
  preprocessors = [@seqio.CacheDatasetPlaceholder(), @seqio.preprocessors.tokenize, @seqio.preprocessors.append_eos]
  output_features = {{'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}}
seqio.TaskRegistry.tasks = [@seqio.Task()]
seqio.Mixture:
  name = 'mixed'
  tasks = ['words']
  default_rate = @seqio.mixing_rate_num_characters
seqio.mixing_rate_num_characters.char_count_name = 'targets_chars'
seqio.MixtureRegistry.mixtures = [@seqio.Mixture()]
"""


def write_task(folder, lines=3000, extra_ids=20):
    rows = [f"in {i} {'x' * (i % 50)}\tout {i * i}" for i in range(lines)]
    for part in range(2):
        (folder / f"train-{part}.tsv").write_text("\n".join(rows[part::2]) + "\n")
    (folder / "val.tsv").write_text("a\tb\n")
    (folder / "task.gin").write_text(TASK.format(folder=folder, extra_ids=extra_ids))
    return [f"--gin_file={folder / 'task.gin'}", "--tasks=words:all", "--min_shards=4"]


def files(folder):
    """Names and bytes of a finished cache."""
    cache = pathlib.Path(folder) / "words" / "all"
    assert (cache / "COMPLETED").read_text() == "tfrecord"
    assert not (cache.parent / "all.incomplete").exists()
    return {path.name: path.read_bytes() for path in cache.iterdir()}


def test_ranks_and_threads_write_the_same_bytes(folder):
    task = write_task(folder)
    quintet("cache", *task, f"--output_cache_dir={folder / 'one'}", "--threads=1")
    quintet("cache", *task, f"--output_cache_dir={folder / 'many'}", "--threads=3")
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", "3", QUINTET, "cache", *task,
                           f"--output_cache_dir={folder / 'ranks'}", "--threads=1"], capture_output=True, timeout=240,
                          env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert files(folder / "one") == files(folder / "many") == files(folder / "ranks")
    assert len(files(folder / "one")) == 4 + 4 + 2 * 2 + 2


def leave_leftovers(folder):
    for name in ("all.LOCK", ".writable-all.LOCK", "..writable-all.LOCK.tmp-4242-0"):
        (folder / name).write_text("host elsewhere pid 4242\n")


def test_a_second_run_says_so_and_others_are_refused(folder):
    task = write_task(folder)
    out = f"--output_cache_dir={folder / 'cache'}"
    assert "3001 examples cached" in quintet("cache", *task, out).out
    before = files(folder / "cache")
    again = quintet("cache", *task, out)
    assert "is cached at" in again.out and "--overwrite" in again.out, again
    show = ["data", "show", "words:all", task[0], "--num=1", f"--seqio_additional_cache_dirs={folder / 'cache'}"]
    assert "tfrecord-000" in quintet(*show, "--use_cached").out and "tfrecord-000" not in quintet(*show).out
    write_task(folder, extra_ids=50)
    other = quintet("cache", *task, out, expect=3)
    assert "was cached with vocabulary" in other.err, other
    assert files(folder / "cache") == before
    # What a killed run leaves beside a finished cache goes with the next start.
    leave_leftovers(folder / "cache/words")
    write_task(folder)
    quintet("cache", *task, out)
    assert os.listdir(folder / "cache/words") == ["all"]
    write_task(folder, extra_ids=50)
    leave_leftovers(folder / "cache/words")
    quintet("cache", *task, out, "--overwrite")
    assert os.listdir(folder / "cache/words") == ["all"]
    assert files(folder / "cache") != before
    nearest = quintet("cache", task[0], "--tasks=word:all", out, expect=2)
    assert "words:all" in nearest.err, nearest
    one_of_two = quintet("cache", task[0], "--tasks=words:.*,word:all", out, expect=2)
    assert "'word:all'" in one_of_two.err, one_of_two
    (folder / "cache" / "words" / "all" / "COMPLETED").unlink()
    assert "no completed cache" in quintet("cache", *task, out, expect=3).err


def test_without_tasks_it_is_told_how_to_name_them(folder):
    out = f"--output_cache_dir={folder / 'cache'}"
    for flags in ([], [write_task(folder)[0], "--excluded_tasks=.*"]):
        error = quintet("cache", *flags, out, expect=2).err
        assert "no task is chosen; name built-in ones with --tasks=" in error and "seqio.TaskRegistry.tasks" in error, error
        assert ("the gin files define words:all" in error) == bool(flags), error
    assert "'words_all'" in quintet("cache", "--tasks=words_all,words", out, expect=2).err
    quintet("cache", "--alsologtostderr", "--only_check_args", out)
    assert not (folder / "cache").exists()


def test_killed_runs_go_on_and_end_the_same(folder):
    task = write_task(folder, lines=120_000)
    begin = time.time()
    quintet("cache", *task, f"--output_cache_dir={folder / 'whole'}", "--threads=1")
    whole = time.time() - begin
    random.seed(3)
    kept = 0
    for _ in range(6):
        process = start("cache", *task, f"--output_cache_dir={folder / 'killed'}", "--threads=1")
        # delay: the moment of the kill
        time.sleep(random.uniform(0.2, 0.9) * whole)
        process.kill()
        process.communicate()
        cache = folder / "killed" / "words" / "all"
        if cache.exists():
            assert files(folder / "killed") == files(folder / "whole")
        kept = max(kept, len(list((folder / "killed").rglob("chunk-*.json"))))
    result = quintet("cache", *task, f"--output_cache_dir={folder / 'killed'}", "--threads=1")
    assert "cached at" in result.out
    assert files(folder / "killed") == files(folder / "whole")
    assert kept > 0, "no kill left a finished chunk behind"


def test_two_runs_at_once_make_one_cache(folder):
    task = write_task(folder, lines=120_000)
    command = ["cache", *task, f"--output_cache_dir={folder / 'cache'}", "--threads=1"]
    first = start(*command)
    e2e.wait_for(lambda: (folder / "cache" / "words" / "all.LOCK").exists(), 30)
    second = quintet(*command, expect=2)
    assert "another run is using this folder: host" in second.err and f"pid {first.pid}" in second.err, second
    first.communicate()
    assert first.returncode == 0
    quintet("cache", *task, f"--output_cache_dir={folder / 'whole'}")
    assert files(folder / "cache") == files(folder / "whole")
    assert [path.name for path in (folder / "cache" / "words").iterdir()] == ["all"]


def test_a_kill_after_the_last_file_leaves_nothing_over(folder):
    task = write_task(folder, lines=120_000)
    quintet("cache", *task, f"--output_cache_dir={folder / 'whole'}")
    process = start("cache", *task, f"--output_cache_dir={folder / 'cut'}", "--threads=1")
    work = folder / "cut" / "words" / "all.incomplete"
    e2e.wait_for(lambda: any(work.glob("spill.*/chunk-*.json")), 30)
    process.kill()
    process.communicate()
    for path in (folder / "whole" / "words" / "all").iterdir():
        if path.name != "COMPLETED":
            shutil.copy(path, work)
    for name in (".stats.train.json.tmp-7-3", ".writable-7", "..writable-7.tmp-7-0"):
        (work / name).write_text("half a")  # by a kill while a small file was written
    quintet("cache", *task, f"--output_cache_dir={folder / 'cut'}")
    assert files(folder / "cut") == files(folder / "whole")


def test_a_full_disk_ends_with_its_code_and_leaves_no_cache(folder):
    task = write_task(folder, lines=30_000)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))  # noqa: E731
    full = quintet("cache", *task, f"--output_cache_dir={folder / 'cache'}", "--threads=1", expect=5, preexec_fn=limit)
    assert "spill" in full.err and "bytes needed" in full.err, full
    assert not (folder / "cache" / "words" / "all").exists()
    quintet("cache", *task, f"--output_cache_dir={folder / 'cache'}")


def test_a_training_run_reads_the_cache(folder):
    task = write_task(folder)
    quintet("cache", *task, f"--output_cache_dir={folder / 'cache'}")
    for path in folder.glob("*.tsv"):
        path.unlink()  # only the cache is left
    run = e2e.tiny(folder / "run", 4, task[0], "--gin.TASK='words:all'",
                   "--gin.train/utils.DatasetConfig.use_cached=True",
                   "--gin.train_script.train.train_eval_dataset_cfg=None")
    quintet(*run, f"--seqio_additional_cache_dirs=/nowhere,{folder / 'cache'}")
    missing = quintet(*[part.replace(str(folder / "run"), str(folder / "other")) for part in run], expect=3)
    assert "--seqio_additional_cache_dirs" in missing.err, missing


def test_a_mixture_by_characters_takes_the_counts_of_caches(folder):
    (folder / "words.tsv").write_text("".join(f"in {i}\tout {i * i}\n" for i in range(50)))
    (folder / "task.gin").write_text(CHARACTERS.format(folder=folder))
    gin = f"--gin_file={folder / 'task.gin'}"
    show = ["data", "show", "mixed", gin, "--num=1", f"--seqio_additional_cache_dirs={folder / 'cache'}"]
    assert "quintet cache --tasks=words --enable_char_counts" in quintet(*show, expect=2).err
    cache = ["cache", gin, "--tasks=words", f"--output_cache_dir={folder / 'cache'}", "--min_shards=1"]
    quintet(*cache)
    assert "has no 'targets_chars'; make the cache with --enable_char_counts" in quintet(*show, expect=3).err
    quintet(*cache, "--overwrite", "--enable_char_counts")
    assert "mixed preprocessed" in quintet(*show).out
    cold = quintet(*show, "--gin.seqio.mixing_rate_num_characters.temperature=0", expect=2)
    assert "the rate of 'words' is inf, expected a finite number" in cold.err, cold


def test_bad_records_are_left_out_up_to_a_limit(folder):
    task = write_task(folder, lines=100)
    with open(folder / "train-0.tsv", "a") as file:
        file.write("ragged\nalso\n")
    out = f"--output_cache_dir={folder / 'cache'}"
    failed = quintet("cache", *task, out, expect=3)
    assert "train-0.tsv:51: 1 tab-separated columns, expected 2" in failed.err, failed
    assert "train-0.tsv:52" in quintet("cache", *task, out, "--bad_records=skip:1", "--threads=1", expect=3).err
    quintet("cache", *task, out, "--bad_records=many", expect=2)
    assert "101 examples cached" in quintet("cache", *task, out, "--bad_records=skip:2").out


e2e.run(globals())
