"""libquintet.so and the Python package on it, as their users call them."""

import ctypes
import gc
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import unittest.mock

import e2e
from e2e import QUINTET, ROOT, quintet, tiny

BUILD = pathlib.Path(os.environ.get("QUINTET_BUILD", ROOT / "build"))
LIBRARY = BUILD / "libquintet.so"


PYTHON = e2e.python_with("numpy")
os.environ.update(QUINTET_LIBRARY=str(LIBRARY), QUINTET_PROGRAM=QUINTET, QUINTET_PYTHON=PYTHON or "", OMP_NUM_THREADS="1",
                  PYTHONPATH=str(ROOT / "python"), PYTHONDONTWRITEBYTECODE="1")
if PYTHON and PYTHON != sys.executable:  # which has none
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT / "python"))
HOME = tempfile.TemporaryDirectory(prefix="quintet-python-")
TEXTS = ["words: 1234", "number: ten", "words: 7", "words: 90210", "number: four hundred"]


def package():
    if PYTHON is None:
        e2e.skip("needs NumPy (Debian: python3-numpy)")
    import quintet as imported
    return imported


def trained():
    """A model of a few thousand parameters, trained once for all tests."""
    home = pathlib.Path(HOME.name) / "tiny"
    if not home.exists():
        quintet(*tiny(home, 4, "--gin.network.T5Config.head_dim=16"))
    return home


def refused(kind, words, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert all(word in str(error) for word in words), (words, error)
        return error
    raise AssertionError(f"{call} took {arguments} {options}")


def test_answers_are_those_of_the_command(folder):
    q = package()
    run = trained()
    said = [json.loads(line) for line in
            quintet("generate", f"--model_dir={run}", "--format=json", "--temperature=0", "--max_tokens=12", *TEXTS).out.splitlines()]
    with q.Model(run) as model:
        assert model.step == 4 and model.path == str(run) and repr(model).endswith("at step 4>"), model
        answers = model.generate(TEXTS, max_tokens=12)
        assert [str(answer) for answer in answers] == [one["prediction"] for one in said], (answers, said)
        assert {answer.finish_reason for answer in answers} <= {"stop", "length"}
        assert model.generate([]) == []
        many = model.generate(TEXTS * 200, max_tokens=2)
        assert len(many) == 1000 and many[:5] == many[-5:]
        best = model.generate(TEXTS[:2], num_beams=3, n=3, max_tokens=8)
        assert [len(answer.alternatives) for answer in best] == [3, 3] and best[0].score >= best[0].alternatives[2].score
        sampled = model.generate(TEXTS, temperature=1.0, seed=5, max_tokens=12)
        assert sampled == model.generate(TEXTS, temperature=1.0, seed=5, max_tokens=12)
        assert model.generate(TEXTS[:1], logprobs=2, max_tokens=4)[0].logprobs["token_logprobs"]
        assert "".join(model.stream(TEXTS[0], max_tokens=12)) == answers[0]
        assert model.generate(TEXTS[:1], max_tokens=12, stop=answers[0][:1] + "☃") == answers[:1] != [""]
        refused(q.UsageError, ["n:", "2"], model.stream, TEXTS[0], n=2)


def test_tokens_come_back(folder):
    q = package()
    with q.Model(trained()) as model:
        for text in ("", "words: 7", "größer, 數字 😀"):
            ids = model.tokenize(text, add_special_tokens=False)
            assert model.detokenize(ids) == text, (text, ids)
        assert model.tokenize("a") == [*model.tokenize("a", add_special_tokens=False), 1]
        for wrong in (model.vocab_size, -1, 2**32 + 5):
            refused(q.UsageError, ["token", str(wrong)], model.detokenize, [wrong])
        refused(TypeError, ["ids"], model.detokenize, ["a"])
        refused(TypeError, ["ids"], model.detokenize, [1.7])


def test_scores_are_those_of_the_command(folder):
    q = package()
    with q.Model(trained()) as model:
        targets = ["one", "10", "seven", "9", "400"]
        scores = model.score(TEXTS, targets)
        assert scores.dtype == "float32" and scores.shape == (5,)
        for text, target, score in zip(TEXTS, targets, scores):
            said = quintet("generate", f"--model_dir={trained()}", "--format=json", f"--target={target}", text).out
            assert abs(json.loads(said)["score"] - score) < 1e-4, (said, score)
        assert model.score([], []).shape == (0,)
        assert model.score(TEXTS[:1], ["one"], add_eos=False)[0] > scores[0]
        refused(q.UsageError, ["target", "empty"], model.score, TEXTS[:1], [""])
        refused(q.UsageError, ["1 inputs and 2 targets"], model.score, ["a"], ["b", "c"])


def test_embeddings_are_those_of_the_command(folder):
    q = package()
    import numpy
    with q.Model(trained()) as model:
        means, tokens = model.embed(TEXTS), model.embed_tokens(TEXTS)
        assert means.shape == (5, model.width) and means.dtype == "float32"
        for text, mean, each in zip(TEXTS, means, tokens):
            assert each.shape == (len(model.tokenize(text)), model.width)
            numpy.testing.assert_allclose(each.mean(axis=0), mean, atol=1e-6)
            said = json.loads(quintet("generate", f"--model_dir={trained()}", "--embed=mean", text).out)
            numpy.testing.assert_allclose(said["embedding"], mean, atol=1e-6)
        assert model.embed([]).shape == (0, model.width)
        library = q._library
        refused(q.UsageError, ["encoding_format", "base64"], library.begun, "embed", model._handle, library.texts(["a"], "inputs"), 1,
                b'{"encoding_format": "base64"}')


def test_threads_share_a_model(folder):
    q = package()
    with q.Model(trained()) as model:
        alone = model.generate(TEXTS, max_tokens=12)
        together, failed = [], []

        def ask():
            try:
                together.append(model.generate(TEXTS, max_tokens=12))
            except Exception as error:  # the thread's, for the test
                failed.append(error)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed and together == [alone] * 8, (failed, together)


# A request of these takes hours, and there is memory for one at a time: a head's 16 numbers fill the vectors of every CPU,
# so that a token takes 256 bytes on each.
ENDLESS = dict(max_tokens=1_000_000, logit_bias={"1": -100})
ONE_AT_A_TIME = dict(max_tokens=1_000_000, cache_mib=360)


def in_time(call):
    """What a call gives within half a minute."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(30 * e2e.PATIENCE)
    assert found, "waited in vain"
    return found[0]


def test_a_stream_that_is_left_ends(folder):
    q = package()
    with q.Model(trained(), **ONE_AT_A_TIME) as model:
        left = model.stream("words: 1", **ENDLESS)
        next(left)
        left.close()
        forgotten = model.stream("words: 2", **ENDLESS)
        in_time(lambda: next(forgotten))
        del forgotten
        gc.collect()
        assert in_time(lambda: next(model.stream("words: 3", **ENDLESS)))
        refused(q.UsageError, ["max_tokens"], lambda: list(model.stream("words: 1", max_tokens=0)))


def test_an_interrupt_reaches_a_call_that_waits(folder):
    package()
    said = run_python(f"""
import os, quintet, signal, threading
model = quintet.Model({str(trained())!r}, **{ONE_AT_A_TIME!r})
def interrupt():
    for _ in range(20):
        model.tokenize("a")
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    model.generate(["a"], **{ENDLESS!r})
except KeyboardInterrupt as error:
    kept = error  # as a REPL does
    print("interrupted", len(next(model.stream("a", **{ENDLESS!r}))) > 0)
""").stdout
    assert said == "interrupted True\n", said


def test_wrong_input_is_said(folder):
    q = package()
    refused(q.DataError, [f"{folder}/nowhere"], q.Model, folder / "nowhere")
    damaged = folder / "damaged"
    shutil.copytree(trained(), damaged)
    [data] = (damaged / "checkpoint_4").glob("data-*.h5")
    whole = data.read_bytes()
    data.write_bytes(whole[: len(whole) // 2])
    refused(q.DataError, [str(data)], q.Model, damaged)
    refused(q.UsageError, ["quantise"], q.Model, trained(), quantise="int8")
    refused(q.UsageError, ["TRIAN_STEPS"], q.Model, trained(), gin={"TRIAN_STEPS": 3})
    refused(TypeError, ["PathLike"], q.Model, 3)
    refused(q.UsageError, ["--host, --idle_seconds", "--pipe"], q.Model, trained(), host="0.0.0.0", idle_seconds=9)
    refused(q.UsageError, ["--threads"], q.Model, trained(), threads=False)
    with q.Model(trained(), max_prompts=2, max_queue=2) as model:
        refused(q.UsageError, ["3", "2"], model.generate, ["a"] * 3)
        assert len(model.generate(["a"] * 2, max_tokens=1)) == 2
    with q.Model(trained(), max_prompt_tokens=16) as model:
        refused(TypeError, ["inputs", "str"], model.generate, "one text")
        refused(TypeError, ["inputs[1]", "int"], model.generate, ["a", 7])
        refused(q.UsageError, ["inputs[0]", "0"], model.generate, ["a\0b"])
        refused(UnicodeEncodeError, ["surrogate"], model.generate, ["\ud800"])
        refused(q.UsageError, ["max_tokens"], model.generate, ["a"], max_tokens=-1)
        refused(q.UsageError, ["max_token"], model.generate, ["a"], max_token=4)
        refused(q.UsageError, ["temperature"], model.generate, ["a"], temperature="hot")
        refused(TypeError, ["options"], model.generate, ["a"], seed=object())
        refused(q.UsageError, ["17 tokens", "16"], model.generate, ["a" * 16])
        model.generate(["a" * 15], max_tokens=1)  # which none of these has hurt
    refused(q.UsageError, ["closed"], model.generate, ["a"])
    refused(q.UsageError, ["closed"], model.tokenize, "a")
    model.close()


def test_a_terminal_is_no_pipe(folder):
    ours, theirs = pty.openpty()
    for command, streams in ((["serve", "--pipe", f"--model_dir={trained()}"], {"stdin": theirs, "stdout": subprocess.DEVNULL}),
                             (["data", "batches", "number_words"], {"stdin": subprocess.DEVNULL, "stdout": theirs})):
        done = subprocess.run([QUINTET, *command], **streams, stderr=subprocess.PIPE, timeout=60 * e2e.PATIENCE)
        assert done.returncode == 2 and b"terminal" in done.stderr, done
    os.close(ours)
    os.close(theirs)


def test_flags_of_another_part_of_data_are_refused(folder):
    for command, words in (("show number_words --batch_size=4 --epochs=2", "--batch_size, --epochs"),
                           ("batches number_words --num=2", "--num"), ("list --epochs=2", "--epochs"), ("list number_words", "task")):
        assert words in quintet("data", *command.split(), expect=2).err, command


def test_a_model_closed_while_others_wait(folder):
    q = package()
    model = q.Model(trained(), **ONE_AT_A_TIME)
    errors, begun = [], threading.Semaphore(0)

    def ask():
        begun.release()
        try:
            model.generate(TEXTS, **ENDLESS)
        except q.QuintetError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
        begun.acquire()
    model.close()
    for thread in threads:
        thread.join()
    assert len(errors) == 3 and all("closed" in str(error) for error in errors), errors


def children():
    return pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_a_killed_process_is_an_error(folder):
    q = package()
    model = q.Model(trained())
    os.kill(int(children()[-1]), signal.SIGSTOP)  # or it is done before it is killed
    stream = model.stream("words: 1", max_tokens=1000, logit_bias={"1": -100})
    os.kill(int(children()[-1]), signal.SIGKILL)
    refused(q.EnvironmentFault, ["signal 9", "quintet"], lambda: list(stream))
    refused(q.EnvironmentFault, ["signal 9"], model.generate, ["a"])
    model.close()


def test_a_process_that_hangs_is_ended(folder):
    model = package().Model(trained())
    process = children()[-1]
    os.kill(int(process), signal.SIGSTOP)
    in_time(lambda: model.close() or [True])
    assert process not in children()


def test_a_program_that_reaps_its_children_sees_errors(folder):
    package()
    gin = lines_task(folder)
    said = run_python(f"""
import os, quintet, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def batches():
    return len(list(quintet.data.batches("words", batch_size=8, pack=False, gin_file={str(gin)!r})))
print(batches())
with open({str(folder / "lines.tsv")!r}, "a") as file:
    file.write("one column\\n")
for call in (batches, lambda: quintet.Model({str(folder / "nowhere")!r})):
    try:
        print("no error", call())
    except quintet.QuintetError as error:
        print(error)
with quintet.Model({str(trained())!r}) as model:
    print(len(model.generate(["a"], max_tokens=1)))
""").stdout.splitlines()
    assert said[0] == "7" and "lines.tsv" in said[1] and f"{folder}/nowhere" in said[2] and said[3] == "1", said


def run_python(text, environment=None, expect=0):
    done = subprocess.run([PYTHON, "-c", text], capture_output=True, text=True, timeout=60,
                          env={name: value for name, value in {**os.environ, **(environment or {})}.items() if value is not None})
    assert done.returncode == expect, done
    return done


def test_a_forked_process_opens_its_own(folder):
    q = package()
    with q.Model(trained(), **ONE_AT_A_TIME) as model:
        stream = model.stream("words: 1", **ENDLESS)
        waiting = threading.Thread(target=lambda: refused(q.UsageError, ["closed"], list, stream))
        waiting.start()
        child = os.fork()
        if child == 0:
            code = 1
            signal.alarm(30 * e2e.PATIENCE)
            try:
                refused(q.UsageError, [str(os.getppid()), "forked"], model.generate, ["a"])
                model.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(model.generate(["a"], max_tokens=1)) == 1
    waiting.join()


def test_each_rank_of_a_job_has_its_own_model(folder):
    package()
    if shutil.which("mpirun") is None:
        e2e.skip("needs mpirun")
    said = e2e.mpirun(PYTHON, 2, "-c", f"import quintet\nprint(len(quintet.Model({str(trained())!r}).generate(['a'], max_tokens=1)))")
    assert said.code == 0 and said.out.split() == ["1", "1"], said


def test_nothing_stays_behind(folder):
    package()
    said = run_python(f"import os, pathlib, quintet\nmodel = quintet.Model({str(trained())!r})\n"
                      "print(pathlib.Path(f'/proc/self/task/{os.getpid()}/children').read_text(), flush=True)\n"
                      "os.kill(os.getpid(), 9)", expect=-9).stdout
    [process] = said.split()
    state = pathlib.Path(f"/proc/{process}/stat")
    e2e.wait_for(lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z")


def test_other_versions_are_refused(folder):
    package()
    compiler = shutil.which("cc") or e2e.skip("needs a C compiler")
    other = folder / "libquintet.so"
    (folder / "other.c").write_text("int quintet_interface(void) { return 2; }")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", other, folder / "other.c"], check=True)
    load = f"import quintet\ntry:\n  quintet.Model({str(trained())!r})\nexcept quintet.EnvironmentFault as error:\n  print(error)"
    said = run_python(load, {"QUINTET_LIBRARY": str(other)}).stdout
    assert str(other) in said and "interface 2" in said, said
    said = run_python(load, {"QUINTET_LIBRARY": str(folder / "none.so")}).stdout
    assert "none.so" in said and "QUINTET_LIBRARY" in said, said
    (folder / "text.so").write_text("no library")
    assert "text.so" in run_python(load, {"QUINTET_LIBRARY": str(folder / "text.so")}).stdout
    said = run_python(load, {"QUINTET_PROGRAM": str(folder / "none")}).stdout
    assert "cannot be started" in said and "QUINTET_PROGRAM" in said, said
    program = folder / "quintet"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    said = run_python(load, {"QUINTET_PROGRAM": str(program)}).stdout
    assert "one build" in said, said
    greeting = b'{"version": "9.9.9"}'
    (folder / "greeting").write_bytes(struct.pack("=QiIQ", 0, 0, 0x31465451, len(greeting)) + greeting)
    program.write_text(f"#!/bin/sh\ncat {folder}/greeting\n")
    said = run_python(load, {"QUINTET_PROGRAM": str(program)}).stdout
    assert "9.9.9" in said and str(program) in said, said


def test_the_library_is_beside_the_program(folder):
    package()
    for name in ("bin/quintet", f"lib/elsewhere/{LIBRARY.name}"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("none")
    (folder / "bin" / "quintet").chmod(0o755)
    for place in ("lib", "lib64", f"lib/{sysconfig.get_config_var('MULTIARCH') or ''}"):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / LIBRARY.name).symlink_to(LIBRARY)
        said = run_python("from quintet import _library\nprint(_library.library()._name)",
                          {"QUINTET_LIBRARY": None, "QUINTET_PROGRAM": str(folder / "bin" / "quintet")}).stdout
        assert said == f"{folder / place / LIBRARY.name}\n", (place, said)
        (folder / place / LIBRARY.name).unlink()


LINES = [f"w{i} {'v' * (i % 7)}" for i in range(50)]


def lines_task(folder):
    (folder / "lines.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in LINES))
    gin = folder / "lines.gin"
    gin.write_text(e2e.WORDS_TASK.format(folder=folder).replace("words.tsv", "lines.tsv"))
    return gin


def test_batches_are_the_tasks_examples(folder):
    q = package()
    import numpy
    asked = dict(batch_size=8, lengths={"inputs": 16, "targets": 12}, gin_file=lines_task(folder))
    batches = q.data.batches("words", pack=False, **asked)
    assert batches.features["encoder_input_tokens"] == ((8, 16), numpy.dtype("int32")), batches.features
    rows, counts = [], []
    for batch in batches:
        assert batch["decoder_target_tokens"].shape == (8, 12)
        rows += [bytes(row[row > 2] - 3).decode() for row in batch["encoder_input_tokens"].astype("uint8")]
        counts.append(batches.rows)
    assert counts == [8] * 6 + [2] and rows[:50] == LINES and rows[50:] == [""] * 6, (counts, rows)
    packed = list(q.data.batches("words", shuffle=True, seed=3, epochs=2, **asked))
    tokens = numpy.concatenate([batch["encoder_input_tokens"] for batch in packed])
    assert (tokens == 1).sum() == 100 and len(packed) < 14  # an end for each example
    again = list(q.data.batches("words", shuffle=True, seed=3, epochs=2, **asked))
    assert all((one[name] == two[name]).all() for one, two in zip(packed, again) for name in one)
    shared, lengths = q.data.batches("words", shuffle=True, seed=3, epochs=2, **asked), []
    threads = [threading.Thread(target=lambda: lengths.extend((batch["encoder_input_tokens"] == 1).sum() for batch in shared))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lengths) == len(packed) and sum(lengths) == 100, lengths
    endless = q.data.batches("words", epochs=None, **asked)
    for _ in range(20):
        next(endless)
    endless.close()
    assert next(endless, None) is None
    refused(q.UsageError, ["wrods", "words"], q.data.batches, "wrods", **asked)
    refused(q.UsageError, ["EncDecFeatureConvertor"], q.data.batches, "words", feature_converter="EncDecFeatureConvertor", **asked)
    refused(q.UsageError, ["batch_size"], q.data.batches, "words", batch_size=0)
    refused(q.UsageError, ["test9"], q.data.batches, "words", split="test9", **asked)
    with (folder / "lines.tsv").open("a") as file:
        file.write("one column\n")
    refused(q.DataError, ["lines.tsv"], lambda: list(q.data.batches("words", **asked)))


def test_a_trainer_calls_back(folder):
    q = package()
    flags, gin = {}, {"TRAIN_STEPS": 20}
    for flag in e2e.TINY:
        name, _, value = flag.removeprefix("--").partition("=")
        (gin if name.startswith("gin.") else flags)[name.removeprefix("gin.")] = value
    seen = []
    run = folder / "run"

    def note(name, step, numbers):
        seen.append((name, step, numbers))

    assert q.Trainer(model_dir=run, gin=gin, callback=note, **flags).run() is True
    written = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(name, step) for name, step, _ in seen] == [(one.get("run", ""), one["step"]) for one in written] and seen, (seen, written)
    assert any(name == "train" and step == 20 and numbers["loss"] > 0 for name, step, numbers in seen), seen
    # Stopped by its callback it is saved, and goes on from there.
    longer, steps = dict(gin, TRAIN_STEPS=100000), []

    def stop(name, step, numbers):
        steps.append(step)
        return False

    assert q.Trainer(model_dir=run, gin=longer, callback=stop, **flags).run() is False
    assert len(steps) == 1 and 20 <= steps[0] < 1000, steps
    # What a run wrote after its last checkpoint is cut off when it resumes, and neither told nor missed.
    last = max(int(path.name.partition("_")[2]) for path in run.glob("checkpoint_*"))
    kept = json.loads((run / f"checkpoint_{last}" / "MANIFEST.json").read_text())["state"]["metrics_bytes"]
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "loss": 1}\n')
    seen.clear()
    with unittest.mock.patch("quintet.trainer._LOOK_SECONDS", 60):  # it looks once, at the end
        assert q.Trainer(model_dir=run, gin=dict(gin, TRAIN_STEPS=last + 1), callback=note, **flags).run() is True
    written = [json.loads(line) for line in (run / "metrics.jsonl").read_bytes()[kept:].splitlines()]
    assert [(name, step) for name, step, _ in seen] == [(one.get("run", ""), one["step"]) for one in written] and seen, (seen, written)

    def broken(name, step, numbers):
        raise KeyError(name)

    refused(KeyError, ["train"], q.Trainer(model_dir=run, gin=longer, callback=broken, **flags).run)
    refused(TypeError, ["callback"], q.Trainer, model_dir=run, callback=3)
    refused(q.UsageError, ["TRIAN_STEPS"], q.Trainer(model_dir=run, gin=dict(gin, TRIAN_STEPS=1), **flags).run)


def test_pip_installs_it(folder):
    python = e2e.python_with("setuptools, wheel, pip") or e2e.skip("needs pip, setuptools and wheel")
    source = shutil.copytree(ROOT / "python", folder / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
                    "--target", folder / "site", source], check=True, capture_output=True, timeout=120)
    names = {path.name for path in (folder / "site").rglob("*")}
    assert {"quintet", "model.py", "py.typed", "quintet_worker.py"} <= names, names
    package()
    version = re.search(r"project\(quintet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    said = run_python("import quintet, importlib.metadata as packages\n"
                      "print(quintet.__file__, packages.version('quintet'), quintet.version())",
                      {"PYTHONPATH": str(folder / "site")}).stdout.split()
    assert said == [str(folder / "site" / "quintet" / "__init__.py"), version, version], said


e2e.run(globals())
