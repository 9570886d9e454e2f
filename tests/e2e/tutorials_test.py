"""The scripts a newcomer runs, in short form: quickstart, the tutorial on text files, and the data of the other tutorials."""

import csv
import json
import os
import re
import shlex
import subprocess
import time

import e2e
from e2e import ROOT, quintet


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


def examples_of(file):
    """Rows of a file of scripts/tutorial_data, as dictionaries."""
    lines = file.read_text(encoding="utf-8").splitlines()
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in lines]
    return list(csv.DictReader(lines, **({"delimiter": "\t", "quoting": csv.QUOTE_NONE} if file.suffix == ".tsv" else {})))


def test_the_data_of_the_tutorials_holds_out_what_it_says(folder):
    for name in ("first", "second"):
        script("tutorial_data", f"--out={folder / name}", "--size=small")
    files = sorted((folder / "first").iterdir())
    assert len(files) == 16 and all(file.read_bytes() == (folder / "second" / file.name).read_bytes() for file in files), files
    assert "Apache License 2.0" in (folder / "first" / "LICENSE").read_text()
    script("tutorial_data", f"--out={folder / 'second'}", "--size=small", "--seed=1")
    read = {}
    for file in files:
        if "_train" in file.name and file.suffix != ".txt":
            valid = file.with_name(file.name.replace("_train", "_validation"))
            read[file.stem] = train, held = examples_of(file), examples_of(valid)
            assert file.read_bytes() != (folder / "second" / file.name).read_bytes(), file
            assert not [row for row in held if row in train], file
            first, target = list(train[0])[0], list(train[0])[-1]
            done = quintet("finetune", ROOT / "tests/fixtures/huggingface/byt5", f"--train={file}", f"--validation={valid}", f"--input={first}",
                           f"--target={target}", f"--output_dir={folder / 'run'}", "--dry_run")
            assert "too: metrics look better" not in done.err and file.name in done.out, done
    assert len(read) == 6, read
    assert all(re.sub(" (PER|LOC|DATE)", "", row["tagged"]) == row["words"] != row["tagged"] for rows in read["tags_train"] for row in rows)
    assert all(row["answer"] in row["context"] for rows in read["questions_train"] for row in rows)


e2e.run(globals())
