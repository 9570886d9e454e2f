"""Training on the emulated GPU: near the CPU's run, resumable to the same bits; wrong devices are named."""

import e2e
from e2e import assert_same_run, metrics, quintet, switch, tiny

SHORT = ["--gin.TRAIN_LENGTHS={'inputs': 24, 'targets': 24}", "--gin.LENGTHS={'inputs': 16, 'targets': 16}",
         "--gin.train_script.train.stats_period=1", "--gin.BATCH_SIZE=2"]


def has_emulator():
    return quintet("bench", "gemm", "--device=emulated", "--m=4", "--n=4", "--k=4", "--steps=1", expect=None).code == 0


def need_emulator():
    if not has_emulator():
        e2e.skip("this build has no emulated GPU")


def train(folder, steps, device, dtype, *more):
    """The first `steps` of a run of 4, or what is missing of them."""
    quintet(*tiny(folder, 4, f"--gin.train_script.train.total_steps={steps}", f"--device={device}",
                  f"--gin.network.T5Config.dtype='{dtype}'", *SHORT, *more))


def losses(folder):
    return [record["loss"] for record in metrics(folder) if record["run"] == "train"]


def test_the_emulated_gpu_trains_as_the_cpu_does(folder):
    """With masks of ours and of T5X, which tests/models compares with T5X's runs on the CPU."""
    need_emulator()
    for masks in ("ours", "t5x"):
        for device in ("cpu", "emulated"):
            train(folder / masks / device, 4, device, "float32", "--gin.DROPOUT_RATE=0.3",
                  f"--gin.trainer.Trainer.t5x_dropout={masks == 't5x'}")
        cpu, gpu = losses(folder / masks / "cpu"), losses(folder / masks / "emulated")
        assert len(cpu) == len(gpu) > 0, (cpu, gpu)
        # float32 sums in another order, through a few updates.
        assert all(abs(a - b) <= 1e-4 * abs(a) for a, b in zip(cpu, gpu)), (masks, cpu, gpu)
    assert losses(folder / "ours" / "cpu") != losses(folder / "t5x" / "cpu")


def test_the_emulated_gpu_draws_the_masks_of_experts_as_the_cpu_does(folder):
    need_emulator()
    for device in ("cpu", "emulated"):
        quintet(*switch(folder / device, 4, f"--device={device}", "--gin.EXPERT_DROPOUT_RATE=0.4",
                        "--gin.trainer.Trainer.t5x_dropout=True", *SHORT))
    cpu, gpu = losses(folder / "cpu"), losses(folder / "emulated")
    assert len(cpu) == len(gpu) > 0 and all(abs(a - b) <= 1e-4 * abs(a) for a, b in zip(cpu, gpu)), (cpu, gpu)


def test_a_limit_of_threads_changes_no_number(folder):
    """oneDNN 2.6 leaves parts of a product undone where OpenMP grants fewer threads than it was asked for."""
    def run(name, expect=0, *more, **environment):
        return quintet("train", "--gin_file=quintet/quickstart.gin", f"--model_dir={folder / name}", "--gin.TRAIN_STEPS=4",
                       "--gin.WARMUP_STEPS=2", "--gin.BATCH_SIZE=16", "--gin.train_script.train.stats_period=1",
                       "--gin.train_script.train.infer_eval_dataset_cfg=None", *more, expect=expect, environment=environment)
    run("one", OMP_NUM_THREADS="1")
    run("limited", OMP_NUM_THREADS="4", OMP_THREAD_LIMIT="1")
    assert len(losses(folder / "one")) == 4 and losses(folder / "one") == losses(folder / "limited")
    refused = run("refused", 2, "--threads=3", OMP_THREAD_LIMIT="2")
    assert "--threads=3" in refused.err and "OMP_THREAD_LIMIT" in refused.err, refused


def test_a_run_in_bfloat16_goes_on_with_the_same_bits(folder):
    need_emulator()
    train(folder / "whole", 4, "emulated", "bfloat16")
    train(folder / "parts", 2, "emulated", "bfloat16")
    train(folder / "parts", 4, "emulated", "bfloat16")
    assert_same_run(folder / "whole", folder / "parts", 4)


def test_devices_that_are_not_there(folder):
    result = quintet("bench", "gemm", "--device=gpu", expect=2)
    assert "cuda" in result.err and "auto" in result.err, result
    quintet(*tiny(folder, 2, "--gin.network.T5Config.dtype='float16'"), expect=2)
    result = quintet("bench", "gemm", "--device=cuda:999", "--m=4", "--n=4", "--k=4", "--steps=1", expect=4)
    assert "--device" in result.err, result


if __name__ == "__main__":
    e2e.run(globals())
