"""What large JSON costs: twice the keys cost at most 2.3 times the instructions, counted by valgrind: the same on any
machine under any load. Without valgrind: exit 77, skipped. QUINTET_COST_KEYS: keys of the smaller file (4,000)."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys

import e2e
from e2e import QUINTET

TASK = """
import seqio
from quintet import data
data.JsonlDataSource.split_to_filepattern = {{'train': '{file}'}}
wide/seqio.Feature.vocabulary = @seqio.ByteVocabulary()
wide/seqio.Task:
  name = 'wide'
  source = @data.JsonlDataSource()
  preprocessors = [@seqio.preprocessors.tokenize]
  output_features = {{'inputs': @wide/seqio.Feature(), 'targets': @wide/seqio.Feature()}}
seqio.TaskRegistry.tasks = [@wide/seqio.Task()]
"""
KEYS = int(os.environ.get("QUINTET_COST_KEYS", "4000"))
MOST = 2.3


def instructions(*arguments):
    """Of a run of the program, which must succeed."""
    counted = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", QUINTET, *map(str, arguments)]
    done = subprocess.run(counted, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done
    return int(re.search(r"I +refs: +([\d,]+)", done.stderr).group(1).replace(",", ""))


def check_growth(cost):
    """cost(keys): instructions. What a run costs without any is left out."""
    none, some, twice = (cost(keys) for keys in (1, KEYS, 2 * KEYS))
    ratio = (twice - none) / (some - none)
    print(f"  {none:,} instructions, {some - none:,} more for {KEYS} keys: {ratio:.2f} times that for twice as many")
    assert ratio <= MOST, (none, some, twice)


def test_the_header_of_a_safetensors_file(folder):
    def cost(tensors):
        header = json.dumps({f"{i:x}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(tensors)}).encode()
        file = folder / f"{tensors}.safetensors"
        file.write_bytes(struct.pack("<Q", len(header)) + header)
        return instructions("inspect", file, "--format=json")
    check_growth(cost)


def test_a_line_of_a_json_file(folder):
    def cost(keys):
        (folder / "lines.jsonl").write_text(json.dumps({"inputs": "a", "targets": "b", **{f"{i:x}": i for i in range(keys)}}) + "\n")
        return instructions("data", "show", "wide", f"--gin_file={folder / 'task.gin'}", "--num=1")
    (folder / "task.gin").write_text(TASK.format(file=folder / "lines.jsonl"))
    check_growth(cost)


if shutil.which("valgrind") is None:
    print("skipped: valgrind is not there")
    sys.exit(77)
e2e.run(globals())
