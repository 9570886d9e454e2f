"""Reads state.h5 with h5py and compares with raw files; prints 'no h5py' and ends with 77 without it.

usage: read_with_h5py.py CHECKPOINT EXPECTED
EXPECTED: a folder with one JSON line a tensor in tensors.jsonl ({"name", "dtype", "shape", "file",
"missing"}); `file` holds the raw little-endian bytes, `missing` says that the parts are gone on
purpose and the values must read as the fill value.
"""
import json
import os
import sys

try:
    import h5py
    import numpy as np
except ImportError:
    print("no h5py")
    sys.exit(77)


def expected_dtype(name):
    return {"bfloat16": "uint16", "bool": "int8"}.get(name, name)


def check(dataset, want):
    assert list(dataset.shape) == want["shape"], (want["name"], dataset.shape)
    raw = open(os.path.join(sys.argv[2], want["file"]), "rb").read()
    shape = tuple(want["shape"])
    if want["dtype"] == "bfloat16":
        values = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
        values = values.view(np.float32).reshape(shape)
        got = dataset.astype(np.float32)[()]
    else:
        values = np.frombuffer(raw, want["dtype"]).reshape(shape)
        got = dataset[()]
        assert dataset.dtype == np.dtype(want["dtype"]), (want["name"], dataset.dtype)
    if want["missing"]:
        assert np.isnan(got).all(), want["name"]
        return
    both_nan = np.isnan(got) & np.isnan(values) if np.issubdtype(values.dtype, np.floating) else False
    assert ((got == values) | both_nan).all(), want["name"]


with h5py.File(os.path.join(sys.argv[1], "state.h5"), "r") as file:
    names = []
    file.visititems(lambda n, o: names.append(n) if isinstance(o, h5py.Dataset) else None)
    wanted = [json.loads(line) for line in open(os.path.join(sys.argv[2], "tensors.jsonl"))]
    assert sorted(names) == sorted(w["name"] for w in wanted), names
    for want in wanted:
        check(file[want["name"]], want)
    assert file.attrs["step"] == 7, dict(file.attrs)
print("equal:", len(wanted), "tensors")
