"""What goes wrong, by the kinds of the command's exit codes (docs/reference/exit-codes.md)."""

from __future__ import annotations


class QuintetError(Exception):
    """What Quintet says went wrong. `code`: the exit code of the command for it."""

    code = 1


class UsageError(QuintetError, ValueError):
    """What was asked for makes no sense: an option, a length, a closed model."""

    code = 2


class DataError(QuintetError):
    """A file or a text that is missing or damaged."""

    code = 3


class EnvironmentFault(QuintetError):
    """The machine: no library, program, memory or GPU; or the model's process has ended."""

    code = 4


class DiskError(QuintetError):
    """Something could not be written."""

    code = 5


class PeerError(QuintetError):
    """Another rank of the job failed."""

    code = 6


class NonFiniteError(QuintetError):
    """Training met numbers that are not finite."""

    code = 7


_KINDS: dict[int, type[QuintetError]] = {
    kind.code: kind for kind in (QuintetError, UsageError, DataError, EnvironmentFault, DiskError, PeerError, NonFiniteError)
}


def error_of(code: int, sentence: str) -> QuintetError:
    """The exception of an exit code."""
    return _KINDS.get(code, QuintetError)(sentence)
