"""libquintet.so by ctypes: where it is, its functions, its errors."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import pathlib
import shutil
import sysconfig
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p

from .errors import EnvironmentFault, UsageError, error_of

INTERFACE = 1  # QUINTET_INTERFACE of quintet.h
NAME = "libquintet.so"
OK, WAITING, END = 0, 100, 101
PATIENCE = 0.1  # seconds of waiting after which Python looks at its signals


class Feature(ctypes.Structure):
    """quintet_feature."""

    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("rank", c_size_t), ("shape", POINTER(c_int64))]


_TEXTS = POINTER(c_char_p)
_STATUS = {
    "load": [c_char_p, _TEXTS, POINTER(c_void_p)],
    "generate": [c_void_p, _TEXTS, c_size_t, c_char_p, POINTER(c_void_p)],
    "stream": [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)],
    "score": [c_void_p, _TEXTS, _TEXTS, c_size_t, c_char_p, POINTER(c_void_p)],
    "embed": [c_void_p, _TEXTS, c_size_t, c_char_p, POINTER(c_void_p)],
    "tokenize": [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)],
    "detokenize": [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_void_p)],
    "wait": [c_void_p, c_double],
    "next": [c_void_p, c_double, POINTER(c_void_p), POINTER(c_size_t)],
    "open_batches": [_TEXTS, POINTER(c_void_p)],
    "next_batch": [c_void_p, c_double, POINTER(c_void_p), POINTER(c_int64)],
}
_OTHERS = {
    "version": (c_char_p, []),
    "error": (c_char_p, []),
    "program": (c_char_p, []),
    "close": (None, [c_void_p]),
    "describe": (c_char_p, [c_void_p]),
    "free": (None, [c_void_p]),
    "count": (c_size_t, [c_void_p]),
    "text": (c_void_p, [c_void_p, c_size_t, POINTER(c_size_t)]),
    "values": (POINTER(c_float), [c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_size_t)]),
    "ids": (POINTER(c_int32), [c_void_p, POINTER(c_size_t)]),
    "json": (c_char_p, [c_void_p]),
    "features": (c_size_t, [c_void_p, POINTER(POINTER(Feature))]),
    "close_batches": (None, [c_void_p]),
}


def _places() -> Iterator[str]:
    """Where the library may be, best first."""
    if named := os.environ.get("QUINTET_LIBRARY"):
        yield named
        return
    programs = (os.environ.get("QUINTET_PROGRAM"), shutil.which("quintet"))
    folders = [pathlib.Path(program).resolve().parent for program in programs if program]
    source = pathlib.Path(__file__).resolve().parents[2]
    for folder in (*folders, source / "build"):
        if folder.name == "bin":
            for name in ("lib", "lib64", f"lib/{sysconfig.get_config_var('MULTIARCH') or ''}"):
                yield str(folder.parent / name / NAME)
        yield str(folder / NAME)
    if installed := ctypes.util.find_library("quintet"):
        yield installed


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The library, loaded once. Raises EnvironmentFault if it is nowhere or of another version."""
    tried = []
    for place in _places():
        if os.sep in place and not os.path.exists(place):
            tried.append(place)
            continue
        try:
            found = ctypes.CDLL(place)
        except OSError as error:
            raise EnvironmentFault(f"{place}: cannot be loaded: {error}") from error
        _bind(found, place)
        return found
    raise EnvironmentFault(f"{NAME} is not in {', '.join(tried)}: build or install Quintet, or name the file in QUINTET_LIBRARY")


def _bind(found: ctypes.CDLL, place: str) -> None:
    try:
        interface = int(found.quintet_interface())
    except AttributeError:
        interface = 0
    if interface != INTERFACE:
        raise EnvironmentFault(f"{place}: has interface {interface}, this package speaks {INTERFACE}: install both from one version")
    for name, arguments in _STATUS.items():
        function = getattr(found, f"quintet_{name}")
        function.restype, function.argtypes = c_int, arguments
    for name, (result, arguments) in _OTHERS.items():
        function = getattr(found, f"quintet_{name}")
        function.restype, function.argtypes = result, arguments


def call(name: str, *arguments: object) -> int:
    """Calls a function that gives a status. Raises what it says went wrong; gives OK, WAITING or END."""
    status: int = getattr(library(), f"quintet_{name}")(*arguments)
    if status in (OK, WAITING, END):
        return status
    raise error_of(status, library().quintet_error().decode(errors="replace"))


def begun(name: str, *arguments: object) -> c_void_p:
    """The handle that such a function makes."""
    handle = c_void_p()
    call(name, *arguments, byref(handle))
    return handle


def text(value: str, where: str) -> bytes:
    """A C string."""
    if not isinstance(value, str):
        raise TypeError(f"{where}: expected str, found {type(value).__name__}")
    data = value.encode()
    if b"\0" in data:
        raise UsageError(f"{where}: a text must not hold the character 0")
    return data


def texts(values: Sequence[str], where: str) -> ctypes.Array[c_char_p]:
    """An array of C strings, with NULL behind the last."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{where}: expected a sequence of str, found {type(values).__name__}")
    data = [text(value, f"{where}[{i}]") for i, value in enumerate(values)]
    return (c_char_p * (len(data) + 1))(*data, None)


def flag_texts(flags: dict[str, object]) -> list[str]:
    """--name=value of every flag that is not None; of True --name, of False --name=false, of a list --name for each."""
    out: list[str] = []
    for name, value in flags.items():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if one is True:
                out.append(f"--{name}")
            elif one is False:
                out.append(f"--{name}=false")
            elif one is not None:
                out.append(f"--{name}={os.fspath(one) if isinstance(one, os.PathLike) else one}")
    return out
