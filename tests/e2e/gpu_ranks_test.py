"""GPUs, emulated, that hold a model together: generate, infer, eval, serve and the evaluation inside a run give one GPU's texts,
and scores near to its."""

import contextlib
import json
import os
import subprocess

import e2e
from device_test import need_emulator
from e2e import QUINTET, quintet, switch, tiny
from judged import TASK as JUDGED
from judged import SWITCH_MODEL, TRAINING_EVALUATOR
from peaks import MPIRUN, evaluation_peak
from serving import FREE, Server, serving, trained

TEXTS = ["words: 1234", "number: nine", "words: 7"]
GPU = "--device=emulated"
SHORT = ["--gin.TRAIN_LENGTHS={'inputs': 24, 'targets': 24}", "--gin.LENGTHS={'inputs': 16, 'targets': 8}", "--gin.BATCH_SIZE=4"]
MESH = "--gin.partitioning.PjitPartitioner.num_partitions=2"
ZERO = ["--gin.partitioning.standard_logical_axis_rules.parameter_partitioning_dims=2",
        "--gin.partitioning.PjitPartitioner.logical_axis_rules=@partitioning.standard_logical_axis_rules()"]


def ranks(count, *arguments, expect=0):
    done = subprocess.run([*MPIRUN, str(count), QUINTET, *map(str, arguments), GPU], capture_output=True, timeout=240 * e2e.PATIENCE,
                          stdin=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive"))
    result = e2e.Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    assert result.code == expect, f"{count} ranks: {' '.join(map(str, arguments))}: expected exit {expect}: {result}"
    return result


def near(a, b):
    """Alike but for the last digits of numbers."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(near(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(near, a, b))
    return abs(a - b) < 1e-4 if isinstance(a, float) else a == b


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_generate_answers_as_one_gpu_does(folder):
    need_emulator()
    short = "--max_decode_len=9"
    generated_by_two(trained(folder), ([short, "--beams=3", "--num_decodes=3"], [short, "--temperature=1", "--seed=3", "--logprobs=2"],
                                       ["--embed=mean"], ["--target=one"], [short, "--quantize=int8"]))


def test_generate_with_experts_answers_as_one_gpu_does(folder):
    need_emulator()
    quintet(*switch(folder / "sparse", 4))
    short = "--max_decode_len=4"
    generated_by_two(folder / "sparse", ([short, "--beams=3", "--num_decodes=3"], [short, "--quantize=int8"], ["--embed=mean"]))


def generated_by_two(model, hows):
    ask = ["generate", f"--model_dir={model}", "--format=json"]
    for how in hows:
        alone, together = quintet(*ask, *how, *TEXTS, GPU), ranks(2, *ask, *how, *TEXTS)
        assert alone.out and near(lines(together.out), lines(alone.out)), (how, alone.out, together)


def test_infer_and_eval_share_examples_between_groups_of_gpus(folder):
    need_emulator()
    run = folder / "run"
    quintet(*tiny(run, 4, *SHORT))
    questions = folder / "questions.jsonl"
    questions.write_text("".join(json.dumps({"inputs": text}) + "\n" for text in [*TEXTS, "words: 42"]))
    infer = ["infer", f"--model_dir={run}", f"--input={questions}", "--batch_size=2", "--checkpoint_period=2"]
    evaluate = ["eval", f"--model_dir={run}", "--task=number_to_words", "--num_examples=3", "--batch_size=2"]
    quintet(*infer, f"--output_dir={folder / 'alone'}", GPU)
    expected = next((folder / "alone").glob("*-predict.jsonl-00000-of-00001"))
    metrics = quintet(*evaluate, GPU).out
    ranks(4, *infer, f"--output_dir={folder / 'four'}", "--num_partitions=2")
    assert (folder / "four" / expected.name).read_bytes() == expected.read_bytes()
    assert ranks(4, *evaluate, "--num_partitions=2").out == metrics


def test_the_evaluation_inside_a_run_decodes_on_the_meshs_shards(folder):
    need_emulator()
    decode = ["--gin.train_script.train.infer_eval_dataset_cfg=@infer_eval/utils.DatasetConfig()",
              "--gin.infer_eval/utils.DatasetConfig.mixture_or_task_name='number_to_words'",
              "--gin.infer_eval/utils.DatasetConfig.batch_size=2", "--gin.seqio.Evaluator.num_examples=3"]
    for i, (train, more) in enumerate((
            (tiny, [MESH]),
            (tiny, ZERO),
            (tiny, []),  # copies: each decodes its share of the examples
            (switch, ["--gin.NUM_EXPERT_PARTITIONS=2", "--gin.DROPOUT_RATE=0.0"]))):
        run = folder / f"run{i}"
        ranks(2, *train(run, 3, *SHORT, *decode, *more))
        quintet("eval", f"--model_dir={run}", f"--output_dir={run}/alone", "--num_examples=3", GPU)
        inside = sorted((run / "inference_eval").glob("number_to_words*.jsonl"))
        assert len(inside) >= 2, inside
        for file in inside:
            assert near(lines(file.read_text()), lines((run / "alone" / "inference_eval" / file.name).read_text())), file


def test_scores_are_near_one_gpus(folder):
    need_emulator()
    scored_by_two(folder, lambda *more: tiny(*more, *SHORT, MESH), "", [flag for flag in e2e.TINY if ".T5Config." in flag])


def test_scores_of_experts_are_near_one_gpus(folder):
    need_emulator()
    scored_by_two(folder, lambda *more: switch(*more, *SHORT, "--gin.NUM_EXPERT_PARTITIONS=2"), SWITCH_MODEL, e2e.SWITCH)


def scored_by_two(folder, train, model, sizes):
    """infer's, and those that a metric is made of: by eval, and inside a run whose mesh shards the parameters; and losses by eval."""
    texts = folder / "texts.jsonl"
    texts.write_text("".join(json.dumps({"inputs": text, "targets": f"{i} {text}"}) + "\n" for i, text in enumerate([*TEXTS, ""])))
    (folder / "pairs.tsv").write_text("".join(f"row {i}\t{'no' if i % 3 else 'yes'}\n" for i in range(4)))
    (folder / "judged.gin").write_text(JUDGED.format(file=folder / "pairs.tsv", results="None"))
    run = folder / "run"
    ranks(2, *train(run, 3, f"--gin_file={folder}/judged.gin", "--gin.train_script.train.infer_eval_dataset_cfg=@infer_eval/utils.DatasetConfig()",
                    "--gin.infer_eval/utils.DatasetConfig.mixture_or_task_name='judged'", "--gin.infer_eval/utils.DatasetConfig.batch_size=2"))
    infer = ["infer", f"--model_dir={run}", f"--input={texts}", "--batch_size=2", "--mode=score"]
    quintet(*infer, f"--output_dir={folder / 'alone'}", GPU)
    expected = next((folder / "alone").glob("*-score.jsonl-00000-of-00001"))
    ranks(4, *infer, f"--output_dir={folder / 'four'}", "--num_partitions=2")
    alone, together = (lines((place / expected.name).read_text()) for place in (folder / "alone", folder / "four"))
    assert len(alone) == 4 and all(line["score"] < 0 for line in alone) and near(together, alone), (alone, together)
    evaluate = ["eval", f"--model_dir={run}"]
    metrics = lines(quintet(*evaluate, f"--output_dir={folder / 'metrics'}", GPU).out)
    assert "auc-roc" in metrics[0] and near(lines(ranks(2, *evaluate, "--num_partitions=2").out), metrics), metrics
    for name in ("judged-000003.jsonl", "judged-metrics.jsonl"):
        inside, alone = (lines((place / "inference_eval" / name).read_text()) for place in (run, folder / "metrics"))
        assert near(inside, alone), (name, inside, alone)
    (folder / "eval.gin").write_text(TRAINING_EVALUATOR.format(run=run, out=folder / "out") + model)
    ask = ["eval", f"--gin_file={folder}/eval.gin", *sizes, "--gin.utils.DatasetConfig.batch_size=2",
           "--gin.utils.DatasetConfig.task_feature_lengths={'inputs': 16, 'targets': 8}", "--gin.utils.get_training_eval_datasets.eval_steps=2"]
    alone, together = lines(quintet(*ask, GPU).out), lines(ranks(2, *ask, MESH).out)
    assert sum("training_eval" in line for line in alone) == 3 and near(together, alone), (alone, together)


def test_the_evaluation_inside_a_run_needs_a_ranks_share_of_memory(folder):
    """Which an emulated GPU has of the host's."""
    need_emulator()
    sizes = [f"--gin.network.T5Config.{name}={size}" for name, size in (
        ("emb_dim", 128), ("num_heads", 2), ("head_dim", 64), ("mlp_dim", 8192), ("num_encoder_layers", 2), ("num_decoder_layers", 2))]
    model_kib = 4 * 3 * 128 * 8192 * 4 // 1024  # the MLPs: 50 MB
    # A half, and one parameter at a time.
    assert evaluation_peak(folder, 2, lambda *more: tiny(*more, *SHORT, *sizes, *ZERO), GPU) < 0.9 * model_kib, model_kib


def test_what_cannot_be_shared_is_refused(folder):
    need_emulator()
    run, quantized = trained(folder), folder / "small"
    quintet("convert", f"--model_dir={run}", "--quantize=int8", f"--output={quantized}")
    infer = ["infer", "--task=number_words", f"--output_dir={folder / 'out'}", "--num_partitions=2"]
    for count, arguments, words in (
            (3, ["generate", f"--model_dir={run}", "words: 1"], "3 ranks for 2 attention heads"),
            (3, [*infer, f"--model_dir={run}"], "num_partitions = 2: it must divide the 3 ranks"),
            (2, [*infer, f"--model_dir={quantized}", "--mode=score"], "scores are computed in float32"),
            (2, ["bench", "ranks", "--model=t5_1_1_tiny"], "bench ranks: times CPUs")):
        refused = ranks(count, *arguments, expect=2).err
        assert words in refused, refused


def test_serve_answers_as_one_gpu_does(folder):
    need_emulator()
    model = trained(folder)
    flags = [GPU, "--max_batch=4", "--max_n=2", "--cache_mib=16"]

    def answers(server):
        got = [server.complete(prompt=TEXTS[:2], max_tokens=4, logprobs=1, temperature=t, seed=5, **FREE)["choices"] for t in (0, 1)]
        return got, server.post("/v1/embeddings", input=TEXTS)["data"], server.post("/v1/score", prompt=TEXTS[0], target="one")["data"]

    with serving(model, *flags) as server:
        alone = answers(server)
    server = Server(model, *flags, program=(*MPIRUN, "2", QUINTET))
    with contextlib.ExitStack() as stack:
        stack.callback(server.process.kill)
        for _ in range(2):
            assert near(list(answers(server)), list(alone)), alone
            server.wait_idle()


e2e.run(globals())
