"""Ranks that hold a model together: generate, infer, eval and serve give one rank's answers to the bit; ranks that die or stop."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess

import e2e
from e2e import QUINTET, quintet
from judged import TASK as JUDGED
from judged import SWITCH_MODEL, TRAINING_EVALUATOR
from peaks import MPIRUN, evaluation_peak
from serving import FREE, Server, in_threads, serving, trained

# Experts, over several panels; four heads, one a rank.
SPARSE = ["--gin.EMBED_DIM=80", "--gin.NUM_HEADS=4", "--gin.HEAD_DIM=8", "--gin.MLP_DIM=112", "--gin.NUM_EXPERTS=4",
          "--gin.NUM_ENCODER_LAYERS=1", "--gin.NUM_DECODER_LAYERS=1"]
# Two ranks along the axis of experts, two along that of the model.
EXPERT_MESH = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x.contrib.moe import partitioning as moe_partitioning
train_script.train.partitioner = @moe_partitioning.MoePjitPartitioner()
moe_partitioning.MoePjitPartitioner.num_expert_partitions = 2
moe_partitioning.MoePjitPartitioner.num_partitions = 2
"""
TEXTS = ["words: 1234", "number: nine", "words: 7", "words: 42", "number: twelve"]


def ranks(count, *arguments, expect=0, **options):
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    done = subprocess.run([*MPIRUN, str(count), QUINTET, *map(str, arguments)], capture_output=True, timeout=240 * e2e.PATIENCE,
                          env=environment, **{"stdin": subprocess.DEVNULL, **options})
    result = e2e.Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    assert result.code == expect, f"{count} ranks: {' '.join(map(str, arguments))}: expected exit {expect}: {result}"
    return result


def test_generate_answers_as_one_rank_does(folder):
    generated_by_ranks(trained(folder), 2)


def test_generate_with_experts_answers_as_one_rank_does(folder):
    quintet(*e2e.switch(folder / "sparse", 4, sizes=SPARSE))
    generated_by_ranks(folder / "sparse", 4)


def generated_by_ranks(model, count):
    ask = ["generate", f"--model_dir={model}", "--format=json"]
    short = "--max_decode_len=12"
    for how in ([short, "--beams=3", "--num_decodes=3"], [short, "--temperature=1", "--seed=3", "--logprobs=2"],
                ["--embed=mean"], [short, "--quantize=int8"], [short, "--quantize=bf16"]):
        alone = quintet(*ask, *how, *TEXTS)
        together = ranks(count, *ask, *how, *TEXTS)
        assert alone.out and together.out == alone.out, (how, alone.out, together)
    lines = ranks(count, *ask, short, "--batch_size=2", stdin=None, input="\n".join(TEXTS).encode() + b"\n").out
    assert lines == quintet(*ask, short, *TEXTS).out, lines


def evaluated_by_ranks(folder, infer, expected, evaluate, metrics):
    """Several ranks, with and without partitions, write `expected` by infer and print `metrics` by eval, to the byte; yields eval's folders."""
    for count, partitions in ((3, 1), (2, 2), (4, 2)):
        out = folder / f"{count}x{partitions}"
        ranks(count, *infer, f"--output_dir={out}", f"--num_partitions={partitions}")
        assert (out / expected.name).read_bytes() == expected.read_bytes(), (count, partitions)
        files = folder / f"metrics{count}x{partitions}"
        told = ranks(count, *evaluate, f"--output_dir={files}", f"--num_partitions={partitions}")
        assert told.out == metrics, (count, partitions, told)
        yield files


def test_infer_and_eval_share_examples_between_groups_of_ranks(folder):
    run = trained(folder)
    questions = folder / "questions.jsonl"
    questions.write_text("".join(json.dumps({"inputs": text}) + "\n" for text in TEXTS * 3))
    infer = ["infer", f"--model_dir={run}", f"--input={questions}", "--batch_size=2", "--checkpoint_period=3"]
    evaluate = ["eval", f"--model_dir={run}", "--task=number_to_words", "--num_examples=9", "--batch_size=2", "--samples=2"]
    quintet(*infer, f"--output_dir={folder / 'alone'}")
    expected = next((folder / "alone").glob("*-predict.jsonl-00000-of-00001"))
    metrics = quintet(*evaluate, f"--output_dir={folder / 'metrics'}").out
    assert json.loads(metrics)["examples"] == 9, metrics
    for files in evaluated_by_ranks(folder, infer, expected, evaluate, metrics):
        for file in (folder / "metrics").rglob("*.jsonl"):
            if file.name != "metrics.jsonl":  # has times
                same = files / file.relative_to(folder / "metrics")
                assert same.read_bytes() == file.read_bytes(), file


def test_scores_are_one_ranks_bit_for_bit(folder):
    scored_by_ranks(folder, 2, lambda *more: e2e.tiny(*more, "--gin.partitioning.PjitPartitioner.num_partitions=2"))


def test_scores_of_experts_are_one_ranks_bit_for_bit(folder):
    scored_by_ranks(folder, 4, lambda *more: e2e.switch(*more, expert_mesh(folder), sizes=SPARSE))


def expert_mesh(folder):
    (folder / "mesh.gin").write_text(EXPERT_MESH)
    return f"--gin_file={folder}/mesh.gin"


def scored_by_ranks(folder, count, train):
    """infer's, and those that a metric is made of: by eval, and inside a run whose mesh shards the parameters."""
    texts = folder / "texts.jsonl"
    texts.write_text("".join(json.dumps({"inputs": text, "targets": f"{i} {text}"}) + "\n" for i, text in enumerate([*TEXTS, "", "words: 5"])))
    (folder / "pairs.tsv").write_text("".join(f"row {i}\t{'no' if i % 3 else 'yes'}\n" for i in range(11)))
    (folder / "judged.gin").write_text(JUDGED.format(file=folder / "pairs.tsv", results="None"))
    judged = [f"--gin_file={folder}/judged.gin", "--gin.train_script.train.infer_eval_dataset_cfg=@infer_eval/utils.DatasetConfig()",
              "--gin.infer_eval/utils.DatasetConfig.mixture_or_task_name='judged'", "--gin.infer_eval/utils.DatasetConfig.batch_size=2"]
    run = folder / "run"
    ranks(count, *train(run, 4, *judged))
    infer = ["infer", f"--model_dir={run}", f"--input={texts}", "--batch_size=2", "--mode=score"]
    quintet(*infer, f"--output_dir={folder / 'alone'}")
    expected = next((folder / "alone").glob("*-score.jsonl-00000-of-00001"))
    assert len(expected.read_text().splitlines()) == 7 and "NaN" not in expected.read_text()
    evaluate = ["eval", f"--model_dir={run}"]
    metrics = quintet(*evaluate, f"--output_dir={folder / 'metrics'}").out
    assert "auc-roc" in metrics, metrics
    for files in evaluated_by_ranks(folder, infer, expected, evaluate, metrics):
        for name in ("judged-000004.jsonl", "judged-metrics.jsonl"):
            one = (folder / "metrics" / "inference_eval" / name).read_bytes()
            assert (files / "inference_eval" / name).read_bytes() == one == (run / "inference_eval" / name).read_bytes(), (name, files)


def test_losses_are_one_ranks_bit_for_bit(folder):
    """Those of eval's training evaluator, of a dense model and of one with experts."""
    for train, model, sizes, names in ((e2e.tiny, "", [flag for flag in e2e.TINY if ".T5Config." in flag], {"z_loss"}),
                                       (e2e.switch, SWITCH_MODEL, e2e.SWITCH, {"z_loss", "experts/auxiliary_loss", "experts/router_z_loss"})):
        run = folder / train.__name__
        quintet(*train(run, 4))
        gin = folder / f"{train.__name__}.gin"
        gin.write_text(TRAINING_EVALUATOR.format(run=run, out=folder / "out") + model)
        ask = ["eval", f"--gin_file={gin}", *sizes, "--gin.utils.DatasetConfig.batch_size=8", "--gin.utils.get_training_eval_datasets.eval_steps=3"]
        alone = quintet(*ask).out
        losses = [line for line in map(json.loads, alone.splitlines()) if "training_eval" in line]
        assert len(losses) == 3 and all(line[name] > 0 for line in losses for name in names), alone
        for count in (2, 4):
            told = ranks(count, *ask, "--gin.partitioning.PjitPartitioner.num_partitions=2")
            assert told.out == alone, (count, told)


def test_the_evaluation_inside_a_run_decodes_on_the_meshs_shards(folder):
    decode = ["--gin.train_script.train.infer_eval_dataset_cfg=@infer_eval/utils.DatasetConfig()",
              "--gin.infer_eval/utils.DatasetConfig.mixture_or_task_name='number_to_words'",
              "--gin.infer_eval/utils.DatasetConfig.batch_size=2", "--gin.seqio.Evaluator.num_examples=7"]
    for count, more in ((2, ["--gin.partitioning.PjitPartitioner.num_partitions=2"]),
                        (4, ["--gin.partitioning.standard_logical_axis_rules.parameter_partitioning_dims=2", "--gin.partitioning.PjitPartitioner.logical_axis_rules=@partitioning.standard_logical_axis_rules()"])):
        run = folder / f"run{count}"
        ranks(count, *e2e.tiny(run, 4, *decode, *more))
        quintet("eval", f"--model_dir={run}", f"--output_dir={folder / f'alone{count}'}")
        for name in ("number_to_words.jsonl", "number_to_words-metrics.jsonl"):
            for inside in (run / "inference_eval").glob(f"*{name}"):
                assert inside.read_bytes() == (folder / f"alone{count}" / "inference_eval" / inside.name).read_bytes(), inside
        assert len(list((run / "inference_eval").glob("*.jsonl"))) >= 2


def test_the_evaluation_inside_a_run_needs_a_ranks_share_of_memory(folder):
    sizes = [f"--gin.network.T5Config.{name}={size}" for name, size in (
        ("emb_dim", 512), ("num_heads", 8), ("head_dim", 64), ("mlp_dim", 4096), ("num_encoder_layers", 2), ("num_decoder_layers", 2))]
    model_kib = 2 * (4 + 8) * 512 * 512 * 4 // 1024 + 4 * 3 * 512 * 4096 * 4 // 1024  # attention and MLPs: 122 MB
    zero = ["--gin.partitioning.standard_logical_axis_rules.parameter_partitioning_dims=2",
            "--gin.partitioning.PjitPartitioner.logical_axis_rules=@partitioning.standard_logical_axis_rules()"]
    # A quarter, and one parameter at a time; all of it, gathered and packed, is twice the model.
    assert peak_of_four(folder, lambda *more: e2e.tiny(*more, *sizes, *zero)) < 0.75 * model_kib, model_kib


def test_the_evaluation_inside_a_run_needs_a_ranks_share_of_the_experts(folder):
    sizes = ["--gin.EMBED_DIM=256", "--gin.NUM_HEADS=4", "--gin.HEAD_DIM=16", "--gin.MLP_DIM=1024", "--gin.NUM_EXPERTS=16",
             "--gin.NUM_ENCODER_LAYERS=1", "--gin.NUM_DECODER_LAYERS=1"]
    experts_kib = 2 * 3 * 16 * 256 * 1024 * 4 // 1024  # two layers of three parameters: 101 MB
    # A quarter, and a few experts at a time.
    peak = peak_of_four(folder, lambda *more: e2e.switch(*more, expert_mesh(folder), sizes=sizes))
    assert (folder / "run" / "model-info.txt").read_text().count("expert=16, embed=256, expert_mlp=1024)  partition spec ('expert', None, 'model')") >= 4
    assert peak < 0.55 * experts_kib, experts_kib


def peak_of_four(folder, train):
    """KiB of a rank's peak that are the evaluation's, whose results are one rank's."""
    peak = evaluation_peak(folder, 4, train)
    quintet("eval", f"--model_dir={folder / 'run'}", "--batch_size=2", "--num_examples=2", f"--output_dir={folder / 'alone'}")
    inside, alone = ((folder / place / "inference_eval" / "judged-000003.jsonl").read_bytes() for place in ("run", "alone"))
    assert inside == alone, (inside, alone)  # experts are large here, so that they come in several groups
    return peak


def test_what_cannot_be_shared_is_refused(folder):
    run = trained(folder)
    infer = ["infer", f"--model_dir={run}", "--task=number_words", f"--output_dir={folder / 'out'}"]
    for count, arguments, words in (
            (3, [*infer, "--num_partitions=2"], "num_partitions = 2: it must divide the 3 ranks"),
            (3, ["generate", f"--model_dir={run}", "words: 1"], "3 ranks for 2 attention heads")):
        refused = ranks(count, *arguments, expect=2).err
        assert words in refused, refused
    warned = quintet(*infer, "--num_partitions=2", "--split=validation", "--checkpoint_period=1", expect=None).err
    assert "num_partitions = 2 has no effect: one rank holds the whole model" in warned, warned


def process_of(server, rank):
    """The process of a rank that a server's mpirun started."""
    mpirun = server.process.pid
    for pid in pathlib.Path(f"/proc/{mpirun}/task/{mpirun}/children").read_text().split():
        if f"OMPI_COMM_WORLD_RANK={rank}\0".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
            return int(pid)
    raise AssertionError(f"no rank {rank}")


@contextlib.contextmanager
def together(model, *flags):
    """A server of two ranks, which the test ends."""
    server = Server(model, *flags, program=(*MPIRUN, "2", QUINTET))
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()


ASKED = [dict(prompt=text, max_tokens=9, n=2, best_of=2, temperature=t, seed=5, logprobs=1, logit_bias=FREE["logit_bias"])
         for text in TEXTS for t in (0, 1)]


def answers(server):
    # Many at a time: jobs join and leave between steps, and their caches come and go on both ranks.
    got = in_threads(len(ASKED), lambda i: server.complete(**ASKED[i])["choices"])
    embedded = server.post("/v1/embeddings", input=TEXTS)["data"]
    scored = server.post("/v1/score", prompt=TEXTS[0], target=["one", "two"])["data"]
    return got, embedded, scored


def test_serve_with_experts_answers_as_one_rank_does(folder):
    quintet(*e2e.switch(folder / "sparse", 4, sizes=SPARSE))
    with serving(folder / "sparse") as server:
        alone = answers(server)
    with together(folder / "sparse") as server:
        assert answers(server) == alone


def test_serve_answers_as_one_rank_does(folder):
    model = trained(folder)
    with serving(model) as server:
        alone = answers(server)
    with together(model) as server:
        assert answers(server) == alone
        server.wait_idle()
        assert answers(server)[0] == alone[0]
        os.kill(process_of(server, 0), signal.SIGTERM)
        assert server.process.wait(timeout=60 * e2e.PATIENCE) == 0, server.log
    with together(model) as server:
        assert server.complete(**ASKED[0])["choices"] == alone[0][0]
        server.process.send_signal(signal.SIGUSR1)  # which mpirun passes on to both
        assert server.process.wait(timeout=60 * e2e.PATIENCE) == 0, server.log


def test_a_dead_or_stopped_follower_ends_the_server(folder):
    model = trained(folder)
    with together(model, "--collective_timeout=3") as server:
        assert server.complete(prompt="words: 7", max_tokens=3)["choices"]
        os.kill(process_of(server, 1), signal.SIGKILL)
        assert server.process.wait(timeout=30 * e2e.PATIENCE) != 0
        server.reader.join()
        assert "rank 1 on" in "".join(server.log) and "has died" in "".join(server.log), server.log
    with together(model, "--collective_timeout=3") as server:
        follower = process_of(server, 1)
        os.kill(follower, signal.SIGSTOP)
        in_threads(1, lambda _: failing(server))
        assert server.process.wait(timeout=30 * e2e.PATIENCE) == 6
        server.reader.join()
        assert "for rank 1, which does not come" in "".join(server.log), server.log


def failing(server):
    try:
        server.complete(prompt="words: 7", max_tokens=3)
    except OSError:
        return
    raise AssertionError("a server without one of its ranks has answered")


e2e.run(globals())
