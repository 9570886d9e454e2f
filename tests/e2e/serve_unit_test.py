"""scripts/quintet-serve.service: systemd accepts it, its command is one that the program takes, and the program serves
where memory is never both writable and executable, as the unit demands."""

import ctypes
import re
import shlex
import shutil
import subprocess
import sys

import e2e
from e2e import QUINTET, ROOT, quintet
from serving import serving, trained

UNIT = ROOT / "scripts" / "quintet-serve.service"
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1  # linux/prctl.h, Linux 6.3
STRICT = ("import ctypes, os, sys\n"
          f"assert ctypes.CDLL(None).prctl({PR_SET_MDWE}, {REFUSE_EXEC_GAIN}, 0, 0, 0) == 0\n"
          "os.execv(sys.argv[1], sys.argv[1:])")


def settings():
    lines = [line for line in UNIT.read_text().splitlines() if line and not line.startswith(("#", "["))]
    return dict(line.split("=", 1) for line in lines)


def command():
    """Verb and flags of ExecStart."""
    program, verb, *flags = shlex.split(settings()["ExecStart"])
    assert program.endswith("/quintet") and verb == "serve", program
    return flags


def test_systemd_accepts_it(folder):
    if shutil.which("systemd-analyze") is None:
        e2e.skip("needs systemd-analyze (Debian: systemd)")
    unit = folder / UNIT.name
    unit.write_text(UNIT.read_text().replace(shlex.split(settings()["ExecStart"])[0], QUINTET))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done
    unit.write_text(unit.read_text().replace("[Service]", "[Service]\nRestart=perhaps"))
    assert subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True).stderr


def test_its_flags_are_the_programs(folder):
    shown = quintet("serve", "--help").out
    named = command() + re.findall(r"--\w+", "".join(line for line in UNIT.read_text().splitlines() if line[:1] == "#"))
    for flag in (word.split("=")[0] for word in named if word.startswith("--")):
        if flag not in ("--system", "--now"):  # useradd's, systemctl's
            assert re.search(rf"{flag}\b", shown), f"{flag} is not in quintet serve --help:\n{shown}"
    drain = float(re.search(r"--drain_seconds, (\d+)", UNIT.read_text()).group(1))
    assert re.search(rf"--drain_seconds [^-]*default\s+{drain:g}\)", shown), shown
    assert float(settings()["TimeoutStopSec"]) > drain
    assert int(settings()["LimitNOFILE"]) >= 1024


def test_its_command_serves_under_its_restrictions(folder):
    flags = [flag for flag in command() if not flag.startswith(("--model", "--port"))]
    strict = ctypes.CDLL(None).prctl(66, 0, 0, 0, 0) >= 0  # PR_GET_MDWE: whether this kernel knows it
    wrapped = (sys.executable, "-c", STRICT, QUINTET) if strict else (QUINTET,)
    with serving(trained(folder), *flags, program=wrapped) as server:
        assert server.complete(prompt="words: 7", max_tokens=4)["choices"]
        assert server.post("/v1/score", prompt="a", target="b")["data"]


e2e.run(globals())
