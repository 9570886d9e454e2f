"""Copies of a run's checkpoints in other programs' formats: what convert writes, kept and removed with ours, never in training's way."""

import json
import shutil

import e2e
from e2e import QUINTET, quintet, steps_of, tiny

FORMATS = ("t5x", "hf")


def saving(**values):
    return [f"--gin.utils.SaveCheckpointConfig.{name}={value!r}" for name, value in values.items()]


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def assert_are_conversions(run, work, steps):
    """Every copy, byte for byte."""
    for step in steps:
        for to in FORMATS:
            converted = work / f"{to}-{step}"
            quintet("convert", run / f"checkpoint_{step}", converted, f"--to={to}")
            beside = files_of(run / to / f"checkpoint_{step}")
            assert beside == files_of(converted / f"checkpoint_{step}" if to == "t5x" else converted), (to, step)
            shutil.rmtree(converted)


def test_copies_are_what_convert_writes_and_go_with_ours(folder):
    run = folder / "run"
    done = quintet(*tiny(run, 4, *saving(copies=FORMATS, period=2, keep=2)))
    assert "warning" not in done.err, done
    for to in FORMATS:
        assert steps_of(run / to) == [2, 4], (to, steps_of(run / to))
    assert_are_conversions(run, folder, (2, 4))
    assert (run / "t5x" / "config.gin").read_text() == (run / "config.gin").read_text()
    assert b"param_states" in (run / "t5x/checkpoint_4/checkpoint").read_bytes()
    answers = [quintet("generate", f"--model_dir={model}", "--ids", "--max_tokens=4", "12 7 1").out for model in (run, run / "t5x", run / "hf/checkpoint_4")]
    assert answers[0] and answers == answers[:1] * 3, answers
    (run / "hf/checkpoint_2/PINNED").write_text("")
    (run / "checkpoint_4/PINNED").write_text("")
    quintet(*tiny(run, 8, *saving(copies=FORMATS, period=2, keep=1)))
    assert steps_of(run) == steps_of(run / "t5x") == [4, 8], (steps_of(run), steps_of(run / "t5x"))
    assert steps_of(run / "hf") == [2, 4, 8], steps_of(run / "hf")


def test_t5x_names_its_own_format(folder):
    more = folder / "more.gin"
    more.write_text("from __gin__ import dynamic_registration\nfrom t5x import checkpoints\nfrom t5x import utils\n"
                    "utils.SaveCheckpointConfig.checkpointer_cls = @checkpoints.Checkpointer\n")
    quintet(*tiny(folder / "run", 3, f"--gin_file={more}"))
    assert steps_of(folder / "run/t5x") == [0, 3] and not (folder / "run/hf").exists()
    quintet(*tiny(folder / "from_t5x", 4, f"--gin.utils.RestoreCheckpointConfig.path='{folder / 'run/t5x/checkpoint_3'}'",
                  "--gin.utils.CheckpointConfig.restore=@utils.RestoreCheckpointConfig()"))
    assert steps_of(folder / "from_t5x") == [3, 4]
    assert e2e.tensor_checksums(folder / "from_t5x", 3) == e2e.tensor_checksums(folder / "run", 3)
    for value, words in (("('h5',)", "expected formats of 't5x', 'hf', 'peft', found 'h5'; did you mean 'hf'"), ("('native',)", "found 'native'")):
        refused = quintet(*tiny(folder / "no", 3, f"--gin.utils.SaveCheckpointConfig.copies={value}"), expect=2)
        assert words in refused.err and "copies" in refused.err, refused
    more.write_text(more.read_text().replace("@checkpoints.Checkpointer", "@checkpoints.Checkpointr"))
    refused = quintet(*tiny(folder / "no", 3, f"--gin_file={more}"), expect=2)
    assert "did you mean" in refused.err and "checkpoints.Checkpointer" in refused.err, refused
    refused = quintet(*tiny(folder / "no", 3, *saving(copies=("hf",)), "--gin.network.T5Config.scale_attn_logits=True"), expect=2)
    assert "scale_attn_logits" in refused.err and not list((folder / "no").glob("checkpoint_*")), refused


def test_a_copy_that_fails_is_a_warning(folder):
    run = folder / "run"
    run.mkdir()
    (run / "hf").write_text("in the way")
    done = quintet(*tiny(run, 4, *saving(copies=FORMATS, period=2)))
    assert done.err.count("is saved, but not as a Hugging Face directory in") == 3 and str(run / "hf") in done.err, done
    quintet(*tiny(folder / "without", 4, *saving(period=2)))
    e2e.assert_same_run(run, folder / "without", 4)
    assert steps_of(run) == steps_of(run / "t5x") == [0, 2, 4]
    (run / "hf").unlink()
    quintet(*tiny(run, 4, *saving(copies=FORMATS, period=2)))  # nothing left to train, but to copy
    assert steps_of(run / "hf") == [4]
    assert_are_conversions(run, folder, (4,))


def test_copies_are_durable_before_they_have_their_name(folder):
    if not e2e.SHIM.exists():
        e2e.skip(f"{e2e.SHIM} is not built")
    log = folder / "log"
    def trained(run, to, **fault):
        environment = {"LD_PRELOAD": str(e2e.SHIM), "QT_FAULT_DIR": str(run), **fault}
        return quintet(*tiny(run, 3, *saving(copies=(to,), keep=1)), expect=None, environment=environment)
    for to in FORMATS:
        done = trained(folder / "whole", to, QT_FAULT_LOG=str(log))
        assert done.code == 0, done
        lines = log.read_text().splitlines()
        renamed = max(number for number, line in enumerate(lines, 1) if line.split()[1] == "rename" and f"/{to}/" in line)
        assert trained(folder / "dark", to, QT_FAULT=f"any:{renamed + 1}=POWER").code != 0
        copies = [files_of(folder / run / to / "checkpoint_3") for run in ("whole", "dark")]
        assert copies[0] and copies[0] == copies[1], (to, {name: len(content) for name, content in copies[1].items()})
        shutil.rmtree(folder / "whole")
        shutil.rmtree(folder / "dark")
        log.unlink()


def test_killed_runs_have_their_copies_in_the_end(folder):
    if not e2e.SHIM.exists():
        e2e.skip(f"{e2e.SHIM} is not built")
    command = tiny("MODEL_DIR", 3, *saving(copies=FORMATS, keep=1))
    log = folder / "log"
    def trained(run, **fault):
        environment = {"LD_PRELOAD": str(e2e.SHIM), "QT_FAULT_DIR": str(run), **fault}
        return quintet(*[argument.replace("MODEL_DIR", str(run)) for argument in command], expect=None, environment=environment)
    assert trained(folder / "whole", QT_FAULT_LOG=str(log)).code == 0
    lines = log.read_text().splitlines()
    operations = [number for number, line in enumerate(lines, 1) if "/hf/" in line or "/t5x/" in line]
    assert len(operations) > 50, lines
    whole = files_of(folder / "whole" / "hf" / "checkpoint_3")
    killed = 0
    for at in operations[:: len(operations) // 8]:
        run = folder / "cut"
        killed += trained(run, QT_FAULT=f"any:{at}=KILL").code != 0
        assert trained(run).code == 0, at
        for to in FORMATS:
            assert [path.name for path in (run / to).glob(".*")] == [] and steps_of(run / to) == [3], (at, to, list((run / to).iterdir()))
        assert files_of(run / "hf" / "checkpoint_3").keys() == whole.keys(), at
        shutil.rmtree(run)
    assert killed >= 6, killed


def test_ranks_copy_together(folder):
    run = folder / "run"
    done = e2e.mpirun(QUINTET, 2, *tiny(run, 3, *saving(copies=FORMATS)))
    assert done.code == 0 and "warning" not in done.err, done
    assert_are_conversions(run, folder, (0, 3))
    (run / "hf").rename(folder / "hf")
    (run / "hf").write_text("in the way")
    done = e2e.mpirun(QUINTET, 2, *tiny(run, 5, *saving(copies=FORMATS)))
    assert done.code == 0 and "not as a Hugging Face directory" in done.err, done
    assert steps_of(run) == steps_of(run / "t5x") == [0, 3, 5]
    assert json.loads((run / "checkpoint_5/MANIFEST.json").read_text())["step"] == 5


if __name__ == "__main__":
    e2e.run(globals())
