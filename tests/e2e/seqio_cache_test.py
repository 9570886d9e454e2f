"""python/quintet_seqio_cache.py, with stand-ins for seqio and TensorFlow: the caches it writes, read by `quintet`; what it refuses."""

import json
import pathlib
import struct
import subprocess
import sys

import e2e
from e2e import ROOT, TINY, quintet

sys.path.insert(0, str(ROOT / "python"))
from quintet_worker import parse_example  # noqa: E402

SEQIO = """
import collections
import random

__version__ = "0.0.20"
ShardInfo = collections.namedtuple("ShardInfo", "index num_shards")
Feature = collections.namedtuple("Feature", "vocabulary")
Vocabulary = collections.namedtuple("Vocabulary", "pad_id eos_id")

class Array:  # what the program uses of NumPy's
    def __init__(self, values, dtype, shape): self.values, self.dtype, self.shape = values, dtype, shape
    def reshape(self, _): return self
    def tolist(self): return self.values

class Dataset(list):
    def as_numpy_iterator(self): return iter(self)

def ids(text): return Array([ord(c) + 3 for c in text], "int32", (len(text),))

class Source:
    def list_shards(self, split): return ["a", "b"] if split == "train" else ["a"]
    def get_dataset(self, split, shard_info, shuffle, seed):
        random.seed(seed)
        count = {"train": 30, "validation": 3, "none": 0}[split]
        return Dataset({"i": i, "split": split, "noise": random.randint(10, 99)} for i in range(shard_info.index, count, shard_info.num_shards))

class Task:
    source, output_features = Source(), {name: Feature(Vocabulary(0, 1)) for name in ("inputs", "targets")}
    def __init__(self, name, splits, supports_caching): self.name, self.splits, self.supports_caching = name, splits, supports_caching
    def made(self, row):
        dtype = "uint8" if self.name == "bytes" and row["i"] == 4 else "float32"
        return {"inputs": ids(f"{row['split']} {row['i']} {row['noise']}"), "targets": ids("ab"), "text": b"t",
                "grid": Array([0.5] * 6, dtype, (3, 2)), "seven": Array(7, "int64", ())}
    def preprocess_precache(self, rows, seed): return Dataset(map(self.made, rows)) if self.supports_caching else rows
    def preprocess_postcache(self, rows, sequence_length, seed):
        rows = rows if self.supports_caching else map(self.made, rows)
        return Dataset({**row, "targets": ids("ab" * sequence_length["targets"])} for row in rows)

class TaskRegistry:
    tasks = {}
    names, get = tasks.keys, tasks.get
"""

TENSORFLOW = """
import struct

def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8): crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

class io:
    class TFRecordWriter:
        def __init__(self, path): self.file = open(path, "wb")
        def __enter__(self): return self
        def __exit__(self, *_): self.file.close()
        def write(self, record):
            size = struct.pack("<Q", len(record))
            self.file.write(size + masked(size) + record + masked(record))
"""

TASKS = """
from seqio import Task, TaskRegistry
both = ["train", "validation"]
TaskRegistry.tasks.update({task.name: task for task in [Task("a:b", both, True), Task("whole", both, False), Task("bytes", both, True),
                                                        Task("empty", ["none"], True)]})
"""

GIN = """
from __gin__ import dynamic_registration
import seqio
seqio.TFExampleDataSource.split_to_filepattern = {{'train': '{folder}/cache/a/b/train.tfrecord-*', 'validation': '{folder}/cache/a/b/validation.tfrecord-*'}}
seqio.TFExampleDataSource.feature_description = {{'inputs': 'int32[]', 'targets': 'int32[]', 'text': 'string'}}
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.Task:
  name = 'a:b'
  source = @seqio.TFExampleDataSource()
  preprocessors = [@seqio.CacheDatasetPlaceholder(), @seqio.preprocessors.append_eos]
  output_features = {{'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}}
seqio.TaskRegistry.tasks = [@seqio.Task()]
"""


def write(folder, *flags):
    """The program's exit status and stderr."""
    for name, text in {"seqio": SEQIO, "tensorflow": TENSORFLOW, "my_tasks": TASKS}.items():
        (folder / f"{name}.py").write_text(text)
    done = subprocess.run([sys.executable, str(ROOT / "python/quintet_seqio_cache.py"), "--module_import=my_tasks", f"--output_cache_dir={folder}/cache",
                           *flags], cwd=folder, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def files(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def examples(folder, split):
    """Of each file of a split, in its order."""
    made = []
    for path in sorted(folder.glob(f"{split}.tfrecord-*")):
        data, at = path.read_bytes(), 0
        made.append([])
        while at < len(data):
            size, = struct.unpack_from("<Q", data, at)
            made[-1].append(parse_example(data[at + 12:at + 12 + size]))
            at += size + 16
    return made


def text_of(example):
    return "".join(chr(i - 3) for i in example["inputs"])


def test_quintet_reads_and_trains_on_the_cache(folder):
    assert write(folder, "--tasks=a:.*", "--min_shards=4") == (0, "")
    cache = folder / "cache/a/b"
    info, stats = (json.loads((cache / f"{kind}.train.json").read_text()) for kind in ("info", "stats"))
    assert info["num_shards"] == 4 and info["features"]["grid"] == {"dtype": "float32", "shape": [None, 2]}, info
    assert info["features"]["seven"] == {"dtype": "int64", "shape": []} and info["features"]["text"] == {"dtype": "string", "shape": []}, info
    assert stats == {"examples": 30, "inputs_tokens": 320, "inputs_max_tokens": 11, "targets_tokens": 60, "targets_max_tokens": 2}, stats
    shards = examples(cache, "train")
    assert [len(shard) for shard in shards] == [8, 8, 7, 7]
    numbers = [[int(text_of(example).split()[1]) for example in shard] for shard in shards]
    assert sorted(sum(numbers, [])) == list(range(30)) and not any(part == sorted(part, key=lambda i: (i % 2, i)) for part in numbers), numbers
    assert shards[0][0]["grid"] == [0.5] * 6 and shards[0][0]["seven"] == [7] and shards[0][0]["text"] == "t", shards[0][0]
    assert len(examples(cache, "validation")) == 3  # no file without an example
    # Again, and the same bytes.
    assert write(folder, "--tasks=a:b", "--min_shards=4")[0] == 1
    before = files(cache)
    assert write(folder, "--tasks=a:b", "--min_shards=4", "--overwrite") == (0, "")
    assert files(cache) == before
    (folder / "task.gin").write_text(GIN.format(folder=folder))
    shown = quintet("data", "show", "a:b", f"--gin_file={folder}/task.gin", "--num=30").out.split("preprocessed:")[1].split("packed:")[0]
    for example in sum(shards, []):
        assert ' '.join(map(str, example['inputs'])) in shown.replace(',', ''), (example, shown)
    quintet("train", *TINY[1:], "--gin_file=quintet/quickstart.gin", f"--gin_file={folder}/task.gin", "--gin.TASK='a:b'", "--gin.TRAIN_STEPS=3",
            "--gin.train/utils.DatasetConfig.use_cached=True", f"--seqio_additional_cache_dirs={folder}/cache", f"--model_dir={folder}/run")


def test_tasks_without_a_placeholder_are_run_whole(folder):
    assert write(folder, "--tasks=whole", "--sequence_length=inputs=9,targets=3") == (0, "")
    made = sum(examples(folder / "cache/whole", "train"), [])
    assert len(made) == 30 and all(len(example["targets"]) == 6 for example in made)
    assert write(folder, "--tasks=a:b", "--all_preprocessors", "--sequence_length=targets=4", "--splits=validation") == (0, "")
    assert [len(example["targets"]) for example in sum(examples(folder / "cache/a/b", "validation"), [])] == [8, 8, 8]
    assert not (folder / "cache/a/b/info.train.json").exists()


def test_what_cannot_be_is_refused_and_leaves_no_cache(folder):
    for flags, parts in {("--tasks=wole",): ["'wole'", "whole"],
                         ("--tasks=bytes",): ["task bytes, split train, shard 0, example 2", "'grid' is uint8"],
                         ("--tasks=empty",): ["split none has no example", "--splits"]}.items():
        status, error = write(folder, *flags)
        assert status == 1 and "Traceback" not in error, error
        for part in parts:
            assert part in error, (part, error)
    assert not list((folder / "cache").glob("*/COMPLETED")) and not (folder / "cache/bytes").exists()
    write(folder, "--tasks=whole", "--sequence_length=targets=3")
    status, error = write(folder, "--tasks=whole", "--sequence_length=targets=3")
    assert status == 1 and "--overwrite" in error, error


e2e.run(globals())
