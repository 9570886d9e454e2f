"""What can happen to a job under mpirun: programs that differ, signals to mpirun itself, a rank killed at every file operation
of a save, a rank that is slower than the others."""

import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import threading
import time

import e2e
from e2e import QUINTET, steps_of, tiny, wait_for
from mpi_train_test import assert_close_runs, ENVIRONMENT, MESHES, MPIRUN, command, finished, mpirun, processes_of, start, with_fault


def on_two_ranks(first, second, timeout=120):
    """Two command lines as ranks of one job."""
    done = subprocess.run([*MPIRUN, "-n", "1", *first, ":", "-n", "1", *second], capture_output=True, env=ENVIRONMENT,
                          timeout=timeout)
    return e2e.Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def test_builds_that_differ_are_refused(folder):
    other = folder / "quintet"
    shutil.copy(QUINTET, other)
    with open(other, "ab") as program:
        program.write(b"\n")  # runs as before, has another checksum
    arguments = [str(a) for a in tiny(folder / "run", 20)]
    result = on_two_ranks([QUINTET, *arguments], [str(other), *arguments])
    assert result.code == 2 and "different build" in result.err, result
    assert result.err.count("checksum") in (2, 4) and "rank 0 on" in result.err and "rank 1 on" in result.err, result
    assert not steps_of(folder / "run")


def test_sigterm_to_mpirun_leaves_no_process_and_a_whole_checkpoint(folder):
    """mpirun kills its ranks soon after it was asked to end: what was saved is there, and the same command goes on from it."""
    arguments = ["--gin.EVAL_PERIOD=500", "--gin.utils.SaveCheckpointConfig.period=5", *MESHES["zero"]]
    mpirun(2, *tiny(folder / "whole", 200, *arguments))
    process = start(2, *tiny(folder / "run", 200, *arguments))
    wait_for(lambda: 5 in steps_of(folder / "run") or process.poll() is not None, 60)
    process.send_signal(signal.SIGTERM)
    result = finished(process)
    assert result.code != 0, result
    wait_for(lambda: not processes_of(folder / "run"), 20)
    assert steps_of(folder / "run")[-1] in range(5, 200)
    mpirun(2, *tiny(folder / "run", 200, *arguments))
    e2e.assert_same_run(folder / "whole", folder / "run", 200)


def ended_while_a_save_takes_long(model_dir, *flags):
    """An mpirun that was sent SIGTERM; a save of its ranks takes several seconds."""
    periods = ["--gin.EVAL_PERIOD=200000", "--gin.utils.SaveCheckpointConfig.period=200000"]
    run = [*with_fault("fsync:1+=SLEEP700", model_dir), QUINTET, *map(str, tiny(model_dir, 100000, *periods, *MESHES["zero"]))]
    process = subprocess.Popen([*MPIRUN, *flags, "-n", "2", *run], stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT,
                               stdin=subprocess.DEVNULL)
    wait_for(lambda: steps_of(model_dir) or process.poll() is not None, 60)
    process.send_signal(signal.SIGTERM)
    return process


def test_sigterm_to_a_plain_mpirun_waits_for_a_save_that_takes_long(folder):
    """mpirun would kill its ranks a second after its signal: it stands still until all have saved, and then leaves no process."""
    process = ended_while_a_save_takes_long(folder / "run")
    began = time.time()
    result = finished(process)
    seconds = time.time() - began
    wait_for(lambda: not processes_of(folder / "run"), 20)
    assert len(steps_of(folder / "run")) == 2 and seconds > 3, (steps_of(folder / "run"), seconds, result)
    assert "stopped by SIGTERM and saved" in result.err, result


def test_a_time_that_open_mpi_5_does_not_know_stops_no_save(folder):
    """Its mpirun kills its ranks 0.2 s after its signal, whatever it is told; it names itself to them."""
    process = ended_while_a_save_takes_long(folder / "run", "-x", "OMPI_VERSION=5.0.11", "--mca", "odls_base_sigkill_timeout", "1")
    finished(process)
    assert len(steps_of(folder / "run")) == 2, steps_of(folder / "run")


def test_an_mpirun_that_stands_still_goes_on_when_its_ranks_die(folder):
    process = ended_while_a_save_takes_long(folder / "run")
    status = pathlib.Path(f"/proc/{process.pid}/status")
    wait_for(lambda: "State:\tT" in status.read_text())
    for rank in processes_of(folder / "run"):
        os.kill(rank, signal.SIGKILL)
    try:
        assert finished(process, 20).code != 0
    finally:
        process.kill()


def operations_of(log):
    return len(log.read_text().splitlines())


def state_of(folder):
    """What a run that starts on a folder finds there: names, without process ids and times, and sizes."""
    return frozenset((re.sub(r"-[0-9]+(-[0-9]+)?$|tfevents.*", "", str(path.relative_to(folder))), path.stat().st_size)
                     for path in folder.rglob("*") if path.is_file())


def test_a_rank_killed_at_any_file_operation_of_a_save_loses_nothing(folder):
    """Two ranks write a checkpoint; either is killed at an operation, of all of which $QUINTET_KILLS are tried ("all": every one,
    "third": every third). The run goes on from each different state of the folder that a kill leaves."""
    save = ["--gin.utils.SaveCheckpointConfig.period=10", "--gin.EVAL_PERIOD=500", *MESHES["zero"]]
    run = [QUINTET, *map(str, tiny(folder / "run", 20, *save))]
    whole = [QUINTET, *map(str, tiny(folder / "whole", 20, *save))]
    on_two_ranks(whole, whole)
    result = on_two_ranks(run, run)
    assert result.code == 0, result
    shutil.rmtree(folder / "run" / "checkpoint_20")
    shutil.copytree(folder / "run", folder / "half")  # the next run saves step 20

    def faulty(rank, fault, log=None):
        bad = [*with_fault(fault, folder / "run", *([f"QT_FAULT_LOG={log}"] if log else [])), *run]
        shutil.rmtree(folder / "run")
        shutil.copytree(folder / "half", folder / "run")
        return on_two_ranks(bad if rank == 0 else run, run if rank == 0 else bad)

    places = []
    for rank in (0, 1):
        log = folder / f"rank_{rank}.log"
        assert faulty(rank, "any:999999999=EIO", log).code == 0
        count = operations_of(log)
        assert count > 5, f"the shim sees {count} operations of rank {rank}"
        places += [(rank, n) for n in range(1, count + 1)]
    kills = os.environ.get("QUINTET_KILLS", "8")
    if kills == "third":
        places = places[::3]
    elif kills != "all":
        places = random.Random(7).sample(places, min(int(kills), len(places)))
    seen = set()
    for rank, n in places:
        result = faulty(rank, f"any:{n}=KILL")
        wait_for(lambda: not processes_of(folder / "run"), 20)
        assert result.code != 0, (rank, n, result)
        steps = steps_of(folder / "run")
        assert steps and steps[-1] in (10, 20), (rank, n, steps)
        state = state_of(folder / "run")
        if state in seen:
            continue
        seen.add(state)
        assert e2e.quintet("inspect", folder / "run" / f"checkpoint_{steps[-1]}").code == 0
        again = on_two_ranks(run, run)
        assert again.code == 0, (rank, n, again)
        e2e.assert_same_run(folder / "whole", folder / "run", 20)
    print(f"{len(places)} kills left {len(seen)} different states of the folder, from all of which the run went on")


def test_a_rank_that_is_slower_than_the_others_is_named(folder):
    log = folder / "log"
    with open(log, "w") as stderr:
        process = subprocess.Popen(command(2, *tiny(folder / "run", 3000, "--gin.EVAL_PERIOD=5000")), stderr=stderr,
                                   env=ENVIRONMENT, stdin=subprocess.DEVNULL)
    wait_for(lambda: steps_of(folder / "run") or process.poll() is not None, 60)
    slow = processes_of(folder / "run")[1]  # of one mpirun: the second process is rank 1
    done = threading.Event()

    def hold_back():
        while not done.is_set():
            os.kill(slow, signal.SIGSTOP)
            time.sleep(0.1)  # delay: it is held back
            os.kill(slow, signal.SIGCONT)
            time.sleep(0.02)  # delay: and runs

    thread = threading.Thread(target=hold_back)
    thread.start()
    try:
        wait_for(lambda: re.search(r"warning: rank 1 on \S+ \(.*slower than the others", log.read_text()), 200)
    finally:
        done.set()
        thread.join()
        os.kill(slow, signal.SIGUSR1)
    assert process.wait(60) == 75, log.read_text()  # it was no reason to end


def test_a_rank_that_never_starts_ends_the_job(folder):
    result = on_two_ranks([QUINTET, *map(str, tiny(folder / "run", 20)), "--init_timeout=4"], ["sleep", "100"])
    assert result.code == 4 and "not all ranks came to the start in time" in result.err and "--init_timeout" in result.err, result


def test_ranks_whose_processors_compute_differently_are_refused(folder):
    run = [QUINTET, *map(str, tiny(folder / "run", 20))]
    result = on_two_ranks(run, ["env", "ONEDNN_MAX_CPU_ISA=SSE41", *run])
    assert result.code == 4 and "different machine" in result.err and "drift apart" in result.err, result
    shown = re.findall(r"rank ([01]) on \S+: CPU with (\S+), oneDNN \S+ with its instruction set (\S+); Open MPI v\S+", result.err)
    assert {(rank, dnnl) for rank, _, dnnl in shown} >= {("1", "0x1")} and len({rank for rank, _, _ in shown}) == 2, result
    assert len({dnnl for _, _, dnnl in shown}) == 2 and not steps_of(folder / "run"), result


def begun_on_two_ranks(folder):
    """A run of 20 steps, a copy of it after 10, and the command that goes on from there."""
    arguments = ["--gin.EVAL_PERIOD=500", "--gin.utils.SaveCheckpointConfig.period=5", *MESHES["zero"]]
    arguments.append("--gin.utils.SaveCheckpointConfig.keep=None")
    mpirun(2, *tiny(folder / "whole", 20, *arguments))
    shutil.copytree(folder / "whole", folder / "run")
    for path in (folder / "run").glob("checkpoint_*"):
        if int(path.name.split("_")[1]) > 10:
            shutil.rmtree(path)
    return [QUINTET, *map(str, tiny(folder / "run", 20, *arguments))]


def test_saves_that_fail_or_are_slow_on_another_rank(folder):
    """C10 and C11 of a rank that does not lead: one save that fails costs that save, all of them end the run with 5, a slow
    disk costs time; what there is goes on to the same end."""
    run = begun_on_two_ranks(folder)

    def with_rank_1(fault):
        return on_two_ranks(run, [*with_fault(fault, folder / "run"), *run])

    result = with_rank_1("fsync:3+=EIO")  # after those of the probe at the start
    assert result.code == 5 and "could not save" in result.err and steps_of(folder / "run")[-1] == 10, result
    result = with_rank_1("fsync:1+=SLEEP200")
    assert result.code == 0, result
    e2e.assert_same_run(folder / "whole", folder / "run", 20)


def test_a_folder_that_another_rank_cannot_write_to_is_reported_at_the_start(folder):
    for fault in ("open:1+=EROFS", "open:1+=EACCES", "rename:1+=EIO"):
        run = [QUINTET, *map(str, tiny(folder / "run", 20))]
        result = on_two_ranks(run, [*with_fault(fault, folder / "run"), *run])
        assert result.code == 5 and "rank 1 on" in result.err and str(folder / "run") in result.err, result
        assert not steps_of(folder / "run"), result


def test_sigterm_under_the_launcher_saves(folder):
    """With --grace ranks have those seconds."""
    arguments = ["--gin.EVAL_PERIOD=500", "--gin.utils.SaveCheckpointConfig.period=5000", *MESHES["zero"]]
    process = subprocess.Popen([e2e.ROOT / "scripts" / "launch", "-n", "2", "--grace", "8", *map(str, tiny(folder / "run", 20000, *arguments))],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(ENVIRONMENT, QUINTET=QUINTET))
    wait_for(lambda: steps_of(folder / "run") or process.poll() is not None, 60)
    process.send_signal(signal.SIGTERM)
    result = finished(process)
    assert "stopped by SIGTERM and saved" in result.err and steps_of(folder / "run")[-1] > 0, result
    wait_for(lambda: not processes_of(folder / "run"), 20)


def test_checkpoints_of_any_number_of_ranks_go_on_on_any_other(folder):
    """C8 under mpirun: what 1, 2 and 4 ranks saved is taken over by 1, 2 and 4, which go on alike."""
    arguments = ["--gin.EVAL_PERIOD=500", *MESHES["zero"]]

    for ranks in (1, 2, 4):
        e2e.quintet(*tiny(folder / f"{ranks}", 4, *arguments)) if ranks == 1 else mpirun(ranks, *tiny(folder / f"{ranks}", 4, *arguments))
        for others in (1, 2, 4):
            if others == ranks:
                continue
            run = folder / f"{ranks}_{others}"
            shutil.copytree(folder / f"{ranks}", run)
            flags = tiny(run, 8, *arguments)
            e2e.quintet(*flags) if others == 1 else mpirun(others, *flags)
            assert steps_of(run)[-1] == 8, run
    for run in folder.glob("*_*"):
        assert_close_runs(folder / "1_2", run)


def test_replicas_that_agree_train_on_and_one_wrong_bit_ends_the_run(folder):
    """Rank 1 takes over a number whose last bit is wrong: checksums are taken by file, rank 0 has checked this one."""
    run = folder / "run"
    arguments = ["--check_replicas=1", "--gin.EVAL_PERIOD=500"]
    mpirun(2, *tiny(run, 6, *arguments))
    log = folder / "reads"
    goes_on = [QUINTET, *map(str, tiny(run, 6, *arguments))]
    done = on_two_ranks(goes_on, [*with_fault("read:999999=EIO", run, f"QT_FAULT_LOG={log}"), *goes_on])
    assert done.code == 0, done  # nothing is left to do: its last read is of the last tensor
    last = sum(" read " in line for line in log.read_text().splitlines())
    goes_on = [QUINTET, *map(str, tiny(run, 8, *arguments))]
    result = on_two_ranks(goes_on, [*with_fault(f"read:{last}=FLIP", run), *goes_on])
    assert result.code == 6 and "hold copies that differ" in result.err, result
    assert "rank 0 on" in result.err and "rank 1 on" in result.err and steps_of(run)[-1] == 6, result


if __name__ == "__main__":
    e2e.run(globals())
