"""What the end-to-end tests share: running the program, a tiny training run, comparing runs.

A test file is a list of functions named test_*; run(globals()) calls each in a fresh folder, prints one line
a test and exits 1 if one failed, 77 if all said skip(). QUINTET names the program.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUINTET = os.environ.get("QUINTET", str(ROOT / "build" / "quintet"))
# Fails, delays or kills at a chosen system call (tests/faults/shim.cpp).
SHIM = pathlib.Path(os.environ.get("QUINTET_BUILD", ROOT / "build")) / "tests" / "faults" / "libquintet_fault_shim.so"
PATIENCE = 15 if os.environ.get("QUINTET_SANITIZE") else 1  # times the seconds that an instrumented program may take

# A model of a few thousand parameters on the built-in task; a step takes milliseconds.
TINY = ["--gin_file=quintet/quickstart.gin", "--gin.WARMUP_STEPS=2", "--gin.EVAL_PERIOD=10", "--gin.BATCH_SIZE=4",
        "--gin.network.T5Config.emb_dim=16", "--gin.network.T5Config.num_heads=2", "--gin.network.T5Config.head_dim=8",
        "--gin.network.T5Config.mlp_dim=16", "--gin.network.T5Config.num_encoder_layers=1",
        "--gin.network.T5Config.num_decoder_layers=1", "--gin.train_script.train.infer_eval_dataset_cfg=None",
        "--gin.train_script.train.eval_steps=1", "--gin.train_script.train.stats_period=5",
        "--gin.utils.SaveCheckpointConfig.keep=None", "--gin.DROPOUT_RATE=0.1"]

# A Switch Transformer of such sizes.
SWITCH = ["--gin.EMBED_DIM=16", "--gin.NUM_HEADS=2", "--gin.HEAD_DIM=8", "--gin.MLP_DIM=16", "--gin.NUM_EXPERTS=4",
          "--gin.NUM_ENCODER_LAYERS=1", "--gin.NUM_DECODER_LAYERS=1"]

# A task of words.tsv in a folder, to be cached.
WORDS_TASK = """
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
lines/quintet.data.TsvDataSource.split_to_filepattern = {{'train': '{folder}/words.tsv', 'validation': '{folder}/words.tsv'}}
words/seqio.Task:
  name = 'words'
  source = @lines/quintet.data.TsvDataSource()
  preprocessors = [@seqio.preprocessors.tokenize, @seqio.CacheDatasetPlaceholder(), @seqio.preprocessors.append_eos]
  output_features = {{'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}}
seqio.TaskRegistry.tasks = [@words/seqio.Task()]
"""


class Skipped(Exception):
    """A test cannot be done here; the text says what it needs."""


def skip(reason):
    raise Skipped(reason)


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit {self.code}\nstdout: {self.out[-2000:]}\nstderr: {self.err[-3000:]}"


def quintet(*arguments, expect=0, timeout=240, environment=None, **options):
    """Runs the program to its end. expect: the exit code, or None for any."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **(environment or {})}
    done = subprocess.run([QUINTET, *map(str, arguments)], capture_output=True, timeout=timeout * PATIENCE, env=environment,
                          stdin=subprocess.DEVNULL, **options)
    result = Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    assert expect is None or result.code == expect, f"{' '.join(map(str, arguments))}: expected exit {expect}: {result}"
    return result


def verbs():
    text = quintet("--help").out
    return [line.split()[0] for line in text[text.index("Verbs:"):text.index("Examples:")].splitlines()[1:] if line.strip()]


def helps():
    """The help of every verb, and of every part of bench and tokenizer, by its words."""
    found = {}
    for verb in verbs():
        found[verb] = quintet(verb, "--help").out
        listed = found[verb].partition("Examples:")[0]
        for part in re.findall(r"^  ([a-z]+) ", listed, re.M) if verb in ("bench", "tokenizer") else ():
            found[f"{verb} {part}"] = quintet(verb, part, "--help").out
    return found


def start(*arguments, environment=None, **options):
    """The program in the background; stderr goes to a pipe. environment: more of it; options: of subprocess.Popen.

    The pipes have no buffer: communicate() would lose what a readline() before it has read ahead."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", **(environment or {}))
    return subprocess.Popen([QUINTET, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment, stdin=subprocess.DEVNULL, bufsize=0, **options)


def mpirun(program, ranks, *arguments, timeout=120):
    """A test program on that many ranks; the result has the seconds it took, too."""
    begin = time.time()
    done = subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks), program, *map(str, arguments)],
                          capture_output=True, timeout=timeout * PATIENCE, stdin=subprocess.DEVNULL)
    result = Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    result.seconds = time.time() - begin
    return result


def tiny(model_dir, steps, *more):
    """The command line of a tiny run."""
    return ["train", *TINY, f"--model_dir={model_dir}", f"--gin.TRAIN_STEPS={steps}", *more]


def switch(model_dir, steps, *more, sizes=SWITCH):
    """The command line of a tiny run of a model with experts."""
    return ["train", "--gin_file=quintet/switch_quickstart.gin", f"--model_dir={model_dir}", f"--gin.TRAIN_STEPS={steps}",
            "--gin.WARMUP_STEPS=2", "--gin.EVAL_PERIOD=10", "--gin.BATCH_SIZE=4", "--gin.DROPOUT_RATE=0.1",
            "--gin.train_script.train.infer_eval_dataset_cfg=None", "--gin.train_script.train.eval_steps=1",
            "--gin.train_script.train.stats_period=5", "--gin.utils.SaveCheckpointConfig.keep=None", *sizes, *more]


def steps_of(model_dir):
    """Steps of the checkpoints in a model directory, ascending."""
    names = [path.name for path in pathlib.Path(model_dir).glob("checkpoint_*")]
    return sorted(int(name[len("checkpoint_"):]) for name in names if name[len("checkpoint_"):].isdigit())


def python_with(module):
    """A Python that has it: $QUINTET_PYTHON, this one, or Debian's own; None: there is none."""
    for python in (os.environ.get("QUINTET_PYTHON"), sys.executable, "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0:
            return python
    return None


def wait_for(condition, seconds=60):
    end = time.time() + PATIENCE * seconds
    while not condition():
        assert time.time() < end, "waited in vain"
        time.sleep(0.005)


def tensor_checksums(model_dir, step):
    """Tensor -> the checksums of its slices: equal for equal bits."""
    manifest = json.loads((pathlib.Path(model_dir) / f"checkpoint_{step}" / "MANIFEST.json").read_text())
    return {name: [part["crc32c"] for part in tensor["slices"]] for name, tensor in manifest["tensors"].items()}


def metrics(model_dir):
    """The records of metrics.jsonl without what the clock and the process decide."""
    records = [json.loads(line) for line in (pathlib.Path(model_dir) / "metrics.jsonl").read_text().splitlines()]
    without = [{name: value for name, value in record.items() if not name.startswith(("timing/", "memory/"))} for record in records]
    return [record for record in without if record.keys() - {"step", "run"}]


def assert_same_run(one, other, step):
    """Parameters, optimizer state and metrics of two runs are the same, bit for bit."""
    a, b = tensor_checksums(one, step), tensor_checksums(other, step)
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    different = [name for name in a if a[name] != b[name]]
    assert not different, f"different after {step} steps: {different}"
    first, second = metrics(one), metrics(other)
    counted = [any(name.startswith("mixture/") for record in records for name in record) for records in (first, second)]
    if counted[0] != counted[1]:  # data ranks do not count what they draw
        first, second = ([{name: value for name, value in record.items() if not name.startswith("mixture/")} for record in records]
                         for records in (first, second))
    assert len(first) == len(second), f"{len(first)} and {len(second)} records"
    for record, twin in zip(first, second):
        assert record == twin, f"{record}\n{twin}"


def run(names):
    """Calls every test_* of a file, those named on the command line only if there are any."""
    tests = {name: test for name, test in names.items() if name.startswith("test_")}
    chosen = [name for name in sys.argv[1:] if name in tests] or list(tests)
    failed = skipped = 0
    for name in chosen:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"quintet-{name}-"))
        began = time.time()
        try:
            tests[name](folder)
            print(f"ok      {name} ({time.time() - began:.1f} s)", flush=True)
        except Skipped as reason:
            skipped += 1
            print(f"skipped {name}: {reason}", flush=True)
        except Exception:  # a test that fails must not stop the others
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(chosen) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 77 if skipped == len(chosen) else 0)
