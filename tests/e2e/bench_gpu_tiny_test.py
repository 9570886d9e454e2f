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
    lines = measure(tmp_path, "kernels", "train", "finetune", "train_xl", "serve", "serve_xl", "checkpoint", f"--python={fake(tmp_path)}")
    measured = {(line["case"], line["variant"]) for line in lines if "ms" in line}
    listed = subprocess.run([sys.executable, BENCH / "run", "--list", "--tiny"], capture_output=True, text=True).stdout
    cases = [line.split()[2] for line in listed.splitlines() if not line.startswith("kernels")]
    assert len(cases) == 9, listed
    for case in cases:
        assert (case, "quintet") in measured, (case, lines)
    absent = {(line["set"], line["program"]) for line in lines if line.get("absent")}
    for name in "train", "finetune", "train_xl", "serve", "serve_xl":
        for peer in "torch_eager", "jax":
            assert (name, peer) in absent, (name, peer, absent)
    assert ("checkpoint", "torch_checkpoint") in absent, absent
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
    assert "fp8 backward" in (tmp_path / "kit" / "fp8.log").read_text()


def fake(folder):
    """A Python in which no peer is installed."""
    script = folder / "python-without-peers"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    script.chmod(0o755)
    return script


run(globals())
