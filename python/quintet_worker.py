"""Makes a function the worker process of a quintet task. Standard library only.

    import quintet_worker
    def preprocess(example): return {"inputs": example["text"].lower(), "targets": example["label"]}
    quintet_worker.run(preprocess)

and in the gin file, among the preprocessors of the task, `@quintet.data.ProcessPreprocessor()` with
`quintet.data.ProcessPreprocessor.command = ['python3', 'functions.py']`.

What a function is called with, by its use in the gin file:

    ProcessPreprocessor   preprocess(example)                      a dict, a list of them (or a generator), None: dropped
    ProcessPostprocessor  postprocess(output, example=, is_target=)   what the metric compares
    ProcessMetric         metric(targets, predictions)             a dict of numbers
    ProcessSource         a dict of sequences of examples (len and [index]) by split, in place of a function

A preprocessor may have parameters named sequence_length (a dict) and seed (an int that depends on the example alone: use
it for every random choice). What the function prints goes to stderr. An exception is the example's error.
"""

import base64
import inspect
import json
import os
import sys
import traceback


def _encoded(value):
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: _encoded(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return _encoded(value.tolist())
    return value


def _decoded(value):
    if isinstance(value, dict) and list(value) == ["base64"]:
        return base64.b64decode(value["base64"])
    return value


def _examples(made):
    if made is None:
        return []
    return [made] if isinstance(made, dict) else list(made)


def _answer(function, request):
    if "split" in request:
        examples = function[request["split"]]
        return {"example": examples[request["index"]]} if "index" in request else {"size": len(examples)}
    if "targets" in request:
        return {"metrics": function(request["targets"], request["predictions"])}
    example = {name: _decoded(value) for name, value in request["example"].items()}
    if "output" in request:
        return {"output": function(request["output"], example=example, is_target=request["is_target"])}
    wanted = inspect.signature(function).parameters
    more = {name: request[name] for name in ("sequence_length", "seed") if name in wanted}
    return {"examples": _examples(function(example, **more))}


def run(function):
    """Answers requests with `function` until the input ends. `function`: see above."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the function prints
    sys.stdout = sys.stderr
    for line in open(0, encoding="utf-8", closefd=False):
        try:
            answer = _encoded(_answer(function, json.loads(line)))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
