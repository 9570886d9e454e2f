#!/usr/bin/env python3
"""Curves of one or more runs as an SVG picture, from their metrics.jsonl; needs nothing but Python.

    scripts/plot.py RUN [RUN ...] [--out curves.svg] [--metric NAME ...]

A metric is drawn once for each place that has it (train, training_eval/TASK, inference_eval/TASK); one that ends in /* stands
for all below it, in one diagram. Default metrics: loss, accuracy, eval/sequence_accuracy, learning_rate; of models with experts
the share of dropped tokens and, a diagram a sparse layer, the load of each expert over that of an even share
(experts/load/layer_0/*). TensorBoard reads the same runs: tensorboard --logdir RUN.
"""

import argparse
import html
import json
import math
import pathlib
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 520, 260, 60, 30, 28
MOST_LABELS = 16
COLOURS = ("#1b6ca8", "#c8553d", "#588b3a", "#7d5ba6", "#b08900", "#3a8f8b", "#8a4b08", "#555555")


def read_run(folder):
    """{(metric, run:place): [(step, value)]}"""
    file = pathlib.Path(folder) / "metrics.jsonl"
    if not file.exists():
        sys.exit(f"{file}: not there; {folder} is not the directory of a training run")
    series = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        for name, value in record.items():
            if name not in ("step", "run") and isinstance(value, (int, float)):
                series.setdefault((name, record.get("run", "")), []).append((record["step"], float(value)))
    return series


def ticks(low, high):
    """About four round numbers between low and high."""
    if high <= low:
        return [low]
    unit = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(unit * factor for factor in (1, 2, 5, 10) if (high - low) / (unit * factor) <= 5)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def panel(title, lines, top):
    """One diagram: lines is [(label, [(step, value)])]."""
    xs = [step for _, points in lines for step, _ in points]
    ys = [value for _, points in lines for _, value in points]
    x_low, x_high, y_low, y_high = min(xs), max(max(xs), min(xs) + 1), min(ys), max(ys)
    y_high = y_high if y_high > y_low else y_low + 1

    def place(step, value):
        return (LEFT + (step - x_low) / (x_high - x_low) * WIDTH,
                top + TOP + (1 - (value - y_low) / (y_high - y_low)) * (HEIGHT - TOP - BOTTOM))

    out = [f'<text x="{LEFT}" y="{top + 18}" font-weight="bold">{html.escape(title)}</text>']
    for value in ticks(y_low, y_high):
        _, y = place(x_low, value)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + WIDTH}" y2="{y:.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in ticks(x_low, x_high):
        x, _ = place(step, y_low)
        out.append(f'<text x="{x:.1f}" y="{top + HEIGHT - 10}" text-anchor="middle">{step:g}</text>')
    for i, (label, points) in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>'
                for x, y in (place(*point) for point in points)]
        every = math.ceil(len(lines) / MOST_LABELS)
        if i % every == 0:
            out.append(f'<text x="{LEFT + WIDTH + 12}" y="{top + TOP + 14 * (i // every) + 8}" fill="{colour}">'
                       f'{html.escape(label)}</text>')
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--out", default="curves.svg")
    parser.add_argument("--metric", action="append")
    arguments = parser.parse_args()
    runs = {run: read_run(run) for run in arguments.runs}
    known = {name for series in runs.values() for name, _ in series}
    loads = {name.rpartition("/")[0] + "/*" for name in known if name.startswith("experts/load/")}
    metrics = arguments.metric or ["loss", "accuracy", "eval/sequence_accuracy", "learning_rate",
                                   "experts/fraction_tokens_left_behind", *sorted(loads, key=lambda name: (len(name), name))]
    panels = []
    for metric in metrics:
        lines = []
        for run, series in runs.items():
            for (name, place), points in sorted(series.items()):
                points = [(step, value) for step, value in points if math.isfinite(value)]
                below = metric.endswith("/*") and name.startswith(metric[:-1])
                if points and (name == metric or below):
                    prefix = f"{pathlib.Path(run).name}: " if len(arguments.runs) > 1 else ""
                    tail = f" {name.removeprefix(metric[:-1])}" if below else ""
                    lines.append((prefix + place + tail, points))
        if lines:
            panels.append(panel(metric, lines, len(panels) * HEIGHT))
    if not panels:
        sys.exit(f"none of {', '.join(metrics)} is in these runs; they have: {', '.join(sorted(known))}")
    size = f'width="{LEFT + WIDTH + 300}" height="{len(panels) * HEIGHT}"'
    pathlib.Path(arguments.out).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(panels) + "\n</svg>\n", encoding="utf-8")
    print(arguments.out)


if __name__ == "__main__":
    main()
