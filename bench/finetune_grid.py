#!/usr/bin/env python3
"""Whether the defaults of `quintet finetune` are near the best of a small grid, on the tutorials' tasks.

bench/finetune_grid.py --model /tmp/island/pretrained --data /tmp/island [--quintet build/quintet] [--folder /tmp/finetune-grid]
                       [--tasks reviews,german] [--seeds 3]

Each task is fine-tuned with the defaults, and with each optimizer and peak learning rate of GRID to the end (--patience=0), everything else at its
default. The figure of a run is the task's metric (in %) at its best evaluation, the mean over seeds 0, 1, ... Runs that --folder has already are not repeated. Prints a table;
figures do not depend on the machine's load.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import time

# Optimizer, peak learning rate.
GRID = [("adafactor", rate) for rate in ("0.004", "0.008", "0.016")] + [("adamw", rate) for rate in ("0.001", "0.003")]
DEFAULT = ("default",)
# As the tutorials 6 to 11 say it: the file's format, flags, and the value of metrics.jsonl that is compared.
TASKS = {"reviews": ("csv", ["--input=text", "--target=label", "--labels=positive,negative,mixed,neutral"], "accuracy"),
         "german": ("tsv", ["--input=english", "--target=german", "--metrics=bleu,chrf,exact_match"], "bleu"),
         "reports": ("jsonl", ["--input=text", "--target=headline", "--source_prefix=summarize: ", "--metrics=rouge,exact_match"], "rougeLsum"),
         "questions": ("jsonl", ["--template=question: {question} context: {context}", "--target=answer"], "f1"),
         "tags": ("tsv", ["--input=words", "--target=tagged"], "f1"),
         "search": ("jsonl", ["--input=text", "--target=headline", "--metrics=rouge"], "rougeLsum")}


def best(run, metric):
    """The highest value of the metric at any evaluation, and its step."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return max((record[f"eval/{metric}"], record["step"]) for record in records if f"eval/{metric}" in record)


def measured(arguments, task, settings, seed=0):
    """One run's figure, its step and seconds; kept in --folder."""
    ending, flags, metric = TASKS[task]
    run = arguments.folder / "-".join([task, *settings, *([f"seed{seed}"] if seed else [])])
    done = run.with_suffix(run.suffix + ".json")
    if not done.exists():
        files = [f"--{split}={arguments.data / f'{task}_{split}.{ending}'}" for split in ("train", "validation")]
        chosen = ["--patience=0", *(f"--{flag}={value}" for flag, value in zip(("optimizer", "learning_rate"), settings))]
        began = time.monotonic()
        subprocess.run([arguments.quintet, "finetune", arguments.model, *files, *flags, *(chosen if settings != DEFAULT else []), f"--seed={seed}", f"--output_dir={run}"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        value, step = best(run, metric)
        done.write_text(json.dumps({"value": value, "step": step, "seconds": round(time.monotonic() - began)}))
    return json.loads(done.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--quintet", default="build/quintet")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/finetune-grid"))
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print("| task | metric | default | " + " | ".join(" ".join(settings) for settings in GRID) + " | default / best |")
    print("|" + "---|" * (len(GRID) + 4))
    for task in arguments.tasks.split(","):
        values = [statistics.mean(measured(arguments, task, settings, seed)["value"] for seed in range(arguments.seeds)) for settings in [DEFAULT, *GRID]]
        print(f"| {task} | {TASKS[task][2]} | " + " | ".join(f"{value:.1f}" for value in values) + f" | {values[0] / max(values):.3f} |", flush=True)


if __name__ == "__main__":
    main()
