"""Makes a function the worker process of a quintet task. Standard library only.

    import quintet_worker
    def preprocess(example): return {"inputs": example["text"].lower(), "targets": example["label"]}
    quintet_worker.run(preprocess)

and in the gin file, among the preprocessors of the task, `@quintet.data.ProcessPreprocessor()` with
`quintet.data.ProcessPreprocessor.command = ['python3', 'functions.py']`.

What a function is called with, by its use in the gin file:

    ProcessPreprocessor   preprocess(example)                      a dict, a list of them (or a generator), None: dropped
    ProcessPostprocessor  postprocess(output, example=, is_target=)   what the metric compares
    ProcessMetric         metric(targets, predictions)             a dict of numbers, texts and values as seqio.metrics has them: its own, or the classes
                                                                   Text, Histogram, Image, Audio and Generic of this module, which have the same fields
    ProcessMetricObject   a class (or an object) in place of a function, as seqio.metrics.Metric: from_model_output(inputs, model_output, features,
                                                                   target_field_name), which gives an object with compute() or actual_compute(). inputs: examples
                                                                   as seqio has them, texts as bytes; model_output: ids [examples, length] or scores, or
                                                                   (ids, auxiliary values); NumPy's arrays and numbers, where this Python has NumPy, else lists and
                                                                   Python's: code with methods of arrays needs NumPy; features[name].vocabulary
                                                                   has decode, encode, vocab_size, eos_id, pad_id, unk_id
    ProcessSource         a dict of sequences of examples (len and [index]) by split, in place of a function
    ProcessDecoder        decode(record)                           a dict; record: the bytes of a record of a ProtoDataSource's files
    ProcessFunction, of a parameter of T5X's that takes a function:
      infer.write_fn      write(path, inferences, task_ds, mode, texts)   writes the file; inferences: (ids or scores, auxiliary values), lists over the
                                                                   examples; task_ds: their dicts; texts: predictions as text (of scores None)
      infer.merge_fn      merge(output_dir, output_fname, tmp_dir, step)   makes what it likes of the files tmp_dir/output_fname-chunkCCCCC
      decode_fn           search(inputs, tokens_to_logits, eos_id, num_decodes)   (decodes [batch, num_decodes, length], scores [batch, num_decodes]), the best
                                                                   last; tokens_to_logits(rows, tokens, positions, sources=None): logits [rows, vocab] of the
                                                                   token after each; row: item * num_decodes + decode; source: the row that each continues
      state_callback_fn   callback(state)                          changes sequences, cur_token, ended, log_prob of the state, lists
      logit_callback_fn   callback(logits, state)                  logits, changed or others

Logits are float32 [rows, vocab] that numpy.asarray takes without a copy. A search may have parameters named seed, vocab_size and
initial_index (tokens of each input that the model has read already: of models without encoder).

A preprocessor may have parameters named sequence_length (a dict) and seed (an int that depends on the example alone: use
it for every random choice). What the function prints goes to stderr. An exception is the example's error.

With `format = 'tf_example'` beside the command, examples come and go as tf.train.Example: numbers are lists then, integers of
32 bits and floats of single precision, and grids are flat; the function does not change otherwise.
"""

import array
import base64
import dataclasses
import enum
import inspect
import io
import json
import os
import struct
import sys
import traceback
import types
import wave
import zlib


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


class ModelOutputType(enum.IntEnum):
    """seqio.metrics.ModelOutputType."""
    PREDICTION = 1
    SCORE = 2
    PREDICTION_WITH_AUX = 3


@dataclasses.dataclass
class Scalar:
    value: float


@dataclasses.dataclass
class Text:
    textdata: str


@dataclasses.dataclass
class Histogram:
    values: list
    bins: int = None


@dataclasses.dataclass
class Image:
    """[pictures, height, width, channels]: integers of 0 to 255, or floats of 0 to 1; 1 to 4 channels."""
    image: list
    max_outputs: int = 3


@dataclasses.dataclass
class Audio:
    """[clips, frames, channels]: floats of -1 to 1."""
    audiodata: list
    sample_rate: int = 44100
    max_outputs: int = 3


@dataclasses.dataclass
class Generic:
    """Numbers for a plugin of TensorBoard; metadata.plugin_data has its plugin_name and, as bytes, content."""
    tensor: list
    metadata: object


def _listed(value):
    return value.tolist() if hasattr(value, "tolist") else value


def _base64(data):
    return base64.b64encode(data).decode()


def _png(picture):
    """A picture of rows of pixels of channels as a PNG file."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def byte(number):
        return min(255, max(0, int(number * 255.5))) if isinstance(number, float) else number & 255

    rows = [bytes(byte(number) for pixel in row for number in pixel) for row in picture]
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[len(picture[0][0])]
    header = struct.pack(">IIBBBBB", len(picture[0]), len(picture), 8, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b"")


def _wav(clip, sample_rate):
    """A clip of frames of channels as a WAV file of 16 bits."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(len(clip[0]))
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        samples = [max(-32768, min(32767, int(sample * 32768))) for frame in clip for sample in frame]
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return made.getvalue()


def _metric(value):
    """What a metric gave, as the answer has it. seqio's own values are known by their names."""
    kind = type(value).__name__
    if kind == "Scalar":
        return value.value
    if kind == "Text":
        return value.textdata
    if kind == "Histogram":
        return {"histogram": _listed(value.values), **({} if value.bins is None else {"bins": value.bins})}
    if kind == "Image":
        pictures = _listed(value.image)[:value.max_outputs]
        size = {"height": len(pictures[0]), "width": len(pictures[0][0])} if pictures else {"height": 0, "width": 0}
        return {"image": [_base64(_png(picture)) for picture in pictures], "max_outputs": value.max_outputs, **size}
    if kind == "Audio":
        clips = _listed(value.audiodata)[:value.max_outputs]
        return {"audio": [_base64(_wav(clip, value.sample_rate)) for clip in clips], "max_outputs": value.max_outputs}
    if kind == "Generic":
        plugin = value.metadata.plugin_data
        return {"tensor": _listed(value.tensor), "plugin_name": plugin.plugin_name, "plugin_content": _base64(plugin.content)}
    return value


def _examples(made):
    if made is None:
        return []
    return [made] if isinstance(made, dict) else list(made)


# tf.train.Example on the wire: {1: features {1: entry {1: name, 2: feature {1: texts, 2: floats or 3: integers {1: values}}}}}.

def _varint(number):
    number &= (1 << 64) - 1
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


def _field(number, data):
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _read_varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            return number, at


def _fields(data):
    """(number, wire type, value) of each field of a message; a value is an int or bytes."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            value, at = _read_varint(data, at)
        else:
            if size is None:
                size, at = _read_varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, key & 7, value


def _signed(number):
    return number - (1 << 64) if number >> 63 else number


def _values(kind, data):
    values = []
    for _, wire_type, value in _fields(data):
        if kind == 1:
            values.append(value)
        elif kind == 2:
            values.extend(item for item, in struct.iter_unpack("<f", value))
        elif wire_type == 0:
            values.append(_signed(value))
        else:
            at = 0
            while at < len(value):
                number, at = _read_varint(value, at)
                values.append(_signed(number))
    return values


def _text(data):
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def parse_example(data):
    """A serialized tf.train.Example as a dict: texts (bytes if they are not UTF-8), or lists of them, of ints or of floats."""
    example = {}
    for _, _, features in _fields(data):
        for _, _, entry in _fields(features):
            parts = {number: value for number, _, value in _fields(entry)}
            values = []
            for kind, _, item in _fields(parts.get(2, b"")):
                values = _values(kind, item)
                if kind == 1:
                    values = [_text(value) for value in values]
                    values = values[0] if len(values) == 1 else values
            example[parts.get(1, b"").decode()] = values
    return example


def _flat(value):
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in _flat(part)]
    return [value.encode() if isinstance(value, str) else value]


def _feature(name, value):
    values = _flat(value)
    if all(isinstance(item, bytes) for item in values):
        return _field(1, b"".join(_field(1, item) for item in values)) if values else b""
    if all(isinstance(item, int) for item in values):
        return _field(3, _field(1, b"".join(map(_varint, values))))
    if all(isinstance(item, (int, float)) for item in values):
        return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
    raise TypeError(f"feature {name!r}: expected texts, bytes, numbers or lists of one kind of them, found {value!r}")


def serialize_example(example):
    """A dict of texts, bytes, numbers and lists of them as a tf.train.Example."""
    entries = (_field(1, name.encode()) + _field(2, _feature(name, value)) for name, value in example.items())
    return _field(1, b"".join(_field(1, entry) for entry in entries))


def _packed(answer):
    """An answer with numbers of bytes in place of its examples, and those bytes."""
    serialized = [serialize_example(example) for example in answer.get("examples", [answer["example"]] if "example" in answer else [])]
    sizes = [len(example) for example in serialized]
    places = {"examples": sizes} if "examples" in answer else {"example": sizes[0]} if sizes else {}
    return {**answer, **places}, b"".join(serialized)


def _merged(values):
    """A dict of lists in place of a list of dicts."""
    if values and isinstance(values[0], dict):
        return {name: _merged([value[name] for value in values]) for name in values[0]}
    return values


def _write(function, request):
    lines = request["inferences"]
    texts = [line.get("prediction") for line in lines]
    values = [line.get("prediction_tokens", line.get("score")) for line in lines]
    aux = _merged([line.get("aux", {}) for line in lines]) if lines else {}
    function(request["write"], (values, aux), [line["inputs"] for line in lines], request["mode"], texts if lines and texts[0] is not None else None)
    return {}


def _logits_of(shape, data):
    return memoryview(bytearray(data)).cast("f", shape)


def _bytes_of(logits):
    """Of a buffer of float32, or of lists of numbers."""
    try:
        view = memoryview(logits)
        if view.format == "f" and view.c_contiguous:
            return view.tobytes()
    except TypeError:
        pass
    return array.array("f", _flat(logits)).tobytes()


def _decode(function, request, ask):
    def tokens_to_logits(rows, tokens, positions, sources=None):
        step = {"rows": rows, "tokens": tokens, "positions": positions, **({} if sources is None else {"sources": sources})}
        shape, data = ask({"step": step})
        return _logits_of(shape["logits"], data)

    about = dict(request["decode"])
    optional = {name: about.pop(name) for name in ("seed", "vocab_size", "initial_index")}
    wanted = inspect.signature(function).parameters
    decodes, scores = function(tokens_to_logits=tokens_to_logits, **about, **{name: value for name, value in optional.items() if name in wanted})
    return {"decodes": decodes, "scores": scores}


def _numpy():
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _array(values, dtype=None):
    numpy = _numpy()
    return numpy.array(values, dtype)[()] if numpy else values


class _Vocabulary:
    def __init__(self, name, fields, ask):
        self._name, self._ask = name, ask
        for key in ("vocab_size", "pad_id", "eos_id", "unk_id", "bos_id"):
            setattr(self, key, fields.pop(key))

    def _asked(self, **question):
        return self._ask({**question, "feature": self._name})[0]

    def decode(self, ids):
        return self._asked(decode=[[int(i) for i in ids]])["decoded"][0]

    def encode(self, text):
        return self._asked(encode=[text])["encoded"][0]


def _input_of(fields):
    """An example as tfds.as_numpy gives it."""
    def feature(value):
        value = _decoded(value)
        if isinstance(value, (str, bytes)):
            return value.encode() if isinstance(value, str) else value
        if isinstance(value, list) and any(isinstance(item, str) for item in value):
            return _array([item.encode() for item in value], object)
        return _array(value)

    return {name: feature(value) for name, value in fields.items()}


def _ids(rows, length):
    """Rows as long as the decoder's, whichever examples are asked for."""
    length = max([length, *map(len, rows)])
    ids = _array([row + [0] * (length - len(row)) for row in rows], "int32")
    return ids.reshape(len(rows), length) if _numpy() else ids


def _numbers(value):
    """JSON has no NaN and no infinities: they are texts there."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _model_output(part, kind, length):
    if kind == "score":
        return _array(_numbers(part["scores"]), "float64")
    ids = _ids(part["predictions"], length)
    if kind == "prediction":
        return ids
    return ids, {name: _array(_numbers(values)) for name, values in part["aux_values"].items()}


def _joined(parts):
    """Parts of the examples as one."""
    whole = {"inputs": [], "predictions": [], "scores": [], "aux_values": {}}
    for part in parts:
        for name in ("inputs", "predictions", "scores"):
            whole[name] += part.get(name, [])
        for name, values in part.get("aux_values", {}).items():
            whole["aux_values"].setdefault(name, []).extend(values)
    return whole


def _metric_object(metric, about, ask):
    kind, size, target = about["model_output_type"], about["size"], about["target_field_name"]
    own = getattr(metric, "model_output_type", None)
    if own is not None and getattr(own, "name", str(own)).lower() != kind:
        raise ValueError(f"model_output_type of the metric is {getattr(own, 'name', own)}, that of ProcessMetricObject {kind.upper()}; bind the metric's")
    features = {}
    for name, fields in about["features"].items():
        vocabulary = _Vocabulary(name, fields, ask)
        features[name] = types.SimpleNamespace(vocabulary=vocabulary, **fields)

    def part(begin, end):
        steps = range(begin, end, 1000)  # lines of a bearable length
        whole = _joined([ask({"examples": [at, min(end, at + 1000)]})[0] for at in steps])
        return [_input_of(fields) for fields in whole["inputs"]], _model_output(whole, kind, about["target_length"])

    if not about["batch_size"]:
        inputs, output = part(0, size)
        made = metric.from_model_output(inputs, output, features, target)
        if hasattr(made, "actual_compute"):
            return made.actual_compute(inputs, features, target, None)[0]  # no targets of another metric, unlike seqio
        return made.compute()
    wanted = inspect.signature(metric.from_model_output).parameters
    takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in wanted.values())
    made = None
    for begin in range(0, max(1, size), about["batch_size"]):
        end = min(size, begin + about["batch_size"])
        optional = {"mask": _array([1] * (end - begin), "int32"), "indices_2d": _array([[0, i] for i in range(begin, end)], "int32")}
        batch = metric.from_model_output(*part(begin, end), features, target,
                                         **{name: value for name, value in optional.items() if takes_any or name in wanted})
        if hasattr(batch, "actual_compute"):
            raise ValueError("a metric with actual_compute takes all examples at once: leave ProcessMetricObject.batch_size at 0")
        made = batch if made is None else made.merge(batch)
    return made.compute()


def _state_of(fields):
    return types.SimpleNamespace(**fields)


def _answer(function, request):
    if "write" in request:
        return _write(function, request)
    if "merge" in request:
        function(**request["merge"])
        return {}
    if "state_callback" in request:
        state = _state_of(request["state_callback"])
        return {"state": vars(function(state) or state)}
    if "split" in request:
        examples = function[request["split"]]
        return {"example": examples[request["index"]]} if "index" in request else {"size": len(examples)}
    if "targets" in request:
        metrics = function(request["targets"], request["predictions"])
        return {"metrics": {name: _metric(value) for name, value in metrics.items()}}
    if "record" in request:
        return {"example": function(_decoded(request["record"]))}
    example = request["example"]
    if "output" in request:
        return {"output": function(request["output"], example=example, is_target=request["is_target"])}
    wanted = inspect.signature(function).parameters
    more = {name: request[name] for name in ("sequence_length", "seed") if name in wanted}
    return {"examples": _examples(function(example, **more))}


def _respond(function, request, following, ask):
    """A line, and the bytes that follow it. `following`: what followed the request. `ask`: sends an answer that is a question."""
    if "decode" in request:
        return _line(_decode(function, request, ask)), b""
    if "metric_object" in request:
        try:
            metrics = _metric_object(function, request["metric_object"], ask)
        except (AttributeError, TypeError) as error:
            if _numpy():
                raise
            raise type(error)(f"{error} (arrays are lists, since {sys.executable} has no NumPy: install it if the metric needs arrays)") from error
        return _line({"metrics": {name: _metric(value) for name, value in metrics.items()}}), b""
    if "logit_callback" in request:
        logits = function(_logits_of(request["logits"], following), _state_of(request["logit_callback"]))
        data = _bytes_of(logits)
        if len(data) != len(following):
            raise ValueError(f"expected logits {request['logits']}, as they were given, found {len(data) // 4} numbers")
        return _line({"logits": request["logits"]}), data
    packs = request.get("format") == "tf_example"
    if "example" in request:
        fields = request["example"]
        request["example"] = parse_example(following) if packs else {name: _decoded(value) for name, value in fields.items()}
    answer = _answer(function, request)
    answer, data = _packed(answer) if packs else (answer, b"")
    return _line(answer), data


def _line(answer):
    return json.dumps(_encoded(answer)).encode() + b"\n"


def run(function):
    """Answers requests with `function` until the input ends. `function`: see above."""
    requests, answers = open(0, "rb", closefd=False), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints
    sys.stdout = sys.stderr

    def read(line):
        request = json.loads(line)
        size = 0
        if request.get("format") == "tf_example" and "example" in request:
            size = request["example"]
        if "logits" in request:
            size = 4 * request["logits"][0] * request["logits"][1]
        return request, requests.read(size)

    def ask(answer):
        answers.write(_line(answer))
        answers.flush()
        return read(requests.readline())

    for line in requests:
        try:
            line, data = _respond(function, *read(line), ask)
        except Exception as error:
            traceback.print_exc()
            line, data = json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n", b""
        answers.write(line + data)
        answers.flush()
