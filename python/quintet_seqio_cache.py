"""Runs tasks of seqio once, with seqio and TensorFlow, and writes the offline caches that quintet (and seqio) read.

    python3 quintet_seqio_cache.py --module_import=my_tasks --tasks=my_task --output_cache_dir=/data/cache

For tasks whose preprocessors or sources need TensorFlow. It needs seqio and what the tasks import, no Apache Beam; and
quintet_worker.py beside it. What comes before `seqio.CacheDatasetPlaceholder()` is run, or everything in a task that has
none. Examples are dealt out to the files in turn, and shuffled in each, by --base_seed: two runs write equal caches if the
task itself is deterministic. Memory: the examples of one file.
"""

import argparse
import difflib
import importlib
import json
import os
import pathlib
import random
import re
import shutil
import struct
import sys

from quintet_worker import serialize_example


class CacheError(Exception):
    """What a user can put right; told without a traceback."""


class Statistics:
    """What info.SPLIT.json and stats.SPLIT.json say."""

    def __init__(self, output_features):
        self.vocabularies = {name: feature.vocabulary for name, feature in output_features.items()}
        self.examples, self.forms, self.counts = 0, {}, {}

    def add(self, example, where):
        forms = {name: form_of(name, value, where) for name, value in example.items()}
        if self.examples > 0 and forms != self.forms:
            raise CacheError(f"{where}: has the features {forms}, the examples before {self.forms}")
        self.forms = forms
        self.examples += 1
        for name, vocabulary in self.vocabularies.items():
            if not forms.get(name, {"dtype": ""})["dtype"].startswith("int"):
                continue
            marks = {vocabulary.pad_id, vocabulary.eos_id}
            count = sum(token not in marks for token in example[name].reshape(-1).tolist())
            self.counts[f"{name}_tokens"] = self.counts.get(f"{name}_tokens", 0) + count
            self.counts[f"{name}_max_tokens"] = max(self.counts.get(f"{name}_max_tokens", 0), count)


def form_of(name, value, where):
    """The dtype and shape of a feature, as info.json has them: the first dimension of a list is any."""
    shape = list(getattr(value, "shape", ()))
    form = {"shape": [None, *shape[1:]] if shape else []}
    if isinstance(value, (bytes, str)) or getattr(value, "dtype", None) == object:
        return {**form, "dtype": "string"}
    dtype = str(getattr(value, "dtype", type(value).__name__))
    if dtype not in ("bool", "int32", "int64", "float32", "float64"):
        raise CacheError(f"{where}: feature '{name}' is {dtype}; caches hold bool, int32, int64, float32, float64 and strings, so cast it")
    return {**form, "dtype": dtype}


def examples_of(seqio, task, split, flags):
    """(where, example) of each, in the source's order."""
    shards = task.source.list_shards(split)
    for index in range(len(shards)):
        seed = random.Random(f"{flags.base_seed} {task.name} {split} {index}").getrandbits(31)
        shard = seqio.ShardInfo(index=index, num_shards=len(shards))
        dataset = task.source.get_dataset(split=split, shard_info=shard, shuffle=False, seed=seed)
        dataset = task.preprocess_precache(dataset, seed=seed)
        if flags.all_preprocessors or not task.supports_caching:
            dataset = task.preprocess_postcache(dataset, flags.sequence_length, seed=seed)
        for i, example in enumerate(dataset.as_numpy_iterator()):
            yield f"task {task.name}, split {split}, shard {index}, example {i}", example


def deal(examples, statistics, folder, files):
    """Deals the examples out to part-0, part-1, ... in turn, each as its length and itself."""
    parts = [open(folder / f"part-{i}", "wb") for i in range(files)]
    for where, example in examples:
        statistics.add(example, where)
        data = serialize_example(example)
        parts[(statistics.examples - 1) % files].write(struct.pack("<Q", len(data)) + data)
    for part in parts:
        part.close()


def records_of(part):
    with open(part, "rb") as file:
        while header := file.read(8):
            yield file.read(struct.unpack("<Q", header)[0])


def write_split(seqio, task, split, folder, flags):
    """Number of examples."""
    import tensorflow

    files = max(len(task.source.list_shards(split)), flags.min_shards)
    files = min(files, flags.max_shards) if flags.max_shards > 0 else files
    statistics = Statistics(task.output_features)
    deal(examples_of(seqio, task, split, flags), statistics, folder, files)
    if statistics.examples == 0:
        raise CacheError(f"task {task.name}: split {split} has no example; name the others with --splits")
    written = min(files, statistics.examples)
    for i in range(files):
        part = folder / f"part-{i}"
        if i < written:
            records = list(records_of(part))
            random.Random(f"{flags.base_seed} {task.name} {split} file {i}").shuffle(records)
            with tensorflow.io.TFRecordWriter(str(folder / f"{split}.tfrecord-{i:05d}-of-{written:05d}")) as writer:
                for record in records:
                    writer.write(record)
        part.unlink()
    info = {"features": statistics.forms, "num_shards": written, "seqio_version": seqio.__version__}
    stats = {"examples": statistics.examples, **statistics.counts}
    for kind, content in ("info", info), ("stats", stats):
        (folder / f"{kind}.{split}.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    return statistics.examples


def write_cache(seqio, name, flags):
    task = seqio.TaskRegistry.get(name)
    folder = pathlib.Path(flags.output_cache_dir, *name.split(":"))
    if folder.exists() and not flags.overwrite:
        raise CacheError(f"{folder}: is there; --overwrite replaces it")
    unfinished = folder.with_name(folder.name + ".incomplete")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    examples = {split: write_split(seqio, task, split, unfinished, flags) for split in flags.splits or task.splits}
    (unfinished / "COMPLETED").write_text("tfrecord")
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    print(f"{name}: {', '.join(f'{count} examples of {split}' for split, count in examples.items())} cached at {folder}")


def chosen_tasks(seqio, patterns):
    names = sorted(seqio.TaskRegistry.names())
    chosen = []
    for pattern in patterns:
        found = [name for name in names if re.fullmatch(pattern, name)]
        if not found:
            near = difflib.get_close_matches(pattern, names) or names[:10]
            raise CacheError(f"--tasks: no task '{pattern}' is registered by the modules of --module_import; there are {', '.join(near) or 'none'}")
        chosen += [name for name in found if name not in chosen]
    return chosen


def lengths(text):
    return {name: int(length) for name, length in (part.split("=") for part in text.split(","))}


def parse_flags(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    comma = {"type": lambda text: text.split(","), "metavar": "A,B"}
    parser.add_argument("--module_import", required=True, help="modules that register the tasks", **comma)
    parser.add_argument("--tasks", required=True, help="names or regular expressions of whole names", **comma)
    parser.add_argument("--output_cache_dir", required=True, help="the folder of the caches, each in TASK (TASK:PART in TASK/PART)")
    parser.add_argument("--splits", default=[], help="default: all of the task", **comma)
    parser.add_argument("--min_shards", type=int, default=64, help="files of a split, at least (64), if it has as many examples")
    parser.add_argument("--max_shards", type=int, default=0, help="files of a split, at most; 0: as many as the source has")
    parser.add_argument("--base_seed", type=int, default=0, help="of random preprocessors and the order")
    parser.add_argument("--all_preprocessors", action="store_true", help="run those after the placeholder, too")
    parser.add_argument("--sequence_length", type=lengths, metavar="inputs=512,targets=114",
                        help="for the preprocessors after the placeholder, or of a task without one")
    parser.add_argument("--overwrite", action="store_true", help="replace a cache that is there")
    parser.add_argument("--tfds_data_dir", help="where TFDS keeps its data sets")
    return parser.parse_args(arguments)


def main(arguments=None):
    flags = parse_flags(arguments)
    sys.path.insert(0, os.getcwd())
    import seqio

    if flags.tfds_data_dir:
        seqio.set_tfds_data_dir_override(flags.tfds_data_dir)
    for module in flags.module_import:
        importlib.import_module(module)
    try:
        for name in chosen_tasks(seqio, flags.tasks):
            write_cache(seqio, name, flags)
    except CacheError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
