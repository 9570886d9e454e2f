"""Layouts measured on ranks and planned: both count the same bytes; reports; what is refused."""

import json
import re
import subprocess
import os
import xml.etree.ElementTree

import e2e
from e2e import QUINTET, quintet

# T5X's standard tables: activations and parameters each on one or two axes.
FOUR_TABLES = "2x2:a1p1,2x2:a1p2,2x2:a2p1,2x2:a2p2"
MODEL = ["--model=t5_1_1_tiny", "--batch=8", "--inputs=16", "--targets=8"]
SWITCH = ["flaxformer/t5x/configs/moe/models/switch_tiny.gin", "--gin.NUM_MODEL_PARTITIONS=1",
          "--gin.ACTIVATION_DTYPE='float32'", "--gin.MOE_TRUNCATED_DTYPE='float32'", *MODEL[1:]]
CLUSTER = {"name": "4 devices", "gpu": False, "devices": 4, "devices_per_host": 4, "memory_gib": 1, "tflops": 1,
           "memory_gb_per_s": 10, "link_gb_per_s": 1, "link_us": 5}


def cluster(folder, **changes):
    file = folder / "cluster.json"
    file.write_text(json.dumps({**CLUSTER, **changes}))
    return f"--cluster={file}"


def rows(text):
    return {row["layout"]: row for row in map(json.loads, text.splitlines())}


def page(file):
    """A report: well-formed, nothing from elsewhere."""
    text = file.read_text()
    assert not re.search(r"(src|href)=|@import|url\(", text)
    return xml.etree.ElementTree.fromstring(text)


def assert_same_counts(on_ranks, planned):
    assert on_ranks.keys() == planned.keys(), (on_ranks.keys(), planned.keys())
    for name, row in on_ranks.items():
        assert row["sent"] and row["sent"] == planned[name]["sent"], (name, row["sent"], planned[name]["sent"])
        assert row["peak_bytes"]["parameters"] > 0 and row["peak_bytes"] == planned[name]["peak_bytes"], \
            (name, row["peak_bytes"], planned[name]["peak_bytes"])


def test_a_measured_cluster_is_what_a_plan_reads(folder):
    file = folder / "measured.json"
    lines = [json.loads(line) for line in quintet("bench", "cluster", "--ranks=2", "--repeats=1", f"--output={file}", "--name=mine").out.splitlines()]
    assert {line["collective"] for line in lines if "collective" in line} == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert all(line["us"] > 0 for line in lines if "collective" in line or "product" in line), lines
    measured = json.loads(file.read_text())
    assert (measured["name"], measured["devices"], measured["devices_per_host"]) == ("mine", 2, 2)
    # Ops of sharded steps too, and what is none.
    assert {"matmul", "attention_grad", "cross_entropy", "cross_entropy_apply", "rms_norm_squares", "optimizer", "copy"} <= measured["ops"].keys()
    planned = rows(quintet("plan", f"--cluster={file}", *MODEL).out)
    slower = {**measured, "ops": {name: {part: 10 * us for part, us in op.items()} for name, op in measured["ops"].items()}}
    file.write_text(json.dumps(slower))
    for name, row in rows(quintet("plan", f"--cluster={file}", *MODEL).out).items():
        assert abs(row["seconds"]["compute"] / planned[name]["seconds"]["compute"] - 10) < 1e-6, (name, row, planned[name])


def test_the_plan_counts_what_ranks_count(folder):
    measured = quintet("bench", "layouts", "--ranks=4", "--steps=2", *MODEL, f"--report={folder}/measured.html")
    planned = quintet("plan", cluster(folder), *MODEL, f"--report={folder}/planned.html")
    on_ranks, planned = rows(measured.out), rows(planned.out)
    assert len(on_ranks) == 12 and {"r2x2x1:a1p2", "2x2:a1p2s"} < on_ranks.keys(), on_ranks.keys()
    assert_same_counts(on_ranks, planned)
    for name, row in on_ranks.items():
        parts = row["seconds"]
        assert abs(sum(parts.values()) - row["seconds_per_step"]) < 1e-6, row
        assert 0 < row["mfu"] < 1 and parts["exposed"] > 0 and row["tokens_per_second"] > 0, row
    assert sum(row["best"] for row in on_ranks.values()) == 1
    assert re.search(r"^\S+x\S+ .* \*$", measured.err, re.M), measured.err
    for name in "measured", "planned":
        texts = [element.text for element in page(folder / f"{name}.html").iter()]
        assert all(layout in texts for layout in on_ranks), name


def test_gradients_in_bfloat16_are_planned_as_they_are_sent(folder):
    layouts = [*MODEL, "--layouts=4x1:a1p1,2x2:a1p2"]
    wide, measured = (rows(quintet("bench", "layouts", "--ranks=4", "--steps=1", *layouts, *more).out)
                      for more in ([], ["--reduce_gradients_in=bfloat16"]))
    planned = rows(quintet("plan", cluster(folder), *layouts, "--reduce_gradients_in=bfloat16").out)
    assert_same_counts(measured, planned)
    sent, half = ({name: {(s["collective"], s["over"]): s["bytes"] for s in row["sent"]} for name, row in of.items()}
                  for of in (wide, measured))
    for layout, key in (("4x1:a1p1", ("all_reduce", "data")), ("2x2:a1p2", ("reduce_scatter", "data"))):
        assert 0.5 <= half[layout][key] / sent[layout][key] < 0.501, (layout, sent, half)


def test_experts_have_an_axis_of_their_own(folder):
    measured = quintet("bench", "layouts", "--ranks=4", "--steps=1", *SWITCH)
    on_ranks = rows(measured.out)
    assert_same_counts(on_ranks, rows(quintet("plan", cluster(folder), *SWITCH).out))
    assert len(on_ranks) == 18 and not any("refused" in row for row in on_ranks.values()), on_ranks.keys()
    parameters = lambda name: on_ranks[name]["peak_bytes"]["parameters"]
    assert parameters("1x1x4:a1p1") < parameters("2x1x2:a1p1") < parameters("4x1x1:a1p1")
    assert sum(row["best"] for row in on_ranks.values()) == 1
    result = quintet("plan", cluster(folder), *MODEL, "--layouts=2x1x2", expect=2)
    assert "2x1x2" in result.err and "no experts" in result.err, result


def test_processes_count_what_threads_count(folder):
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    done = subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", "4", QUINTET, "bench", "layouts",
                           "--steps=1", "--layouts=2x2:a1p2,4x1:a1p1", *MODEL], capture_output=True, text=True,
                          env=environment, stdin=subprocess.DEVNULL, timeout=200)
    assert done.returncode == 0, done.stderr
    planned = rows(quintet("plan", cluster(folder), *MODEL).out)
    on_ranks = rows(done.stdout)
    assert list(on_ranks) == ["2x2:a1p2", "4x1:a1p1"], on_ranks
    for name, row in on_ranks.items():
        assert row["sent"] == planned[name]["sent"] and row["peak_bytes"] == planned[name]["peak_bytes"], name


def test_a_gpu_packs_what_it_reshards_in_one_launch_each(folder):
    """Launches and copies of a step are for the model alone to say: rows twice as many add none."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")

    def counts(batch):
        done = subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", "4", QUINTET, "bench", "layouts",
                               "--device=emulated", "--steps=1", f"--layouts={FOUR_TABLES},4x1:a1p1", MODEL[0], *MODEL[2:], batch],
                              capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, timeout=200)
        assert done.returncode == 0, done.stderr
        return rows(done.stdout)

    few, many = counts("--batch=4"), counts("--batch=16")
    for name, row in few.items():
        collectives = sum(entry["calls"] for entry in row["sent"])
        assert 0 < row["copies"] < 2 * collectives + 250, row
        assert row["launches"] > 100 and row["staged_bytes"] > 0, row
        for count in ("launches", "copies", "host_waits", "bytes_to_host"):
            assert row[count] == many[name][count], (name, count, row[count], many[name][count])
        assert row["bytes_to_host"] < 1024 and row["host_waits"] < 8, row  # sharded or not, the optimizer stays on the device
    on_cpu = rows(quintet("bench", "layouts", "--ranks=2", "--steps=1", "--layouts=2x1:a1p2", *MODEL).out)
    assert all(on_cpu["2x1:a1p2"][count] == 0 for count in ("launches", "copies", "host_waits", "bytes_to_host")), on_cpu
    plan = rows(quintet("plan", cluster(folder), "--layouts=2x2:a2p2", *MODEL).out)["2x2:a2p2"]
    assert 100 < plan["launches"] <= few["2x2:a2p2"]["launches"], (plan, few)
    assert plan["exposed_communication"] == plan["seconds"]["exposed"] / plan["seconds"]["compute"], plan


def test_sums_over_replicas_travel_while_gradients_are_computed(folder):
    planned = quintet("plan", "t5x/examples/t5/t5_1_1/xxl.gin", "--batch=2048", "--targets=128",
                      f"--cluster={e2e.ROOT}/bench/published/a100_512.json", "--layouts=r8x8x8:a1p2")
    assert "DROPOUT_RATE is not bound" in planned.err, planned.err
    row = rows(planned.out)["r8x8x8:a1p2"]
    assert row["exposed_communication"] < 0.22, row["exposed_communication"]  # one after the other: 0.32


def test_little_of_the_communication_of_512_gpus_is_exposed(folder):
    """With the hops of NCCL's rings between 64 hosts (docs/usage/many-ranks.md)."""
    def exposed(layout, *more):
        return rows(quintet("plan", "t5x/examples/t5/t5_1_1/xxl.gin", "--gin.DROPOUT_RATE=0.0", "--batch=2048", "--targets=128",
                            f"--cluster={e2e.ROOT}/bench/published/a100_512.json", f"--layouts={layout}", *more).out)[layout]["exposed_communication"]
    halves = ("--microbatches=2", "--interleave_microbatches")
    assert exposed("64x8:a1p2") < 0.15 and exposed("64x8:a1p2", *halves) < 0.10
    assert exposed("64x8:a1p2s") < 0.17, exposed("64x8:a1p2s")  # with gathers that nothing hides 0.29 to 0.32


def test_layouts_that_cannot_run_are_listed_with_the_reason(folder):
    result = quintet("plan", cluster(folder, devices=8, devices_per_host=8), *MODEL)
    refused = {name: row["refused"] for name, row in rows(result.out).items() if "refused" in row}
    assert set(refused) == {"1x8:a1p1", "1x8:a2p1", "1x8:a1p1s"}, refused  # 4 heads
    assert "'heads' of size 4" in refused["1x8:a1p1"] and "cannot run" in result.err, refused
    small = quintet("plan", cluster(folder, memory_gib=1e-4), *MODEL)
    assert not any(row["fits"] for row in rows(small.out).values()) and "no layout runs and fits" in small.err


def test_a_cluster_comes_through_a_pipe(folder):
    arguments = [*MODEL, "--layouts=4x1:a1p1"]
    with subprocess.Popen(["cat", cluster(folder).removeprefix("--cluster=")], stdout=subprocess.PIPE) as cat:
        piped = subprocess.run([QUINTET, "plan", "--cluster=/dev/stdin", *arguments], stdin=cat.stdout, capture_output=True, text=True)
    assert piped.returncode == 0 and rows(piped.stdout) == rows(quintet("plan", cluster(folder), *arguments).out), piped


def test_kernels_of_a_gpu_hold_memory(folder):
    plan = lambda gpu: rows(quintet("plan", cluster(folder, gpu=gpu), *MODEL, "--layouts=4x1:a1p1").out)["4x1:a1p1"]["peak_bytes"]
    cpu, gpu = plan(False), plan(True)
    assert cpu["scratch"] == 0 and 64 << 20 <= gpu["scratch"] < 66 << 20, (cpu, gpu)
    assert "gpu: expected true or false" in quintet("plan", cluster(folder, gpu=1), *MODEL, expect=2).err


def test_a_faster_cluster_is_faster_and_links_matter(folder):
    step = lambda **changes: rows(quintet("plan", cluster(folder, **changes), "--layouts=2x2:a1p2", *MODEL).out)["2x2:a1p2"]
    base, links, slow = step(), step(link_gb_per_s=100), step(tflops=0.0001)
    assert links["seconds"]["exposed"] < base["seconds"]["exposed"], (links, base)
    assert links["seconds"]["compute"] == base["seconds"]["compute"]
    assert slow["seconds"]["compute"] > 10 * base["seconds"]["compute"]


def test_what_is_refused(folder):
    def refuses(words, *arguments):
        result = quintet(*arguments, expect=2)
        assert all(word in result.err for word in words), result

    bench = ["bench", "layouts", *MODEL]
    refuses(["--layouts", "'2by2'", "DATAxMODEL"], *bench, "--ranks=4", "--layouts=2by2")
    refuses(["2x4:a1p1 needs 8 ranks, there are 4"], *bench, "--ranks=4", "--layouts=2x4:a1p1")
    refuses(["no layout", "3 ranks"], *bench[:2], "--model=t5_1_1_tiny", "--batch=8", "--ranks=3")
    refuses(["--ranks"], *bench, "--ranks=0")
    refuses(["t5_1_1_tini", "did you mean"], "plan", cluster(folder), "--model=t5_1_1_tini")
    refuses(["/no/such.json"], "plan", "--cluster=/no/such.json", *MODEL)
    refuses(["cluster.json", "devcies", "devices"], "plan", cluster(folder, devcies=4), *MODEL)
    refuses(["tflops", "positive"], "plan", cluster(folder, tflops=0), *MODEL)
    refuses(["network_gb_per_s_per_host"], "plan", cluster(folder, devices=8), *MODEL)
    refuses(["--search", "--cluster=FILE"], "plan", "--search", "t5x/examples/t5/t5_1_1/small.gin", "--gin.DROPOUT_RATE=0.0")
    refuses(["--search", "leave --microbatches"], "plan", "--search", "--microbatches=2", cluster(folder), *MODEL)
    refuses(["--output"], "bench", "cluster")
    refuses(["bfloat16", "GPU"], "bench", "cluster", f"--output={folder}/c.json", "--dtype=bfloat16")


def test_a_search_chooses_what_fits(folder):
    gin = ["t5x/examples/t5/t5_1_1/small.gin", "--gin.DROPOUT_RATE=0.0", "--batch=32", "--inputs=256", "--targets=64", "--layouts=2x2:a1p2"]
    whole = rows(quintet("plan", "--search", cluster(folder, memory_gib=80), *gin).out)["2x2:a1p2"]
    assert whole["fits"] and "remat" not in whole.get("flags", ""), whole
    gib = whole["peak_bytes"]["all"] / 2**30
    result = quintet("plan", "--search", cluster(folder, memory_gib=0.7 * gib), *gin)
    less = rows(result.out)["2x2:a1p2"]
    assert less["fits"] and less["peak_bytes"]["all"] < 0.7 * 0.92 * whole["peak_bytes"]["all"], less
    assert less["seconds_per_step"] > whole["seconds_per_step"], (less, whole)
    assert f"take 2x2:a1p2 {less['flags']}" in result.err, result.err
    alone = quintet("plan", "--search", "--format=json", cluster(folder, memory_gib=0.7 * gib), *gin)
    assert alone.out == result.out and not alone.err, alone


def test_published_runs_are_planned(folder):
    file = e2e.ROOT / "bench" / "published" / "t5_training.json"
    runs = json.loads(file.read_text())
    smallest = [run for run in runs["runs"] if run["model"] == "t5_1_1_small"]
    (folder / "runs.json").write_text(json.dumps({**runs, "runs": smallest}))
    result = quintet("plan", f"--published={folder}/runs.json", f"--report={folder}/page.html")
    assert len(smallest) >= 1 and result.err.count(" %\n") >= len(smallest) and "in the mean" in result.err, result
    cells = [element.text for element in page(folder / "page.html").iter("td")]
    assert any(re.fullmatch(r"[+-]\d+ %", cell or "") for cell in cells), cells


e2e.run(globals())
