"""Results reach stdout and files to the last byte, or the program ends with exit 5 and says where and why; who reads
may leave."""

import os
import pty
import resource
import shutil
import signal
import subprocess

import e2e
from e2e import QUINTET, quintet, tiny, verbs

ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
BYTES = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": ENVIRONMENT, "timeout": 240 * e2e.PATIENCE}


def trained(folder, *more):
    quintet(*tiny(folder / "run", 4, *more))
    return folder / "run"


def commands(folder, run):
    """A command of every verb that prints results, by verb."""
    (folder / "words.tsv").write_text("a\tb\nc\td\n")
    (folder / "task.gin").write_text(e2e.WORDS_TASK.format(folder=folder))
    (folder / "questions").write_text("words: 1\nwords: 2\nwords: 3\n")
    (folder / "lines").write_text("predict words: 1\n")
    generate = ["generate", f"--model_dir={run}", "--max_decode_len=4"]
    size = ["--model=t5_1_1_tiny", "--batch=2", "--inputs=8", "--targets=4"]
    return {
        "train": [[*tiny(folder / "none", 4), "--dry_run"]],
        "eval": [["eval", f"--model_dir={run}", "--task=number_to_words", "--num_examples=2"]],
        "generate": [[*generate, "words: 1"], [*generate, "--format=json", "words: 1"],
                     [*generate, "--num_decodes=2", "--beams=2", "words: 1"], [*generate, f"--input={folder}/questions"],
                     [*generate, f"--input={folder}/questions", "--format=json", "--batch_size=1"]],
        "inspect": [["inspect", run], ["inspect", run, "--format=json"], ["inspect", run / "checkpoint_4", "--stats"],
                    ["inspect", run / "checkpoint_4", "--format=json"]],
        "config": [["config", run / "config.gin"], ["config", run / "config.gin", "--format=json"]],
        "data": [["data", "list"], ["data", "list", "--provenance"], ["data", "show", "number_to_words", "--num=1"],
                 ["data", "lengths", "number_to_words", "--length_example_count=9"]],
        "cache": [["cache", f"--gin_file={folder}/task.gin", "--tasks=words", f"--output_cache_dir={folder}/cache"]],
        "tokenizer": [["tokenizer", "encode", "--model=byte", "--text=abc"], ["tokenizer", "decode", "--model=byte", "--text=100"]],
        "bench": [["bench", "train", *size, "--steps=1"]],
        "plan": [["plan", "quintet/quickstart.gin", "--gin.MODEL_DIR='x'", *size[1:], "--mesh=data=2,model=1"]],
        "precompile": [["precompile", "--gin_file=quintet/quickstart.gin", "--gin_file=t5x/configs/runs/precompile.gin",
                        "--gin.MIXTURE_OR_TASK_NAME='number_to_words'", "--gin.TASK_FEATURE_LENGTHS={'inputs': 8, 'targets': 4}",
                        "--gin.BATCH_SIZE=2", f"--model_dir={folder}/step", "--mesh=data=2,model=1"]],
        "convert": [["convert", f"--model_dir={run}", "--quantize=int8", "--report", "--task=number_to_words", "--num_examples=2"]],
        "finetune": [["finetune", run, f"--train={folder}/words.tsv", f"--validation={folder}/words.tsv", "--input=a", "--target=b",
                      f"--output_dir={folder}/tuned", "--steps=2", "--dry_run"]],
        "interactive": [["interactive", run, f"--commands={folder}/lines"],
                        ["interactive", run, f"--commands={folder}/lines", "--format=json"]],
        "report": [["report", run, f"--output={folder}/report.html"]],
        "man": [["man"], ["man", "train"]], "completion": [["completion", "bash"]],
        "export": [["export", run, f"--output={folder}/none", "--dry_run"]],
        "infer": [], "serve": [],  # results are files, answers
    }


def ends(command, code, *words, stdout=None, **options):
    """Runs with a stdout of its own; the error names it."""
    options = {**BYTES, **options}
    if stdout is None:
        with open("/dev/full", "w") as full:
            done = subprocess.run([QUINTET, *map(str, command)], stdout=full, **options)
    else:
        done = subprocess.run([QUINTET, *map(str, command)], stdout=stdout, **options)
    error = done.stderr.decode(errors="replace")
    assert done.returncode == code, f"{command}: expected exit {code}, found {done.returncode}: {error[-1500:]}"
    for word in words:
        assert word in error, f"{command}: no '{word}' in: {error[-1500:]}"
    return error


def test_every_verb_tells_that_stdout_is_full(folder):
    by_verb = commands(folder, trained(folder))
    assert set(by_verb) == set(verbs()), f"verbs without a command here: {set(verbs()) ^ set(by_verb)}"
    for verb, all_of_verb in by_verb.items():
        for command in [*all_of_verb, [verb, "--help"]]:
            ends(command, 5, "stdout", "No space left on device")
    for command in (["--help"], ["--version"], ["bench", "train", "--help"], ["tokenizer", "encode", "--help"]):
        ends(command, 5, "stdout", "No space left on device")


def test_interactive_answers_that_cannot_be_written_end_it(folder):
    run = trained(folder)
    ours, theirs = pty.openpty()
    os.write(ours, b"words: 1\n")
    ends(["generate", f"--model_dir={run}", "--max_decode_len=4"], 5, "stdout", "No space left on device", stdin=theirs)
    os.close(theirs)
    os.close(ours)


def test_answers_beyond_a_limit_of_the_file_are_missed(folder):
    run = trained(folder)
    (folder / "questions").write_text("".join(f"words: {i}\n" for i in range(64)))
    command = ["generate", f"--model_dir={run}", f"--input={folder}/questions", "--max_decode_len=4", "--format=json"]
    whole = quintet(*command).out
    assert len(whole.splitlines()) == 64
    for limit in (len(whole.encode()) - 1, len(whole.encode()) // 2, 1):
        with open(folder / "answers", "wb") as answers:
            ends(command, 5, "stdout", "File too large", stdout=answers,
                 preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        found = (folder / "answers").read_bytes()
        assert len(found) == limit and whole.encode().startswith(found), (limit, len(found))


def test_an_error_that_only_shows_at_the_end_is_reported(folder):
    assert e2e.SHIM.exists(), f"{e2e.SHIM} is not built"
    faults = dict(ENVIRONMENT, LD_PRELOAD=str(e2e.SHIM), QT_FAULT="close:1=EDQUOT", QT_FAULT_DIR=str(folder),
                  ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0")
    with open(folder / "out", "w") as out:
        ends(["--version"], 5, "stdout", "quota", stdout=out, env=faults)
    assert "quintet" in (folder / "out").read_text()


def test_a_closed_stdout_is_an_error_and_no_file_takes_its_place(folder):
    with_closed = lambda: os.close(1)
    ends(["--version"], 5, "stdout", "Bad file descriptor", stdout=subprocess.DEVNULL, preexec_fn=with_closed)

    def without_any():
        for descriptor in range(3):
            os.close(descriptor)

    options = {**BYTES, "stderr": None}
    done = subprocess.run([QUINTET, *tiny(folder / "run", 4)], preexec_fn=without_any, **options)
    assert done.returncode == 0, done
    quintet("inspect", folder / "run" / "checkpoint_4")
    for path in (folder / "run").rglob("*"):
        assert not path.is_file() or b"teacher-forced" not in path.read_bytes(), f"{path} has got a line of stderr"


def test_a_reader_that_leaves_is_no_error(folder):
    command = [QUINTET, "inspect", str(trained(folder) / "checkpoint_4")]

    def result(**options):
        read, write = os.pipe()
        os.close(read)
        try:
            return subprocess.run(command, stdout=write, **{**BYTES, **options})
        finally:
            os.close(write)

    left = result()
    assert left.returncode == -signal.SIGPIPE and left.stderr == b"", left  # as others: a shell says 141

    def ignore():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    told = result(preexec_fn=ignore, restore_signals=False)
    assert told.returncode == 5 and b"stdout: cannot write: Broken pipe" in told.stderr, told


def test_training_goes_on_without_a_reader_of_stderr(folder):
    """A line for every second step, to a pipe that nobody reads after the first checkpoint; and to a full disk."""
    quiet = tiny(folder / "run", 20, "--gin.EVAL_PERIOD=2", "--gin.train_script.train.stats_period=2")
    process = e2e.start(*quiet)
    e2e.wait_for(lambda: e2e.steps_of(folder / "run") or process.poll() is not None)
    process.stderr.close()
    assert process.wait(timeout=240 * e2e.PATIENCE) == 0, process.returncode
    assert e2e.steps_of(folder / "run")[-1] == 20
    with open("/dev/full", "w") as full:
        done = subprocess.run([QUINTET, *tiny(folder / "full", 4)], stdout=subprocess.DEVNULL, **{**BYTES, "stderr": full})
    assert done.returncode == 0 and e2e.steps_of(folder / "full")[-1] == 4, done


def test_files_that_are_not_written_to_the_end_are_reported(folder):
    """The last write and the last close of each file of summaries."""
    assert e2e.SHIM.exists(), f"{e2e.SHIM} is not built"
    run = folder / "run"
    command = tiny(run, 4, "--gin.EVAL_PERIOD=4")

    def faulty(watched, fault, expect):
        shutil.rmtree(run, ignore_errors=True)
        (folder / "log").unlink(missing_ok=True)
        result = quintet(*command, expect=expect,
                         environment={"LD_PRELOAD": str(e2e.SHIM), "QT_FAULT": fault, "QT_FAULT_DIR": str(watched),
                                      "QT_FAULT_LOG": str(folder / "log"),
                                      "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"})
        return result, [line.split(" ", 2)[1:] for line in (folder / "log").read_text().splitlines()]

    _, operations = faulty(run, "any:999999=EIO", 0)
    for watched in (run / "metrics.jsonl", run / "train", run / "training_eval"):
        for call in ("write", "close"):
            count = sum(name == call and (path == str(watched) or path.startswith(f"{watched}/")) for name, path in operations)
            assert count > 0, f"{watched}: no {call} in {operations}"
            result, _ = faulty(watched, f"{call}:{count}=EIO", 5)
            assert str(watched) in result.err and f"cannot {call}: Input/output error" in result.err, result


e2e.run(globals())
