"""Data ranks under mpirun: a run trains on the same batches with any number of them, ends in the same bits, and goes on from
a checkpoint with another number. And what a run does about batches to leave out and files that have changed."""

import json
import os
import subprocess

import e2e
from e2e import QUINTET, assert_same_run, quintet, start, steps_of, tiny, wait_for

PACKED = ["--gin.train/utils.DatasetConfig.pack=True"]


def mpirun(ranks, *arguments, expect=0):
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    done = subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks), QUINTET,
                           *map(str, arguments)], capture_output=True, timeout=240, env=environment,
                          stdin=subprocess.DEVNULL)
    result = e2e.Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    assert result.code == expect, result
    return result


def test_any_number_of_data_ranks_gives_the_same_run(folder):
    quintet(*tiny(folder / "none", 20, *PACKED))
    mpirun(2, *tiny(folder / "one", 20, "--data_service_ranks=1", *PACKED))
    mpirun(4, *tiny(folder / "three", 20, "--data_service_ranks=3", "--data_threads=2", *PACKED))
    assert_same_run(folder / "one", folder / "none", 20)
    assert_same_run(folder / "three", folder / "none", 20)


def test_two_training_ranks_get_the_same_from_data_ranks_and_from_each_other(folder):
    mpirun(2, *tiny(folder / "two", 20, *PACKED))
    mpirun(4, *tiny(folder / "four", 20, "--data_service_ranks=2", *PACKED))
    assert_same_run(folder / "four", folder / "two", 20)


def test_a_run_goes_on_with_another_number_of_data_ranks(folder):
    constant = ["--gin.optimizers.adamw.learning_rate=0.001", *PACKED]
    quintet(*tiny(folder / "parts", 10, *constant))
    mpirun(3, *tiny(folder / "parts", 20, "--data_service_ranks=2", *constant))
    quintet(*tiny(folder / "parts", 30, *constant))
    quintet(*tiny(folder / "whole", 30, *constant))
    assert e2e.tensor_checksums(folder / "parts", 30) == e2e.tensor_checksums(folder / "whole", 30)


def test_a_stopped_run_ends_its_data_ranks(folder):
    process = subprocess.Popen(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", "2", QUINTET,
                                *tiny(folder / "run", 4000, "--data_service_ranks=1", "--gin.EVAL_PERIOD=1000")],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               env=dict(os.environ, OMP_NUM_THREADS="1"))
    wait_for(lambda: steps_of(folder / "run") or process.poll() is not None, 120)
    (folder / "run" / "STOP").touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, (process.returncode, err.decode()[-2000:])


def test_wrong_numbers_of_data_ranks_are_refused(folder):
    assert "--data_service_ranks=1: the job has 1 rank" in \
        quintet(*tiny(folder / "run", 5, "--data_service_ranks=1"), expect=2).err
    assert "--data_service_ranks=2: the job has 2 ranks" in \
        mpirun(2, *tiny(folder / "run", 5, "--data_service_ranks=2"), expect=2).err


TASK = """
import seqio
from t5.data import preprocessors
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.TextLineDataSource.split_to_filepattern = {'train': '%s', 'validation': '%s'}
seqio.Task:
  name = 'pairs'
  source = @seqio.TextLineDataSource()
  preprocessors = [@preprocessors.parse_tsv, @seqio.preprocessors.tokenize_and_append_eos]
  output_features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}
seqio.TaskRegistry.tasks = [@seqio.Task()]
"""


def pairs(folder):
    """A task of its own; the flags that train on it."""
    file = folder / "pairs.tsv"
    file.write_text("".join(f"number {i}\t{i * i}\n" for i in range(200)))
    (folder / "task.gin").write_text(TASK % (file, file))
    return file, [f"--gin_file={folder}/task.gin", "--gin.TASK='pairs'", "--gin.optimizers.adamw.learning_rate=0.001"]


def test_changed_files_are_noticed(folder):
    file, flags = pairs(folder)
    quintet(*tiny(folder / "run", 10, *flags))
    same = quintet(*tiny(folder / "run", 20, *flags, "--strict_data"))
    assert "have changed" not in same.err, same
    file.write_text(file.read_text().replace("number 7\t", "nombre 7\t"))
    strict = quintet(*tiny(folder / "run", 30, *flags, "--strict_data"), expect=3)
    assert "pairs.tsv" in strict.err and "have changed since" in strict.err, strict
    assert steps_of(folder / "run")[-1] == 20
    mpirun(2, *tiny(folder / "run", 30, *flags, "--strict_data", "--data_service_ranks=1"), expect=3)
    warned = quintet(*tiny(folder / "run", 30, *flags))
    assert "warning" in warned.err and "have changed since" in warned.err, warned
    file.write_text(file.read_text() + "more\t1\n")
    assert "holds 201 examples now, 200 when" in quintet(*tiny(folder / "run", 40, *flags), expect=3).err


def position(model_dir, step):
    """The data position in a checkpoint."""
    for file in sorted((model_dir / f"checkpoint_{step}").glob("*.json")):
        found = json.loads(file.read_text())
        for state in (found, found.get("state", {})):
            if isinstance(state, dict) and "data_position" in state:
                return json.loads(state["data_position"])
    raise AssertionError("no data position")


def test_bad_batches_are_left_out_and_a_run_can_begin_later(folder):
    cache = folder / "cache"
    os.environ["XDG_CACHE_HOME"] = str(cache)
    skip = ["--gin.train/utils.DatasetConfig.skip_batches='3-5,8'"]
    quintet(*tiny(folder / "skipping", 10, *skip))
    assert position(folder / "skipping", 10)["batches"] == 14
    mpirun(3, *tiny(folder / "served", 10, *skip, "--data_service_ranks=2"))
    assert_same_run(folder / "served", folder / "skipping", 10)
    late = ["--gin.train/utils.DatasetConfig.start_batch=300"]
    quintet(*tiny(folder / "late", 10, *late))
    assert position(folder / "late", 10)["batches"] == 310
    assert len(json.dumps(position(folder / "late", 10))) < 1024
    assert list((cache / "quintet").glob("batches_*.jsonl"))
    mpirun(2, *tiny(folder / "served_late", 10, *late, "--data_service_ranks=1"))
    assert_same_run(folder / "served_late", folder / "late", 10)


e2e.run(globals())
