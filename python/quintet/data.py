"""A task's examples as a model gets them, in NumPy arrays."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_int64, c_void_p
from typing import Union

import numpy
from numpy.typing import NDArray

from ._library import END, OK, PATIENCE, Feature, begun, call, flag_texts, library, texts

Batch = dict[str, NDArray[numpy.generic]]
Path = Union[str, os.PathLike[str]]


class Batches(Iterator[Batch]):
    """Batches of a task until its end, each for one of the threads that ask: what batches() gives. close() ends its process."""

    def __init__(self, flags: Sequence[str]) -> None:
        self._handle = begun("open_batches", texts(flags, "flags"))
        self._lock = threading.Lock()
        self._close = weakref.finalize(self, library().quintet_close_batches, self._handle)
        described = POINTER(Feature)()
        count = library().quintet_features(self._handle, byref(described))
        #: Of every batch: name -> (shape, dtype), the rows first.
        self.features: dict[str, tuple[tuple[int, ...], numpy.dtype]] = {
            one.name.decode(): (tuple(one.shape[: one.rank]), numpy.dtype(one.dtype.decode())) for one in described[:count]
        }

    def __next__(self) -> Batch:
        arrays = {name: numpy.empty(shape, dtype) for name, (shape, dtype) in self.features.items()}
        pointers = (c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays.values()))
        rows = c_int64()
        while True:
            with self._lock:
                status = call("next_batch", self._handle, PATIENCE, pointers, byref(rows)) if self._close.alive else END
                if status == END:
                    self._close()
                    raise StopIteration
                if status == OK:
                    #: Rows of the newest batch that hold examples: all but at the end of the data.
                    self.rows = rows.value
                    return arrays

    def close(self) -> None:
        """No more batches."""
        with self._lock:
            self._close()


def batches(task: str, *, batch_size: int = 8, split: str = "train", lengths: Mapping[str, int] | None = None, pack: bool = True,
            best_fit: bool = False, shuffle: bool = False, seed: int = 0, epochs: int | None = 1, use_cached: bool = False,
            cache_dirs: Sequence[Path] = (), feature_converter: str | None = None, gin_file: Path | Sequence[Path] | None = None,
            gin: Mapping[str, object] | None = None) -> Batches:
    """Batches of a task or mixture as a training run sees them: model feature -> int32 or float32 [batch_size, length, ...].

    `lengths`: of task features, {"inputs": 512, "targets": 114}. `pack`: several examples a row. `epochs`: passes over the
    data; None: without end. `use_cached`: read the offline cache, in one of `cache_dirs`. `gin_file`, `gin`: files with tasks
    and macros, and bindings. The last batch is filled with rows of zeros; Batches.rows says how many rows hold examples.
    Raises UsageError for a task that there is not, DataError for data that cannot be read.
    """
    flags: dict[str, object] = {
        "batch_size": batch_size, "split": split, "no_pack": not pack, "best_fit": best_fit, "shuffle": shuffle, "seed": seed,
        "epochs": 0 if epochs is None else epochs, "use_cached": use_cached,
        "seqio_additional_cache_dirs": ",".join(os.fspath(folder) for folder in cache_dirs) or None, "feature_converter": feature_converter,
        "gin_file": list(gin_file) if isinstance(gin_file, (list, tuple)) else gin_file,
    }
    if lengths:
        flags["task_feature_lengths"] = ",".join(f"{name}={length}" for name, length in lengths.items())
    return Batches([task, *flag_texts(flags), *(f"--gin.{name}={value}" for name, value in (gin or {}).items())])
