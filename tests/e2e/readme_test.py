"""The README's commands run. Every fenced `bash` block is run in order in one shell, in this checkout; training is cut to
a few steps, and the two commands that would run this very test or take long are run in short form or compared."""

import os
import re
import socket
import subprocess

import e2e
from e2e import ROOT

with socket.socket() as free:  # for the server, instead of 8000
    free.bind(("127.0.0.1", 0))
    PORT = free.getsockname()[1]
BUILD = os.environ.get("QUINTET_BUILD", str(ROOT / "build"))


def blocks():
    return re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)


def shortened(block, folder):
    """The block as CI runs it."""
    block = block.replace("/tmp/", f"{folder}/").replace("$PWD/build", BUILD)
    block = re.sub(r"^scripts/quickstart.*$", f"scripts/quickstart --steps=10 --model_dir={folder}/quickstart", block,
                   flags=re.M)
    block = re.sub(r"^scripts/test.*$", "", block, flags=re.M)  # it is what runs this
    block = re.sub(r"^scripts/tutorial_text$",
                   f"scripts/tutorial_text --out={folder}/tutorial --vocab_size=70 --pretrain_steps=6 "
                   f"--finetune_steps=4 {folder}/text.txt", block, flags=re.M)
    if os.environ.get("QUINTET_SANITIZE") == "thread":  # it has no room for the addresses of XXL
        block = re.sub(r"^quintet plan .*bench/published/.*$", "", block, flags=re.M)
    block = block.replace("8000", str(PORT)) if "localhost:8000" in block else block
    block = re.sub(r"TRAIN_STEPS=\d+", "TRAIN_STEPS=10 --gin.WARMUP_STEPS=2", block) if "quickstart.gin" in block else block
    return block


def test_every_command_runs(folder):
    words = "a text with Several words and 17 numbers that stands for the files of a user".split()
    (folder / "text.txt").write_text("\n\n".join(
        " ".join(words[(i * k + i) % len(words)] for k in range(1, 20)) + f" Row {i}." for i in range(400)))
    found = blocks()
    assert len(found) >= 6, found
    script = "set -euo pipefail\n" + "\n".join(shortened(block, folder) for block in found)
    done = subprocess.run(["bash", "-xc", script], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{script}\nexit {done.returncode}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert (folder / "tour" / "curves.svg").read_text().startswith("<svg")


def test_ci_runs_the_test_command(folder):
    commands = [line.split("#")[0].strip() for block in blocks() for line in block.splitlines()]
    assert "scripts/test" in commands
    assert "exec scripts/test\n" in (ROOT / ".ci" / "run").read_text()


def test_what_it_names_is_there(folder):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:apps|kernels|runtime|models|data|checkpoint|tests|bench|scripts)/[\w./-]*)`", text))
    missing = [path for path in sorted(paths) if not (ROOT / path).exists()]
    assert len(paths) > 10 and not missing, missing
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests/e2e").glob("*_test.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in tests, name


e2e.run(globals())
