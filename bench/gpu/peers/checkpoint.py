"""What C1's peers share: a state saved in the background and read again, with fsync as ours. The least of two.

A save's time ends when its bytes are on the disk; a restore's when they are in the host's memory.
"""

import os
import pathlib
import shutil
import time

import common

COLUMNS = 512


def flags(parser):
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="new folder to write to; removed at the end")


def rows(case):
    """Of each tensor, [rows, COLUMNS] of float32."""
    return case["megabytes"] * 1_000_000 // (4 * COLUMNS * case["tensors"])


def to_disk(path):
    """What was written there, a file or a folder, is on the disk."""
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            with open(file, "rb") as opened:
                os.fsync(opened.fileno())


def measure(args, jobs, make_state):
    """job.make(path) is a context whose value has begin(state), end() and restore(); path is not there yet."""

    def of(job):
        state = make_state()
        best = {}
        for attempt in range(2):
            path = args.dir.absolute() / f"{job.variant}_{attempt}"
            with job.make(path) as way:
                times = [time.perf_counter()]
                for step in (lambda: way.begin(state), way.end, way.restore):
                    step()
                    times.append(time.perf_counter())
            shutil.rmtree(path)
            for part, seconds in (("blocking", times[1] - times[0]), ("save", times[2] - times[0]), ("restore", times[3] - times[2])):
                best[part] = min(best.get(part, seconds), seconds)
        for part, seconds in best.items():
            job.record(part, 1, [1e3 * seconds])

    try:
        args.dir.mkdir(parents=True, exist_ok=True)
        common.each_in_time(args, jobs, of)
    finally:
        shutil.rmtree(args.dir, ignore_errors=True)
