#!/usr/bin/env python3
"""Runs what `quintet export --format=onnx` writes with onnxruntime, and checks the file with ONNX's own checker.

    python3 -m venv onnx && onnx/bin/pip install onnxruntime==1.32.0 onnx==1.23.2 numpy
    onnx/bin/python run_onnx.py model.onnx 8 < inputs.json      # [[ids], ..] -> [[ids], ..], at most 8 a row

With QUINTET_ONNX_PYTHON=onnx/bin/python tests/e2e/onnx_test.py compares its answers, too.
"""

import json
import sys

import numpy
import onnx
import onnxruntime


def main(path, most, rows):
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    width = max(map(len, rows))
    tokens = numpy.array([row + [0] * (width - len(row)) for row in rows], numpy.int32)
    names = [one.name for one in session.get_inputs() + session.get_overridable_initializers()]
    return session.run(None, dict(zip(names, [tokens, numpy.array(most, numpy.int64)])))[0]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), json.load(sys.stdin)).tolist()))
