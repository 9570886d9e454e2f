"""bench/gpu end to end at tiny sizes, on the CPU and on the emulator: it needs no GPU and no peers, and says which were not there."""

import json
import os
import pathlib
import subprocess
import sys

from e2e import QUINTET, ROOT, run, skip

BENCH = ROOT / "bench" / "gpu"


def measure(folder, *flags):
    done = subprocess.run([sys.executable, BENCH / "run", *flags, "--tiny", "--device=cpu", f"--out={folder}",
                           f"--bin={QUINTET.rsplit('/', 1)[0]}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]


def test_ours_is_measured_and_absent_peers_are_named(tmp_path):
    lines = measure(tmp_path, "kernels", "train", "finetune", "train_xl", "train_xxl", "serve", "serve_xl", "checkpoint", f"--python={fake(tmp_path)}")
    measured = {(line["case"], line["variant"]) for line in lines if "ms" in line}
    listed = subprocess.run([sys.executable, BENCH / "run", "--list", "--tiny"], capture_output=True, text=True).stdout
    cases = [line.split()[2] for line in listed.splitlines() if not line.startswith(("kernels", "fp8"))]
    assert len(cases) == 11, listed
    for case in cases:
        assert (case, "quintet") in measured, (case, lines)
    absent = {(line["set"], line["program"]) for line in lines if line.get("absent")}
    for name in "train", "finetune", "train_xl", "serve", "serve_xl":
        for peer in "torch_eager", "jax":
            assert (name, peer) in absent, (name, peer, absent)
    assert {("checkpoint", "torch_checkpoint"), ("checkpoint", "orbax_checkpoint")} <= absent, absent
    parts = {line["part"] for line in lines if line.get("workload") == "C1" and "ms" in line}
    assert parts == {"blocking", "save", "restore"}, parts
    rounds = [line["round"] for line in lines if line.get("case") == "train_tiny_2x(16/8)" and "ms" in line]
    assert rounds == [1, 2], rounds
    report = (tmp_path / "report.md").read_text()
    for said in ("train_tiny_2x(16/8)", "seq/s", "examples/s", "tok/s", "torch not installed", "no fractions of the bound"):
        assert said in report, (said, report)


def test_ratios_and_bounds_are_those_of_the_lines(tmp_path):
    lines = [
        {"machine": {"gpu": "A GPU", "date": "2026-01-02T00:00:00", "versions": {}}},
        {"set": "ceilings", "workload": "ceilings", "case": "gemm_8192", "part": "forward", "variant": "torch",
         "ms": [2 * 8192**3 / 800e12 * 1e3]},
        {"set": "ceilings", "workload": "ceilings", "case": "copy_4000000000", "part": "forward", "variant": "torch",
         "ms": [2.0]},
        {"set": "kernels", "workload": "ceilings", "case": "exp_2000000000", "part": "forward", "variant": "quintet", "ms": [1.0]},
        {"set": "kernels", "workload": "K5", "case": "decode_self 128x1 512", "part": "step", "variant": "quintet", "ms": [0.1]},
        {"set": "kernels", "workload": "K5", "case": "decode_self 128x1 512", "part": "step", "variant": "compile", "ms": [0.2]},
        {"set": "kernels", "workload": "K5", "case": "decode_self 8x1 512", "part": "step", "variant": "quintet", "ms": [0.1]}]
    # 34.4 GFLOP at 800 TFLOP/s are 0.04295 ms, 134 million exponentials 0.0671.
    for variant, ms in (("quintet", [0.0859, 0.0859, 9.0]), ("sdpa_cudnn_bias", [0.0859]), ("eager_bias", [0.859]),
                        ("jax_cudnn_bias", [0.1])):
        lines.append({"workload": "K1", "case": "b32_h16_d64_512x512", "part": "forward", "variant": variant, "ms": ms})
    lines.append({"workload": "K1", "case": "b32_h16_d64_512x512", "variant": "flex_table", "error": "no flex",
                  "program": "torch_attention"})
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"cut short'
    (tmp_path / "measurements.jsonl").write_text(text)
    results = tmp_path / "results"
    results.mkdir()
    subprocess.run([sys.executable, BENCH / "report", tmp_path, f"--results={results}"], check=True,
                   capture_output=True, timeout=60)
    report = (results / "2026-01-02-a-gpu.md").read_text()
    for said in ("800 TFLOP/s", "4000 GB/s", "2e+12 exponentials/s", "| 78% of ≥ 44% | **1.00x** of ≥ 1.15 |", "10.00x of ≥ 5", "no flex",
                 "1. decode_self 128x1 512 step: 50% of the bound, 75% asked for",
                 "| decode_self 128x1 512 | step | 0.100 (±0%) | 2.01e+03 GB/s | **50%** of ≥ 75% | 2.00x of ≥ 1 |",
                 "| decode_self 8x1 512 | step | 0.100 (±0%) | 126 GB/s | 3% |",
                 "2. b32_h16_d64_512x512 forward against cuDNN with bias: 1.00x of 1.15x", "3 of 5 demands met"):
        assert said in report, (said, report)


def reported(folder, *lines, **machine):
    """The report of these measurements."""
    first = {"machine": {"gpu": "A GPU", "date": "2026-01-02T00:00:00", "versions": {}, **machine}}
    ceilings = [("gemm_8192", 2 * 8192**3 / 800e12 * 1e3), ("copy_4000000000", 2.0)]
    bounds = [{"workload": "ceilings", "case": case, "part": "forward", "variant": "torch", "ms": [ms]} for case, ms in ceilings]
    (folder / "measurements.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [first, *bounds, *lines]))
    return subprocess.run([sys.executable, BENCH / "report", folder], check=True, capture_output=True, text=True, timeout=60).stdout


def ours(workload, case, part, ms, variant="quintet", **more):
    return dict(workload=workload, case=case, part=part, variant=variant, ms=[ms], **more)


def test_norms_are_held_against_a_copy_of_as_many_bytes(tmp_path):
    # 84 MB in 0.025 ms are 84% of the ceiling of 4,000 GB/s, in 0.05 ms 42%.
    report = reported(tmp_path, ours("K4", "rms_norm_20480_512", "forward", 0.025, of_equal_copy=0.91),
                      ours("K4", "rms_norm_20480_1024", "forward", 0.05, of_equal_copy=0.87),
                      ours("K4", "rms_norm_20480_1024", "backward", 0.06, of_equal_copy=0.81),
                      ours("K4", "rms_norm_20480_2048", "forward", 0.1))
    for said in ("| rms_norm_20480_512 | forward | 0.0250 (±0%) | 3.36e+03 GB/s | 91% of ≥ 88% (copy) |",
                 "| **87%** of ≥ 88% (copy) |", "| 81% of ≥ 80% (copy) |", "2 of 3 demands met",
                 "1. rms_norm_20480_1024 forward: 87% of a copy of as many bytes, 88% asked for"):
        assert said in report, (said, report)


def test_small_kernels_of_generation_are_judged_by_launches_in_a_row(tmp_path):
    report = reported(tmp_path, ours("K5", "decode_self 1x1 512", "step", 0.009, ms_in_a_row=0.0039),
                      ours("K5", "decode_cross 8x1 512", "step", 0.009, ms_in_a_row=0.0045),
                      ours("K5", "sample_topp 64x32128", "step", 0.02, ms_in_a_row=0.0079),
                      ours("K5", "sample_all 64x250112", "step", 0.05))
    for said in ("3.9 us of ≤ 4.0 us", "**4.5 us** of ≤ 4.2 us", "7.9 us of ≤ 8.2 us", "**32%** of ≥ 37%", "2 of 4 demands met"):
        assert said in report, (said, report)


def test_plans_of_memory_are_held_against_the_allocator(tmp_path):
    gib = 2**30
    lines = [ours("T2", "train_large_32x(512/128)", "step", 100, planned_bytes=31 * gib, device_peak_bytes=30 * gib),
             ours("T5", "train_xxl_rounded_16x(512/128)", "step", 889, planned_bytes=98 * gib, device_peak_bytes=110 * gib),
             ours("T5", "train_xxl_lora_8x(512/128)", "step", 500, planned_bytes=80 * gib, device_peak_bytes=80 * gib)]
    report = reported(tmp_path, *lines)
    for said in ("| train_large_32x(512/128) | quintet | 31.00 | 30.00 | +3.3% |  |", "| 98.00 | 110.00 | **-10.9%** |  |", "**48%** of ≥ 49%", "| 80.00 | 80.00 | +0.0% | 73.6 |", "3 of 6 demands met",
                 "train_xxl_rounded_16x(512/128) quintet: planned memory is off by -10.9%, 5% at most asked for",
                 "train_xxl_lora_8x(512/128) quintet: 80.0 GiB held, 73.6 at most asked for", "18 seq/s"):
        assert said in report, (said, report)
    assert "of ≥" not in reported(tmp_path, *lines[2:], tiny=True)


def test_experts_fp8_and_optimizers_are_held_against_what_runs_beside_them(tmp_path):
    kernels = "moe_kernels_768_3072_e64_k1_16384"
    fp8 = "train_large_fp8_32x(512/128)"
    parts = [ours("M1", kernels, part, ms) for part, ms in (("route", 0.06), ("dispatch", 0.02), ("combine", 0.02), ("experts_in", 0.2),
                                                            ("experts_out", 0.2))]
    report = reported(tmp_path, *parts, ours("M1", kernels, "experts_in", 0.18, "quintet_dense"),
                      ours("M1", kernels, "experts_out", 0.16, "quintet_dense"), ours("F1", fp8, "step", 80),
                      ours("F1", fp8, "step", 100, "quintet_bfloat16"), ours("K4", "adamw_t5_1_1_large", "step", 5),
                      ours("T2", "train_large_32x(512/128)", "step", 80))
    for said in ("Routing, dispatch and combine: 20% of a layer of experts forward, 15% at most asked for.", "0.90x of ≥ 0.85",
                 "**0.80x** of ≥ 0.85", "**1.25x** of ≥ 1.4", "AdamW: 6.2% of a step of T5 1.1 large, 6% at most asked for.", "3 of 7 demands met"):
        assert said in report, (said, report)


def test_steps_are_timed_with_the_flags_of_their_case(tmp_path):
    program = tmp_path / "quintet"
    program.write_text("""#!/bin/sh
case "$*" in
  *--help) echo "--device TEXT --gradient_dtype TEXT --remat_policy TEXT --microbatches INT --optimizer_offload --optimizer TEXT" ;;
  *) printf '{"device": "A GPU", "tensor_bytes": 7, "planned_bytes": 6, "dtype": "%s", "steps": 1, "seconds_per_step": ' "$*"
     echo '{"min": 1, "median": 1}}' ;;
esac
""")
    program.chmod(0o755)
    subprocess.run([sys.executable, BENCH / "run", "train_xxl", "fp8", "--device=cuda", f"--out={tmp_path}", f"--bin={tmp_path}", "--peers=none"],
                   check=True, capture_output=True, timeout=60)
    lines = [json.loads(line) for line in (tmp_path / "measurements.jsonl").read_text().splitlines()]
    step = {line["case"]: line for line in lines if line.get("variant") == "quintet" and "ms" in line}
    offload = step["train_xxl_offload_32x(512/128)"]
    assert (offload["planned_bytes"], offload["device_peak_bytes"]) == (6, 7), offload
    for flag in ("--model=t5_1_1_xxl", "--batch=32", "--steps=2", "--optimizer=adafactor", "--gradient_dtype=bfloat16", "--remat_policy=minimal",
                 "--microbatches=4", "--optimizer_offload"):
        assert flag in offload["note"], (flag, offload)
    # A build whose bench does not know adapters and FP8 says so.
    failed = {line["case"] for line in lines if "cannot do it" in line.get("error", "")}
    assert failed == {"train_xxl_lora_8x(512/128)", "train_large_fp8_32x(512/128)"}, failed


def test_the_plain_peers_are_what_they_say(tmp_path):
    """Where PyTorch or JAX is installed: QUINTET_PEERS_PYTHON names the Python that has them."""
    python = os.environ.get("QUINTET_PEERS_PYTHON")
    if not python:
        skip("QUINTET_PEERS_PYTHON names no Python")
    done = subprocess.run([python, BENCH / "peers" / "check.py"], capture_output=True, text=True,
                          env=dict(os.environ, JAX_PLATFORMS="cpu"))
    assert done.returncode == 0 and "ok " in done.stdout, (done.stdout, done.stderr)


def test_a_peer_that_hangs_fails_or_prints_is_recorded(tmp_path):
    sys.path.insert(0, str(BENCH))
    from programs import Program

    def outcome(code, limit):
        lines = []
        program = Program("peer", [sys.executable, "-c", code], lines.append)
        program.ready.wait(20 if "ready" in code else 1)
        program.go()
        return program.finish(limit), lines

    # delay: a peer that hangs
    why, lines = outcome("import time; print('{\"case\": \"a\"}', flush=True); time.sleep(60)", 0.5)
    assert lines == [{"case": "a"}] and why.startswith("stopped after"), (why, lines)
    why, lines = outcome("raise SystemExit('no such backend')", 20)
    assert why == "exit 1: no such backend" and not lines, why
    why, lines = outcome("print('{\"ready\": true}', flush=True); print('{\"case\": \"%s\"}' % input())", 20)
    assert why is None and lines == [{"case": "go"}], (why, lines)


def kit(folder, *flags, expect=0, device="cpu"):
    """The steps that a call of bench/gpu/all ended, {name: result}."""
    done = subprocess.run([sys.executable, BENCH / "all", QUINTET.rsplit("/", 1)[0], "--tiny", f"--device={device}",
                           f"--out={folder / 'kit'}", f"--python={fake(folder)}", *flags], capture_output=True, text=True, timeout=600)
    assert done.returncode == expect, done
    return {line["step"]: line["result"] for line in map(json.loads, done.stdout.splitlines())}


def test_the_kit_goes_on_where_it_was_cut_short(tmp_path):
    steps = "--steps=starts,profile"
    assert kit(tmp_path, "--minutes=0", steps) == {}
    assert kit(tmp_path, "--steps=starts") == {"starts": "ok"}
    assert "quintet 0." in (tmp_path / "kit" / "starts.log").read_text()
    assert kit(tmp_path, "--resume", steps) == {"profile": "ok"} and kit(tmp_path, "--resume", steps) == {}
    assert "mlp" in (tmp_path / "kit" / "profile.log").read_text()
    kit(tmp_path, "--steps=all", expect=2)


def test_all_of_the_kit_runs_on_the_emulator_and_goes_on_after_a_cut(tmp_path):
    if not (pathlib.Path(QUINTET).parent / "bench" / "gpu" / "emulated").is_dir():
        skip("a build without the emulator")
    first = kit(tmp_path, "--minutes=0.1", device="emulated")
    assert list(first.values())[-1] == "cut" and "ok" in first.values(), first
    rest = kit(tmp_path, "--resume", device="emulated")
    assert not set(rest) & {name for name, result in first.items() if result == "ok"}, (first, rest)
    listed = subprocess.run([sys.executable, BENCH / "all", "build", "--list"], capture_output=True, text=True).stdout
    assert set(first) | set(rest) == {line.split()[0] for line in listed.splitlines()}, (first, rest)
    assert all(result == "ok" or result == "absent" and name in ("sanitizer", "ncu") for name, result in rest.items()), rest
    lines = [json.loads(line) for line in (tmp_path / "kit" / "measurements.jsonl").read_text().splitlines()]
    failed = [line for line in lines if "error" in line and not line.get("absent")]
    assert not failed, failed
    for program in "attention_bench", "pointwise_bench", "decode_bench":
        assert any(line.get("program") == program and "ms" in line for line in lines), program
    distances = [x for line in lines for x in line.get("accuracy", {}).values()]
    assert len(distances) > 50 and max(distances) < 1e-2, distances  # bfloat16's
    assert "decode_self" in (tmp_path / "kit" / "report.md").read_text()
    assert any(line["workload"] == "F1" and line["variant"] == "quintet" for line in lines if "ms" in line)
    planned = [line for line in lines if line.get("planned_bytes") and line.get("device_peak_bytes")]
    assert {"train_tiny_offload_2x(8/4)", "train_tiny_lora_2x(8/4)"} <= {line["case"] for line in planned}, planned


def fake(folder):
    """A Python in which no peer is installed."""
    script = folder / "python-without-peers"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    script.chmod(0o755)
    return script


run(globals())
