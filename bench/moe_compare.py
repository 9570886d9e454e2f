#!/usr/bin/env python3
"""A mixture-of-experts layer against the dense layer that costs as much a token, flaxformer's layer in JAX and Hugging
Face's Switch layer, in one run on one thread.

    ninja -C build moe_bench && scripts/peers
    bench/moe_compare.py [--bench build/tests/models/moe_bench] [--peers .venv-peers] [--rounds 2]

4,096 tokens of width 512, 1,024 columns an expert, float32, one expert a token, capacity factor 1.25. Milliseconds of
processor time, so that other work on the machine hardly counts; the programs run in turn, a figure is the best of the
rounds. Writes bench/results/<date>-moe-<cpu>.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

from compare import PEERS, ROOT, commit, cpu_name

AT_MOST = 1.3  # times the larger of the dense layer's time and that of reading the experts' weights
PASSES = ["forward_ms", "forward_backward_ms"]


def measure(command, environment, best):
    """Runs a program; keeps the least of each figure a layer in `best`."""
    output = subprocess.run(list(map(str, command)), env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout
    for found in map(json.loads, output.splitlines()):
        so_far = best.setdefault((found["layer"], found["experts"]), found)
        for name in found:
            if name.endswith("_ms"):
                so_far[name] = min(so_far[name], found[name])


def pair(figures):
    return f"{figures[PASSES[0]]:.0f}, {figures[PASSES[1]]:.0f}"


def table(best):
    """The Markdown lines, and whether every layer kept to AT_MOST."""
    ours, met = best["quintet"], True
    peers = [name for name in best if name != "quintet"]
    lines = ["| layer | ours, ms | reading its weights, ms | against the bound | " +
             " | ".join(f"{name}, ms | ours is" for name in peers) + " |", "|---" * (4 + 2 * len(peers)) + "|"]
    dense = ours["dense", 1]
    for (layer, experts), figures in ours.items():
        ratios = [figures[name] / max(dense[name], figures["read_weights_ms"]) for name in PASSES]
        met = met and max(ratios) <= AT_MOST
        cells = [f"{layer}, {experts} experts" if layer != "dense" else layer, pair(figures),
                 f"{figures['read_weights_ms']:.1f}", ", ".join(f"{ratio:.2f}" for ratio in ratios)]
        for name in peers:
            theirs = best[name].get((layer if layer == "dense" else "switch", experts))
            cells += [pair(theirs), ", ".join(f"{theirs[p] / figures[p]:.1f}x" for p in PASSES)] if theirs else ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n", met


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=str(ROOT / "build" / "tests" / "models" / "moe_bench"))
    parser.add_argument("--peers", default=str(ROOT / ".venv-peers"))
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    python = pathlib.Path(arguments.peers) / "bin" / "python"
    commands = {"quintet": [arguments.bench], "flaxformer's layer (JAX)": [python, PEERS / "jax_moe.py"],
                "transformers (PyTorch)": [python, PEERS / "hf_moe.py"]}
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    best = {name: {} for name in commands}
    for round_number in range(arguments.rounds):
        for name, command in commands.items():
            print(f"round {round_number + 1}: {name}", file=sys.stderr, flush=True)
            measure(command, environment, best[name])
    text, met = table(best)
    cpu, date = cpu_name(), datetime.date.today().isoformat()
    about = "; ".join(next(iter(best[name].values()))["program"] for name in commands if name != "quintet")
    text = (f"# A mixture-of-experts layer and its peers, {date}\n\n{cpu}, one thread, processor time (best of "
            f"{arguments.rounds} rounds of five), commit {commit()}; {about}; `bench/moe_compare.py`. Forward, and forward with "
            f"gradients; the bound is the larger of the dense layer's time and that of reading the weights; at most "
            f"{AT_MOST} of it is asked.\n\n{text}")
    print(text)
    slug = re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-")
    (ROOT / "bench" / "results" / f"{date}-moe-{slug}.md").write_text(text)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
