"""A tiny umT5, whose layers each have a relative position bias: it trains, writes, serves and quantizes, on the CPU and on
an emulated GPU, whose answers are the same."""

import json

import e2e
from device_test import need_emulator
from e2e import quintet
from serving import serving, text_of

RUN = ["--gin_file=quintet/umt5_quickstart.gin", "--gin.WARMUP_STEPS=2", "--gin.EVAL_PERIOD=10", "--gin.BATCH_SIZE=2",
       "--gin.DROPOUT_RATE=0.1", "--gin.TRAIN_STEPS=4", "--gin.TRAIN_LENGTHS={'inputs': 24, 'targets': 24}",
       "--gin.train_script.train.infer_eval_dataset_cfg=None", "--gin.train_script.train.eval_steps=1",
       *[f"--gin.scalable_network.T5Config.{size}" for size in (
           "emb_dim=16", "num_heads=2", "head_dim=8", "mlp_dim=16", "num_encoder_layers=2", "num_decoder_layers=2")]]
TEXTS = ["words: 1234", "number: nine"]


def answers(model_dir, *more):
    printed = quintet("generate", f"--model_dir={model_dir}", "--max_decode_len=6", "--format=json", *more, *TEXTS).out
    return [json.loads(line)["prediction"] for line in printed.splitlines()]


WAYS = [[], ["--beams=3"], ["--temperature=0.9", "--topk=8", "--seed=3"]]


def trained(folder):
    """The folders of a run and of the same with weights of 8 bits."""
    run, small = folder / "cpu", folder / "small"
    quintet("train", *RUN, f"--model_dir={run}")
    quintet("convert", f"--model_dir={run}", "--quantize=int8", f"--output={small}")
    return run, small


def test_scanned_layers_are_those_of_t5x(folder):
    """T5X's scalable_t5 keeps a stack in one array, with heads on an axis of theirs; Adafactor factors it by rule, however small."""
    copies = "--gin.utils.SaveCheckpointConfig.copies=('t5x',)"
    factored = ["--gin.models.EncoderDecoderModel.optimizer_def=@adafactor.Adafactor()", "--gin.adafactor.Adafactor.decay_rate=0.8",
                "--gin.adafactor.Adafactor.step_offset=0",
                "--gin.adafactor.Adafactor.logical_factor_rules=@adafactor.standard_logical_factor_rules()"]
    (folder / "run.gin").write_text("from __gin__ import dynamic_registration\nfrom t5x import adafactor\nfrom t5x import models\n"
                                    "include 'quintet/umt5_quickstart.gin'\n")
    rest = [flag for flag in RUN if "gin_file" not in flag]
    shapes = {}
    for name, scan in (("scanned", "True"), ("apart", "False")):
        quintet("train", f"--gin_file={folder}/run.gin", *rest, *factored, copies, f"--model_dir={folder / name}",
                f"--gin.scalable_network.T5Config.scan_layers={scan}")
        stored = folder / name / "t5x" / "checkpoint_4"
        shapes[name] = {path.name: json.loads((path / ".zarray").read_text())["shape"] for path in stored.glob("target.*")}
    scanned, apart = shapes["scanned"], shapes["apart"]
    assert scanned["target.encoder.encoder.attention.query.kernel"] == [16, 2, 2, 8], scanned
    assert scanned["target.decoder.decoder.self_attention.out.kernel"] == [2, 2, 8, 16], scanned
    assert apart["target.encoder.layers_1.attention.query.kernel"] == [16, 2, 8], apart
    assert apart["target.decoder.layers_0.mlp.wo.kernel"] == [16, 16], apart
    # T5X's form goes on as the run itself does, optimizer and all.
    for name in shapes:
        losses = []
        for start in (folder / name, folder / name / "t5x"):
            out = folder / f"{name}_from_{start.name}"
            quintet("train", f"--gin_file={folder}/run.gin", *[flag for flag in rest if "TRAIN_STEPS" not in flag], *factored, "--gin.TRAIN_STEPS=6",
                    f"--model_dir={out}", f"--gin.scalable_network.T5Config.scan_layers={'True' if name == 'scanned' else 'False'}",
                    "--gin.utils.CheckpointConfig.restore=@utils.RestoreCheckpointConfig()", "--gin.utils.RestoreCheckpointConfig.mode='specific'",
                    f"--gin.utils.RestoreCheckpointConfig.path='{start}/checkpoint_4'")
            losses.append([record["loss"] for record in e2e.metrics(out) if record["run"] == "train"])
        assert losses[0] == losses[1] and losses[0], losses
    slots = quintet("inspect", next((folder / "scanned").glob("checkpoint_4"))).out
    assert "mlp/wi_0/kernel/v_row" in slots and "attention/query/kernel/v_col" in slots, slots
    slots = quintet("inspect", next((folder / "apart").glob("checkpoint_4"))).out
    assert "mlp/wi_0/kernel/v_row" not in slots and "attention/query/kernel/v_col" in slots, slots


def test_it_trains_writes_serves_and_quantizes(folder):
    run, small = trained(folder)
    info = (run / "model-info.txt").read_text()
    assert info.count("relpos_bias/rel_embedding") >= 4 and "layers_1/relpos_bias" in info, info
    for way in WAYS:
        assert len(answers(run, *way)) == len(answers(small, *way)) == len(TEXTS)
    with serving(run) as server:
        served = text_of(server.complete(prompt=TEXTS[0], temperature=0, max_tokens=6))
    assert served == answers(run, "--temperature=0")[:1], served


def test_an_emulated_gpu_trains_it_and_answers_as_the_cpu(folder):
    need_emulator()
    quintet("train", *RUN, f"--model_dir={folder / 'emulated'}", "--device=emulated")
    for model in trained(folder):
        for way in WAYS:
            assert answers(model, "--device=emulated", *way) == answers(model, *way), (model, way)


if __name__ == "__main__":
    e2e.run(globals())
