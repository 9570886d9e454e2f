#!/usr/bin/env python3
"""How well `quintet plan` foretells published runs that it was not fitted to, beside a model of one utilisation a framework.

    bench/published/score.py [--quintet build/quintet] [--runs bench/published/t5_training.json] [--fit FILE]

Each run's speed is foretold from the other runs of its framework (a cluster of the file): of a grid of matmul_efficiency and
overlap the pair is taken that is nearest to them, by the mean of |log(planned / published)|. The null model takes the mean
utilisation of those runs. --fit writes the file with the pair that is nearest to all runs of each framework.
"""
import argparse
import itertools
import json
import math
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EFFICIENCIES = [round(0.12 * 1.09**i, 3) for i in range(20)]
OVERLAPS = [0.0, 0.25, 0.5, 0.75, 1.0]


def planned_speeds(quintet, document, folder):
    """Sequences a second, in the order of the runs."""
    file = folder / "runs.json"
    file.write_text(json.dumps(document))
    table = subprocess.run([quintet, "plan", f"--published={file}"], check=True, capture_output=True, text=True).stderr
    return [float(re.search(re.escape(run["name"]) + r"\s+sequences/s\s+\S+\s+(\S+)", table).group(1)) for run in document["runs"]]


def flops_of_a_sequence(quintet, run, folder):
    cluster = folder / "one.json"
    cluster.write_text(json.dumps({"devices": 1, "memory_gib": 1e6, "tflops": 1, "memory_gb_per_s": 1e6, "link_gb_per_s": 1}))
    sizes = [f"--{name}={run[name]}" for name in ("model", "dtype", "inputs", "targets")]
    plan = subprocess.run([quintet, "plan", f"--cluster={cluster}", "--batch=8", *sizes], check=True, capture_output=True, text=True).stdout
    row = json.loads(plan.splitlines()[0])
    return row["mfu"] * row["seconds_per_step"] * 1e12 / 8


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quintet", default=ROOT / "build" / "quintet")
    parser.add_argument("--runs", default=ROOT / "bench" / "published" / "t5_training.json")
    parser.add_argument("--fit")
    ns = parser.parse_args()
    whole = json.loads(pathlib.Path(ns.runs).read_text())
    runs = [run for run in whole["runs"] if "sequences_per_second" in run]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        speeds = {}
        for pair in itertools.product(EFFICIENCIES, OVERLAPS):
            changed = {label: {**cluster, "matmul_efficiency": pair[0], "overlap": pair[1]} for label, cluster in whole["clusters"].items()}
            speeds[pair] = planned_speeds(ns.quintet, {"clusters": changed, "runs": runs}, folder)
        flops = [flops_of_a_sequence(ns.quintet, run, folder) for run in runs]

    def fitted(indices):
        return min(speeds, key=lambda pair: sum(abs(math.log(speeds[pair][i] / runs[i]["sequences_per_second"])) for i in indices))

    peak = [whole["clusters"][run["cluster"]]["tflops"] * 1e12 * run["devices"] for run in runs]
    utilisation = [run["sequences_per_second"] * f / p for run, f, p in zip(runs, flops, peak)]
    errors, null_errors = [], []
    print(f"{'run':<44}{'published':>10}{'planned':>10}{'error':>8}{'null':>10}{'error':>8}   fitted to the others")
    for i, run in enumerate(runs):
        others = [k for k, other in enumerate(runs) if other["cluster"] == run["cluster"] and k != i]
        pair, published = fitted(others), run["sequences_per_second"]
        planned, null = speeds[pair][i], statistics.mean(utilisation[k] for k in others) * peak[i] / flops[i]
        errors.append(abs(planned / published - 1))
        null_errors.append(abs(null / published - 1))
        print(f"{run['name']:<44}{published:>10.4g}{planned:>10.4g}{planned / published - 1:>+8.0%}{null:>10.4g}{null / published - 1:>+8.0%}"
              f"   efficiency {pair[0]:g}, overlap {pair[1]:g}")
    print(f"mean error {statistics.mean(errors):.1%}, at most {max(errors):.0%}; null model {statistics.mean(null_errors):.1%}, at most {max(null_errors):.0%}")
    for label, cluster in whole["clusters"].items():
        mine = [k for k, run in enumerate(runs) if run["cluster"] == label]
        if mine:
            cluster["matmul_efficiency"], cluster["overlap"] = fitted(mine)
            print(f"{label}: efficiency {cluster['matmul_efficiency']:g}, overlap {cluster['overlap']:g}")
    if ns.fit:
        lines = [f"  {json.dumps(label)}: {json.dumps(cluster)}" for label, cluster in whole["clusters"].items()]
        pathlib.Path(ns.fit).write_text('{"clusters": {\n' + ",\n".join(lines) + '},\n "runs": [\n' + ",\n".join(f"  {json.dumps(run)}" for run in whole["runs"]) + "]}\n")


if __name__ == "__main__":
    main()
