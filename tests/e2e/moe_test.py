"""A tiny Switch Transformer through the program: training with its metrics, stopping and going on, evaluation,
generation, a start from a dense model's checkpoint, and what is wrong is said."""

import json
import math

import e2e
from device_test import has_emulator, losses, need_emulator
from e2e import SWITCH as SIZES
from e2e import QUINTET, assert_same_run, metrics, mpirun, quintet, switch, tiny
from serving import serving, text_of


def test_a_stopped_run_goes_on_bit_for_bit(folder):
    more = ["--gin.JITTER_NOISE=0.01", "--gin.optax.warmup_cosine_decay_schedule.decay_steps=20"]
    quintet(*switch(folder / "stopped", 10, *more))
    quintet(*switch(folder / "stopped", 20, *more))
    quintet(*switch(folder / "whole", 20, *more))
    assert_same_run(folder / "stopped", folder / "whole", 20)
    for record in metrics(folder / "whole"):
        for name in ("auxiliary_loss", "router_z_loss", "fraction_tokens_left_behind", "expert_usage", "router_confidence"):
            found = [value for key, value in record.items() if key.endswith(f"experts/{name}")]
            assert all(math.isfinite(value) for value in found), record
    assert any("experts/expert_usage" in key for record in metrics(folder / "whole") for key in record)


def test_the_load_of_experts_is_logged_and_drawn(folder):
    quintet(*switch(folder / "run", 10))
    records = [record for record in metrics(folder / "run") if record["run"] == "train"]
    for record in records:
        for layer in ("layer_0", "layer_1"):
            load = [value for key, value in record.items() if key.startswith(f"experts/load/{layer}/expert_")]
            assert len(load) == 4 and abs(sum(load) - 4) < 1e-6, record
            assert record[f"experts/load/{layer}/most"] >= max(load) > 0, record
            assert record[f"experts/load/{layer}/least"] <= min(load), record
    assert records
    quintet("report", folder / "run", f"--output={folder}/report.html")
    page = (folder / "report.html").read_text()
    for name in ("experts/fraction_tokens_left_behind", "experts/load/layer_0/expert_03", "experts/load/layer_1/expert_03"):
        assert f'"name":"{name}"' in page, name


def test_it_evaluates_and_generates(folder):
    quintet(*switch(folder / "run", 10))
    run = f"--model_dir={folder / 'run'}"
    printed = [json.loads(line) for line in quintet("eval", run, "--num_examples=8").out.splitlines()]
    assert printed and all(record["examples"] == 8 for record in printed), printed
    texts = ["words: 1234", "number: nine", "words: 7"]
    together = quintet("generate", run, "--max_decode_len=8", "--format=json", *texts).out.splitlines()
    assert [json.loads(line)["input"] for line in together] == texts
    assert all(math.isfinite(json.loads(line)["score"]) for line in together)


def test_it_infers_as_it_generates_on_one_rank_and_on_two(folder):
    quintet(*switch(folder / "run", 10))
    run, texts = f"--model_dir={folder / 'run'}", ["words: 1234", "number: nine", "words: 7", "words: 42", "number: two"]
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps({"inputs": text, "targets": "nine"}) + "\n" for text in texts))
    want = [json.loads(line)["prediction"] for line in quintet("generate", run, "--format=json", "--max_decode_len=44", *texts).out.splitlines()]

    def inferred(out, mode):
        return next((folder / out).glob(f"infer_*-{mode}.jsonl-00000-of-00001")).read_bytes()
    for mode in ("predict", "score"):
        more = [run, f"--input={file}", "--batch_size=2", f"--mode={mode}"]
        quintet("infer", *more, f"--output_dir={folder / mode}")
        done = mpirun(QUINTET, 2, "infer", *more, f"--output_dir={folder / mode}_ranks")
        assert done.code == 0, done
        assert inferred(mode, mode) == inferred(f"{mode}_ranks", mode)
        answers = [json.loads(line) for line in inferred(mode, mode).decode().splitlines()]
        assert [answer["inputs"]["inputs_pretokenized"] for answer in answers] == texts
        if mode == "predict":
            assert [answer["prediction"] for answer in answers] == want, (answers, want)
        else:
            assert all(math.isfinite(answer["score"]) and answer["score"] < 0 for answer in answers), answers
    # The encoder with experts stays in float32, beside a decoder in 8 bits.
    quintet("convert", run, "--quantize=int8", f"--output={folder / 'small'}")
    small, ask = f"--model_dir={folder / 'small'}", ["--format=json", "--max_decode_len=44", *texts]
    want = quintet("generate", run, "--quantize=int8", *ask).out
    assert quintet("generate", small, *ask).out == want
    quintet("infer", small, f"--input={file}", "--batch_size=2", f"--output_dir={folder / 'of_small'}")
    assert [json.loads(line)["prediction"] for line in inferred("of_small", "predict").decode().splitlines()] == [
        json.loads(line)["prediction"] for line in want.splitlines()]
    if has_emulator():
        short = ["--format=json", "--max_decode_len=4", *texts[:2]]
        printed = [quintet("generate", *more, *short).out for more in (
            [small], [small, "--device=emulated"], [run, "--quantize=int8", "--device=emulated"])]
        assert [json.loads(line)["prediction"] for line in printed[0].splitlines()] == [
            json.loads(line)["prediction"] for line in printed[1].splitlines()], printed
        assert printed[1] == printed[2], printed


def test_an_emulated_gpu_trains_and_generates_as_the_cpu(folder):
    need_emulator()
    for device in ("cpu", "emulated"):
        quintet(*switch(folder / device, 4, "--gin.TRAIN_LENGTHS={'inputs': 24, 'targets': 24}", "--gin.BATCH_SIZE=2",
                        "--gin.DROPOUT_RATE=0.0", "--gin.train_script.train.stats_period=1", f"--device={device}"))
    cpu, gpu = losses(folder / "cpu"), losses(folder / "emulated")
    assert len(cpu) == len(gpu) > 0, (cpu, gpu)
    assert all(abs(a - b) <= 1e-4 * abs(a) for a, b in zip(cpu, gpu)), (cpu, gpu)
    printed = [quintet("generate", f"--model_dir={folder / 'cpu'}", "--max_decode_len=4", f"--device={device}",
                       "words: 1234", "words: 7").out for device in ("cpu", "emulated")]
    assert printed[0] == printed[1], printed
    with serving(folder / "cpu", "--device=emulated", "--max_batch=2", "--max_n=2", "--cache_mib=8") as server:
        served = text_of(server.complete(prompt="words: 7", temperature=0, max_tokens=4))
    greedy = quintet("generate", f"--model_dir={folder / 'cpu'}", "--max_decode_len=4", "--format=json", "--logprobs=1", "words: 7")
    assert served == [json.loads(greedy.out)["prediction"]], (served, greedy)


def test_experts_start_as_a_dense_models_mlp(folder):
    dense = ["--gin.network.T5Config.mlp_dim=16", "--gin.utils.SaveCheckpointConfig.keep=None"]
    quintet(*tiny(folder / "dense", 10, *dense))
    upcycle = folder / "upcycle.gin"
    upcycle.write_text(r"""
from __gin__ import dynamic_registration
from t5x import utils
from t5x.contrib.moe import checkpoints
utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()
utils.RestoreCheckpointConfig:
  mode = 'specific'
  path = '%s'
  fallback_to_scratch = True
  checkpointer_cls = @checkpoints.UpcycleCheckpointer
  assignment_map = (
    (r'target(.*)mlp\/expert(.*)', r'target\1mlp\2'),
    (r'.*\/router\/.*', None),
    (r'state\/param_states.*', None))
checkpoints.UpcycleCheckpointer.num_experts = %%NUM_EXPERTS
""" % (folder / "dense" / "checkpoint_10"))
    # Nothing is learnt in one step at rate 0: what was read is saved. A single expert has the dense MLP's bytes.
    still = [f"--gin.optax.warmup_cosine_decay_schedule.{rate}_value=0.0" for rate in ("init", "peak", "end")]
    quintet(*switch(folder / "one", 11, f"--gin_file={upcycle}", *still, "--gin.NUM_EXPERTS=1"))
    before, after = e2e.tensor_checksums(folder / "dense", 10), e2e.tensor_checksums(folder / "one", 11)
    for name, dense_name in [("token_embedder/embedding", "token_embedder/embedding"),
                             ("decoder/layers_0/mlp/expert/wi_1/kernel", "decoder/layers_0/mlp/wi_1/kernel"),
                             ("encoder/layers_0/mlp/expert/wo/kernel", "encoder/layers_0/mlp/wo/kernel")]:
        assert after["target/" + name] == before["target/" + dense_name], name
    quintet(*switch(folder / "four", 20, f"--gin_file={upcycle}"))
    first = metrics(folder / "four")[0]
    assert all(math.isfinite(value) for value in first.values() if isinstance(value, float)), first


def test_wrong_configurations_are_named(folder):
    for more, words in [
            (["--gin.NUM_SELECTED_EXPERTS=9"], ["num_selected_experts", "9"]),
            (["--gin.NUM_ENCODER_LAYERS=3", "--gin.NUM_ENCODER_SPARSE_LAYERS=2"], ["num_sparse_layers=2", "num_layers=3"]),
            (["--gin.NUM_EXPERT_PARTITIONS=5"], ["partitions", "5"]),
            (["--gin.TRAIN_EXPERT_CAPACITY_FACTOR=0.0", "--gin.moe_layers.MoeLayer.min_expert_capacity=0"],
             ["capacity", "train_capacity_factor"])]:
        result = quintet(*switch(folder / "run", 10, *more), expect=2)
        for word in words:
            assert word in result.err, f"{more}: {word} not in {result}"


if __name__ == "__main__":
    e2e.run(globals())
