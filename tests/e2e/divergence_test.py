"""A run whose numbers blow up: it ends in exit 7 or 75, and its last good checkpoint is there and good."""

import json
import pathlib
import re
import signal
import struct
import subprocess

import e2e
from device_test import SHORT, need_emulator
from e2e import QUINTET, quintet, steps_of, tensor_checksums, tiny
from mpi_train_test import ENVIRONMENT, MESHES, mpirun, with_fault

KEEP_ONE = "--gin.utils.SaveCheckpointConfig.keep=1"
RATE = "--gin.optimizers.adamw.learning_rate="
STEEP = [RATE + "0.001", "--gin.models.EncoderDecoderModel.z_loss=1e30"]  # finite gradients whose squares are not


CRC_TABLE = []
for entry in range(256):
    for _ in range(8):
        entry = entry >> 1 ^ (0x82f63b78 if entry & 1 else 0)
    CRC_TABLE.append(entry)


def every(steps):
    return f"--gin.utils.SaveCheckpointConfig.period={steps}"


def diverges(run, steps, *more, code=7, start=None):
    """The run goes on from step 20, its only checkpoint, and ends with nothing saved and nothing lost."""
    before = tensor_checksums(run, 20)
    result = (start or quintet)(*tiny(run, steps, KEEP_ONE, *more), expect=code)
    assert steps_of(run) == [20] and tensor_checksums(run, 20) == before, (steps_of(run), result)
    assert str(run / "checkpoint_20") in result.err, result
    return result


def test_a_diverging_run_keeps_its_last_good_checkpoint(folder):
    run = folder / "run"
    quintet(*tiny(run, 20, KEEP_ONE, RATE + "0.001"))
    # Parameters become infinite; or so large that no step after is finite.
    result = diverges(run, 60, every(1), RATE + "1e39")
    assert "after the update of step 20" in result.err and "holds values that are not finite" in result.err, result
    report = json.loads(pathlib.Path(re.search(r"batches: (\S+)", result.err)[1]).read_text())
    assert [step["step"] for step in report["steps"]][-1] == 20, report
    diverges(run, 60, every(500), RATE + "1e39")
    result = diverges(run, 60, every(1), RATE + "1e30")
    assert "10 updates in a row" in result.err and "no checkpoint is saved" in result.err, result
    # The state of the optimizer overflows, the parameters do not.
    for period in (1, 500):
        result = diverges(run, 60, every(period), *STEEP)
        assert "after the update of step 20" in result.err and "10 updates" not in result.err, result
    # The run's end comes before it is known.
    for steps in (21, 25):
        assert "at its end" in diverges(run, steps, RATE + "1e30").err
        diverges(run, steps, RATE + "1e39")
    quintet(*tiny(run, 30, KEEP_ONE, RATE + "0.001"))
    assert steps_of(run) == [30]
    assert "every number" in quintet("inspect", run / "checkpoint_30").out


def test_terminate_on_nan_sees_skipped_updates_and_may_save(folder):
    """T5X's saves and ends with exit 0; ours ends with exit 7 unless it is told otherwise."""
    actions = folder / "actions.gin"
    actions.write_text("from __gin__ import dynamic_registration\nimport __main__ as script\nfrom t5x import trainer\n"
                       "script.train.actions = {'TRAIN': [@trainer.TerminateOnNanAction()]}\n"
                       "trainer.TerminateOnNanAction.task = 'train'\n")
    watched = [f"--gin_file={actions}", RATE + "1e30", "--gin.train_script.train.stats_period=2"]
    failed = quintet(*tiny(folder / "fails", 60, *watched), expect=7)
    assert "step 2: train/loss is nan" in failed.err and steps_of(folder / "fails") == [0], failed
    saved = quintet(*tiny(folder / "saves", 60, *watched, "--gin.trainer.TerminateOnNanAction.fail=False"))
    assert "train/loss is nan; stopping early" in saved.err and steps_of(folder / "saves") == [0, 2], saved
    assert "every number" in quintet("inspect", folder / "saves/checkpoint_2").out
    infinite = [*watched, "--gin.models.EncoderDecoderModel.z_loss=1e39", "--gin.trainer.TerminateOnNanAction.metric='z_loss'"]
    assert "train/z_loss is inf" in quintet(*tiny(folder / "infinite", 60, *infinite), expect=7).err
    # The state itself is not finite: never saved.
    ruined = [f"--gin_file={actions}", RATE + "0.001", "--gin.models.EncoderDecoderModel.z_loss=1e38",
              "--gin.train_script.train.stats_period=1", "--gin.trainer.TerminateOnNanAction.fail=False"]
    ended = quintet(*tiny(folder / "ruined", 60, *ruined), expect=7)
    assert "stopping early" in ended.err and "hold values that are not finite" in ended.err, ended
    assert steps_of(folder / "ruined") == [0]


def test_a_run_stopped_while_updates_are_skipped_saves_nothing(folder):
    run = folder / "run"
    quintet(*tiny(run, 20, KEEP_ONE, RATE + "0.001"))
    before = tensor_checksums(run, 20)
    # Each step writes metrics, slowly.
    arguments = tiny(run, 60, KEEP_ONE, RATE + "1e30", "--gin.EVAL_PERIOD=1", every(500))
    process = subprocess.Popen([*with_fault("write:1+=SLEEP200", run), QUINTET, *map(str, arguments)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "was skipped (1 in a row" in line and "warning" in line:
            process.send_signal(signal.SIGTERM)
    assert process.wait() == 75, "".join(lines)
    assert re.search(rf"not saved at step 2\d, as the last update was skipped .*{run}/checkpoint_20; .* from step 20 of 60",
                     lines[-1]), "".join(lines)
    assert steps_of(run) == [20] and tensor_checksums(run, 20) == before
    quintet(*tiny(run, 30, KEEP_ONE, RATE + "0.001"))


def test_ranks_agree_that_a_run_diverges(folder):
    """Each holds a half of the state: no two see the same numbers."""
    run = folder / "run"
    mpirun(2, *tiny(run, 20, KEEP_ONE, RATE + "0.001", *MESHES["zero"]))
    for period in (1, 500):
        diverges(run, 60, every(period), RATE + "1e39", *MESHES["zero"],
                 start=lambda *arguments, expect: mpirun(2, *arguments, expect=expect))


def test_a_gpu_that_diverges_keeps_its_last_good_checkpoint(folder):
    need_emulator()
    run = folder / "run"
    device = ["--device=emulated", *SHORT]
    quintet(*tiny(run, 20, KEEP_ONE, RATE + "0.001", *device))
    for period in (1, 500):
        result = diverges(run, 60, every(period), RATE + "1e39", *device)
        assert "after the update of step 20" in result.err, result
    diverges(run, 60, every(500), *STEEP, *device)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xff] ^ crc >> 8
    return crc ^ 0xffffffff


def ruin(checkpoint):
    """Writes an infinity over a parameter, checksums included: a checkpoint as runs left it once."""
    file = checkpoint / "MANIFEST.json"
    manifest = json.loads(file.read_text())
    name = "target/decoder/logits_dense/kernel"
    part = manifest["tensors"][name]["slices"][0]
    data = bytearray((checkpoint / part["file"]).read_bytes())
    start = part["extents"][0][0]
    data[start:start + 4] = struct.pack("<f", float("inf"))
    (checkpoint / part["file"]).write_bytes(data)
    text = file.read_text()
    values = b"".join(data[begin:begin + size] for begin, size in part["extents"])
    text = text.replace(part["crc32c"], f"{crc32c(values):08x}")
    whole = next(item for item in manifest["files"] if item["name"] == part["file"])
    text = text.replace(whole["crc32c"], f"{crc32c(data):08x}")
    body = text[:text.rindex(',\n"crc32c":"')]
    file.write_text(f'{body},\n"crc32c":"{crc32c(body.encode()):08x}"}}\n')
    return name


def test_checkpoints_that_are_not_finite_are_named_and_not_trained_on(folder):
    run = folder / "run"
    quintet(*tiny(run, 20, RATE + "0.001"))
    name = ruin(run / "checkpoint_20")
    for where in (run, run / "checkpoint_20"):
        assert f"{name} (1 value) holds values that are not finite" in quintet("inspect", where).out
    counts = json.loads(quintet("inspect", run / "checkpoint_20", "--format=json").out)["not_finite"]
    assert counts == {name: 1}, counts
    assert "not looked at" in quintet("inspect", run / "checkpoint_20", "--no-verify").out
    other = quintet(*tiny(folder / "other", 40, RATE + "0.001", f"--gin.utils.RestoreCheckpointConfig.path='{run}/checkpoint_20'",
                          "--gin.utils.RestoreCheckpointConfig.mode='specific'",
                          "--gin.utils.CheckpointConfig.restore=@utils.RestoreCheckpointConfig()"), expect=3)
    assert name in other.err and "not finite" in other.err, other
    result = quintet(*tiny(run, 30, RATE + "0.001"))
    assert "going back to step 10" in result.err and name in result.err, result
    assert steps_of(run) == [0, 10, 20, 30] and (run / "damaged-checkpoint_20").is_dir()


e2e.run(globals())
