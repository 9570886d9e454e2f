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
