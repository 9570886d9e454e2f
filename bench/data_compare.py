#!/usr/bin/env python3
"""The data pipeline against seqio/tf.data and Hugging Face datasets, in one run on one machine and one core.

    bench/data_compare.py                      text, TFRecord and cached input, 3 rounds
    bench/data_compare.py --rounds 1 --seconds 5

`scripts/peers data` installs the peers. The work: lines of text tokenized by the same SentencePiece model and packed
into rows of 512 ids for a language model (from a cache: ids packed). Each program runs in a process of its own, pinned
to one core, in turn; its figure is the best of the rounds, a second of processor time being the unit (other work on the
machine then hardly counts). Writes bench/results/<date>-data-<cpu>.json and .md.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from compare import PEERS, ROOT, commit, cpu_name, run

AT_LEAST = 5.0  # times seqio
RESUME_STEPS, RESUME_SECONDS = 1_000_000, 1.0
SOURCES = {"text": ["seqio", "datasets"], "tfrecord": ["seqio"], "cached": ["seqio", "datasets"]}
SCRIPTS = {"seqio": "seqio_data.py", "datasets": "hf_data.py"}


def commands(arguments, folder, source):
    common = [f"--folder={folder}", f"--source={source}", f"--seconds={arguments.seconds}"]
    ours = ["taskset", "-c", str(min(os.sched_getaffinity(0))), arguments.quintet, "bench", "data", "--objective=lm", *common]
    found = {"quintet": ours}
    for peer in SOURCES[source]:
        found[peer] = [pathlib.Path(arguments.peers) / "bin" / "python", PEERS / SCRIPTS[peer], *common]
    return found


def measure(arguments, folder, source, environment):
    best = {}
    for round_number in range(arguments.rounds):
        for name, command in commands(arguments, folder, source).items():
            print(f"  round {round_number + 1}: {name}", file=sys.stderr, flush=True)
            result, peak = run(command, environment)
            if result["tokens_per_second"] > best.get(name, {"tokens_per_second": 0})["tokens_per_second"]:
                best[name] = dict(result, peak=peak)
    return best


def report(source, best):
    ours, met = best["quintet"], True
    lines = [f"### {source}", "", "| program | examples/s | tokens/s | peak memory MiB | ours is | at least |",
             "|---|---|---|---|---|---|"]
    for program, figures in best.items():
        ratio = demand = ""
        if program != "quintet":
            faster = ours["tokens_per_second"] / figures["tokens_per_second"]
            ratio = f"{faster:.1f}x"
            if program == "seqio":
                demand, met = f"{AT_LEAST:.0f}x", faster >= AT_LEAST
        about = f" ({figures['peer']})" if "peer" in figures else ""
        lines.append(f"| {program}{about} | {figures['examples_per_second']:.0f} | {figures['tokens_per_second']:.0f} | "
                     f"{figures['peak'] / 2**20:.0f} | {ratio} | {demand} |")
    return "\n".join(lines) + "\n", met


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quintet", default=str(ROOT / "build" / "quintet"))
    parser.add_argument("--peers", default=os.environ.get("QUINTET_DATA_PEERS", str(ROOT / ".venv-data-peers")))
    parser.add_argument("--only", action="append", choices=sorted(SOURCES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--out", default=str(ROOT / "bench" / "results"))
    arguments = parser.parse_args()
    environment = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONPATH=str(PEERS))
    with tempfile.TemporaryDirectory(prefix="quintet-data-") as folder:
        environment["HF_HOME"] = os.path.join(folder, "hf")
        subprocess.run([arguments.quintet, "bench", "data", "--prepare", f"--folder={folder}", "--objective=lm"], check=True)
        results, tables, all_met = {}, [], True
        for source in arguments.only or SOURCES:
            print(source, file=sys.stderr, flush=True)
            results[source] = measure(arguments, folder, source, environment)
            table, met = report(source, results[source])
            tables.append(table)
            all_met = all_met and met
        resumed, _ = run([arguments.quintet, "bench", "data", "--objective=lm", "--source=cached", f"--folder={folder}",
                          "--seconds=1", "--targets=64", f"--resume_steps={RESUME_STEPS}"], environment)
    results["resume"] = resumed
    all_met = all_met and resumed["resume_seconds"] < RESUME_SECONDS
    date = datetime.date.today().isoformat()
    machine = {"cpu": cpu_name(), "commit": commit(), "date": date, "rounds": arguments.rounds}
    text = (f"# Data pipeline and its peers, {date}\n\n{machine['cpu']}, one core, commit {machine['commit']}, {arguments.rounds} "
            f"rounds in turn; `bench/data_compare.py`. Per second of processor time; tokenized and packed into rows of 512.\n\n"
            + "\n".join(tables) + f"\nResuming from a position {RESUME_STEPS:,} steps in, to the first batch: "
            f"{resumed['resume_seconds']:.3f} s (at most {RESUME_SECONDS:.0f} s).\n")
    os.makedirs(arguments.out, exist_ok=True)
    stem = os.path.join(arguments.out, f"{date}-data-" + re.sub(r"[^A-Za-z0-9]+", "-", machine["cpu"]).strip("-").lower())
    pathlib.Path(stem + ".json").write_text(json.dumps({"machine": machine, "sources": results}, indent=1) + "\n", encoding="utf-8")
    pathlib.Path(stem + ".md").write_text(text, encoding="utf-8")
    print(text)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
