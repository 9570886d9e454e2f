"""Training under mpirun: the same run as one process makes, stopped by all ranks at the same step, ended by none of
them alone, refused where ranks were started differently."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import e2e
from device_test import SHORT, need_emulator
from e2e import QUINTET, TINY, steps_of, tiny, wait_for
from moe_test import switch

MPIRUN = ["mpirun", "--oversubscribe", "--allow-run-as-root"]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")


def command(ranks, *arguments):
    return [*MPIRUN, "-n", str(ranks), QUINTET, *map(str, arguments)]


def start(ranks, *arguments):
    return subprocess.Popen(command(ranks, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=ENVIRONMENT, stdin=subprocess.DEVNULL)


def finished(process, seconds=240):
    out, err = process.communicate(timeout=seconds * e2e.PATIENCE)
    return e2e.Result(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def mpirun(ranks, *arguments, expect=0):
    result = finished(start(ranks, *arguments))
    assert result.code == expect, f"expected exit {expect}: {result}"
    return result


def processes_of(model_dir):
    """The training processes of a model directory, by id."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == QUINTET.encode() and f"--model_dir={model_dir}".encode() in words:
                found.append(int(entry.name))
    return sorted(found)


def with_fault(fault, model_dir, *more):
    """The words before a command line whose file operations below model_dir meet a fault (tests/faults/shim.cpp)."""
    assert e2e.SHIM.exists(), f"{e2e.SHIM} is not built"
    return ["env", f"LD_PRELOAD={e2e.SHIM}", f"QT_FAULT={fault}", f"QT_FAULT_DIR={model_dir}", *more,
            f"ASAN_OPTIONS={os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0:detect_leaks=0"]


def losses(model_dir):
    """Of steps and of teacher-forced evaluations; and what was counted in their batches."""
    records = [json.loads(line) for line in (pathlib.Path(model_dir) / "metrics.jsonl").read_text().splitlines()]
    return [((r["run"], r["step"]), r["loss"], {name: value for name, value in r.items() if name.startswith(COUNTS)})
            for r in records if "loss" in r]


COUNTS = ("non_padding_fraction", "effective_batch_size")


def assert_close_runs(one, other, tolerance=1e-4):
    a, b = losses(one), losses(other)
    assert a and [step for step, _, _ in a] == [step for step, _, _ in b], (a, b)
    for (step, x, counts), (_, y, others) in zip(a, b):
        assert abs(x - y) <= tolerance * abs(x), f"step {step}: loss {x} and {y}"
        assert counts and counts == others, f"step {step}: {counts} and {others}"


def test_two_ranks_train_as_one(folder):
    e2e.quintet(*tiny(folder / "one", 20))
    done = mpirun(2, *tiny(folder / "two", 20), "--share_gpus")
    assert done.err.count("warning: --share_gpus has no effect: the device is cpu") == 1, done.err
    assert_close_runs(folder / "one", folder / "two")
    one, two = ((folder / name / "model-info.txt").read_text() for name in ("one", "two"))
    assert one == two and "shape (embed=16, mlp=16)" in one and "partition spec (None, 'model')" in one, two
    for record in map(json.loads, (folder / "two" / "metrics.jsonl").read_text().splitlines()):
        if "loss" in record:  # a core is a device, and each rank has one
            for name in ("timing/seqs_per_second", "timing/target_tokens_per_second"):
                assert abs(record[name] / record[name + "_per_core"] - 2) < 1e-9, record


def test_microbatches_take_turns_or_are_reduced_once(folder):
    halves = "--gin.trainer.Trainer.num_microbatches=2"
    flags = ("--interleave_microbatches", "--reduce_gradients=step")
    alone = e2e.quintet(*tiny(folder / "one", 10), *flags[:1])
    assert alone.err.count("warning: --interleave_microbatches, --reduce_gradients, --reduce_gradients_in: no effect on one rank") == 1, alone.err
    for i, flag in enumerate(flags):
        mpirun(2, *tiny(folder / str(i), 10), halves, flag)
        assert_close_runs(folder / "one", folder / str(i))
    odd = mpirun(2, *tiny(folder / "odd", 10), flags[0], expect=2)
    assert "bind trainer.Trainer.num_microbatches to an even one" in odd.err, odd.err


def test_gradients_travel_in_bfloat16(folder):
    """Ranks that check each other's replicas every step; the run of float32 to what rounding gradients by 2^-7 changes in it."""
    for name, more in (("float32", ()), ("bfloat16", ("--reduce_gradients_in=bfloat16", "--check_replicas=1"))):
        mpirun(2, *tiny(folder / name, 10), *more)
    assert_close_runs(folder / "float32", folder / "bfloat16", tolerance=2**-7)
    assert losses(folder / "float32") != losses(folder / "bfloat16")
    refused = mpirun(2, *tiny(folder / "float8", 10), "--reduce_gradients_in=float8", expect=2)
    assert "--reduce_gradients_in: float8 not in {float32,bfloat16}" in refused.err, refused.err


def test_a_rank_has_the_rows_of_its_shard_and_no_others(folder):
    """A run that ends on non-finite values tells what its ranks had of the last batches."""
    arguments = ["--gin.optimizers.adamw.learning_rate=1e30", "--gin.BATCH_SIZE=8", "--gin.trainer.Trainer.num_microbatches=2"]

    def batches_of(name):
        report = json.loads(next((folder / name).glob("not_finite_*.json")).read_text())
        return {step["step"]: (step["data_position"], step["features"]) for step in report["steps"]}

    e2e.quintet(*tiny(folder / "one", 100, *arguments), expect=7)
    whole = batches_of("one")
    for name, ranks, shards, more in (("two", 2, 2, []), ("four", 4, 4, []), ("model", 4, 2, MESHES["model"])):
        mpirun(ranks, *tiny(folder / name, 100, *arguments, *more), expect=7)
        cut = batches_of(name)
        assert cut.keys() == whole.keys(), (name, cut.keys(), whole.keys())
        for step, (position, parts) in cut.items():
            assert position == whole[step][0] and len(parts) == shards, (name, step)
            for feature, array in whole[step][1].items():
                rows = [part[feature]["first_rows"] for part in parts]
                assert all(part[feature]["shape"][0] == 8 // shards == len(own) for part, own in zip(parts, rows)), (name, parts)
                # A microbatch after the other, the shards' rows of each.
                half = 4 // shards
                joined = [row for at in (0, half) for own in rows for row in own[at:at + half]]
                assert joined == array["first_rows"], (name, step, feature)


def test_ranks_started_differently_are_refused(folder):
    begin = time.time()
    same = tiny(folder / "run", 20)
    result = subprocess.run([*command(1, *same), ":", "-n", "1", QUINTET, *map(str, same), "--gin.BATCH_SIZE=8"],
                            capture_output=True, env=ENVIRONMENT, timeout=120)
    text = result.stderr.decode()
    assert result.returncode == 2, f"{result.returncode}: {text}"
    assert "rank 0 on" in text and "rank 1 on" in text and "--gin.BATCH_SIZE=8" in text, text
    assert time.time() - begin < 10


def test_a_changed_gin_file_on_one_rank_is_refused(folder):
    first, second = folder / "first", folder / "second"
    for place, batch in ((first, 4), (second, 8)):
        place.mkdir()
        (place / "run.gin").write_text(f"include 'quintet/quickstart.gin'\nBATCH_SIZE = {batch}\n")
    arguments = [QUINTET, *map(str, tiny(folder / "run", 20, "--gin_file=run.gin")) ]
    arguments = [a for a in arguments if not a.startswith("--gin.BATCH_SIZE")]
    result = subprocess.run([*MPIRUN, "-n", "1", "--wdir", first, *arguments, ":", "-n", "1", "--wdir", second, *arguments],
                            capture_output=True, env=ENVIRONMENT, timeout=120)
    text = result.stderr.decode()
    assert result.returncode == 2, f"{result.returncode}: {text}"
    assert "different configuration" in text and "= 4" in text and "= 8" in text, text


def test_a_signal_to_one_rank_stops_all_at_the_same_step(folder):
    process = start(2, *tiny(folder / "run", 2000, "--gin.EVAL_PERIOD=500"))
    wait_for(lambda: steps_of(folder / "run") or process.poll() is not None, 60)
    os.kill(processes_of(folder / "run")[-1], signal.SIGUSR1)
    result = finished(process)
    assert result.code == 75, result
    assert "goes on from step" in result.err, result
    assert not processes_of(folder / "run")


MESHES = {"data": [], "model": ["--gin.partitioning.PjitPartitioner.num_partitions=2"],
          "zero": ["--gin.partitioning.PjitPartitioner.num_partitions=1",
                   "--gin.partitioning.PjitPartitioner.logical_axis_rules=@partitioning.standard_logical_axis_rules()",
                   "--gin.partitioning.standard_logical_axis_rules.parameter_partitioning_dims=2"]}


def test_every_layout_follows_the_single_rank_curve(folder):
    e2e.quintet(*tiny(folder / "one", 20))
    for name, more in MESHES.items():
        mpirun(2, *tiny(folder / name, 20, *more))
        assert_close_runs(folder / "one", folder / name)
    both = [MESHES["zero"][1], MESHES["zero"][2], *MESHES["model"]]
    mpirun(4, *tiny(folder / "both", 20, *both))
    assert_close_runs(folder / "one", folder / "both")
    mpirun(4, *tiny(folder / "sequence", 20, *both, "--gin.partitioning.standard_logical_axis_rules.sequence_parallel=True"))
    assert_close_runs(folder / "one", folder / "sequence")


LORA = """
from __gin__ import dynamic_registration
from quintet import lora
from t5x import models
from t5x import utils
utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()
models.EncoderDecoderModel.lora = @lora.LoraConfig()
lora.LoraConfig:
  rank = 2
  targets = ['/query/kernel$', '/mlp/']
"""


def adapters(folder, name, base_dtype, *more):
    (folder / "lora.gin").write_text(LORA)
    return tiny(folder / name, 10, f"--gin_file={folder}/lora.gin", f"--gin.utils.RestoreCheckpointConfig.path='{folder}/base/checkpoint_5'",
                f"--gin.lora.LoraConfig.base_dtype='{base_dtype}'", *more)


def test_adapters_follow_the_single_rank_curve(folder):
    e2e.quintet(*tiny(folder / "base", 5))
    both = [MESHES["zero"][1], MESHES["zero"][2], *MESHES["model"]]
    for base in ("float32", "int8"):
        e2e.quintet(*adapters(folder, f"{base}_one", base))
        mpirun(4, *adapters(folder, f"{base}_four", base, *both))
        assert_close_runs(folder / f"{base}_one", folder / f"{base}_four")
    rounded = [abs(x[1] - y[1]) for x, y in zip(losses(folder / "float32_one"), losses(folder / "int8_one"))]
    assert 0 < max(rounded) < 0.1, rounded


def test_adapters_on_an_emulated_gpu_follow_the_cpus_curve(folder):
    need_emulator()
    e2e.quintet(*tiny(folder / "base", 5))
    for base in ("bfloat16", "fp8"):
        more = [word for word in SHORT if "TRAIN_STEPS" not in word]
        e2e.quintet(*adapters(folder, f"{base}_cpu", base, *more, "--gin.TRAIN_STEPS=3"))
        e2e.quintet(*adapters(folder, f"{base}_gpu", base, *more, "--gin.TRAIN_STEPS=3", "--device=emulated"))
        assert_close_runs(folder / f"{base}_cpu", folder / f"{base}_gpu")


def test_replicas_of_a_sharded_model_follow_the_single_rank_curve(folder):
    zero, replicas = MESHES["zero"], "--gin.partitioning.PjitPartitioner.num_replicas=2"
    slices = [f"--gin.partitioning.PjitPartitioner.{name}" for name in ("ici_mesh_shape=(1, 2, 1)", "dcn_mesh_shape=(2, 1, 1)")]
    e2e.quintet(*tiny(folder / "one", 20))
    mpirun(4, *tiny(folder / "four", 20, *zero, replicas), "--check_replicas=1")
    assert_close_runs(folder / "one", folder / "four", 1e-6)
    info = (folder / "four" / "model-info.txt").read_text()
    assert "partition spec ('model', 'data')" in info and "replica" not in info, info
    mpirun(4, *tiny(folder / "sliced", 20, *zero, *slices))
    e2e.assert_same_run(folder / "four", folder / "sliced", 20)


def test_experts_on_many_ranks_follow_the_single_rank_curve(folder):
    def experts(parts):
        return f"--gin.NUM_EXPERT_PARTITIONS={parts}"
    dropless = "--gin.moe_layers.MoeLayer.dropless=True"
    cut = "--gin.NUM_MODEL_PARTITIONS=2"
    e2e.quintet(*switch(folder / "one", 20))
    e2e.quintet(*switch(folder / "one_dropless", 20, dropless))
    for name, ranks, more in (("two", 2, [experts(2)]), ("four", 4, [experts(4)]), ("two_x_data", 4, [experts(2)]),
                              ("two_x_model", 4, [experts(2), cut]), ("dropless", 4, [experts(4), dropless])):
        mpirun(ranks, *switch(folder / name, 20, *more))
        assert_close_runs(folder / ("one_dropless" if dropless in more else "one"), folder / name)
        assert "partition spec ('expert'" in (folder / name / "model-info.txt").read_text(), name
    mpirun(4, *switch(folder / "again", 20, experts(4), dropless))
    e2e.assert_same_run(folder / "dropless", folder / "again", 20)


def test_experts_on_emulated_gpus_follow_the_cpus_curve(folder):
    need_emulator()
    arguments = switch(folder / "one", 3, "--gin.TRAIN_LENGTHS={'inputs': 24, 'targets': 24}", "--gin.DROPOUT_RATE=0.0",
                       "--gin.train_script.train.stats_period=1")
    e2e.quintet(*arguments)
    mpirun(2, *[a.replace(str(folder / "one"), str(folder / "two")) for a in arguments], "--device=emulated",
           "--gin.NUM_EXPERT_PARTITIONS=2")
    assert_close_runs(folder / "one", folder / "two")


def test_cut_norms_and_losses_on_emulated_gpus_follow_the_cpus_curve(folder):
    need_emulator()
    e2e.quintet(*tiny(folder / "one", 3, *SHORT))
    cut = [*MESHES["model"], MESHES["zero"][1], "--gin.partitioning.standard_logical_axis_rules.activation_partitioning_dims=2"]
    mpirun(2, *tiny(folder / "two", 3, *SHORT, *cut), "--device=emulated")
    assert_close_runs(folder / "one", folder / "two")


ADAFACTOR = """
from __gin__ import dynamic_registration
from t5x import adafactor
OPTIMIZER = @adafactor.Adafactor()
adafactor.Adafactor:
  learning_rate = 0.01
  logical_factor_rules = @adafactor.standard_logical_factor_rules()
  global_norm_clip_threshold = 1.0
"""


def test_sharded_adafactor_on_emulated_gpus_follows_the_cpus_curve(folder):
    need_emulator()
    (folder / "adafactor.gin").write_text(ADAFACTOR)
    more = [f"--gin_file={folder}/adafactor.gin", *SHORT]
    e2e.quintet(*tiny(folder / "one", 3, *more))
    cut = [*MESHES["model"], MESHES["zero"][1]]
    mpirun(4, *tiny(folder / "four", 3, *more, *cut), "--device=emulated")
    assert_close_runs(folder / "one", folder / "four")
    norms = [[record["weight_gradient_norm"] for record in e2e.metrics(folder / name) if "weight_gradient_norm" in record]
             for name in ("one", "four")]
    assert len(norms[0]) == 3 and all(abs(x - y) <= 1e-5 * x for x, y in zip(*norms, strict=True)), norms


def test_experts_go_on_and_decode_on_another_mesh(folder):
    decode = ["--gin.train_script.train.infer_eval_dataset_cfg=@infer_eval/utils.DatasetConfig()",
              "--gin.seqio.Evaluator.num_examples=10", "--gin.optax.warmup_cosine_decay_schedule.decay_steps=20"]

    def arguments(name, steps):
        return [a for a in switch(folder / name, steps, *decode)
                if a != "--gin.train_script.train.infer_eval_dataset_cfg=None"]

    e2e.quintet(*arguments("one", 20))
    mpirun(2, *arguments("moved", 10), "--gin.NUM_EXPERT_PARTITIONS=2")
    mpirun(4, *arguments("moved", 20), "--gin.NUM_EXPERT_PARTITIONS=4")
    assert_close_runs(folder / "one", folder / "moved")

    def decoded(name):
        return {file.name: file.read_text() for file in (folder / name / "inference_eval").glob("*-000020.jsonl")}
    assert decoded("one") and decoded("one") == decoded("moved")


def test_a_run_goes_on_on_another_mesh(folder):
    e2e.quintet(*tiny(folder / "one", 20))
    run = folder / "moved"
    save = "--gin.utils.SaveCheckpointConfig.period=4"
    e2e.quintet(*tiny(run, 20, save))
    replicas = [*MESHES["zero"], "--gin.partitioning.PjitPartitioner.num_replicas=2"]
    for since, ranks, more in ((4, 2, MESHES["model"]), (8, 4, replicas), (12, 2, MESHES["zero"]), (16, 1, [])):
        for step in steps_of(run):
            if step > since:
                shutil.rmtree(run / f"checkpoint_{step}")
        mpirun(ranks, *tiny(run, 20, save, *more))
    assert_close_runs(folder / "one", run)


def test_decoding_is_shared_among_the_ranks(folder):
    decode = ["--gin.train_script.train.infer_eval_dataset_cfg=@infer_eval/utils.DatasetConfig()",
              "--gin.seqio.Evaluator.num_examples=10", "--gin.BATCH_SIZE=4"]
    arguments = [a for a in tiny(folder / "one", 4, *decode) if a != "--gin.train_script.train.infer_eval_dataset_cfg=None"]
    e2e.quintet(*arguments)
    mpirun(2, *[a.replace(str(folder / "one"), str(folder / "two")) for a in arguments], *MESHES["model"])

    def decoded(name):
        return {file.name: file.read_text() for file in (folder / name / "inference_eval").glob("*-000004.jsonl")}
    assert decoded("one") and decoded("one") == decoded("two")


def test_a_batch_that_does_not_divide_is_refused_at_start(folder):
    result = mpirun(4, *tiny(folder / "run", 20, "--gin.BATCH_SIZE=6"), expect=2)
    assert "batch_size 6" in result.err and "4 parts" in result.err, result
    assert not steps_of(folder / "run")


def test_ranks_that_the_mesh_does_not_divide_are_refused(folder):
    result = mpirun(2, *tiny(folder / "run", 20, "--gin.partitioning.PjitPartitioner.num_partitions=3"), expect=2)
    assert "num_partitions" in result.err and "2 ranks" in result.err, result


def test_killed_ranks_lose_nothing(folder):
    """kill -9 of any rank at any moment; the same command goes on, to the same bits."""
    kills = int(os.environ.get("QUINTET_KILLS", "6"))
    arguments = ["--gin.EVAL_PERIOD=10", "--gin.utils.SaveCheckpointConfig.period=5", *MESHES["zero"]]
    mpirun(2, *tiny(folder / "whole", 40, *arguments))
    choose = random.Random(5)
    for _ in range(kills):
        process = start(2, *tiny(folder / "killed", 40, *arguments))
        wait_for(lambda: len(processes_of(folder / "killed")) == 2 or process.poll() is not None, 60)
        # delay: the moment of the kill
        time.sleep(choose.uniform(0.05, 2.5))
        ranks = processes_of(folder / "killed")
        if len(ranks) == 2:
            os.kill(choose.choice(ranks), signal.SIGKILL)
        result = finished(process)
        wait_for(lambda: not processes_of(folder / "killed"), 10)
        if result.code == 0:
            break
    mpirun(2, *tiny(folder / "killed", 40, *arguments))
    e2e.assert_same_run(folder / "whole", folder / "killed", 40)


def test_a_dead_rank_is_named(folder):
    process = start(2, *tiny(folder / "run", 2000, "--gin.EVAL_PERIOD=500"))
    wait_for(lambda: steps_of(folder / "run") or process.poll() is not None, 60)
    os.kill(processes_of(folder / "run")[1], signal.SIGKILL)
    result = finished(process)
    assert result.code in (6, 137) and "has died" in result.err and "step" in result.err, result
    wait_for(lambda: not processes_of(folder / "run"), 10)


def test_a_full_disk_on_one_host_leaves_the_checkpoint_before(folder):
    run = [QUINTET, *map(str, tiny(folder / "run", 20))]
    mpirun(2, *tiny(folder / "run", 20))
    shutil.copytree(folder / "run", folder / "whole")
    shutil.rmtree(folder / "run" / "checkpoint_20")
    bad = with_fault("fallocate:2+=ENOSPC", folder / "run")  # the first is of the file that is tried at the start
    result = subprocess.run([*MPIRUN, "-n", "1", *run, ":", "-n", "1", *bad, *run], capture_output=True,
                            env=ENVIRONMENT, timeout=120)
    text = result.stderr.decode()
    assert result.returncode == 5 and "data-00001-of-00002.h5" in text, f"{result.returncode}: {text}"
    assert steps_of(folder / "run")[-1] == 10
    mpirun(2, *tiny(folder / "run", 20))
    e2e.assert_same_run(folder / "whole", folder / "run", 20)


if __name__ == "__main__":
    e2e.run(globals())
