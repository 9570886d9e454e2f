"""Limits of memory (ulimit -v), of threads (ulimit -u): what cannot be had is exit 4 or 5 and a sentence at every place,
no signal and no hang. As another user, because root has no limit of threads.

QUINTET_LIMITS=all tries every limit from 100 to 400 MiB in steps of 5, and every verb."""

import os
import re
import resource
import shutil
import subprocess

import e2e
from e2e import QUINTET, quintet, tiny

ALL = os.environ.get("QUINTET_LIMITS") == "all"
MIB = 1 << 20
USER = 40000 + os.getpid() % 20000  # nobody else's, so that nobody else's threads count
SKIPPED = "" if os.getuid() == 0 else "needs root, to become another user"
if os.environ.get("QUINTET_SANITIZE"):
    SKIPPED = "an instrumented program needs terabytes of addresses"


def outcome(folder, arguments, memory=None, data=None, threads=None, environment=None, timeout=60):
    """(exit code, stderr) of the program as another user within limits: MiB of addresses, of data, and threads."""

    def limited():
        os.setgroups([])
        os.setgid(USER)
        if threads is not None:
            resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads))
        os.setuid(USER)
        for name, value in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_DATA, data)):
            if value is not None:
                resource.setrlimit(name, (int(value * MIB),) * 2)

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "HOME": str(folder),
                   **(environment or {})}
    try:
        done = subprocess.run([QUINTET, *map(str, arguments)], preexec_fn=limited, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, cwd=folder, env=environment)
    except subprocess.TimeoutExpired as expired:
        raise AssertionError(f"hangs: {arguments}: {(expired.stderr or b'').decode()[-1500:]}") from None
    return done.returncode, done.stderr.decode(errors="replace")


def need_another_user():
    if SKIPPED:
        e2e.skip(SKIPPED)


def open_to_user(folder):
    """The user may write below it, whoever made what is there."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER)


def is_reported(code, error, where):
    """4 or 5, and a sentence that begins with 'error:'."""
    if code == 127:
        return  # less than the program itself takes: the loader says so before it begins
    assert code in (4, 5), f"{where}: exit {code}: {error[-1500:]}"
    assert any(line.startswith("error: ") and len(line) > 20 for line in error.splitlines()), f"{where}: {error[-1500:]}"


def need_of(error):
    found = re.search(r"training needs up to (\d+) MiB .* the limit \(ulimit -[vd]\) is (\d+) MiB", error)
    return int(found[1]) if found else None


def training(folder, name="run", *more):
    shutil.rmtree(folder / name, ignore_errors=True)
    return tiny(folder / name, 4, "--gin.EVAL_PERIOD=2", "--data_threads=1", *more)


def sweep(folder, limit_of, limits):
    """Below the need that the program computes: exit 4 with it. From it on: the run is done. The need."""
    needs = set()
    for limit in limits:
        code, error = outcome(folder, training(folder), **limit_of(limit))
        need = need_of(error)
        if code == 0:
            continue
        is_reported(code, error, f"limit {limit}")
        assert code in (4, 127), f"limit {limit}: {error}"
        if need is not None:
            needs.add(need)
            assert limit < need, f"limit {limit}: {error}"
        else:  # too little to work it out, or for the program alone
            assert not needs or limit < min(needs), f"limit {limit}: {error}"
    return needs


def memory_is_reported(folder, limit_of, little, all_limits):
    """little: MiB that suffice to work the need out, and for no more."""
    need_another_user()
    open_to_user(folder)
    _, error = outcome(folder, training(folder), **limit_of(little))
    need = need_of(error)
    assert need is not None, error
    needs = sweep(folder, limit_of, all_limits if ALL else (little - 20, little - 10, need - 15, need - 1))
    assert needs and max(needs) - min(needs) <= 1 and abs(need - min(needs)) <= 1, (need, needs)
    for limit in (need, need + 1, need + 40):
        code, error = outcome(folder, training(folder), **limit_of(limit))
        assert code == 0, f"limit {limit}, above the need {need}: exit {code}: {error[-1500:]}"


def test_memory_below_the_need_is_reported_and_above_it_enough(folder):
    memory_is_reported(folder, lambda limit: {"memory": limit}, 150, range(100, 401, 5))


def test_data_below_the_need_is_reported_and_above_it_enough(folder):
    memory_is_reported(folder, lambda limit: {"data": limit}, 50, range(5, 201, 5))


def test_the_need_grows_with_the_model_and_the_batch(folder):
    need_another_user()
    open_to_user(folder)
    needs = []
    for more in ([], ["--gin.BATCH_SIZE=64"], ["--gin.network.T5Config.mlp_dim=65536"]):
        code, error = outcome(folder, training(folder, "run", *more), memory=200)
        assert code == 4 and need_of(error), error
        needs.append(need_of(error))
    assert needs[1] > needs[0] + 10 and needs[2] > needs[0] + 20, needs


def test_no_verb_dies_of_memory(folder):
    """Limits at which a library, a thread or a file meets it: exit 0, or 4 or 5 and a sentence."""
    need_another_user()
    quintet(*tiny(folder / "model", 4))
    (folder / "questions.jsonl").write_text('{"inputs": "words: 1"}\n')
    (folder / "words.tsv").write_text("a\tb\nc\td\n")
    (folder / "task.gin").write_text(e2e.WORDS_TASK.format(folder=folder))
    open_to_user(folder)
    model = f"--model_dir={folder / 'model'}"
    commands = {
        "train": lambda: training(folder),
        "eval": lambda: ["eval", model, "--task=number_to_words", "--num_examples=2"],
        "generate": lambda: ["generate", model, "--max_decode_len=8", "words: 1"],
        "infer": lambda: ["infer", model, f"--input={folder / 'questions.jsonl'}", f"--output_dir={folder / 'out'}"],
        "cache": lambda: ["cache", f"--gin_file={folder / 'task.gin'}", "--tasks=words", f"--output_cache_dir={folder / 'cache'}"],
        "convert": lambda: ["convert", model, "--quantize=int8", f"--output={folder / 'int8'}"],
        "inspect": lambda: ["inspect", folder / "model", "--stats"],
        "serve": lambda: ["serve", model, "--port=0", "--host=203.0.113.1", "--cache_mib=16"],  # not ours: it ends
        "plan": lambda: ["plan", "quintet/quickstart.gin", "--gin.MODEL_DIR='x'", "--batch=2", "--inputs=8", "--targets=4", "--mesh=data=2,model=1"],
    }
    limits = range(100, 401, 5) if ALL else (118, 125, 140, 170)
    chosen = commands if ALL else ("train", "generate", "cache", "convert", "serve")
    for verb in chosen:
        for limit in limits:
            for name in ("out", "cache", "int8"):
                shutil.rmtree(folder / name, ignore_errors=True)
            code, error = outcome(folder, commands[verb](), memory=limit)
            if code != 0 and not (verb == "serve" and "203.0.113.1" in error):
                is_reported(code, error, f"{verb} within {limit} MiB")


def test_a_stack_that_cannot_be_had_is_reported(folder):
    """From the least the loader takes, in steps of 32 KiB, to 3 MiB above it: the main thread's stack is among that."""
    need_another_user()

    def code_within(kib):
        code, error = outcome(folder, ["--version"], memory=kib / 1024)
        if code != 0:
            is_reported(code, error, f"--version within {kib} KiB")
        return code

    refused, loaded = 1024, 1 << 20
    while loaded - refused > 32:
        middle = (refused + loaded) // 2
        refused, loaded = (middle, loaded) if code_within(middle) == 127 else (refused, middle)
    assert 4 in [code_within(kib) for kib in range(loaded, loaded + 3072, 32)]


def test_threads_that_cannot_be_had_are_reported(folder):
    """One process with 1 to 6 threads: what cannot be saved beside training is saved in its turn."""
    need_another_user()
    open_to_user(folder)
    codes, waited = [], False
    for threads in range(1, 7):
        code, error = outcome(folder, training(folder), threads=threads)
        if code != 0:
            is_reported(code, error, f"{threads} threads")
            assert code == 4 and "thread" in error and f"ulimit -u: {threads}," in error, error
        waited |= "to save a checkpoint" in error and "training waits for this save" in error
        if code == 0:
            assert e2e.steps_of(folder / "run")[-1] == 4
        codes.append(code)
    assert waited and codes[0] == 4 and codes[-1] == 0 and codes == sorted(codes, reverse=True), codes


def test_a_team_that_cannot_be_had_is_reported(folder):
    """OpenMP's library would end the process with code 1, at the start and at every later parallel region."""
    need_another_user()
    open_to_user(folder)
    codes = []
    for threads in range(1, 7):
        code, error = outcome(folder, training(folder), threads=threads, environment={"OMP_NUM_THREADS": "2"})
        if code != 0:
            is_reported(code, error, f"a team of 2 among {threads} threads")
        codes.append(code)
    assert codes[-1] == 0, codes
    code, error = outcome(folder, training(folder), threads=7, environment={"OMP_NUM_THREADS": "16"})
    is_reported(code, error, "a team of 16")
    assert code == 4 and "--threads" in error, error


e2e.run(globals())
