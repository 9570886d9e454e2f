"""A model: answers, scores, embeddings, tokens."""

from __future__ import annotations

import ctypes
import json
import operator
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from ctypes import byref, c_int32, c_size_t, c_void_p
from types import TracebackType
from typing import Any

import numpy
from numpy.typing import NDArray

from . import _library
from ._library import END, OK, PATIENCE, WAITING, begun, call, library, text, texts
from .errors import UsageError


class Answer(str):
    """The text of an answer, and what is known of it."""

    #: "stop", or "length" if it was cut at max_tokens.
    finish_reason: str
    #: Of a beam search; None otherwise.
    score: float | None
    #: With logprobs=K: tokens, token_logprobs, top_logprobs, text_offset.
    logprobs: dict[str, Any] | None
    #: With n=K: all K answers to the input, the best first.
    alternatives: list[Answer]

    def __new__(cls, choice: dict[str, Any]) -> Answer:
        answer = super().__new__(cls, choice["text"])
        answer.finish_reason = choice["finish_reason"]
        answer.score = choice.get("score")
        answer.logprobs = choice.get("logprobs")
        answer.alternatives = [answer]
        return answer


class _Result:
    """A request under way; it ends when nobody holds it."""

    def __init__(self, handle: c_void_p) -> None:
        self.handle = handle
        self.free = weakref.finalize(self, library().quintet_free, handle)

    def wait(self) -> None:
        try:
            while call("wait", self.handle, PATIENCE) == WAITING:
                pass
        except BaseException:  # whose traceback, which a REPL keeps, holds this
            self.free()
            raise

    def answer(self) -> dict[str, Any]:
        self.wait()
        answer: dict[str, Any] = json.loads(library().quintet_json(self.handle))
        return answer

    def ids(self) -> list[int]:
        self.wait()
        count = c_size_t()
        ids = library().quintet_ids(self.handle, byref(count))
        return list(ids[: count.value])

    def arrays(self) -> list[NDArray[numpy.float32]]:
        """One [rows, width] for each."""
        self.wait()
        out = []
        rows, width = c_size_t(), c_size_t()
        for i in range(library().quintet_count(self.handle)):
            values = library().quintet_values(self.handle, i, byref(rows), byref(width))
            out.append(numpy.ctypeslib.as_array(values, (rows.value, width.value)).copy())
        return out


def _options(options: dict[str, Any]) -> bytes:
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return json.dumps(given).encode()
    except TypeError as error:
        raise TypeError(f"options: {error}") from None


class Model:
    """A trained model, in a process of its own; threads may share it, and their requests are computed together.

    `path`: the directory of a training run, a checkpoint of any program, or a Hugging Face directory. `flags`: of
    `quintet serve`: Model("DIR", quantize="int8", threads=4, max_prompt_tokens=4096). `gin`: bindings over the run's.
    Raises DataError for a directory without a model, UsageError for flags that make no sense, EnvironmentFault for a
    library or program that is missing or of another version. A process that forks loads its models after that.
    """

    def __init__(self, path: str | os.PathLike[str], *, gin: dict[str, object] | None = None, **flags: object) -> None:
        bindings = [f"--gin.{name}={value}" for name, value in (gin or {}).items()]
        given = texts([*_library.flag_texts(flags), *bindings], "flags")
        self._handle = begun("load", text(os.fspath(path), "path"), given)
        self._lock = threading.Lock()
        self._described: dict[str, Any] = json.loads(library().quintet_describe(self._handle))
        self._close = weakref.finalize(self, library().quintet_close, self._handle)

    def close(self) -> None:
        """Ends its process. Requests of other threads raise UsageError, and so does every call after this."""
        with self._lock:
            self._close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<quintet.Model {self.path} at step {self.step}{'' if self._close.alive else ', closed'}>"

    @property
    def path(self) -> str:
        """The model directory."""
        return str(self._described["model_dir"])

    @property
    def step(self) -> int:
        """The training step of the checkpoint."""
        return int(self._described["step"])

    @property
    def vocab_size(self) -> int:
        """Ids that there may be."""
        return int(self._described["vocab_size"])

    @property
    def width(self) -> int:
        """Numbers of an embedding."""
        return int(self._described["emb_dim"])

    def _ask(self, name: str, *arguments: object) -> _Result:
        with self._lock:
            if not self._close.alive:
                raise UsageError("the model is closed; load it again")
            return _Result(begun(name, self._handle, *arguments))

    def generate(self, inputs: Sequence[str], *, max_tokens: int | None = None, num_beams: int | None = None,
                 temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
                 seed: int | None = None, stop: str | Sequence[str] | None = None, n: int | None = None,
                 logprobs: int | None = None, **options: Any) -> list[Answer]:
        """One answer to each input, in their order.

        Without a temperature the likeliest token is taken each time. `max_tokens`: the run's length of targets.
        `options`: further fields of the server's /v1/completions (docs/usage/serve.md), such as length_penalty.
        Raises UsageError for options that make no sense.
        """
        ends = stop if stop is None or isinstance(stop, str) else list(stop)
        given = _options(dict(options, max_tokens=max_tokens, num_beams=num_beams, temperature=temperature, top_k=top_k, top_p=top_p,
                              seed=seed, stop=ends, n=n, logprobs=logprobs))
        array = texts(inputs, "inputs")
        if not len(inputs):
            return []
        choices = [Answer(choice) for choice in self._ask("generate", array, len(inputs), given).answer()["choices"]]
        each = len(choices) // len(inputs)
        for i in range(0, len(choices), each):
            choices[i].alternatives = choices[i: i + each]
        return choices[::each]

    def stream(self, input: str, *, max_tokens: int | None = None, temperature: float | None = None, top_k: int | None = None,
               top_p: float | None = None, seed: int | None = None, **options: Any) -> Iterator[str]:
        """The answer to one input piece by piece, as it is made; a generator, whose end or close() ends the work."""
        given = _options(dict(options, max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed))
        return self._pieces(self._ask("stream", text(input, "input"), given))

    @staticmethod
    def _pieces(result: _Result) -> Iterator[str]:
        piece, size = c_void_p(), c_size_t()
        try:
            while (status := call("next", result.handle, PATIENCE, byref(piece), byref(size))) != END:
                if status == OK:
                    yield ctypes.string_at(piece.value or 0, size.value).decode(errors="replace")
        finally:
            result.free()

    def score(self, inputs: Sequence[str], targets: Sequence[str], **options: Any) -> NDArray[numpy.float32]:
        """[len(inputs)]: the sum of the log probabilities of each target, its end included, as the answer to the input.

        `options`: fields of /v1/score, such as add_eos=False. Raises UsageError if there are not as many targets.
        """
        array, wanted = texts(inputs, "inputs"), texts(targets, "targets")
        if len(inputs) != len(targets):
            raise UsageError(f"score: {len(inputs)} inputs and {len(targets)} targets; give one target for each input")
        if not len(inputs):
            return numpy.empty(0, numpy.float32)
        result = self._ask("score", array, wanted, len(inputs), _options(options))
        return numpy.concatenate(result.arrays()).reshape(-1)

    def embed(self, inputs: Sequence[str]) -> NDArray[numpy.float32]:
        """[len(inputs), width]: the mean of the encoder's output over the tokens of each input."""
        array = texts(inputs, "inputs")
        if not len(inputs):
            return numpy.empty((0, self.width), numpy.float32)
        return numpy.concatenate(self._ask("embed", array, len(inputs), b"{}").arrays())

    def embed_tokens(self, inputs: Sequence[str]) -> list[NDArray[numpy.float32]]:
        """The encoder's output for each token: one [tokens, width] for each input."""
        array = texts(inputs, "inputs")
        return self._ask("embed", array, len(inputs), b'{"pooling": "none"}').arrays() if len(inputs) else []

    def tokenize(self, value: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text as an input of the model; without its end if not add_special_tokens."""
        given = _options({"add_special_tokens": add_special_tokens})
        return self._ask("tokenize", text(value, "value"), given).ids()

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of ids. Raises UsageError for ids that the model does not have."""
        try:
            numbers = [operator.index(one) for one in ids]
        except TypeError as error:
            raise TypeError(f"ids: expected whole numbers: {error}") from None
        if not numbers:
            return ""
        for one in numbers:
            if not 0 <= one < self.vocab_size:
                raise UsageError(f"ids: token {one} is not one of the model's {self.vocab_size}")
        array = (c_int32 * len(numbers))(*numbers)
        return str(self._ask("detokenize", ctypes.cast(array, ctypes.POINTER(c_int32)), len(numbers)).answer()["prompt"])
