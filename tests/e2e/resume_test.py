"""Stopping and going on: signals, the STOP file, kill -9. A run that was stopped and started again ends in the same
bits and the same metrics as one that was not."""

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


def stops_saved(process, model_dir, last, *numbers):
    """Those signals in a row end a running process with a save; what it says names one of them."""
    until_step(process, model_dir)
    process.send_signal(numbers[0])
    e2e.wait_for(lambda: b"stopping" in process.stderr.readline())  # of two that are pending the higher one's handler runs first
    for number in numbers[1:]:
        process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 75, f"exit {process.returncode}: {err.decode()[-2000:]}"
    assert any(f"stopped by {signal.Signals(number).name}".encode() in err for number in numbers), err[-2000:]
    found = steps_of(model_dir)[-1]
    assert last <= found < 100000, found
    return found


def test_a_lost_terminal_and_a_limit_of_time_save(folder):
    """Both come in numbers: a shell and its terminal send SIGHUP, systemd SIGTERM with it, the system SIGXCPU every second."""
    last = -1
    for numbers in ((signal.SIGHUP, signal.SIGXCPU, signal.SIGXCPU), (signal.SIGXCPU, signal.SIGXCPU),
                    (signal.SIGHUP, signal.SIGTERM)):
        process = start(*tiny(folder / "run", 100000, "--gin.utils.SaveCheckpointConfig.period=100000",
                              "--gin.BATCH_SIZE=256"))  # a step is long enough for a second signal
        e2e.wait_for(lambda: b"step" in process.stderr.readline())
        last = stops_saved(process, folder / "run", last, *numbers)


def test_nohup_is_respected(folder):
    process = start(*tiny(folder / "run", 100000), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    until_step(process, folder / "run")
    process.send_signal(signal.SIGHUP)
    hung_up = steps_of(folder / "run")[-1]
    # A run that obeyed would save once more at most.
    seen = set()
    wait_for(lambda: seen.update(s for s in steps_of(folder / "run") if s > hung_up) or len(seen) > 2 or process.poll() is not None)
    assert process.poll() is None, "SIGHUP ended a run under nohup"
    stops_saved(process, folder / "run", 0, signal.SIGTERM)


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
