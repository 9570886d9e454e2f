"""Starting programs, reading the lines they print, stopping them in time.

Every program is a process group of its own with a time limit. Its standard output is read line by line, each
measurement handed on at once; standard error is kept for the message when it fails.
"""

import atexit
import collections
import contextlib
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time


running = set()


@atexit.register
def stop_all():
    stop(list(running))


def stop(programs):
    """Ends programs and everything that they started, all at once."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for program in programs:
            try:
                os.killpg(program.process.pid, kind)
            except ProcessLookupError:
                pass
        end = time.monotonic() + 3
        if all([program.done.wait(max(0, end - time.monotonic())) for program in programs]):
            break


signals = dict(wait=False, came=False)


@contextlib.contextmanager
def uninterrupted():
    """Signals of exit_on_signals wait for the end: what is started inside is known by then, and is stopped."""
    signals["wait"] = True
    try:
        yield
    finally:
        signals["wait"] = False
    if signals["came"]:
        sys.exit(130)


def exit_on_signals():
    """A run that is stopped ends as by an exception: it stops its programs and reports first."""
    def leave(*ignored):
        signals["came"] = True
        if not signals["wait"]:
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)
            sys.exit(130)

    numbers = [number for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
               if signal.getsignal(number) != signal.SIG_IGN]  # as with nohup
    for number in numbers:
        signal.signal(number, leave)


def open_to_append(path):
    """A file of lines, whose last one may have been cut short with the program that wrote it."""
    torn = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    file = open(path, "a", encoding="utf-8")
    file.write("\n" if torn else "")
    return file


def json_lines(path):
    """The objects of a file of lines, if it is there; without those cut short."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


class Program:
    """One running program. `name` goes into the record of a failure, `on_line(dict)` gets its measurements; `translate`
    makes one, several in a list or none of what it prints. `late`: it was stopped by its limit, or says that its own left
    something out."""

    def __init__(self, name, command, on_line, environment=None, translate=None):
        self.name, self.on_line, self.translate = name, on_line, translate
        self.lines, self.late = 0, False
        self.errors = collections.deque(maxlen=40)
        self.ready = threading.Event()
        self.done = threading.Event()
        self.started = time.monotonic()
        with uninterrupted():
            self.process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, errors="replace", env=dict(os.environ, **(environment or {})), start_new_session=True)
            self.threads = [threading.Thread(target=self._read_output, daemon=True),
                            threading.Thread(target=self._read_errors, daemon=True)]
            running.add(self)
            for thread in self.threads:
                thread.start()

    def _read_output(self):
        for text in self.process.stdout:
            if not text.startswith("{"):
                continue
            try:
                line = json.loads(text)
            except ValueError:
                continue
            self.late |= line.get("late", False)
            if line.get("ready"):
                self.ready.set()
            if "ready" in line or line == {"late": True}:
                continue
            translated = self.translate(line) if self.translate else line
            for line in translated if isinstance(translated, list) else [translated] if translated else []:
                self.lines += 1
                self.on_line(line)
        self.process.wait()
        running.discard(self)
        self.done.set()
        self.ready.set()  # nobody needs to wait for one that ended

    def _read_errors(self):
        for text in self.process.stderr:
            self.errors.append(text.rstrip())

    def go(self):
        """Lets a program that has said it is ready measure."""
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.close()
        except (BrokenPipeError, OSError, ValueError):
            pass

    def finish(self, limit):
        """Waits for the end. None, or why it failed: a limit in seconds or an exit status."""
        if not self.done.wait(limit):
            self.late = True
            stop([self])
            return f"stopped after {limit:.0f} s"
        for thread in self.threads:
            thread.join(2)
        if self.process.returncode == 0:
            return None
        return f"exit {self.process.returncode}: {last_words(self.errors)}"


def kind_of(machine):
    """What measurements of one report have in common; a GPU is another card of the same kind there."""
    gpu = machine.get("gpu")
    return gpu.split(",")[0] if gpu else machine.get("cpu"), machine.get("device"), machine.get("tiny")


def since_another_kind(lines):
    """The lines since a machine of another kind wrote the last one: what measurements of the last machine stand beside."""
    kept, kind = [], None
    for line in lines:
        if "machine" in line:
            if kind not in (None, kind_of(line["machine"])):
                kept = []
            kind = kind_of(line["machine"])
        kept.append(line)
    return kept


def this_machine(device, tiny):
    """What is to be known of it; of GPUs the first one's name, driver and memory, and its UUID as `card`."""
    def first_line(command):
        status, output = probe(command, 20)
        return output.strip().splitlines()[0].strip() if status == 0 and output.strip() else None

    gpu = card = None
    if device == "cuda":
        found = first_line(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,uuid", "--format=csv,noheader"])
        gpu, _, card = found.rpartition(", ") if found else (None, None, None)
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                if line.startswith("model name")), "unknown")
    root = pathlib.Path(__file__).resolve().parents[2]
    commit = first_line(["cat", root / "commit"]) or first_line(["git", "-C", root, "rev-parse", "--short", "HEAD"])
    return dict(gpu=gpu, card=card, cpu=cpu, cores=len(os.sched_getaffinity(0)), device=device, tiny=tiny,
                date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), commit=commit)


def last_words(errors, most=300):
    """The last line that says something, with what went before it as room allows."""
    said = [line.strip() for line in errors if line.strip()]
    return " | ".join(said[-3:])[-most:] if said else "no message"


def find_program(folder, name, device="cuda"):
    """The program in the folder or in the places below it where a build or a bundle has it; of micro-benchmarks, that for
    the emulator if the device is."""
    for place in ("bench/gpu/emulated",) * (device == "emulated") + (".", "bench/gpu", "bin"):
        path = pathlib.Path(folder) / place / name
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def probe(command, limit=60):
    """(exit status or None, output) of a short program."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=limit,
                              stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
