"""Gradients kept in bfloat16 (--gradient_dtype): a run of it goes on with the same bits, alone, on ranks and on a GPU; what
memory it takes is planned; where sums of gradients stay float32 it is refused."""

import json

import e2e
from device_test import losses, need_emulator, train
from e2e import assert_same_run, quintet, tiny
from mpi_train_test import MESHES, assert_close_runs, mpirun

ROUNDED = "--gradient_dtype=bfloat16"
HALVES = "--gin.trainer.Trainer.num_microbatches=2"


def test_a_run_goes_on_with_the_same_bits(folder):
    short = ["--gin.train_script.train.total_steps=4", "--gin.utils.SaveCheckpointConfig.period=4"]
    quintet(*tiny(folder / "whole", 8, ROUNDED, HALVES))
    quintet(*tiny(folder / "parts", 8, ROUNDED, HALVES, *short))
    quintet(*tiny(folder / "parts", 8, ROUNDED, HALVES))
    quintet(*tiny(folder / "float32", 8, HALVES))
    a, b = ({record["step"]: record["loss"] for record in e2e.metrics(folder / name) if record.get("run") == "train"}
            for name in ("whole", "float32"))
    assert a.keys() == b.keys() and a != b, (a, b)
    assert all(abs(a[step] - b[step]) <= 2**-7 * abs(b[step]) for step in a), (a, b)
    whole, parts = e2e.tensor_checksums(folder / "whole", 8), e2e.tensor_checksums(folder / "parts", 8)
    assert whole == parts


def test_an_emulated_gpu_goes_on_with_the_same_bits(folder):
    need_emulator()
    for more in ([], ["--optimizer_offload"]):
        run = folder / str(len(more))
        train(run / "whole", 4, "emulated", "bfloat16", ROUNDED, *more)
        train(run / "parts", 2, "emulated", "bfloat16", ROUNDED, *more)
        train(run / "parts", 4, "emulated", "bfloat16", ROUNDED, *more)
        assert_same_run(run / "whole", run / "parts", 4)
    train(folder / "float32", 4, "emulated", "bfloat16")
    assert losses(folder / "float32") != losses(folder / "0" / "whole")


def test_two_ranks_train_nearly_as_one(folder):
    """Replicas have the same bits; parameters are sharded in the other run."""
    quintet(*tiny(folder / "one", 10))
    for name, more in (("replicas", ["--check_replicas=1"]), ("sharded", [*MESHES["zero"], HALVES, "--reduce_gradients_in=bfloat16"])):
        mpirun(2, *tiny(folder / name, 10), ROUNDED, *more)
        assert_close_runs(folder / "one", folder / name, tolerance=2**-7)


def test_the_plan_counts_what_ranks_count(folder):
    layouts = ["--batch=4", "--inputs=4", "--targets=4", "--layouts=4x1:a1p1,2x2:a1p2"]
    plan = ["plan", f"--cluster={folder}/cluster.json"]
    (folder / "cluster.json").write_text(json.dumps({"name": "4 devices", "gpu": False, "devices": 4, "devices_per_host": 4, "memory_gib": 1, "tflops": 1,
                                                     "memory_gb_per_s": 10, "link_gb_per_s": 1, "link_us": 5}))

    def peaks(*arguments):
        return {row["layout"]: row["peak_bytes"] for row in map(json.loads, quintet(*arguments, *layouts).out.splitlines())}

    measured = peaks("bench", "layouts", "--ranks=4", "--steps=1", "--model=t5_1_1_tiny", ROUNDED)
    assert len(measured) == 2 and measured == peaks(*plan, "--model=t5_1_1_tiny", ROUNDED)
    wide, rounded = (peaks(*plan, "--model=t5_1_1_xl", *more) for more in ([], [ROUNDED]))
    # 2 bytes less for each of 2.85e9 parameters, but for 2 GiB of gradients on their way, which are float32.
    less = wide["4x1:a1p1"]["all"] - rounded["4x1:a1p1"]["all"]
    assert 2 * 2.85e9 - 2**31 - 2**28 < less <= 2 * 2.85e9, (wide, rounded)


def test_what_is_refused(folder):
    step = mpirun(2, *tiny(folder / "step", 4), ROUNDED, "--reduce_gradients=step", expect=2)
    assert "--gradient_dtype=bfloat16, --reduce_gradients=step" in step.err and "leave one of the two" in step.err, step
    # On one rank there is nothing to reduce: a run and a plan both say so and go on.
    one_device = folder / "one.json"
    one_device.write_text(json.dumps({"name": "one device", "devices": 1, "memory_gib": 1, "tflops": 1, "memory_gb_per_s": 10, "link_gb_per_s": 1}))
    for command in (tiny(folder / "alone", 4), ["plan", f"--cluster={one_device}", "--model=t5_1_1_tiny", "--batch=4", "--inputs=4", "--targets=4"]):
        alone = quintet(*command, ROUNDED, "--reduce_gradients=step")
        assert alone.err.count("--interleave_microbatches, --reduce_gradients, --reduce_gradients_in: no effect on one rank") == 1, alone.err
        assert "leave one of the two" not in alone.err + alone.out, alone
    other = quintet(*tiny(folder / "half", 4), "--gradient_dtype=float16", expect=2)
    assert "--gradient_dtype: float16 not in {float32,bfloat16}" in other.err, other


if __name__ == "__main__":
    e2e.run(globals())
