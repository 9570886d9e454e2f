#!/usr/bin/env python3
"""Quintet against its peers on the CPU workloads, in one run on one machine.

    bench/compare.py                         all workloads, 3 rounds
    bench/compare.py --only train --rounds 1
    bench/compare.py --quintet build/quintet --peers .venv-peers

Every program runs in a process of its own, in turn (ours, peer, peer, ours, ...), so that a slow minute of the
machine meets all of them. A program's figure is the best of its steps over all rounds; peak memory is the
process's largest resident set. Writes bench/results/<date>-<cpu>.json and .md.
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
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench" / "peers"
CANNOT = 4  # a peer's exit code: not on this machine (bench/peers/common.py)
GENERATE = ["--batch=8", "--inputs=128", "--targets=128"]

# name -> flags, what is asked for against each peer, the programs
WORKLOADS = {
    "train": {
        "title": "train step, T5 1.1 small, float32, batch 8, 256 to 64 tokens, AdamW, no dropout",
        "flags": ["--batch=8", "--inputs=256", "--targets=64", "--steps=5"],
        "ours": ["bench", "train"],
        "peers": {"Hugging Face (PyTorch eager)": ("hf_train.py", 2.5),
                  "T5X's architecture (JAX)": ("jax_train.py", 1.7)}},
    "greedy": {
        "title": "generation, T5 1.1 small, float32, batch 8, 128 to 128 tokens, greedy",
        "flags": GENERATE + ["--beams=1", "--steps=3"],
        "ours": ["bench", "generate"],
        "peers": {"CTranslate2": ("ct2_generate.py", 1.5)}},
    "beam4": {
        "title": "generation, T5 1.1 small, float32, batch 8, 128 to 128 tokens, beam 4",
        "flags": GENERATE + ["--beams=4", "--steps=3"],
        "ours": ["bench", "generate"],
        "peers": {"CTranslate2": ("ct2_generate.py", 1.5)}},
}

# Asked for by name, or all of them by --only generation: the same in other batches and precisions. CTranslate2's int8
# rounds activations too, so ours is int8_dynamic.
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "int8": "int8_dynamic"}
GENERATION = {
    f"{'greedy' if beams == 1 else 'beam4'}-{batch}-{dtype}": {
        "title": f"generation, T5 1.1 small, {dtype}, batch {batch}, 128 to 128 tokens, "
                 f"{'greedy' if beams == 1 else 'beam 4'}",
        "flags": [f"--batch={batch}", "--inputs=128", "--targets=128", f"--beams={beams}", "--steps=2"],
        "dtype": dtype, "ours": ["bench", "generate", f"--quantize={quantize}"],
        "peers": {"CTranslate2": ("ct2_generate.py", 1.0)}}
    for dtype, quantize in PRECISIONS.items() for batch in (1, 8, 64) for beams in (1, 4)}


def run(command, environment):
    """Runs a program to its end: (the JSON object it printed last, its peak resident bytes); (None, 0) of a peer that cannot."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment, cwd=ROOT)
    errors = []
    reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
    reader.start()
    output = process.stdout.read()
    reader.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode == CANNOT:
        print(f"  {errors[0].strip()}", file=sys.stderr, flush=True)
        return None, 0
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {process.returncode}\n{errors[0][-2000:]}")
    return json.loads(output.strip().splitlines()[-1]), usage.ru_maxrss * 1024


def cpu_name():
    fields = dict(re.findall(r"^(model name|model|cpu family)\s*: (.*)$",
                             open("/proc/cpuinfo", encoding="utf-8").read(), re.M))
    family = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    return f"{fields.get('model name', 'unknown')} ({family})"


def commit():
    try:
        return subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def measure(workload, arguments, environment):
    flags = workload["flags"] + ["--model=t5_1_1_small", f"--threads={arguments.threads}"]
    if arguments.steps:
        flags = [flag for flag in flags if not flag.startswith("--steps=")] + [f"--steps={arguments.steps}"]
    commands = {"quintet": [arguments.quintet, *workload["ours"], *flags]}
    python = pathlib.Path(arguments.peers) / "bin" / "python"
    for name, (script, _) in workload["peers"].items():
        commands[name] = [python, PEERS / script, *flags, f"--dtype={workload.get('dtype', 'float32')}"]
    best = {}
    for round_number in range(arguments.rounds):
        for name, command in commands.items():
            print(f"  round {round_number + 1}: {name}", file=sys.stderr, flush=True)
            result, peak = run(command, environment)
            if result is None:
                continue
            seconds = result["seconds_per_step"]
            so_far = best.setdefault(name, {"tokens_per_second": 0, "min": float("inf"), "medians": [], "peak": 0})
            so_far["tokens_per_second"] = max(so_far["tokens_per_second"], result["tokens_per_second"])
            so_far["min"] = min(so_far["min"], seconds["min"])
            so_far["medians"].append(seconds["median"])
            so_far["peak"] = max(so_far["peak"], peak)
            so_far["about"] = result.get("peer", "")
    return best


def report(name, workload, best):
    """A Markdown table of one workload, and whether every demand was met."""
    ours, met = best["quintet"], True
    lines = [f"### {name}: {workload['title']}", "",
             "| program | tokens/s | seconds a step (best) | peak memory MiB | ours is | at least |",
             "|---|---|---|---|---|---|"]
    for program, figures in best.items():
        ratio, demand = "", ""
        if program != "quintet":
            asked = workload["peers"][program][1]
            faster = ours["tokens_per_second"] / figures["tokens_per_second"]
            ratio, demand = f"{faster:.2f}x", f"{asked}x"
            met = met and faster >= asked
        lines.append(f"| {program} {figures['about'] and '(' + figures['about'] + ')'} | "
                     f"{figures['tokens_per_second']:.0f} | {figures['min']:.3f} | {figures['peak'] / 2**20:.0f} | "
                     f"{ratio} | {demand} |")
    if len(best) == 1:
        return "\n".join(lines) + "\n\nNo peer does this on this machine.\n", met
    least = min(figures["peak"] for program, figures in best.items() if program != "quintet")
    memory_met = ours["peak"] <= least
    lines += ["", f"Peak memory: {ours['peak'] / 2**20:.0f} MiB, the best peer {least / 2**20:.0f} MiB."]
    return "\n".join(lines) + "\n", met and memory_met


def write_into_document(text):
    """Puts the report's tables between the two marks of docs/benchmarks.md."""
    file = ROOT / "docs/benchmarks.md"
    body = text.split("\n", 2)[2].strip().replace("### ", "**").replace("**train:", "**train**:")
    body = re.sub(r"^\*\*(\w+)\**: ", r"**\1**: ", body, flags=re.M)
    page = re.sub(r"(<!-- results -->\n).*(<!-- end of results -->)",
                  lambda match: f"{match[1]}{body}\n{match[2]}", file.read_text(encoding="utf-8"), flags=re.S)
    file.write_text(page, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quintet", default=str(ROOT / "build" / "quintet"))
    parser.add_argument("--peers", default=os.environ.get("QUINTET_PEERS", str(ROOT / ".venv-peers")))
    parser.add_argument("--only", action="append", choices=[*WORKLOADS, *GENERATION, "generation"],
                        help="a workload; may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="timed steps a round; default: the workload's")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--document", action="store_true", help="put the tables into docs/benchmarks.md, too")
    parser.add_argument("--out", default=str(ROOT / "bench" / "results"))
    arguments = parser.parse_args()
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads), HF_HUB_OFFLINE="1",
                       TOKENIZERS_PARALLELISM="false")
    for needed, hint in ((arguments.quintet, "scripts/quickstart builds it"),
                         (f"{arguments.peers}/bin/python", "scripts/peers makes it")):
        if not os.path.exists(needed):
            raise SystemExit(f"{needed}: not there; {hint}")
    with tempfile.TemporaryDirectory(prefix="quintet-ct2-") as folder:
        environment["QUINTET_CT2_MODEL"] = folder
        selected = [one for name in arguments.only or WORKLOADS
                    for one in (GENERATION if name == "generation" else [name])]
        workloads = {**WORKLOADS, **GENERATION}
        if any(name != "train" for name in selected):  # converts once, so that it counts in nobody's memory
            run([f"{arguments.peers}/bin/python", PEERS / "ct2_generate.py", "--batch=1", "--inputs=8",
                 "--targets=2", "--steps=1"], environment)
        results, tables, all_met = {}, [], True
        for name in selected:
            print(f"{name}: {workloads[name]['title']}", file=sys.stderr, flush=True)
            results[name] = measure(workloads[name], arguments, environment)
            table, met = report(name, workloads[name], results[name])
            tables.append(table)
            all_met = all_met and met
    date = datetime.date.today().isoformat()
    machine = {"cpu": cpu_name(), "threads": arguments.threads, "commit": commit(), "date": date,
               "rounds": arguments.rounds}
    text = (f"# Quintet and its peers, {date}\n\n{machine['cpu']}, {arguments.threads} threads, commit "
            f"{machine['commit']}, {arguments.rounds} rounds in turn; `bench/compare.py`.\n\n" + "\n".join(tables))
    os.makedirs(arguments.out, exist_ok=True)
    stem = os.path.join(arguments.out, f"{date}-" + re.sub(r"[^A-Za-z0-9]+", "-", machine["cpu"]).strip("-").lower())
    with open(stem + ".json", "w", encoding="utf-8") as file:
        json.dump({"machine": machine, "workloads": results}, file, indent=1)
        file.write("\n")
    with open(stem + ".md", "w", encoding="utf-8") as file:
        file.write(text)
    if arguments.document:
        write_into_document(text)
    print(text)
    print(f"written: {stem}.json, {stem}.md", file=sys.stderr)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
