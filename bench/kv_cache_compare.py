#!/usr/bin/env python3
"""What caches in 8 bits change: greedy answers of a trained model with --kv_cache_dtype=int8 and fp8 beside those of float32 caches.

    bench/kv_cache_compare.py --model DIR --input FILE [--max_tokens 64]

Of each type: answers that are the same, tokens up to the first that differs, and the mean difference of the scores (log probabilities)
of answers that are the same.
"""

import argparse
import json
import os
import subprocess

QUINTET = os.environ.get("QUINTET", "build/quintet")


def answers(options, dtype):
    command = [QUINTET, "generate", f"--model_dir={options.model}", f"--input={options.input}", f"--max_tokens={options.max_tokens}",
               "--temperature=0", "--format=json", "--logprobs=0", f"--kv_cache_dtype={dtype}"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    return [([token["id"] for token in line["tokens"]], line["score"]) for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--input", required=True, help="a file of inputs, one per line")
    parser.add_argument("--max_tokens", type=int, default=64)
    options = parser.parse_args()
    exact = answers(options, "auto")
    tokens = sum(len(ids) for ids, _ in exact)
    for dtype in "int8", "fp8":
        same = before = 0
        differences = []
        for (ids, score), (other, other_score) in zip(exact, answers(options, dtype), strict=True):
            before += next((i for i, (a, b) in enumerate(zip(ids, other)) if a != b), min(len(ids), len(other)))
            if ids == other:
                same += 1
                differences.append(abs(score - other_score))
        print(f"{dtype}: {same} of {len(exact)} answers the same, {before} of {tokens} tokens before the first other one; "
              f"scores differ by {sum(differences) / max(1, len(differences)):.2g} on average")


if __name__ == "__main__":
    main()
