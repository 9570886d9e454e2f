#!/usr/bin/env python3
"""Batches in Python against the program's own rate, in one run, in turn.

    bench/batches_compare.py                      text and its offline cache, 3 rounds
    bench/batches_compare.py --quintet=build/quintet --rounds=5

The work: lines of text through SentencePiece, span corruption and packing into batches of 128 rows; cached, the last two
alone. The program writes its batches to /dev/null; Python takes the arrays of `quintet.data.batches`. Both make one pass
over all the data; a figure is the best of the rounds. It needs NumPy and libquintet.so beside the program. Prints a line of
JSON for each source; exit status 1 if Python is below 0.9 of the program.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
AT_LEAST = 0.9


def native(quintet, flags):
    began = time.time()
    subprocess.run([quintet, "data", "batches", *flags], stdout=subprocess.DEVNULL, check=True)
    return time.time() - began


def python(flags):
    import quintet

    quintet.version()  # which looks for the library
    began = time.time()
    for _ in quintet.data.Batches(flags):
        pass
    return time.time() - began


def tokens_in(flags):
    import quintet

    return sum(int((batch[name] != 0).sum()) for batch in quintet.data.Batches(flags)
               for name in ("encoder_input_tokens", "decoder_target_tokens"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quintet", default=str(ROOT / "build" / "quintet"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    os.environ["QUINTET_PROGRAM"] = arguments.quintet
    sys.path.insert(0, str(ROOT / "python"))
    met = True
    with tempfile.TemporaryDirectory(prefix="quintet-batches-") as folder:
        subprocess.run([arguments.quintet, "bench", "data", "--prepare", f"--folder={folder}"], check=True)
        task = ["--gin_file=quintet/tasks/text_files.gin", f"--gin.TEXT_FILES='{folder}/text-*.txt'",
                f"--gin.VOCABULARY_FILE='{folder}/bench.model'"]
        subprocess.run([arguments.quintet, "cache", *task, "--tasks=text_files", f"--output_cache_dir={folder}/own"], check=True,
                       stderr=subprocess.DEVNULL)
        common = ["text_files", *task, "--batch_size=128", "--shuffle", f"--epochs={arguments.epochs}"]
        for source, more in (("text", []), ("cached", ["--use_cached", f"--seqio_additional_cache_dirs={folder}/own"])):
            flags = [*common, *more]
            tokens, ours, theirs = tokens_in(flags), [], []
            for _ in range(arguments.rounds):
                ours.append(native(arguments.quintet, flags))
                theirs.append(python(flags))
            ratio = min(ours) / min(theirs)
            met = met and ratio >= AT_LEAST
            print(json.dumps({"source": source, "tokens": tokens, "program_tokens_per_second": round(tokens / min(ours)),
                              "python_tokens_per_second": round(tokens / min(theirs)), "ratio": round(ratio, 3)}), flush=True)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
