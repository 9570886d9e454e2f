"""Training under mpirun: the same run as one process makes, stopped by all ranks at the same step, ended by none of
them alone, refused where ranks were started differently."""

import json
import os
import pathlib
import signal
import subprocess
import time

import e2e
from e2e import QUINTET, TINY, steps_of, tiny, wait_for

MPIRUN = ["mpirun", "--oversubscribe", "--allow-run-as-root"]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")


def command(ranks, *arguments):
    return [*MPIRUN, "-n", str(ranks), QUINTET, *map(str, arguments)]


def start(ranks, *arguments):
    return subprocess.Popen(command(ranks, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=ENVIRONMENT, stdin=subprocess.DEVNULL)


def finished(process, seconds=240):
    out, err = process.communicate(timeout=seconds)
    return e2e.Result(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def mpirun(ranks, *arguments, expect=0):
    result = finished(start(ranks, *arguments))
    assert result.code == expect, f"expected exit {expect}: {result}"
    return result


def processes_of(model_dir):
    """The training processes of a model directory, by id."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == QUINTET.encode() and f"--model_dir={model_dir}".encode() in words:
                found.append(int(entry.name))
    return sorted(found)


def losses(model_dir):
    records = [json.loads(line) for line in (pathlib.Path(model_dir) / "metrics.jsonl").read_text().splitlines()]
    return [(r["step"], r["loss"]) for r in records if r["run"] == "train"]


def assert_close_runs(one, other, tolerance=1e-4):
    a, b = losses(one), losses(other)
    assert a and [step for step, _ in a] == [step for step, _ in b], (a, b)
    for (step, x), (_, y) in zip(a, b):
        assert abs(x - y) <= tolerance * abs(x), f"step {step}: loss {x} and {y}"


def test_two_ranks_train_as_one(folder):
    e2e.quintet(*tiny(folder / "one", 20))
    mpirun(2, *tiny(folder / "two", 20))
    assert_close_runs(folder / "one", folder / "two")


def test_ranks_started_differently_are_refused(folder):
    begin = time.time()
    same = tiny(folder / "run", 20)
    result = subprocess.run([*command(1, *same), ":", "-n", "1", QUINTET, *map(str, same), "--gin.BATCH_SIZE=8"],
                            capture_output=True, env=ENVIRONMENT, timeout=120)
    text = result.stderr.decode()
    assert result.returncode == 2, f"{result.returncode}: {text}"
    assert "rank 0 on" in text and "rank 1 on" in text and "--gin.BATCH_SIZE=8" in text, text
    assert time.time() - begin < 10


def test_a_changed_gin_file_on_one_rank_is_refused(folder):
    first, second = folder / "first", folder / "second"
    for place, batch in ((first, 4), (second, 8)):
        place.mkdir()
        (place / "run.gin").write_text(f"include 'quintet/quickstart.gin'\nBATCH_SIZE = {batch}\n")
    arguments = [QUINTET, *map(str, tiny(folder / "run", 20, "--gin_file=run.gin")) ]
    arguments = [a for a in arguments if not a.startswith("--gin.BATCH_SIZE")]
    result = subprocess.run([*MPIRUN, "-n", "1", "--wdir", first, *arguments, ":", "-n", "1", "--wdir", second, *arguments],
                            capture_output=True, env=ENVIRONMENT, timeout=120)
    text = result.stderr.decode()
    assert result.returncode == 2, f"{result.returncode}: {text}"
    assert "different configuration" in text and "= 4" in text and "= 8" in text, text


def test_a_signal_to_one_rank_stops_all_at_the_same_step(folder):
    process = start(2, *tiny(folder / "run", 2000, "--gin.EVAL_PERIOD=500"))
    wait_for(lambda: steps_of(folder / "run") or process.poll() is not None, 60)
    time.sleep(0.5)
    os.kill(processes_of(folder / "run")[-1], signal.SIGUSR1)
    result = finished(process)
    assert result.code == 75, result
    assert "goes on from step" in result.err, result
    assert not processes_of(folder / "run")


def test_a_killed_rank_ends_the_job_and_the_run_goes_on(folder):
    e2e.quintet(*tiny(folder / "one", 40, "--gin.EVAL_PERIOD=20"))
    process = start(2, *tiny(folder / "two", 40, "--gin.EVAL_PERIOD=20", "--gin.BATCH_SIZE=4"))
    wait_for(lambda: 20 in steps_of(folder / "two") or process.poll() is not None, 60)
    victims = processes_of(folder / "two")
    if victims:
        os.kill(victims[0], signal.SIGKILL)
        result = finished(process)
        if result.code != 0:  # it was not over yet
            assert "has died" in result.err, result
    wait_for(lambda: not processes_of(folder / "two"), 10)
    mpirun(2, *tiny(folder / "two", 40, "--gin.EVAL_PERIOD=20", "--gin.BATCH_SIZE=4"))
    assert_close_runs(folder / "one", folder / "two")


if __name__ == "__main__":
    e2e.run(globals())
