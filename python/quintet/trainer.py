"""Training runs, with their metrics as they come."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from ._library import flag_texts, library
from .errors import EnvironmentFault, error_of

#: Called with the name of what was measured ("train", "training_eval/TASK", "inference_eval/TASK"), the step and the
#: numbers; False ends the run after its step, saved.
Callback = Callable[[str, int, dict[str, float]], Any]

_SAVED = 75
_STOP = signal.SIGUSR1  # which mpirun passes on
_LOOK_SECONDS = 0.05


class Trainer:
    """A run of `quintet train`, in a process of its own: the same run, files and resumption as from the command line.

    `flags`: of `quintet train`, model_dir among them: Trainer(model_dir="/tmp/run", gin_file="quintet/quickstart.gin").
    `gin`: bindings. `launcher`: words before the program, such as ["mpirun", "-n", "2"].
    """

    def __init__(self, *, model_dir: str | os.PathLike[str], callback: Callback | None = None, gin: Mapping[str, object] | None = None,
                 launcher: Sequence[str] = (), **flags: object) -> None:
        self._start("train", model_dir, callback, launcher,
                    [*flag_texts({"model_dir": model_dir, **flags}), *(f"--gin.{name}={value}" for name, value in (gin or {}).items())])

    @classmethod
    def finetune(cls, model: str | os.PathLike[str], *, output_dir: str | os.PathLike[str], callback: Callback | None = None,
                 launcher: Sequence[str] = (), **flags: object) -> Trainer:
        """A run of `quintet finetune`: finetune("DIR", output_dir="OUT", train="t.jsonl", input="question", target="answer")."""
        trainer = cls.__new__(cls)
        trainer._start("finetune", output_dir, callback, launcher, [os.fspath(model), *flag_texts({"output_dir": output_dir, **flags})])
        return trainer

    def _start(self, verb: str, folder: str | os.PathLike[str], callback: Callback | None, launcher: Sequence[str],
               arguments: list[str]) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: expected a function, found {type(callback).__name__}")
        self._metrics = pathlib.Path(folder) / "metrics.jsonl"
        self._callback = callback
        self._command = [*launcher, library().quintet_program().decode(), verb, *arguments]

    def run(self) -> bool:
        """Trains. True: to the end; False: the callback or a signal ended it, saved, and run() goes on from there.

        Raises UsageError for a configuration that makes no sense, DataError, DiskError, NonFiniteError and others as the
        command's exit codes say; what the callback raises, after the run was saved; KeyboardInterrupt likewise.
        """
        seen, before = self._kept(), self._changed()
        try:
            process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                                       start_new_session=True)
        except OSError as error:
            raise EnvironmentFault(f"{self._command[0]}: cannot be started: {error.strerror}") from None
        said: list[str] = []
        assert process.stderr is not None
        reader = threading.Thread(target=_pass_on, args=(process.stderr, said), daemon=True)
        reader.start()
        try:
            over, wanted = False, self._callback is not None
            while not over:
                over = _ended(process)
                # A run that resumes first cuts off what it will write again.
                if wanted and self._changed() != before:
                    seen, wanted = self._call_back(seen)
                    if not wanted and not over:
                        process.send_signal(_STOP)
        except BaseException:
            process.send_signal(_STOP)
            process.wait()
            raise
        reader.join()
        if process.returncode in (0, _SAVED):
            return process.returncode == 0
        sentence = "".join(said).removeprefix("error: ").rstrip() or f"{self._command[0]}: ended with {process.returncode}"
        raise error_of(process.returncode if process.returncode > 0 else EnvironmentFault.code, sentence)

    def _changed(self) -> tuple[int, int] | None:
        """Changes with the file of the metrics; None: there is none."""
        if not self._metrics.exists():
            return None
        state = self._metrics.stat()
        return state.st_size, state.st_mtime_ns

    def _kept(self) -> int:
        """Bytes of the metrics that stay when the run resumes: those of its newest checkpoint."""
        steps = [int(folder.name.partition("_")[2]) for folder in self._metrics.parent.glob("checkpoint_*")
                 if folder.name.partition("_")[2].isdecimal() and (folder / "MANIFEST.json").exists()]
        if not steps:
            return 0
        manifest = json.loads((self._metrics.parent / f"checkpoint_{max(steps)}" / "MANIFEST.json").read_text())
        return int(manifest.get("state", {}).get("metrics_bytes", 0))

    def _call_back(self, seen: int) -> tuple[int, bool]:
        """Gives the callback the whole lines behind byte `seen`; where the next begins, and whether it wants more."""
        assert self._callback is not None
        with open(self._metrics, "rb") as file:
            seen = min(seen, file.seek(0, os.SEEK_END))
            file.seek(max(0, seen - 1))
            if seen > 0 and file.read(1) != b"\n":
                seen += len(file.readline())
            for line in file:
                if not line.endswith(b"\n"):
                    break
                seen += len(line)
                record = json.loads(line)
                step, name = record.pop("step"), record.pop("run", "")
                if self._callback(name, step, {key: float(value) for key, value in record.items()}) is False:
                    return seen, False
        return seen, True


def _ended(process: subprocess.Popen[str]) -> bool:
    try:
        process.wait(_LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _pass_on(stderr: IO[str], said: list[str]) -> None:
    """What a run says goes to our stderr, but for its error and what follows."""
    for line in stderr:
        if said or line.startswith("error: "):
            said.append(line)
        else:
            sys.stderr.write(line)
