"""What quickstart promises: 0.95 of the held-out numbers right, each way, after five minutes of training, for three
seeds. The time counts only on a machine with two free cores, so it is printed and not checked."""

import os
import re
import subprocess

import e2e
from e2e import ROOT


def learns(folder, seed):
    done = subprocess.run([ROOT / "scripts" / "quickstart", f"--seed={seed}", f"--model_dir={folder}/run"],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    figure = float(re.fullmatch(r"held-out exact match: (.*)", done.stdout.strip().splitlines()[-1])[1])
    print(f"        seed {seed}: {figure}, " + re.search(r"train: .* steps in \d+ s", done.stderr)[0])
    assert figure >= 0.95, figure


def test_seed_0(folder):
    learns(folder, 0)


def test_seed_1(folder):
    learns(folder, 1)


def test_seed_2(folder):
    learns(folder, 2)


e2e.run(globals())
