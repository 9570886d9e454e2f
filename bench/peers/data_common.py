"""What the data peers share: arguments, one core, timing by processor time, the JSON line they print."""

import argparse
import json
import os
import time

LENGTH = 512


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True, help="made by 'quintet bench data --prepare=DIR'")
    parser.add_argument("--source", default="text", choices=["text", "tfrecord", "cached"])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--batch", type=int, default=128)
    return parser.parse_args()


def one_core():
    """Must run before libraries make their threads."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ[name] = "1"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def measure(batches, seconds, **about):
    """Takes (examples, tokens, rows) from `batches` for some seconds of this process's time; prints JSON."""
    started = time.perf_counter()
    next(batches)
    first = time.perf_counter() - started
    examples = tokens = rows = 0
    start, wall = time.process_time(), time.perf_counter()
    while time.process_time() - start < seconds:
        more_examples, more_tokens, more_rows = next(batches)
        examples, tokens, rows = examples + more_examples, tokens + more_tokens, rows + more_rows
    cpu = time.process_time() - start
    print(json.dumps({"examples_per_second": examples / cpu, "tokens_per_second": tokens / cpu,
                      "rows_per_second": rows / cpu, "cpu_seconds": cpu,
                      "wall_seconds": time.perf_counter() - wall, "first_batch_seconds": first, **about}))
