"""array_record/: files as array_record's writer makes them, and their records.

Reference: array_record 0.8.6. Run with $ORACLE_ENVS/b/bin/python gen_array_record.py --out DIR/array_record --seed N.
  <name>.array_record   a file
  files.json            the writer's options of each, how many of the records it has; the records, base64

gen_array_record.py --check FILE ... reads files by array_record and prints how many records each has, and their SHA-256.
"""
import argparse
import base64
import hashlib
import json
import pathlib

import numpy as np
from array_record.python import array_record_module

# Records of many chunks and of one; one that is longer than a block of 64 KiB, and one of no byte.
FILES = {"single": ("group_size:1", 40), "groups": ("group_size:7", 40), "uncompressed": ("group_size:1000,uncompressed", 40), "empty": ("group_size:1", 0),
         "brotli": ("group_size:7,brotli", 3), "transposed": ("group_size:7,transpose", 3)}


def records_of(rng):
  sizes = [int(size) for size in rng.integers(1, 200, 40)]
  sizes[3], sizes[20] = 0, 70_000
  return [rng.integers(0, 256, size, dtype=np.uint8).tobytes() if i % 2 == 0 else bytes([i]) * size for i, size in enumerate(sizes)]


def write(out, name, options, records):
  writer = array_record_module.ArrayRecordWriter(str(out / f"{name}.array_record"), options)
  for record in records:
    writer.write(record)
  writer.close()


def check(file):
  reader = array_record_module.ArrayRecordReader(file)
  records = reader.read_all()
  print(file, reader.num_records(), hashlib.sha256(b"".join(records)).hexdigest(), reader.writer_options_string())


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--out", type=pathlib.Path)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--check", nargs="*", default=[])
  arguments = parser.parse_args()
  for file in arguments.check:
    check(file)
  if arguments.out:
    arguments.out.mkdir(parents=True, exist_ok=True)
    records = records_of(np.random.default_rng(arguments.seed))
    for name, (options, count) in FILES.items():
      write(arguments.out, name, options, records[:count])
    text = {"files": {name: {"options": options, "count": count} for name, (options, count) in FILES.items()},
            "records": [base64.b64encode(record).decode() for record in records]}
    (arguments.out / "files.json").write_text(json.dumps(text) + "\n")


if __name__ == "__main__":
  main()
