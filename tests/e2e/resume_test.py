"""Stopping and going on: signals, the STOP file, kill -9. A run that was stopped and started again ends in the same
bits and the same metrics as one that was not."""

import fcntl
import os
import pathlib
import random
import signal

import e2e
from e2e import assert_same_run, quintet, start, steps_of, tiny, wait_for

STEPS = 40


def until_step(process, model_dir, seconds=120):
    """Waits for the first checkpoint, so that a signal meets a run that trains."""
    wait_for(lambda: steps_of(model_dir) or process.poll() is not None, seconds)


def finish(model_dir, steps=STEPS, more=()):
    quintet(*tiny(model_dir, steps, *more))


def stopped_runs_are_equal(folder, stop):
    """stop(process, model_dir) asks a running process to stop; it must save, exit 75 and be able to go on."""
    # Enough steps that the request comes in the middle, whatever the machine does.
    steps = 400
    more = ["--gin.EVAL_PERIOD=100"]
    process = start(*tiny(folder / "stopped", steps, *more))
    until_step(process, folder / "stopped")
    stop(process, folder / "stopped")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 75, f"exit {process.returncode}: {err.decode()[-2000:]}"
    assert b"saved" in err and b"goes on from step" in err, err[-2000:]
    last = steps_of(folder / "stopped")[-1]
    assert last < steps, "the run ended before it was asked to stop"
    finish(folder / "stopped", steps, more)
    finish(folder / "whole", steps, more)
    assert_same_run(folder / "stopped", folder / "whole", steps)


def test_signals_meet_no_thread_that_computes(folder):
    """oneDNN moves the stack register into the heap; a handler there overwrites what lies below."""
    process = start(*tiny(folder / "run", 100000))
    until_step(process, folder / "run")
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)  # all threads have stopped: none ends while it is looked at
    masks = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        fields = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        masks.setdefault(fields["Name"].strip(), []).append(int(fields["SigBlk"], 16))
    process.kill()
    process.communicate()
    handled = sum(1 << (number - 1) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM))
    assert masks.pop("signals") == [0], masks
    assert masks and all(mask & handled == handled for of_name in masks.values() for mask in of_name), masks


def test_ctrl_c_saves_and_goes_on(folder):
    stopped_runs_are_equal(folder, lambda process, _: process.send_signal(signal.SIGINT))


def test_sigterm_saves_and_goes_on(folder):
    stopped_runs_are_equal(folder, lambda process, _: process.send_signal(signal.SIGTERM))


def test_sigusr1_saves_and_goes_on(folder):
    stopped_runs_are_equal(folder, lambda process, _: process.send_signal(signal.SIGUSR1))


def test_a_stop_file_saves_and_goes_on(folder):
    stopped_runs_are_equal(folder, lambda _, model_dir: (model_dir / "STOP").touch())
    assert not (folder / "stopped" / "STOP").exists()


def test_a_second_signal_quits_at_once(folder):
    process = start(*tiny(folder / "run", 100000))
    until_step(process, folder / "run")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode in (128 + signal.SIGTERM, 128 + signal.SIGINT, 75), process.returncode


def answer(process):
    """What a running process says to a signal: that it is stopping, or that it quits; empty: it has ended."""
    return next((line for line in process.stderr if b"stopping" in line or b"second signal" in line), b"")


def saved_at(process, model_dir, *numbers):
    """The step at which a process that was told to stop by one of those signals has saved."""
    _, err = process.communicate(timeout=120)
    assert process.returncode == 75, f"exit {process.returncode}: {err.decode()[-2000:]}"
    assert any(f"stopped by {signal.Signals(number).name}".encode() in err for number in numbers), err[-2000:]
    return steps_of(model_dir)[-1]


def test_a_lost_terminal_and_a_limit_of_time_save(folder):
    """Both come in numbers: a shell and its terminal send SIGHUP, systemd SIGTERM with it, the system SIGXCPU every second.

    The process cannot save, and so not end, before it has answered all of them: its files wait at a gate."""
    assert e2e.SHIM.exists(), f"{e2e.SHIM} is not built"
    environment = {"LD_PRELOAD": str(e2e.SHIM), "QT_FAULT_DIR": str(folder / "run"), "QT_FAULT": "any:1+=WAIT",
                   "QT_FAULT_GATE": str(folder / "gate"),
                   "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    last = -1
    for first in (signal.SIGHUP, signal.SIGXCPU):
        with (folder / "gate").open("w") as gate:
            process = start(*tiny(folder / "run", 100000, "--gin.utils.SaveCheckpointConfig.period=100000"),
                            environment=environment)
            wait_for(lambda: b"step" in process.stderr.readline())
            until_step(process, folder / "run")
            fcntl.flock(gate, fcntl.LOCK_EX)
            process.send_signal(first)
            assert b"stopping" in answer(process)  # of two that are pending the higher one's handler runs first
            process.send_signal(signal.SIGXCPU)
            process.send_signal(signal.SIGTERM)
            assert b"stopping" in answer(process)
        found = saved_at(process, folder / "run", first, signal.SIGTERM)
        assert last <= found < 100000, found
        last = found


def test_nohup_is_respected(folder):
    process = start(*tiny(folder / "run", 100000), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    until_step(process, folder / "run")
    process.send_signal(signal.SIGHUP)
    hung_up = steps_of(folder / "run")[-1]
    # A run that obeyed would save once more at most.
    seen = set()
    wait_for(lambda: seen.update(s for s in steps_of(folder / "run") if s > hung_up) or len(seen) > 2 or process.poll() is not None)
    assert process.poll() is None, "SIGHUP ended a run under nohup"
    process.send_signal(signal.SIGTERM)
    assert 0 < saved_at(process, folder / "run", signal.SIGTERM) < 100000


def killed_runs(folder, kills, more=()):
    """kill -9 at random moments; the newest checkpoint is never older than before and the end is the same."""
    generator = random.Random(7)
    newest = -1
    for _ in range(kills):
        process = start(*tiny(folder / "killed", STEPS, *more))
        try:
            process.wait(timeout=generator.uniform(0.05, 1.2))
        except e2e.subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        found = steps_of(folder / "killed")
        assert not found or found[-1] >= newest, f"went back from {newest} to {found[-1]}"
        newest = found[-1] if found else newest
    finish(folder / "killed", more=more)
    finish(folder / "whole", more=more)
    assert_same_run(folder / "killed", folder / "whole", STEPS)


def test_killed_runs_end_the_same(folder):
    killed_runs(folder, int(os.environ.get("QUINTET_KILLS", "20")))


ADAFACTOR = """
from __gin__ import dynamic_registration
from t5x import adafactor
OPTIMIZER = @adafactor.Adafactor()
adafactor.Adafactor.logical_factor_rules = @adafactor.standard_logical_factor_rules()
"""


def test_killed_runs_with_microbatches_and_adafactor_end_the_same(folder):
    (folder / "adafactor.gin").write_text(ADAFACTOR)
    killed_runs(folder, 5, ["--gin.trainer.Trainer.num_microbatches=2", f"--gin_file={folder}/adafactor.gin"])
    assert any("/v" in name for name in e2e.tensor_checksums(folder / "killed", STEPS)), "Adafactor was not used"


def test_the_same_command_twice_gives_the_same_run(folder):
    finish(folder / "one")
    finish(folder / "two")
    assert_same_run(folder / "one", folder / "two", STEPS)


def test_a_finished_run_evaluates_only(folder):
    finish(folder / "run")
    before = e2e.tensor_checksums(folder / "run", STEPS)
    records = e2e.metrics(folder / "run")
    finish(folder / "run")
    assert e2e.tensor_checksums(folder / "run", STEPS) == before
    assert e2e.metrics(folder / "run") == records


def test_a_longer_run_goes_on_from_a_shorter_one(folder):
    constant = ["--gin.optimizers.adamw.learning_rate=0.001"]
    finish(folder / "twice", 20, constant)
    finish(folder / "twice", 40, constant)
    finish(folder / "once", 40, constant)
    assert e2e.tensor_checksums(folder / "twice", 40) == e2e.tensor_checksums(folder / "once", 40)


NEVER_BETTER = """
from __gin__ import dynamic_registration
from t5x import trainer
from t5x import train as train_script
trainer.EarlyStoppingAction.metric = ('train', 'loss')
trainer.EarlyStoppingAction.mode = 'min'
trainer.EarlyStoppingAction.atol = 1000.0
trainer.EarlyStoppingAction.patience = 3
train_script.train.actions = {'TRAIN': [@trainer.EarlyStoppingAction()]}
"""


def test_early_stopping_counts_on_after_a_restart(folder):
    # A summary every 5 steps, none better than the one before: the third is that of step 15.
    (folder / "never.gin").write_text(NEVER_BETTER)
    never = [f"--gin_file={folder}/never.gin"]
    finish(folder / "whole", 40, never)
    assert steps_of(folder / "whole")[-1] == 15, steps_of(folder / "whole")
    finish(folder / "stopped", 10, never)
    finish(folder / "stopped", 40, never)
    assert steps_of(folder / "stopped")[-1] == 15, steps_of(folder / "stopped")
    again = quintet(*tiny(folder / "stopped", 40, *never))
    assert "stopping early" in again.err and steps_of(folder / "stopped")[-1] == 15, again


e2e.run(globals())
