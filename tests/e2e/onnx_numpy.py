"""Runs what `quintet export --format=onnx` writes, by NumPy: the operators that such a graph has, as ONNX's specification
describes them, and no others.

    python3 onnx_numpy.py model.onnx 8 < inputs.json      # [[ids], ..] -> [[ids], ..], at most 8 a row

tests/oracles/run_onnx.py does the same with onnxruntime.
"""

import json
import math
import pathlib
import struct
import sys

import numpy as np

TYPES = {1: np.float32, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """Field number -> its values, of a message of Protocol Buffers."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
            value -= (value >> 63) << 64
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            assert kind == 2, f"wire type {kind}"
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def text(message, number):
    return bytes(message[number][0]).decode() if number in message else ""


def external(entry):
    """Bytes in a file beside the graph's."""
    with open(pathlib.Path(sys.argv[1]).parent / entry["location"], "rb") as file:
        file.seek(int(entry["offset"]))
        return file.read(int(entry["length"]))


def tensor(data):
    t = fields(data)
    kind = t[2][0]
    raw = external({text(fields(entry), 1): text(fields(entry), 2) for entry in t[13]}) if t.get(14) == [1] else bytes(t[9][0])
    if kind == 16:  # bfloat16: the upper half of a float32
        values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(raw, TYPES[kind])
    return text(t, 8), values.reshape(t.get(1, []))


class Node:
    def __init__(self, data):
        n = fields(data)
        self.inputs = [bytes(name).decode() for name in n.get(1, [])]
        self.outputs = [bytes(name).decode() for name in n[2]]
        self.type, self.attributes = text(n, 4), {}
        for attribute in n.get(5, []):
            a = fields(attribute)
            kind = a[20][0]
            self.attributes[text(a, 1)] = (a[2][0] if kind == 1 else a[3][0] if kind == 2 else Graph(a[6][0]) if kind == 5 else a[8])


class Graph:
    def __init__(self, data):
        g = fields(data)
        self.nodes = [Node(node) for node in g.get(1, [])]
        constants = [tensor(one) for one in g.get(5, [])]
        self.constants = dict(constants)
        made = [name for node in self.nodes for name in node.outputs] + [name for name, _ in constants]
        assert len(set(made)) == len(made), "two values of one name"
        self.inputs, self.outputs = ([text(fields(one), 1) for one in g.get(number, [])] for number in (11, 12))

    def run(self, given, outer=None):
        values = {**(outer or {}), **self.constants, **given}
        for node in self.nodes:
            results = operate(node, [values[name] for name in node.inputs], values)
            values.update(zip(node.outputs, results))
        return [values[name] for name in self.outputs]


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def reshape(x, shape):
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(shape)])


def loop(body, most, goes_on, state, outer):
    rows, step = [], 0
    while step < most and goes_on:
        results = body.run(dict(zip(body.inputs, [np.int64(step), goes_on, *state])), outer)
        goes_on, state, row = results[0], results[1:-1], results[-1]
        rows.append(row)
        step += 1
    return [*state, np.stack(rows)]


def top_k(x, k, axis):
    """The largest, of equal ones the first."""
    at = np.argsort(-x, axis, kind="stable").take(np.arange(k[0]), axis)
    return [np.take_along_axis(x, at, axis), at]


def scatter_nd(x, places, rows):
    x = x.copy()
    x[tuple(np.moveaxis(places, -1, 0))] = rows
    return x


def slices(x, begins, ends, axes):
    for begin, end, axis in zip(begins, ends, axes):
        x = x[(slice(None),) * axis + (slice(begin, end),)]
    return x


def pad(x, widths):
    return np.pad(x, list(zip(widths[:x.ndim], widths[x.ndim:])))


SIMPLE = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": lambda x, y: x // y if x.dtype.kind == "i" else x / y, "MatMul": np.matmul, "Sqrt": np.sqrt, "Tanh": np.tanh,
    "Min": np.minimum, "Max": np.maximum, "Equal": np.equal, "LessOrEqual": np.less_equal, "Less": np.less, "Greater": np.greater,
    "Or": np.logical_or, "And": np.logical_and, "Mod": np.mod, "Round": np.round, "Pad": pad, "Not": np.logical_not, "Where": np.where, "Cos": np.cos, "Sin": np.sin, "NonZero": lambda x: np.array(np.nonzero(x)),
    "ScatterND": scatter_nd, "CumSum": lambda x, axis: np.cumsum(x, int(axis), x.dtype), "Slice": slices,
    "Identity": lambda x: x, "Relu": lambda x: np.maximum(x, 0), "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Erf": lambda x: np.vectorize(math.erf, otypes=[np.float32])(x), "Shape": lambda x: np.array(x.shape, np.int64), "Range": np.arange,
    "Reshape": reshape, "Expand": lambda x, shape: np.broadcast_to(x, shape), "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
    "Squeeze": lambda x, axes: np.squeeze(x, tuple(axes)),
}
WITH_ATTRIBUTES = {
    "Gather": lambda x, index, axis=0: np.take(x, index, axis), "Transpose": lambda x, perm: x.transpose(perm),
    "Concat": lambda *x, axis: np.concatenate(x, axis), "Softmax": softmax, "Cast": lambda x, to: x.astype(TYPES[to]),
    "ReduceMean": lambda x, axes, keepdims: x.mean(tuple(axes), keepdims=bool(keepdims)),
    "ReduceSum": lambda x, axes, keepdims: x.sum(tuple(axes), x.dtype, keepdims=bool(keepdims)), "TopK": top_k,
    "Split": lambda x, axis: np.split(x, 2, axis), "GatherElements": lambda x, index, axis: np.take_along_axis(x, index, axis),
    "ReduceMax": lambda x, axes, keepdims: x.max(tuple(axes), keepdims=bool(keepdims)),
    "ReduceMin": lambda x, keepdims: x.min(keepdims=bool(keepdims)),
    "ArgMax": lambda x, axis, keepdims: x.argmax(axis).astype(np.int64),
}


def operate(node, inputs, outer):
    if node.type == "Loop":
        most, goes_on, *state = inputs
        return loop(node.attributes["body"], most, goes_on, state, outer)
    if node.type in SIMPLE:
        assert not node.attributes, node.attributes
        return [SIMPLE[node.type](*inputs)]
    results = WITH_ATTRIBUTES[node.type](*inputs, **node.attributes)
    return results if len(node.outputs) > 1 else [results]


def main(path, most, rows):
    with open(path, "rb") as file:
        model = fields(memoryview(file.read()))
    graph = Graph(model[7][0])
    width = max(map(len, rows))
    tokens = np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
    return graph.run(dict(zip(graph.inputs, [tokens, np.int64(most)])))[0]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), json.load(sys.stdin)).tolist()))
