"""bench/gpu end to end at tiny sizes, on the CPU and on the emulator: it needs no GPU and no peers, and says which were not there."""

import importlib.machinery
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import types

from e2e import QUINTET, ROOT, run, skip, wait_for

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
        {"machine": {"gpu": "NVIDIA H100 80GB HBM3, 580", "date": "2026-01-02T00:00:00", "versions": {}, "commit": "abc"}},
        {"workload": "K1", "case": "of_another_kind", "part": "forward", "variant": "quintet", "ms": [1.0]},
        {"machine": {"gpu": "NVIDIA H200, 580", "date": "2026-01-02T00:00:00", "versions": {}, "commit": "def"}},
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
    report = (results / "2026-01-02-nvidia-h200.md").read_text()
    assert "of_another_kind" not in report and "Commit def;" in report, report
    for said in ("800 TFLOP/s", "4000 GB/s", "2e+12 exponentials/s", "| H100 | 989 | 3350 |  |", "| H200 | 989 | 4800 | 81%, 83% |", "| 78% of ≥ 44% | **1.00x** of ≥ 1.15 |", "10.00x of ≥ 5", "no flex",
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


def test_a_case_that_was_measured_again_is_no_further_round(tmp_path):
    case = "b32_h16_d64_512x512"
    report = reported(tmp_path, ours("K1", case, "forward", 9.0, round=1), ours("K1", case, "forward", 1.0, round=1, peak_bytes=9 * 2**20),
                      ours("K1", case, "forward", 3.0, round=2, peak_bytes=2**20), ours("K4", "rms_norm_20480_512", "forward", 1, round=1, of_equal_copy=0.1),
                      ours("K4", "rms_norm_20480_512", "forward", 1, round=1, of_equal_copy=0.9))
    for said in (f"| K1 | {case} | forward | quintet | 2.000 | 100% | 2 |", "| 90% of ≥ 88% (copy) |", f"| {case} | quintet | 9 |"):
        assert said in report, (said, report)


def test_demands_that_something_is_missing_for_are_counted(tmp_path):
    def lines_of(case, *more):
        return [ours("K1", case, "forward", 1.0), ours("K1", case, "forward", 2.0, "sdpa_cudnn_bias"), *more]

    report = reported(
        tmp_path, *lines_of("b32_h16_d64_512x512", ours("K1", "b32_h16_d64_512x512", "forward", 2.0, "flex_table")),
        *lines_of("b32_h16_d128_512x512", dict(case="b32_h16_d128_512x512", variant="flex_table", error="no memory", program="torch_attention")),
        ours("K1", "b4_h16_d64_2048x2048", "forward", 1.0, "eager"), ours("K4", "rms_norm_20480_512", "forward", 0.025),
        ours("K5", "decode_self 1x1 512", "step", 0.009), ours("T2", "train_large_32x(512/128)", "step", 100))
    for said in ("4 of 6 demands met, 18 not judged.", "- K1, no time of flex, table: b32_h16_d128_512x512 forward\n", "- K1, no time of cuDNN without bias: all cases\n",
                 "- no time of ours: b4_h16_d64_2048x2048 forward\n", "- no copy of as many bytes: rms_norm_20480_512 forward\n",
                 "- no launches in a row: decode_self 1x1 512 step\n", "- no planned and held memory: train_large_32x(512/128) step\n",
                 "- T2, no time of JAX: all cases\n", "- no time of both: the optimizer's share of a step\n"):
        assert said in report, (said, report)
    (tmp_path / "measurements.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (
        {"machine": {"gpu": "A GPU", "versions": {}}}, ours("K3", "cross_entropy_4096_32128", "step", 1.0), ours("K5", "decode_self 1x1 512", "step", 0.009))))
    report = subprocess.run([sys.executable, BENCH / "report", tmp_path], check=True, capture_output=True, text=True, timeout=60).stdout
    assert "0 of 0 demands met, 7 not judged." in report, report
    assert "- no ceiling: cross_entropy_4096_32128 step; decode_self 1x1 512 step\n" in report, report


def test_a_report_of_steps_alone_is_kept(tmp_path):
    (tmp_path / "steps.jsonl").write_text('{"machine": {"gpu": "NVIDIA H200, 580", "date": "2026-01-02T00:00:00"}}\n'
                                          '{"step": "starts", "part": "version", "result": "ok", "seconds": 1}\n')
    subprocess.run([sys.executable, BENCH / "report", tmp_path, f"--results={tmp_path}"], check=True, capture_output=True, timeout=60)
    assert "| starts | version | ok |" in (tmp_path / "2026-01-02-nvidia-h200.md").read_text()


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


def test_optimizers_move_the_bytes_that_their_benchmark_counts(tmp_path):
    sys.path.insert(0, str(BENCH))
    import workloads

    counted = dict(re.findall(r'"optim_(\w+) t5_large", (\d+) \* n', (BENCH / "pointwise_bench.cu").read_text()))
    for rule in "adamw", "adafactor":
        moved = workloads.work(workloads.optimizer_case(rule, "t5_1_1_large"), "step")[1] / workloads.parameters_of("t5_1_1_large")
        assert moved == int(counted[rule]), (rule, moved, counted)
    # 30 bytes of each of 783 million parameters.
    report = reported(tmp_path, ours("K4", "adamw_t5_1_1_large", "step", 6.2))
    assert "| 6.200 (±0%) | 3.79e+03 GB/s | 95% of ≥ 94% |" in report, report


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


# Prints a case, stands still at the second one as long as a file `hangs` is beside it, and ends. Says what it was asked for.
BENCH_STUB = """#!{python}
import pathlib, sys, time
here = pathlib.Path(__file__).parent
open(here / "calls", "a").write(" ".join(sys.argv) + "\\n")
for case in "first", "second", "third":
    if f"--skip={{case}}" not in sys.argv:
        print('{{"workload": "K1", "case": "%s", "part": "forward", "variant": "quintet", "ms": [1.5]}}' % case, flush=True)
    while case == "second" and (here / "hangs").exists():
        time.sleep(0.05)  # delay: a program that hangs
"""


def stub(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)
    return path


def test_a_set_that_was_cut_short_is_in_the_report_and_goes_on(tmp_path):
    bench, out = stub(tmp_path / "bin" / "decode_bench", BENCH_STUB), tmp_path / "out"
    stub(tmp_path / "bin" / "quintet", "#!/bin/sh\n[ \"$2 $3\" = 'gemm --help' ] && echo '--dtype TEXT' && exit\n"
         "echo '{{\"bench\": \"gemm\", \"seconds\": {{\"min\": 1, \"median\": 1}}}}'\n")
    (tmp_path / "bin" / "hangs").touch()
    command = [sys.executable, BENCH / "run", "kernels", "--tiny", "--device=cpu", "--peers=none", f"--bin={bench.parent}", f"--out={out}"]

    def lines():
        return [json.loads(line) for line in (out / "measurements.jsonl").read_text().splitlines() if not line.startswith('{"torn')]

    def measured():
        return [line["case"] for line in lines() if "ms" in line]

    cut = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_for(lambda: (out / "measurements.jsonl").exists() and "second" in measured())
    # The report follows the lines; it does not wait for the end.
    (out / "report.md").unlink(missing_ok=True)
    cut.send_signal(signal.SIGTERM)
    assert cut.wait(30) == 130
    assert "| second | forward | 1.500" in (out / "report.md").read_text()
    (tmp_path / "bin" / "hangs").unlink()
    with open(out / "measurements.jsonl", "a") as file:
        file.write('{"torn')  # as by a machine that was taken away
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=60)
    assert again.returncode == 0, again
    assert measured() == ["gemm_64", "first", "second", "second", "third"], lines()
    assert sum("machine" in line for line in lines()) == 2  # the second is not swallowed by the torn line
    assert "--skip=first" in bench.with_name("calls").read_text().splitlines()[-1]
    subprocess.run([*command, "--resume"], check=True, capture_output=True, timeout=60)
    assert len(measured()) == 5 and len(bench.with_name("calls").read_text().splitlines()) == 2, lines()
    # Another card of the kind has ceilings of its own, one of another kind begins anew.
    for change, added in ((lambda m: m.update(card="other"), ["gemm_64"]), (lambda m: m.update(cpu="other"), ["gemm_64", "first", "second", "third"])):
        changed = lines()
        for line in changed:
            change(line.get("machine", {}))
        (out / "measurements.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed))
        before = measured()
        subprocess.run([*command, "--resume"], check=True, capture_output=True, timeout=60)
        assert measured() == before + added, (before, measured())
    assert "| first | forward | 1.500 (±0%) |" in (out / "report.md").read_text()


def program(name):
    """A script of bench/gpu as a module."""
    loader = importlib.machinery.SourceFileLoader(f"bench_gpu_{name}", str(BENCH / name))
    module = types.ModuleType(loader.name)
    module.__file__ = loader.path
    sys.path.insert(0, str(BENCH))
    loader.exec_module(module)
    return module


def test_calls_on_other_machines_are_told_apart(tmp_path):
    def machine(gpu, card):
        return {"machine": dict(gpu=gpu, card=card, device="cuda", tiny=False)}

    def measured(set_name, run, *cases):
        return [dict(set=set_name, run=run, case=case, variant="torch", round=1, ms=1) for case in cases]

    # A call on an H100, one cut on an H200, and one that goes on there: the report has nothing of the H100.
    h100, h200, other = machine("NVIDIA H100", "a"), machine("NVIDIA H200", "b"), machine("NVIDIA H200", "c")
    Earlier = program("run").Earlier
    lines = [h100, dict(set="kernels", ended="on_h100"), *measured("kernels", "cut", "x", "y"), h200, dict(set="kernels", ended="on_h200")]
    earlier = Earlier(lines, h200["machine"])
    assert earlier.ended == {("kernels", "on_h200")} and not earlier.units, vars(earlier)
    assert not Earlier(lines, h100["machine"]).ended
    # Another card of the kind: all but the ceilings, those that were cut short, too.
    ceilings = [*measured("ceilings", "peer", "gemm", "copy"), dict(set="ceilings", ended="ours")]
    lines = [h200, *ceilings, *measured("kernels", "cut", "x", "y")]
    earlier = Earlier([*lines, other], other["machine"])
    assert not earlier.ended and list(earlier.units) == [("kernels", "cut")] and earlier.skip(("kernels", "cut")) == ["--skip=x torch 1"]
    earlier = Earlier([*lines, other], h200["machine"])
    assert earlier.ended and earlier.skip(("ceilings", "peer")) == ["--skip=gemm torch 1"], vars(earlier)


# A Python with all peers, which never become ready and end only when they have to.
PEERS_STUB = """#!/bin/sh
[ "$1" = -c ] && exec echo '{{"torch": "2", "jax": "1", "optax": "1"}}'
echo "$*" >>"$0.calls"
trap '' TERM
while :; do sleep 0.1; done
"""


def test_peers_have_the_time_of_the_call_and_end_together(tmp_path):
    python = stub(tmp_path / "python", PEERS_STUB)

    def late(*flags):
        began = time.monotonic()
        done = subprocess.run([sys.executable, BENCH / "run", "kernels", "--tiny", "--device=cpu", f"--python={python}", f"--bin={tmp_path}",
                               f"--out={tmp_path / 'out'}", *flags], capture_output=True, text=True, timeout=120)
        assert done.returncode == 3, done
        lines = [json.loads(line) for line in (tmp_path / "out" / "measurements.jsonl").read_text().splitlines()]
        (tmp_path / "out" / "measurements.jsonl").unlink()
        return {line["program"]: line["error"] for line in lines if line.get("late")}, time.monotonic() - began

    others = "torch_attention", "torch_kernels", "torch_decode", "jax_kernels"
    # delay: peers that hang are given three seconds to end, all of them together
    why, seconds = late("--compile_limit=0.5")
    assert why == dict.fromkeys(("torch_ceilings", *others), "not ready after 0 s") and seconds < 12, (why, seconds)
    why, seconds = late("--seconds=3")
    assert re.fullmatch("not ready after [12] s", why["torch_ceilings"]) and seconds < 12, (why, seconds)
    assert why.items() >= dict.fromkeys(others, "not begun: the time was over").items(), why
    assert "--compile_seconds=1 " in python.with_name("python.calls").read_text().splitlines()[-1]


def test_a_part_of_the_kit_ends_in_its_time_and_with_the_terminal(tmp_path):
    hangs = stub(tmp_path / "bin" / "quintet", f"#!/bin/sh\n[ \"$3\" = --help ] && exit\necho $$ >>{tmp_path}/pids\nexec sleep 60\n")
    module = program("all")
    args = types.SimpleNamespace(bundle=str(hangs.parent), out=str(tmp_path / "kit"), minutes=9, resume=False, device="cpu", tiny=True, python="python3")
    one = module.Kit(args)
    one.begin()
    # delay: a program that hangs; bench/gpu/run ends by itself five seconds before its limit
    assert one.run("checkpoint", 7, {"run": one.bench("checkpoint", "--peers=none")}) == "late"
    assert "stopped after" in (tmp_path / "kit" / "measurements.jsonl").read_text()
    killed = subprocess.Popen([sys.executable, BENCH / "all", hangs.parent, "--steps=starts", "--device=cpu", f"--out={tmp_path / 'kit'}"])
    pids = tmp_path / "pids"
    before = pids.read_text()
    wait_for(lambda: pids.read_text() != before)
    killed.send_signal(signal.SIGHUP)
    assert killed.wait(30) == 130
    wait_for(lambda: not pathlib.Path(f"/proc/{pids.read_text().split()[-1]}").exists(), 5)


def test_a_signal_leaves_no_program_that_is_being_started(tmp_path):
    # delay: a program that hangs
    done = subprocess.run([sys.executable, "-c", f"""
import os, signal, subprocess, sys
sys.path.insert(0, "{BENCH}")
import programs
programs.exit_on_signals()
class Popen(subprocess.Popen):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen = Popen
programs.Program("hangs", ["sleep", "60"], print)
print("goes on")"""], capture_output=True, text=True, timeout=30)
    assert done.returncode == 130 and done.stdout.strip().isdigit(), done
    wait_for(lambda: not pathlib.Path(f"/proc/{done.stdout.strip()}").exists(), 5)


def test_the_report_comes_while_a_program_measures(tmp_path):
    bench, out = stub(tmp_path / "bin" / "decode_bench", BENCH_STUB), tmp_path / "out"
    (tmp_path / "bin" / "hangs").touch()
    killed = subprocess.Popen([sys.executable, BENCH / "run", "kernels", "--tiny", "--device=cpu", "--peers=none", f"--bin={bench.parent}",
                               f"--out={out}"], stderr=subprocess.DEVNULL)
    wait_for(lambda: (out / "report.md").exists() and "| second | forward |" in (out / "report.md").read_text())
    assert '"ended"' not in (out / "measurements.jsonl").read_text()
    killed.terminate()
    assert killed.wait(30) == 130


def test_a_peer_leaves_out_what_was_measured_and_says_when_it_was_late(tmp_path):
    sys.path.insert(0, str(BENCH / "peers"))
    import common

    jobs = [common.Job(dict(name=name, workload="K1"), "eager", lambda: {"forward": [None]}) for name in "abc"]
    args = types.SimpleNamespace(cases="", variants="", wait=False, rounds=2, iterations=1, seconds=45,
                                 skip=["a eager 1", "a eager 2", "b eager 1", "c eager failed"])
    assert [job.case["name"] for job in common.chosen(args, jobs)] == ["b"]
    lines = []
    common.print_line = lambda **line: lines.append(line)
    common.measure(args, common.chosen(args, jobs), lambda *ignored: [1.0])
    assert [(line["case"], line["round"]) for line in lines if "case" in line] == [("b", 2)], lines
    args.seconds = 0
    common.measure(args, jobs[:1], lambda *ignored: [1.0])
    assert {"late": True} not in lines  # nothing was left to do
    args.skip = []
    common.measure(args, jobs[:1], lambda *ignored: [1.0])
    assert {"late": True} in lines, lines
    # What there is no time to compile is late, and what was compiled is measured.
    made = common.Job(dict(name="made", workload="K1"), "compiled", lambda: {"forward": [lambda: setattr(common, "STARTED", -100)]}, compiles=True)
    late = common.Job(dict(name="late", workload="K1"), "compiled", None, compiles=True)
    common.time_torch, common.release_torch = lambda *ignored: [1.0], lambda args: None
    args.compile_seconds, args.seconds, lines[:] = 50, 45, []
    common.run_torch(args, [made, late])
    assert [(line["case"], line.get("late", False)) for line in lines if "case" in line] == [("late", True), ("made", False), ("made", False)], lines


def test_our_programs_leave_out_what_is_skipped_and_have_cases_for_a_sanitizer(tmp_path):
    emulated = pathlib.Path(QUINTET).parent / "bench" / "gpu" / "emulated"
    if not emulated.is_dir():
        skip("a build without the emulator")

    def names(program, *flags, expect=0):
        done = subprocess.run([emulated / program, "--device=emulated", "--tiny", "--runs=1", *flags], capture_output=True, text=True, timeout=400)
        assert done.returncode == expect, done
        return [line.get("name") or f"{line['case']} {line['part']}" for line in map(json.loads, done.stdout.splitlines()) if "device" not in line]

    assert names("decode_bench", "--only=top_", "--skip=top_8 2x300", "--skip=top_1 8x300") == [
        "copy", "top_1 2x300", "top_8 8x300", *(f"top_{k} 4x{vocabulary}" for vocabulary in (300, 700) for k in (1, 8))]
    assert names("fp8_bench", "--only=bfloat16 ", "--skip=bfloat16 forward 128x64x64x3") == [
        f"bfloat16 {part} {sizes}" for sizes in ("128x64x64x3", "128x64x64x1", "128x64x176x2", "128x176x64x1") for part in ("forward", "backward")][1:]
    # More heads of sequences than the emulator's four multiprocessors, four blocks of 128 keys.
    cases = [f"b4_h2_d{depth}_{case} {part}" for depth in (64, 128) for case in ("128x128_causal", "130x400_cross") for part in ("forward", "backward")]
    assert list(dict.fromkeys(names("attention_bench", "--check"))) == cases
    names("decode_bench", "--check", expect=2)


def kit(folder, *flags, expect=0, device="cpu", programs=QUINTET.rsplit("/", 1)[0]):
    """The steps that a call of bench/gpu/all ended, {name: result}. Its sanitizers and ncu run the program and are in `tools`."""
    for name in "compute-sanitizer", "ncu":
        stub(folder / "tools" / name, f'#!/bin/sh\necho "${{{{0##*/}}}} $*" >>{folder}/tools/calls\n'
             'for word; do case "$word" in -*) shift;; *) break;; esac; done\nexec "$@"\n')
    done = subprocess.run([sys.executable, BENCH / "all", programs, "--tiny", f"--device={device}",
                           f"--out={folder / 'kit'}", f"--python={fake(folder)}", *flags], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PATH": f"{folder / 'tools'}:{os.environ['PATH']}"})
    assert done.returncode == expect, done
    return {line["step"]: line["result"] for line in map(json.loads, done.stdout.splitlines())}


def test_the_kit_goes_on_where_it_was_cut_short(tmp_path):
    steps = "--steps=starts,profile"
    assert kit(tmp_path, "--minutes=0", steps) == {}
    assert kit(tmp_path, "--steps=starts") == {"starts": "ok"}
    assert "quintet 0." in (tmp_path / "kit" / "starts.log").read_text()
    assert kit(tmp_path, "--resume", steps) == {"profile": "ok"} and kit(tmp_path, "--resume", steps) == {}
    assert "mlp" in (tmp_path / "kit" / "profile.log").read_text()
    assert "| profile | train | ok |" in (tmp_path / "kit" / "report.md").read_text()
    kit(tmp_path, "--steps=all", expect=2)
    # A part that ended stays, one cut short is done again; what was late comes behind the rest. A torn line is one cut short.
    (tmp_path / "kit" / "steps.jsonl").write_text(
        '{"step": "starts", "part": "version", "result": "late", "seconds": 1}\n'
        '{"step": "starts", "part": "gemm", "result": "failed", "seconds": 1}\n{"step": "profile", "part": "tr')
    assert list(kit(tmp_path, "--resume", steps).items()) == [("profile", "ok"), ("starts", "ok")]
    assert [part for _, part, _ in ended(tmp_path)] == ["version", "gemm", "train", "version"], ended(tmp_path)
    # Without --resume everything is done, and what was there is kept.
    assert kit(tmp_path, "--steps=starts") == {"starts": "ok"} and list(tmp_path.glob("kit/earlier-*/profile.log"))
    # What bench/gpu/run had measured there moves, too.
    (tmp_path / "kit" / "steps.jsonl").unlink()
    (tmp_path / "kit" / "measurements.jsonl").write_text("{}\n")
    assert kit(tmp_path, "--steps=starts") == {"starts": "ok"} and not (tmp_path / "kit" / "measurements.jsonl").exists()


def test_parts_that_ended_on_another_kind_of_machine_are_done_again(tmp_path):
    stub(tmp_path / "bin" / "quintet", "#!/bin/sh\n")
    call = [sys.executable, BENCH / "all", tmp_path / "bin", "--steps=starts", "--device=cpu", f"--out={tmp_path / 'kit'}", "--resume"]
    for tiny, earlier in ((True, 0), (True, 0), (False, 1), (False, 1), (True, 2)):
        subprocess.run([*call, *["--tiny"] * tiny], check=True, capture_output=True, timeout=60)
        assert len(ended(tmp_path)) == 2 and len(list(tmp_path.glob("kit/earlier-*/starts.log"))) == earlier, (tiny, ended(tmp_path))


def test_a_test_of_a_bundle_that_was_late_is_done_again(tmp_path):
    stub(tmp_path / "test", '#!/bin/sh\necho "$@" && echo "1 passed, 0 failed, 0 skipped, 1 late" && exit 3\n')
    for _ in range(2):
        assert kit(tmp_path, "--steps=tests", "--resume", programs=tmp_path) == {"tests": "late"}
    assert "| tests | all | late |" in (tmp_path / "kit" / "report.md").read_text() and len(ended(tmp_path)) == 2


def ended(folder):
    """[(step, part, result)] as bench/gpu/all wrote them."""
    lines = (folder / "kit" / "steps.jsonl").read_text().splitlines()
    return [(line["step"], line["part"], line["result"]) for line in map(json.loads, filter(lambda x: x.endswith("}"), lines)) if "step" in line]


def test_three_calls_are_long_enough_and_sanitizers_come_third(tmp_path):
    listed = subprocess.run([sys.executable, BENCH / "all", "build", "--list"], capture_output=True, text=True).stdout.splitlines()
    limits = {line.split()[0]: int(line.split()[1]) for line in listed}
    assert sum(limits.values()) <= 3 * 540 - 60 and list(limits)[:3] == ["starts", "tests", "sanitizer"], limits


def test_a_hang_leaves_time_to_the_other_parts_of_a_step(tmp_path):
    # delay: a program that hangs
    hangs = stub(tmp_path / "bin" / "quintet", "#!/bin/sh\n[ \"$1\" = --version ] && exec sleep 60\necho gemm\n")
    result = subprocess.run([sys.executable, "-c", f"""
import importlib.machinery, sys
sys.argv = ["all", "{hangs.parent}", "--out={tmp_path / 'kit'}", "--steps=starts", "--tiny", "--device=cpu"]
kit = importlib.machinery.SourceFileLoader("kit", "{BENCH / 'all'}").load_module()
steps = kit.Kit.steps
kit.Kit.steps = lambda self: {{name: (10, parts) for name, (limit, parts) in steps(self).items()}}
sys.exit(kit.main())"""], capture_output=True, text=True, timeout=60)
    assert json.loads(result.stdout)["result"] == "late", result
    assert ended(tmp_path) == [("starts", "version", "late"), ("starts", "gemm", "ok")], ended(tmp_path)


def test_tools_start_on_the_program_and_not_on_its_launcher(tmp_path):
    for name in "attention_bench", "pointwise_bench", "decode_bench", "moe_layer_bench", "quintet":
        stub(tmp_path / "bin" / name, f"#!/bin/sh\nLD_LIBRARY_PATH=/of/{name} exec $QUINTET_LAUNCH_WITH env real=1 {name} \"$@\"\n")
        stub(tmp_path / "tools" / name, "#!/bin/sh\necho $0 $LD_LIBRARY_PATH $*\n")
    assert kit(tmp_path, "--steps=sanitizer,ncu", programs=tmp_path) == {"sanitizer": "ok", "ncu": "ok"}
    calls = (tmp_path / "tools" / "calls").read_text().splitlines()
    assert len(calls) == 20 and all(" env real=1 " in call and " --target-processes=all " in call for call in calls), calls
    assert "tools/attention_bench /of/attention_bench --device=cpu --check --runs=1 --tiny" in (tmp_path / "kit" / "sanitizer.log").read_text()


# Says what `quintet bench checkpoint` says.
CHECKPOINT_STUB = """#!/bin/sh
[ "$2" = checkpoint ] && echo '{{"stall_seconds": 1, "copy_seconds": 1, "write_seconds": 1, "restore_seconds": 1}}'
exit 0
"""


def test_results_may_lie_in_the_bundle(tmp_path):
    stub(tmp_path / "quintet", CHECKPOINT_STUB)
    assert kit(tmp_path, "--steps=checkpoint", programs=tmp_path) == {"checkpoint": "ok"}
    lines = (tmp_path / "kit" / "measurements.jsonl").read_text()
    assert '"part": "restore"' in lines
    # By hand, with the folder named otherwise, nothing of it is measured again.
    subprocess.run([BENCH / "run", "checkpoint", "--resume", "--out=kit", f"--bin={tmp_path}", "--tiny", "--device=cpu", "--peers=none"], cwd=tmp_path,
                   check=True, capture_output=True, timeout=60)
    again = (tmp_path / "kit" / "measurements.jsonl").read_text()
    assert len(again) > len(lines) and again.count('"restore"') == lines.count('"restore"'), again
    (tmp_path / "quintet").unlink()
    assert kit(tmp_path, "--steps=shared", programs=tmp_path) == {"shared": "absent"}


def assert_tools_saw_the_hot_kernels(folder):
    calls = (folder / "tools" / "calls").read_text().splitlines()
    sanitized = [call for call in calls if call.startswith("compute-sanitizer --target-processes=all --tool=")]
    assert re.search("--tool=racecheck .*attention_bench .*--check", sanitized[0]), sanitized
    assert {call.split("=")[2].split()[0] for call in sanitized} == {"racecheck", "synccheck", "memcheck"} and len(set(sanitized)) == 12
    profiled = {re.search(r"--kernel-name=regex:(\S+)", call)[1] for call in calls if call.startswith("ncu --target-processes=all ")}
    hot = [line.split()[0].partition(":")[2].partition("<")[0] for line in (ROOT / "tests" / "static" / "hot_kernels.txt").read_text().splitlines()
           if ":" in line and not line.startswith("#")]
    assert len(profiled) == 11, profiled
    for names in profiled - {"gemm|nvjet|cutlass|xmma"}:
        assert any(re.search(names, kernel) for kernel in hot), (names, hot)


def test_all_of_the_kit_runs_on_the_emulator_and_goes_on_after_a_cut(tmp_path):
    if not (pathlib.Path(QUINTET).parent / "bench" / "gpu" / "emulated").is_dir():
        skip("a build without the emulator")
    first, rest, late = {}, {}, True
    for _ in range(5):  # a busy machine may end no step in six seconds
        if "ok" not in first.values():
            first |= kit(tmp_path, "--resume", "--minutes=0.1", device="emulated")
    assert "ok" in first.values() and "serve_xl_ours" not in first, first
    for _ in range(4):  # a busy machine may be late
        if late:
            rest |= kit(tmp_path, "--resume", device="emulated")
            late = "late" in rest.values()
    assert not set(rest) & {name for name, result in first.items() if result == "ok"}, (first, rest)
    listed = subprocess.run([sys.executable, BENCH / "all", "build", "--list"], capture_output=True, text=True).stdout
    assert set(first) | set(rest) == {line.split()[0] for line in listed.splitlines()}, (first, rest)
    assert set(rest.values()) == {"ok"}, rest
    lines = [json.loads(line) for line in (tmp_path / "kit" / "measurements.jsonl").read_text().splitlines()]
    failed = [line for line in lines if "error" in line and not line.get("absent") and not line.get("late")]
    assert not failed, failed
    for program in "attention_bench", "pointwise_bench", "decode_bench":
        assert any(line.get("program") == program and "ms" in line for line in lines), program
    assert [line["case"] for line in lines if line.get("set") == "ceilings" and "ms" in line] == ["gemm_64"]  # once
    distances = [x for line in lines for x in line.get("accuracy", {}).values()]
    assert len(distances) > 50 and max(distances) < 1e-2, distances  # bfloat16's
    assert any(line["workload"] == "F1" and line["variant"] == "quintet" for line in lines if "ms" in line)
    planned = [line for line in lines if line.get("planned_bytes") and line.get("device_peak_bytes")]
    assert {"train_tiny_offload_2x(8/4)", "train_tiny_lora_2x(8/4)"} <= {line["case"] for line in planned}, planned
    report = (tmp_path / "kit" / "report.md").read_text()
    for said in "decode_self", "| decode | fp8 cache, batch 128 | ok |", "tokens/s |", "| H100 | 989 | 3350 |", "| H200 | 989 | 4800 |":
        assert said in report, (said, report)
    assert_tools_saw_the_hot_kernels(tmp_path)


def fake(folder):
    """A Python in which no peer is installed."""
    script = folder / "python-without-peers"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    script.chmod(0o755)
    return script


run(globals())
