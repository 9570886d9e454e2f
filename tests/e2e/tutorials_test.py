"""The scripts a newcomer runs, in short form: quickstart, and the tutorial on text files."""

import os
import re
import shlex
import subprocess
import time

import e2e
from e2e import ROOT


def script(name, *arguments, expect=0):
    done = subprocess.run([ROOT / "scripts" / name, *map(str, arguments)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == expect, f"exit {done.returncode}: {done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    return done


def test_quickstart_ends_with_the_measured_figure(folder):
    done = script("quickstart", "--steps=20", f"--model_dir={folder}/run")
    last = done.stdout.strip().splitlines()[-1]
    assert re.fullmatch(r"held-out exact match: [01]\.\d{4}", last), last
    assert done.stderr.count("WRONG") + done.stderr.count("right ") == 16, done.stderr[-2000:]  # samples, both ways
    asked = [int(n) for n in re.findall(r'"examples":(\d+)', done.stdout)]
    assert len(asked) == 2 and all(400 < n < 500 for n in asked), asked  # all held-out numbers

    began = time.time()
    again = script("quickstart", "--steps=20", f"--model_dir={folder}/run")
    assert again.stdout.strip().splitlines()[-1] == last
    assert "trained already" in again.stderr
    assert time.time() - began < 120


def test_quickstart_refuses_what_it_does_not_know(folder):
    assert "--stpes" in script("quickstart", "--stpes=3", expect=2).stderr
    assert "whole numbers" in script("quickstart", "--steps=many", expect=2).stderr


def test_the_text_tutorial_goes_from_files_to_answers(folder):
    text = folder / "text.txt"
    words = "the Quick brown Fox jumps over a lazy Dog while Several other Animals look at it".split()
    text.write_text("\n\n".join(" ".join(words[(i * k) % len(words)] for k in range(1, 14)) + f" Number {i}."
                                for i in range(300)))
    done = script("tutorial_text", f"--out={folder}/out", "--vocab_size=90", "--pretrain_steps=12",
                  "--finetune_steps=8", text)
    assert (folder / "out" / "text.model").exists()
    assert e2e.steps_of(folder / "out" / "pretrained")[-1] == 12
    assert e2e.steps_of(folder / "out" / "finetuned")[-1] == 20  # goes on counting from the pretrained model
    assert '"sequence_accuracy":' in done.stdout, done.stdout
    # The commands that it prints can be pasted: quotes are those of a shell.
    commands = [shlex.split(line[2:]) for line in done.stderr.splitlines() if line.startswith("$ ")]
    assert len(commands) == 5 and f"--gin.VOCABULARY_FILE='{folder}/out/text.model'" in commands[1], commands
    again = subprocess.run(commands[1], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert again.returncode == 0, again.stderr[-2000:]


e2e.run(globals())
