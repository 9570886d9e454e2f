"""`quintet interactive`: commands that are piped and typed, and what the other verbs say of the same model."""

import contextlib
import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import time

import e2e
from e2e import PATIENCE, QUINTET, TINY, quintet, tiny

# A model with new parameters that learns a few pairs in a hundred steps.
FRESH = ["--gin_file=quintet/byte_tiny.gin", "--gin.TRAIN_STEPS=1000", "--gin.DROPOUT_RATE=0.0", "--gin.WARMUP_STEPS=2",
         *(flag for flag in TINY if ".network." in flag)]
PAIRS = [{"input": f"count: {name}", "target": value} for name, value in
         (("one", "1"), ("two", "22"), ("three", "333"), ("four", "4444"))]


def commands(lines, *arguments, expect=0, environment=None, **options):
    """The program with these lines on standard input; with --format=json the objects that it printed, too."""
    done = subprocess.run([QUINTET, "interactive", *map(str, arguments)], input="\n".join(lines).encode() + b"\n",
                          capture_output=True, timeout=120 * PATIENCE, env=dict(os.environ, OMP_NUM_THREADS="1", **(environment or {})),
                          **options)
    result = e2e.Result(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert result.code == expect, result
    result.objects = [json.loads(line) for line in result.out.splitlines()] if "--format=json" in arguments else None
    return result


def start(*arguments):
    """The program, to be written to and asked to stop while it runs."""
    return subprocess.Popen([QUINTET, "interactive", *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS="1", QUINTET_PROGRESS="bar"))


def read_until(process, words):
    """Reads what the program says, until it has said these words."""
    text = b""
    while words not in text:
        some = process.stderr.read1()
        assert some, f"it ended without {words}: {text}"
        text += some


def state_of(folder, step):
    """What a checkpoint holds beside its arrays."""
    return json.loads((folder / f"checkpoint_{step}" / "MANIFEST.json").read_text())["state"]


def write_pairs(folder):
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    (folder / "pairs.csv").write_text("question,answer\n" + "".join(f"{pair['input']},{pair['target']}\n" for pair in PAIRS))


def test_commands_over_a_pipe_do_what_the_other_verbs_do(folder):
    write_pairs(folder)
    out = folder / "out"
    pairs = folder / "pairs.jsonl"
    result = commands(["# learns four pairs by heart", "", f"train 1 @{pairs}", "predict count: one", "train 200",
                       f"predict @{pairs}", "predict count: one", "predict -", "count: two", "count: three", "", f"score @{pairs}", "score count: one => 7",
                       'score [{"input": "count: one", "target": "1"}, {"inputs": "count: one", "targets": "7"}]',
                       f"evaluate @{pairs}", f"evaluate bleu,exact_match @{pairs}", "evaluate", "status", "save", "status"],
                      *FRESH, f"--output_dir={out}", "--format=json")
    untrained = result.objects.pop(1)
    trained, predictions, scores = result.objects[:2], result.objects[2:9], result.objects[9:16]
    assert [one["step"] for one in trained] == [1, 201] and trained[1]["loss"] < trained[0]["loss"] / 4, trained
    assert [one["prediction"] for one in predictions] == ["1", "22", "333", "4444", "1", "22", "333"], predictions
    assert predictions[0]["input"] == "count: one" and predictions[4] == predictions[0], predictions
    assert untrained["prediction"] != "1", untrained
    assert [one["target"] for one in scores] == ["1", "22", "333", "4444", "7", "1", "7"], scores
    assert scores[0]["score"] > scores[4]["score"] + 1 and scores[4] == scores[6] and abs(scores[5]["score"] - scores[0]["score"]) < 1e-5
    evaluated = result.objects[16:19]
    assert evaluated[0]["examples"] == 4 and evaluated[0]["exact_match"] == 100 and evaluated[0]["f1"] == 100, evaluated
    assert evaluated[1]["exact_match"] == 100 and "bleu" in evaluated[1] and evaluated[2] == evaluated[0], evaluated
    before, saved, after = result.objects[19:]
    assert not before["saved"] and after["saved"] and saved["checkpoint"] == f"{out}/checkpoint_201", result.objects[19:]
    # Other verbs read what was saved, and agree.
    texts = [pair["input"] for pair in PAIRS]
    answers = quintet("generate", f"--model_dir={out}", "--format=json", "--max_decode_len=128", *texts).out.splitlines()
    for one, line in zip(predictions, answers):
        line = json.loads(line)
        assert line["prediction"] == one["prediction"] and abs(line["score"] - one["score"]) < 1e-4, (line, one)
    score = json.loads(quintet("generate", f"--model_dir={out}", "--format=json", "--target=7", texts[0]).out)
    assert abs(score["score"] - scores[4]["score"]) < 1e-4, (score, scores[4])
    # metrics.jsonl has the training and the evaluations, so that `quintet report` shows them.
    steps = {record["run"]: record["step"] for record in e2e.metrics(out)}
    assert steps["train"] == 201 and steps["inference_eval/pairs"] == 201, steps


def test_the_same_folder_goes_on_and_the_end_saves(folder):
    write_pairs(folder)
    out = folder / "out"
    train = f"train 3 @{folder}/pairs.csv"
    fields = ["--input=question", "--target=answer", f"--output_dir={out}", "--batch_size=2"]
    shown = commands([train], *FRESH, *fields).out
    assert re.match(r"step 3  loss \S+  accuracy \S+\n", shown), shown  # the loss is that of a token, and not divided again
    assert e2e.steps_of(out)[-1] == 3
    again = commands(["status", train, "train 2"], out, *fields)
    assert "step 3, saved in" in again.out and e2e.steps_of(out)[-1] == 8, again
    # Five steps and three are those of eight at once.
    whole = folder / "whole"
    commands(["train 8 @" + str(folder / "pairs.csv")], *FRESH, *fields[:2], f"--output_dir={whole}", "--batch_size=4")
    one, parts = folder / "one", folder / "parts"
    for run, lines in ((one, ["train 8 count: one => 1"]), (parts, ["train 5 count: one => 1", "train 3"])):
        commands(lines, *FRESH, f"--output_dir={run}")
    assert e2e.tensor_checksums(one, 8) == e2e.tensor_checksums(parts, 8)


def test_records_of_the_step_that_is_gone_on_from_stay(folder):
    out = folder / "out"
    commands(["train 2 a => b", "save", "evaluate exact_match a => b"], *FRESH, f"--output_dir={out}")
    with (out / "metrics.jsonl").open("a") as log:
        log.write('{"step":3,"run":"train","loss":1.0}\n')  # of a program that was killed before it saved
    commands(["status"], out, f"--output_dir={out}")
    assert [(record["step"], record["run"]) for record in e2e.metrics(out)] == [(2, "train"), (2, "inference_eval/examples")]


def test_train_goes_on_where_commands_ended_and_they_where_it_did(folder):
    run, out = folder / "run", folder / "out"
    seed = "--gin.train_script.train.random_seed=7"
    quintet(*tiny(run, 4, seed))
    # In the run's own folder: its seed, its place in the data.
    commands(["train 2 a => b"], run, f"--output_dir={run}")
    before, after = state_of(run, 4), state_of(run, 6)
    assert after["seed"] == 7 and after["data_position"] == before["data_position"] != "", after
    quintet(*tiny(run, 8, seed))
    assert "random_seed 7, this run says 3" in commands(["status"], run, f"--output_dir={run}", "--seed=3", expect=2).err
    # In a new one, where there is no place: the data begins.
    commands(["train 2 a => b"], run, f"--output_dir={out}", "--seed=7")
    assert state_of(out, 10)["data_position"] == ""
    quintet(*tiny(out, 12, seed))
    assert e2e.steps_of(out)[-1] == 12


def test_a_model_below_the_output_folder_is_read(folder):
    quintet(*tiny(folder / "run", 4))
    out = folder / "out"
    out.mkdir()
    quintet("convert", folder / "run", out / "hf", "--to=hf")
    score = ["score words: 17 => seventeen"]
    expected = commands(score, out / "hf").out
    assert commands(score, out / "hf", f"--output_dir={out}").out == expected


def test_what_cannot_be_saved_is_not_said_to_be(folder):
    out = folder / "out"
    commands(["train 1 a => b"], *FRESH, f"--output_dir={out}")
    limited = commands(["train 1 a => b", "save", "status"], out, f"--output_dir={out}", "--format=json", expect=5,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)))
    trained, failed, status = limited.objects
    assert trained["step"] == 2 and failed["code"] == 5 and not status["saved"] and e2e.steps_of(out) == [1], limited
    assert "could not be saved" in failed["error"], failed
    # Nobody reads what it prints: what was trained is saved all the same.
    with open("/dev/full", "w") as full:
        done = subprocess.run([QUINTET, "interactive", out, f"--output_dir={out}"], input=b"train 1 a => b\n", stdout=full,
                              stderr=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 5 and e2e.steps_of(out) == [1, 2], done


def test_long_examples_after_many_short_ones_are_not_cut(folder):
    short = '{"input": "a", "target": "b"}\n'
    for name, last in (("short", short), ("long", '{"input": "a", "target": "bcdefgh"}\n'), ("broken", '{"input": "a"}\n')):
        (folder / f"{name}.jsonl").write_text(short * 5001 + last)
    flags = [*FRESH, "--format=json", "--batch_size=2501", "--max_input_length=4", "--max_target_length=12"]

    def losses(*lines, **options):
        return [one["loss"] for one in commands(lines, *flags, **options).objects if "loss" in one]

    short, long = (losses(f"train @{folder}/{name}.jsonl", "train", "train x => y") for name in ("short", "long"))
    assert short[0] == long[0] and short[1] != long[1], (short, long)
    # Steps before an error are no part of what the next command says.
    broken = losses(f"train 2 @{folder}/broken.jsonl", "train x => y", expect=3)
    assert broken == losses(f"train 1 @{folder}/short.jsonl", "train x => y")[1:], broken


def test_targets_are_as_long_as_in_training(folder):
    """Where answers of the run's evaluations are shorter."""
    run = folder / "run"
    quintet(*(flag for flag in tiny(run, 3) if "infer_eval_dataset_cfg" not in flag),
            "--gin.infer_eval/utils.DatasetConfig.task_feature_lengths={'inputs': 8, 'targets': 4}", "--gin.infer_eval/utils.DatasetConfig.batch_size=2")
    pair = "words: 17 => seventeen"
    [own], [cut], [whole] = (commands([f"train {pair}"], run, "--format=json", *flags).objects
                             for flags in ([], ["--max_target_length=4"], ["--max_target_length=64"]))
    assert own == whole and own != cut, (own, cut)


def test_a_run_and_its_tasks(folder):
    run = folder / "run"
    quintet(*tiny(run, 4))
    before = sorted(path.name for path in run.iterdir())
    temporary = folder / "tmp"
    temporary.mkdir()
    result = commands(["evaluate @number_to_words", "evaluate exact_match @number_to_words:validation", "train 2 @number_words",
                       "predict @words_to_number:validation", "predict words: 17"], run, "--format=json", "--num_examples=3",
                      environment={"TMPDIR": str(temporary)})
    own, named, trained = result.objects[:3]
    assert own["step"] == 4 and own["examples"] == 3 and named["exact_match"] == 0 and trained["step"] == 6, result.objects
    theirs = json.loads(quintet("eval", f"--model_dir={run}", "--task=number_to_words", "--num_examples=3").out)
    assert theirs == own, (theirs, own)
    assert [one["input"].split(":")[0] for one in result.objects[3:]] == ["number"] * 3 + ["words"], result.objects
    assert sorted(path.name for path in run.iterdir()) == before and not list(temporary.iterdir())  # nothing is kept
    # Another split of the task that was trained on has other examples.
    one, other = (commands(["train @number_words", f"train @number_words{split}"], run, "--format=json").objects for split in ("", ":validation"))
    assert one[0] == other[0] and one[1] != other[1], (one, other)


def test_a_line_that_is_wrong_says_what_was_expected_and_the_next_is_read(folder):
    run = folder / "run"
    quintet(*tiny(run, 4))
    write_pairs(folder)
    (folder / "empty.jsonl").write_text("")
    wrong = {"trian 3 a => b": "did you mean 'train'?", "words: 17": "'predict TEXT' answers a text", "train": "expected examples",
             "train 0 a => b": "at least one step", "train a": "expected INPUT => TARGET", "train 5 a =>": "expected INPUT => TARGET",
             'predict {"inpt": "a"}': 'expected an example such as {"input": "words: 17"}', "predict {a": "begins as JSON",
             "predict @none.jsonl": "none.jsonl", "predict @x.txt": "@x.txt: no task or mixture is called 'x.txt'; 'quintet data list' prints all, those of "
             "--gin_file too; files of examples end with .jsonl, .csv or .tsv", f"predict @{folder}/empty.jsonl": "empty.jsonl", "predict @nmber_words": "number_words",
             "predict @number_words:tset": "no split 'tset'", "predict @number_words:train": "start with --num_examples",
             "predict -": "no line followed", "train @number_words:train": None, "evaluate bleuu a => b": None, "save": "--output_dir=DIR",
             "train 99999999999999999999 a => b": "at most 1099511627776", "train 9223372036854775807 a => b": "at most", "evaluate f1 => x": None,
             f"score @{folder}/pairs.csv": "--input=FIELD and --target=FIELD", "save elsewhere": "takes nothing", "quit now": "takes nothing",
             "evaluate exact_match, f1 a => b": "names no metrics", "evaluate nosuch @number_words": "names no metrics",
             "predict " + "[" * 100000 + "]" * 100000: "expected an example"}
    lines = []
    for line in wrong:
        lines += [line, ""]
    result = commands([*lines, "status"], run, expect=2)
    assert result.out.splitlines()[-1].startswith("step 5,"), result
    errors = dict(re.findall(r"^error: line (\d+): (.*)", result.err, re.M))
    for number, (line, said) in enumerate(wrong.items()):
        at = str(2 * number + 1)
        assert (at in errors) == (said is not None) and (said or "") in errors.get(at, ""), f"{line}: {errors.get(at)}"
    # The lines of a block are no commands, whatever is wrong with it.
    blocks = []
    for head in ("train 1 -", "trian 1 -", "train 0 -", "evaluate bleuu -", "predict -"):
        blocks += [head, "a => b", "quit", ""] if head != "predict -" else [head, "{", "quit", ""]
    result = commands([*blocks, "status"], run, expect=2)
    assert result.out == "step 4, nothing is kept: no --output_dir\n" and result.err.count("error: ") == 5, result
    late = quintet("interactive", folder / "no_model", f"--commands={folder}/no_commands", expect=3).err
    assert "no_commands" in late and "no_model" not in late, late  # it is looked for before the model is read
    # The exit code is that of the first line that failed.
    in_json = commands(["predict @none.jsonl", "nosuch", "status"], run, "--format=json", expect=3)
    assert [line.get("code") for line in in_json.objects] == [3, 2, None] and "none.jsonl" in in_json.objects[0]["error"], in_json
    assert in_json.objects[2]["step"] == 4, in_json
    assert "name a model" in quintet("interactive", expect=2).err


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *arguments, environment=None, errors=None, verb="interactive"):
        self.ours, theirs = pty.openpty()
        environment = environment or {}
        self.process = subprocess.Popen([QUINTET, verb, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=errors or theirs,
                                        env=dict(os.environ, OMP_NUM_THREADS="1", TERM="xterm", **environment), start_new_session=True,
                                        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0))
        os.close(theirs)
        self.text = ""

    def until(self, *words, seconds=60):
        """Reads until all of the words have appeared, in this order; what was read."""
        end, begin = time.time() + seconds * PATIENCE, len(self.text)
        pattern = re.compile(".*".join(re.escape(word) for word in words), re.S)
        while not pattern.search(self.text, begin):
            assert time.time() < end, f"waited for {words}: {self.text[begin:]}"
            if select.select([self.ours], [], [], 0.1)[0]:
                self.text += os.read(self.ours, 4096).decode(errors="replace")
        return self.text[begin:]

    def type(self, text):
        os.write(self.ours, text.encode())

    def end(self):
        """Ctrl-D, again where it came before the prompt had taken the terminal over."""
        def ended():
            self.type("\x04")
            if select.select([self.ours], [], [], 0.5)[0]:
                with contextlib.suppress(OSError):  # there is nobody on the other side any more
                    self.text += os.read(self.ours, 4096).decode(errors="replace")
            return self.process.poll() is not None

        e2e.wait_for(ended)
        assert self.process.returncode == 0, self.text
        os.close(self.ours)


def test_a_terminal_has_history_and_ctrl_c_stops_the_command_alone(folder):
    if b"libedit" not in subprocess.run(["ldd", QUINTET], capture_output=True).stdout:
        e2e.skip("the program was built without libedit")
    environment = {"XDG_CACHE_HOME": str(folder / "cache")}
    out = folder / "out"
    terminal = Terminal(*FRESH, f"--output_dir={out}", environment=environment)
    terminal.until("'help' lists the commands", "quintet> ")
    terminal.type("train 2 é => ö\n")
    terminal.until("step 2", "quintet> ")
    terminal.type("train 1000000000\n")
    terminal.until("train ", "/100000000")
    terminal.type("\x03")
    terminal.until("stopping the command after its step", "stopped at step", "quintet> ")
    terminal.type("half a line")
    terminal.until("half a line")
    terminal.type("\x03")
    terminal.until("quintet> ")
    terminal.type("train 1 -\n")
    terminal.until("... ")
    terminal.type("c => d\n")
    terminal.until("c => d", "... ")
    terminal.type("\x03")  # takes all of the command back
    assert "step " not in terminal.until("quintet> ")
    terminal.type("\x1b[A\x1b[A\x1b[A\x1b[A\n")  # the fourth line before
    terminal.until("2 é => ö", "step ", "quintet> ")
    terminal.type("bogus\n")
    terminal.until("'bogus' is no command", "quintet> ")
    terminal.end()
    [step] = [step for step in e2e.steps_of(out) if step > 0][-1:]
    assert step > 4, e2e.steps_of(out)
    # The next program remembers them.
    again = Terminal(out, f"--output_dir={out}", environment=environment)
    again.until("quintet> ")
    again.type("\x1b[A\x1b[A\n")
    again.until("2 é => ö", f"step {step + 2}", "quintet> ")
    again.end()


def test_typed_inputs_of_generate_are_edited_and_taken_back(folder):
    if b"libedit" not in subprocess.run(["ldd", QUINTET], capture_output=True).stdout:
        e2e.skip("the program was built without libedit")
    quintet(*tiny(folder / "run", 4))
    terminal = Terminal(folder / "run", "--max_tokens=2", environment={"XDG_CACHE_HOME": str(folder)}, verb="generate")
    terminal.until("Ctrl-D ends", "> ")
    terminal.type("words: 12\n")
    terminal.until("words: 12", "> ")
    terminal.type("half a line")
    terminal.until("half a line")
    terminal.type("\x03")
    terminal.until("> ")
    terminal.type("\x1b[A\n")  # the line before
    terminal.until("words: 12", "\n", "> ")
    terminal.end()


def test_on_a_terminal_lines_are_read_without_libedit_too(folder):
    """As where errors do not go to the terminal."""
    with (folder / "errors").open("w+") as errors:
        terminal = Terminal(*FRESH, errors=errors)
        terminal.type("train 1000000000 a => b\n")
        e2e.wait_for(lambda: "/1000000000" in (folder / "errors").read_text())
        terminal.type("\x03")
        e2e.wait_for(lambda: "stopped at step" in (folder / "errors").read_text())
        terminal.type("predict a\nstatus\n")
        terminal.until("nothing is kept")
        terminal.end()


def wait_until_read(fifo):
    """A descriptor to write to, once the program has begun to read; it goes on when that is closed. A file takes the fifo's name."""
    found = []

    def opened():
        with contextlib.suppress(OSError):
            found.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        return found

    e2e.wait_for(opened)
    (fifo.parent / "empty").write_text("")
    (fifo.parent / "empty").rename(fifo)
    return found[0]


def send(process, number):
    """A signal; its handler has run."""
    process.send_signal(number)
    pending = re.compile(r"^(?:Shd|Sig)Pnd:\t(\w+)", re.M)
    status = f"/proc/{process.pid}/status"
    e2e.wait_for(lambda: process.poll() is not None or
                 not any(int(bits, 16) & 1 << number - 1 for bits in pending.findall(open(status, encoding="utf-8").read())))


def test_on_a_terminal_a_second_ctrl_c_loses_nothing_and_a_hangup_counts(folder):
    out, fifo = folder / "out", folder / "waits.jsonl"
    os.mkfifo(fifo)
    terminal = Terminal(*FRESH, f"--output_dir={out}")
    terminal.type(f"train 2 a => b\npredict @{fifo}\n")
    command = wait_until_read(fifo)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGHUP):
        send(terminal.process, number)
    os.close(command)
    terminal.until("stopped by SIGHUP", "saved ")
    assert terminal.process.wait(60 * PATIENCE) == 75 and e2e.steps_of(out) == [2], terminal.text


def test_ctrl_c_while_the_model_is_read_ends_it(folder):
    out = folder / "out"
    out.mkdir()
    os.mkfifo(out / "metrics.jsonl")
    process = start(*FRESH, f"--output_dir={out}")
    read = wait_until_read(out / "metrics.jsonl")
    send(process, signal.SIGINT)
    os.close(read)
    text, error = process.communicate(b"status\n", timeout=60 * PATIENCE)
    assert process.returncode == 75 and not text and b"stopped by SIGINT" in error, (process.returncode, text, error)


def test_a_signal_or_the_file_stop_ends_it_saved(folder):
    for name, ask in (("SIGTERM", lambda process, out: process.send_signal(signal.SIGTERM)),
                      ("SIGINT", lambda process, out: process.send_signal(signal.SIGINT)),
                      ("STOP", lambda process, out: (out / "STOP").touch())):
        out = folder / name
        process = start(*FRESH, f"--output_dir={out}")
        process.stdin.write(b"trian\ntrain 1000000000 a => b\nstatus\n")
        process.stdin.flush()
        read_until(process, b"/1000000000")
        ask(process, out)
        text, error = process.communicate(timeout=60 * PATIENCE)
        assert process.returncode == 75 and name.encode() in error, (process.returncode, error)
        [step, saved] = text.decode().splitlines()
        assert step.startswith(f"step {e2e.steps_of(out)[-1]} ") and saved.startswith("saved "), text
        assert not (out / "STOP").exists()


e2e.run(globals())
