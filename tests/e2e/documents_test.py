"""Every command of the documentation runs: fenced `bash` blocks of README and docs, and the examples of every --help.

    documents_test.py [test_...] | --write       --write: docs/reference/verbs.md anew, from every --help

Blocks of a page run in order in one shell; pages share the folder that stands for /tmp, so that they use the model that README
trains. Long training is cut to a few steps, the tutorials' data to a few examples. A block that cannot run begins with "# not run by the tests: REASON".
"""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request

import e2e
from e2e import PATIENCE, QUINTET, ROOT, helps, quintet

BUILD = os.environ.get("QUINTET_BUILD", str(ROOT / "build"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"), key=lambda page: [part.zfill(3) for part in re.split(r"(\d+)", str(page))]), ROOT / "CONTRIBUTING.md",
         *sorted(file for file in ROOT.glob("*/README.md"))]
NEED_NUMPY = ("python",)  # pages left out where there is none
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)
NOT_RUN = re.compile(r"# not run by the tests.*: \S")
COMMAND = re.compile(r"^(quintet |scripts/|bench/|mpirun |sbatch |curl |ctest |cmake |python3 )", re.M)
VERBS_PAGE = ROOT / "docs/reference/verbs.md"
# The program, with training that is not short already cut to ten steps, fine-tuning to two.
SHORT = f"""#!/usr/bin/env bash
if [ "$1" = train ] && ! [[ "$* " =~ STEPS(_RELATIVE)?=[0-9]{{1,2}}\\  ]]; then
  set -- "$@" --gin.TRAIN_STEPS=10 --gin.WARMUP_STEPS=2
fi
if [ "$1" = finetune ] && ! [[ "$* " =~ --(steps|epochs|dry_run) ]]; then set -- "$@" --steps=2; fi
exec {shlex.quote(QUINTET)} "$@"
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def environment(folder):
    """For commands as documents write them: quintet in the PATH, mpirun as root and with more ranks than cores."""
    program = folder / "bin" / "quintet"
    program.parent.mkdir()
    program.write_text(SHORT)
    program.chmod(0o755)
    if python := e2e.python_with("numpy"):
        wrapper = program.parent / "python3"
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
        wrapper.chmod(0o755)
    return dict(os.environ, PATH=f"{program.parent}:{os.environ['PATH']}", QUINTET=str(program), OMP_NUM_THREADS="1",
                QUINTET_LIBRARY=f"{BUILD}/libquintet.so", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")


def shortened(block, folder, port):
    """A block as CI runs it."""
    block = block.replace("/tmp/", f"{folder}/").replace('"$PWD/build:$PATH"', '"$PATH"').replace("t5_1_1_small --b", "t5_1_1_tiny --b")
    block = re.sub(r"^scripts/quickstart.*$", f"scripts/quickstart --steps=10 --model_dir={folder}/quickstart", block, flags=re.M)
    block = block.replace("bench cluster --ranks=2", "bench cluster --ranks=2 --repeats=1")
    block = re.sub(r"^scripts/test.*$", "", block, flags=re.M)  # it is what runs this
    block = block.replace("scripts/tutorial_data --out", "scripts/tutorial_data --size=small --out")
    block = block.replace("TRAIN_STEPS=10000", "TRAIN_STEPS=12 --gin.WARMUP_STEPS=2")  # the second part of a run whose first ends at 10
    block = re.sub(r"^scripts/tutorial_text$",
                   f"scripts/tutorial_text --out={folder}/tutorial --vocab_size=70 --pretrain_steps=6 "
                   f"--finetune_steps=4 {folder}/text.txt", block, flags=re.M)
    if os.environ.get("QUINTET_SANITIZE") == "thread":  # it has no room for the addresses of XXL
        block = re.sub(r"^quintet plan .*bench/published/.*$", "", block, flags=re.M)
    return re.sub(r"\b8000\b", str(port), block) if "localhost:8000" in block else block


def bash_blocks(page):
    """(text, whether it runs) of each bash block."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(text, not text.startswith("# not run")) for language, text in found if language == "bash"]


def text_of_words():
    words = "a text with Several words and 17 numbers that stands for the files of a user".split()
    return "\n\n".join(" ".join(words[(i * k + i) % len(words)] for k in range(1, 20)) + f" Row {i}." for i in range(400))


def run_script(script, settings, log):
    """The exit code of a bash script in the checkout, and the end of what it printed; nothing that it started stays."""
    with open(log, "w+b") as output:
        process = subprocess.Popen(["bash", "-xc", script], cwd=ROOT, env=settings, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        code = process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        return code, output.read().decode(errors="replace")[-3000:]


def test_every_block_runs(folder):
    (folder / "text.txt").write_text(text_of_words())
    settings, ran, failed = environment(folder), 0, []
    for page in PAGES:
        port = free_port()
        blocks = [shortened(text, folder, port) for text, runs in bash_blocks(page) if runs]
        if not blocks or (page.stem in NEED_NUMPY and not e2e.python_with("numpy")):
            continue
        name, began = page.relative_to(ROOT), time.time()
        code, printed = run_script("set -euo pipefail\n" + "\n".join(blocks), settings, folder / "log")
        failed += [f"{name}: exit {code}: {printed}"] if code != 0 else []
        print(f"        {name}: {len(blocks)} blocks, {time.time() - began:.1f} s", flush=True)
        ran += len(blocks)
    assert not failed and ran > 25, "\n".join(failed)
    assert 'content="quintet report"' in (folder / "tour" / "report.html").read_text()


def test_commands_stand_in_bash_blocks_and_those_not_run_say_why(folder):
    for page in PAGES:
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8")) if page != VERBS_PAGE else ():
            assert language == "bash" or not COMMAND.search(text), f"{page}: commands in a block that nobody runs:\n{text}"
            assert not text.startswith("# not run") or NOT_RUN.match(text), f"{page}: no reason is given:\n{text}"


def test_ci_runs_the_test_command(folder):
    assert any(line.split("#")[0].strip() == "scripts/test" for text, _ in bash_blocks(ROOT / "README.md")
               for line in text.splitlines())
    assert "exec scripts/test\n" in (ROOT / ".ci" / "run").read_text()


def examples(text):
    """The commands under "Examples:"."""
    at = text.rfind("Examples:")
    return [line.strip() for line in text[at:].splitlines()[1:] if line.startswith("  ")] if at >= 0 else []


def verbs_page():
    parts = ["# Verbs and flags\n\nThe output of every `--help`, written by `tests/e2e/documents_test.py --write`; a test compares.\n",
             f"```text\n{quintet('--help').out.strip()}\n```\n"]
    for name, text in helps().items():
        clean = re.sub(r"\n{3,}", "\n\n", text.strip())
        parts.append(f"## {name}\n\n```text\n{clean}\n```\n")
    return "\n".join(parts)


def test_the_page_of_verbs_is_what_help_prints(folder):
    assert VERBS_PAGE.read_text(encoding="utf-8") == verbs_page(), "write it: tests/e2e/documents_test.py --write"


def test_flags_that_documents_name_are_there(folder):
    known = "\n".join([*helps().values(), *(file.read_text(encoding="utf-8", errors="ignore") for place in ("scripts", "bench", "tests/e2e")
                                            for file in (ROOT / place).glob("**/*") if file.is_file() and file.suffix not in (".md", ".json"))])
    foreign = {"--allow-run-as-root", "--export", "--mpi", "--signal", "--preset", "--build", "--test-dir", "--output-on-failure"}
    for page in PAGES:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for flag in set(re.findall(r"`[^`\n]*?(--[a-z][\w-]*)", text)) - foreign:
            assert re.search(rf"{flag}\b", known) or flag == "--gin", f"{page}: no program has {flag}"


def example_files(folder):
    """What the examples of --help name, tiny; /tmp is `folder`, which is the working directory too."""
    model = folder / "numbers"
    quintet(*e2e.tiny(model, 10))
    (folder / "questions.jsonl").write_text('{"inputs": "words: 17"}\n')
    (folder / "questions.txt").write_text("words: 17\n")
    (folder / "commands.txt").write_text("train 2 name: one => 1\npredict name: one\n")
    (folder / "q.jsonl").write_text('{"inputs": "words: 17"}\n')
    for name in ("train", "validation"):
        lines = [{"question": f"number {i}", "answer": i, "topic": "ab"[i % 2]} for i in range(20)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "keys.txt").write_text("a-key-of-sixteen-characters ada\n")
    (folder / "words.tsv").write_text("one\tuno\n" * 30)
    (folder / "my_task.gin").write_text(
        e2e.WORDS_TASK.format(folder=folder).replace("'words'", "'my_task'"))
    (folder / "run.gin").write_text("include 'quintet/quickstart.gin'\nMODEL_DIR = '/x'\n")
    (folder / "CoLA").mkdir()
    for part in "train", "dev":
        (folder / "CoLA" / f"{part}.tsv").write_text("gj04\t1\t\tThe cat sat.\n")
    (folder / "CoLA" / "test.tsv").write_text("index\tsentence\n0\tIt rains.\n")
    (folder / "docs").mkdir()
    for file in ("a.txt", "docs/a.txt", "lines.txt"):
        (folder / file).write_text(text_of_words())
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1, 2))
    dynamic = "from __gin__ import dynamic_registration\n"
    sizes = "".join(flag[len("--gin."):].replace("=", " = ") + "\n" for flag in e2e.TINY if ".network." in flag)
    (folder / "my_t5.gin").write_text(f"{dynamic}from t5x.examples.t5 import network\ninclude 'quintet/byte_tiny.gin'\n"
                                      f"DROPOUT_RATE = 0.0\nTRAIN_STEPS = 1000\n{sizes}")
    (folder / "my_run.gin").write_text(f"{dynamic}import __main__ as train_script\ninclude 'quintet/quickstart.gin'\n"
                                       f"MODEL_DIR = '{folder}/my_run'\ntrain_script.train.infer_eval_dataset_cfg = None\n")
    for verb in ("eval", "infer"):
        lengths = "{'inputs': 52, 'targets': 44}"
        (folder / f"my_{verb}.gin").write_text(
            f"{dynamic}from t5x import utils\ninclude 'my_t5.gin'\ninclude 't5x/configs/runs/{verb}.gin'\n"
            f"MIXTURE_OR_TASK_NAME = 'number_to_words'\nTASK_FEATURE_LENGTHS = {lengths}\n"
            f"CHECKPOINT_PATH = '{model}/checkpoint_10'\n{verb.upper()}_OUTPUT_DIR = '{folder}/{verb}_output'\n"
            "utils.DatasetConfig.split = 'validation'\n")
    for verb, more in (("export", f"CHECKPOINT_PATH = '{model}'\nMODEL_OUTPUT_DIR = '{folder}/exported/1'\nMODEL_NAME = 'numbers'\n"),
                       ("precompile", "MIXTURE_OR_TASK_NAME = 'number_to_words'\nBATCH_SIZE = 8\n")):
        (folder / f"my_{verb}.gin").write_text(f"{dynamic}include 'my_t5.gin'\ninclude 't5x/configs/runs/{verb}.gin'\n"
                                               f"TASK_FEATURE_LENGTHS = {{'inputs': 52, 'targets': 44}}\n{more}")


def serves(command, folder, settings, port):
    """An example of `serve`, which answers until a signal ends it: its exit code. mpirun passes SIGUSR1 on and kills after SIGTERM."""
    process = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=folder, env=settings, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)

    def ready_or_over():
        try:
            return process.poll() is not None or urllib.request.urlopen(f"http://127.0.0.1:{port}/ready").status == 200
        except OSError:
            return False

    e2e.wait_for(ready_or_over)
    process.send_signal(signal.SIGUSR1 if "mpirun" in command else signal.SIGTERM)
    return process.wait(timeout=30 * PATIENCE)


def test_every_example_of_help_runs(folder):
    example_files(folder)
    settings = environment(folder)
    commands, failed = dict.fromkeys(examples(quintet("--help").out)), []
    for text in helps().values():
        commands.update(dict.fromkeys(examples(text)))
    # What makes a model or a cache that another example reads comes first.
    for command in sorted(commands, key=lambda command: ("tokenizer train" not in command, "--prepare" not in command)):
        port = free_port()
        short = command.replace("/tmp/", f"{folder}/").replace("/data/", f"{folder}/data/").replace("/mnt/scratch/", f"{folder}/scratch/")
        short = short.replace("train --profile", "train --model=t5_1_1_small --profile").replace("t5_1_1_small --", "t5_1_1_tiny --")
        short = short.replace("--vocab_size 8000", "--vocab_size 70")
        short = short.replace("--megabytes=1000", "--megabytes=10").replace("checkpoint_1000", "checkpoint_10")
        short = short.replace("flan-t5-base", str(ROOT / "tests/fixtures/huggingface/t5_1_1")).replace("=2048", "=64")
        short = short.replace("byt5-small", str(ROOT / "tests/fixtures/huggingface/byt5"))
        if "bench layouts" in short:
            short += ("" if ".gin" in short or "--model" in short else " --model=t5_1_1_tiny") + " --batch=8 --inputs=16 --targets=8 --steps=1"
        if "bench cluster" in short:
            short += " --repeats=1"
        if "t5_1_1/small.gin" in short:
            short += "".join(f" --gin.network.T5Config.{size}=1" for size in ("num_encoder_layers", "num_decoder_layers"))
        if "bench data" in short:
            short += " --seconds=0.1"
        if "train " in short and "--model_dir" in short:
            short = short.replace(f"{folder}/numbers", f"{folder}/trained")
        if "quintet serve" in short:
            short = re.sub(r" --port[ =]\d+", "", short) + f" --port {port}"
            code = serves(short, folder, settings, port)
            failed += [f"{command}: exit {code}"] if code != 0 else []
            continue
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", short], cwd=folder, env=settings, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            failed.append(f"{command}\n{short}\nexit {done.returncode}: {done.stdout[-500:]}\n{done.stderr[-1000:]}")
    assert not failed and len(commands) > 35, "\n".join(failed) or commands


if "--write" in sys.argv:
    VERBS_PAGE.write_text(verbs_page(), encoding="utf-8")
else:
    e2e.run(globals())
