"""Features of every dtype of seqio.Feature, and tuples as their lengths: what seqio 0.0.20 makes of examples, or why not.

    python gen_feature_types.py OUTPUT    # tests/fixtures/seqio/feature_types.json

Rows are JSON as a JSONL file has them; a result has each feature's dtype, shape and values.
"""

import json
import sys

import numpy as np
import seqio
import tensorflow as tf

ROWS = [
    {"wide": [1, -(1 << 40), 3], "flags": [True, False], "exact": [0.1, 1e300], "single": [0.1], "texts": ["a", "b", "c"], "one": 5, "grid": [[1, 2, 3], [4, 5, 6]], "pairs": [[True, False]]},
    {"wide": [7], "flags": [True, True, False], "exact": [-0.5], "single": [0.25, 1.5, 2.5], "texts": [""], "one": 1 << 33, "grid": [[1 << 35, 2]], "pairs": [[False, True], [True, True]]},
]
TYPES = {"wide": ("int64", 1), "flags": ("bool", 1), "exact": ("float64", 1), "single": ("float32", 1), "texts": ("string", 1), "one": ("int64", 0), "grid": ("int64", 2), "pairs": ("bool", 2)}
CASES = [
    {"name": "as they are", "features": ["wide", "flags", "exact", "single", "texts", "one", "grid", "pairs"], "lengths": {}},
    {"name": "trimmed", "features": ["wide", "flags", "exact", "texts", "grid", "pairs"], "lengths": {"wide": 2, "flags": 1, "exact": 1, "texts": 1, "grid": 1, "pairs": 1}},
    {"name": "trimmed by tuples", "features": ["grid", "pairs", "wide"], "lengths": {"grid": [1, 2], "pairs": [1, 1], "wide": [2]}},
    {"name": "padded", "converter": True, "check": True, "features": ["wide", "flags", "exact"], "lengths": {"wide": 4, "flags": 3, "exact": 2}},
    {"name": "padded by tuples", "converter": True, "check": False, "features": ["grid", "pairs"], "lengths": {"grid": [3, 4], "pairs": [2, 3]}},
    {"name": "cut by tuples", "converter": True, "check": False, "features": ["grid"], "lengths": {"grid": [1, 2]}},
    {"name": "tuples with the length check", "converter": True, "check": True, "features": ["grid"], "lengths": {"grid": [3, 4]}},
    {"name": "texts padded", "converter": True, "check": True, "features": ["texts"], "lengths": {"texts": 4}},
    {"name": "another dtype than declared", "declared": {"wide": "int32"}, "features": ["wide"], "lengths": {}},
    {"name": "another rank than declared", "declared": {}, "ranks": {"grid": 1}, "features": ["grid"], "lengths": {}},
]


def dataset(names):
    def rows():
        for row in ROWS:
            yield {"inputs": [3, 4], "targets": [5], **{name: row[name] for name in names}}

    specs = {name: tf.TensorSpec([None] * TYPES[name][1], tf.as_dtype(TYPES[name][0])) for name in names}
    for name in ("inputs", "targets"):
        specs[name] = tf.TensorSpec([None], tf.int32)
    return tf.data.Dataset.from_generator(rows, output_signature=specs)


def value_of(tensor):
    array = np.asarray(tensor)
    values = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
    return {"dtype": tf.as_dtype(array.dtype).name, "shape": list(array.shape), "values": values}


def run(case):
    names = case["features"]
    features = {name: seqio.Feature(seqio.PassThroughVocabulary(100), add_eos=False, dtype=tf.as_dtype(case.get("declared", {}).get(name, TYPES[name][0])),
                                    rank=case.get("ranks", {}).get(name, TYPES[name][1])) for name in names}
    for name in ("inputs", "targets"):
        features[name] = seqio.Feature(seqio.PassThroughVocabulary(100), add_eos=False)
    seqio.TaskRegistry.reset()
    task = seqio.TaskRegistry.add("types", source=seqio.FunctionDataSource(lambda split, shuffle_files, seed=None: dataset(names), splits=["train"]), preprocessors=[], output_features=features)
    lengths = {"inputs": 4, "targets": 2, **{name: tuple(length) if isinstance(length, list) else length for name, length in case["lengths"].items()}}
    made = task.get_dataset(lengths, split="train", shuffle=False, num_epochs=1)
    if case.get("converter"):
        passed = {name: seqio.FeatureConverter.FeatureSpec(dtype=features[name].dtype, rank=features[name].rank) for name in names}
        converter = seqio.EncDecFeatureConverter(pack=False, apply_length_check=case["check"], passthrough_features=passed)
        made = converter(made, lengths)
    return [{name: value_of(row[name]) for name in names} for row in made]


def main(path):
    cases = []
    for case in CASES:
        try:
            case = {**case, "rows": run(case)}
        except Exception as error:
            said = f": {error}" if isinstance(error, ValueError) else ""
            case = {**case, "error": type(error).__name__ + said}
        cases.append(case)
    with open(path, "w") as file:
        json.dump({"seqio": seqio.__version__, "types": TYPES, "examples": ROWS, "cases": cases}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
