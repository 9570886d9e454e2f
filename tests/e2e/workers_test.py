"""Functions in processes of the user's own: preprocessors, postprocessors, metrics, sources; what goes wrong in them."""

import json
import os
import pathlib
import re
import struct
import sys

import e2e
from e2e import ROOT, TINY, quintet, tensor_checksums

# What a user writes: functions as T5X's users have them, and one line that runs them.
FUNCTIONS = """
import random
import sys
import threading
sys.path.insert(0, {python!r})
import quintet_worker

class Squares:  # a data set of its own
    def __len__(self): return 40
    def __getitem__(self, i): return {{"inputs": str(i), "targets": str(i * i)}}

def preprocess(example, sequence_length, seed):
    print("a line of the user's own")
    if example["inputs"] == "drop me": return None
    random.seed(seed)
    noise = random.randint(0, 999)
    copies = 2 if example["inputs"] == "twice" else 1
    return [dict(example, inputs=f"{{example['inputs']}} {{noise}} {{sequence_length.get('inputs')}}", targets=example["targets"].upper())] * copies

class Grid:  # as seqio.metrics.Generic has it, which is known by its name
    class metadata:
        class plugin_data: plugin_name, content = "mine", b"xy"
    tensor = [[0.5], [2]]
Grid.__name__ = "Generic"

def postprocess(output, example, is_target):
    return {{"text": output, "is_target": is_target, "length": len(example["targets"])}}

def metric(targets, predictions):
    assert all(target["is_target"] for target in targets) and not any(p["is_target"] for p in predictions)
    return {{"count": len(targets), "lengths": sum(t["length"] for t in targets) / 2, "note": "said by metric",
            "spread": quintet_worker.Histogram([1, 2, 3]), "picture": quintet_worker.Image([[[[255, 0, 0], [0.0, 1.0, 0.5]]]]),
            "sound": quintet_worker.Audio([[[0.5], [-2.0]]], 8000), "grid": Grid()}}

class Judge:  # a metric object
    model_output_type = quintet_worker.ModelOutputType.PREDICTION

    @classmethod
    def from_model_output(cls, inputs, model_output, features, target_field_name):
        judge = cls()
        judge.inputs, judge.texts = inputs, [features[target_field_name].vocabulary.decode(ids) for ids in model_output]
        return judge

    def compute(self):
        return {{"seen": len(self.texts), "first": quintet_worker.Text(self.inputs[0]["targets_pretokenized"].decode()),
                "waves": quintet_worker.Audio([[[0.25]]], 8000)}}

def wrong(example):
    text = example["inputs"]
    print("about", text, flush=True)
    if text == "raise": raise ValueError("not this one")
    if text == "exit": sys.stderr.write("goodbye\\n"); sys.exit(7)
    if text == "kill": import os; os.kill(os.getpid(), 9)
    if text == "hang": threading.Event().wait()
    if text == "nonsense": import os; os.write(answers_file(), b"nonsense\\n")
    if text == "list": return [5]
    if text == "more": import os; os.write(answers_file(), b'{{"examples": []}}\\n{{"examples": []}}\\n')
    if text == "no example": import os; os.write(answers_file(), b'{{"examples": [3]}}\\nabc')
    if text == "half an example": import os; os.write(answers_file(), b'{{"examples": [30]}}\\nabc'); threading.Event().wait()
    if text == "minus": import os; os.write(answers_file(), b'{{"examples": [-3]}}\\nabc')
    if text == "object": import os; os.write(answers_file(), b'{{"examples": [{{}}]}}\\n')
    return example

def answers_file():
    import os
    return max(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd) and "pipe" in os.readlink("/proc/self/fd/" + fd))

def decode(record):
    return {{"inputs": "record %d" % int(record.strip(b"\\xff\\xfe")), "targets": "x"}}

quintet_worker.run({{"decode": decode, "preprocess": preprocess, "postprocess": postprocess, "metric": metric, "judge": Judge, "wrong": wrong,
                    "source": {{"train": Squares(), "validation": Squares()}}}}[sys.argv[1]])
"""

TASK = """
from __gin__ import dynamic_registration
import seqio
from quintet import data
{include}
data.JsonlDataSource.split_to_filepattern = {{'train': '{folder}/rows.jsonl', 'validation': '{folder}/rows.jsonl'}}
data.ProcessPreprocessor.command = ['{program}', '{folder}/functions.py', 'preprocess']
data.ProcessPostprocessor.command = ['{program}', '{folder}/functions.py', 'postprocess']
data.ProcessMetric.command = ['{program}', '{folder}/functions.py', 'metric']
data.ProcessMetricObject.command = ['{program}', '{folder}/functions.py', 'judge']
data.ProcessSource.command = ['{program}', '{folder}/functions.py', 'source']
data.ProcessSource.splits = ['train', 'validation']
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.Task:
  name = 'mine'
  source = @data.{source}()
  preprocessors = [@data.ProcessPreprocessor, @seqio.preprocessors.tokenize, @seqio.preprocessors.append_eos]
  output_features = {{'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}}
  postprocess_fn = @data.ProcessPostprocessor()
  metric_fns = [@data.ProcessMetric()]
  metric_objs = [@data.ProcessMetricObject()]
seqio.TaskRegistry.tasks = [@seqio.Task()]
"""


def task(folder, rows, source="JsonlDataSource", include=""):
    (folder / "functions.py").write_text(FUNCTIONS.format(python=str(ROOT / "python")))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    gin = folder / "task.gin"
    gin.write_text(TASK.format(folder=folder, program=sys.executable, source=source, include=include))
    return f"--gin_file={gin}"


def rows_of(*texts):
    return [{"inputs": text, "targets": f"answer {i}"} for i, text in enumerate(texts)]


def shown(*arguments, **options):
    return quintet("data", "show", "mine", "--split=train", "--num=100", *arguments, **options)


def test_a_preprocessor_keeps_drops_and_multiplies_in_any_number_of_processes(folder):
    gin = task(folder, rows_of("once", "twice", "drop me", *(f"row {i}" for i in range(300))))
    lengths = "--gin.TASK_FEATURE_LENGTHS={'inputs': 64, 'targets': 32}"
    one = shown(gin, "--gin.data.ProcessPreprocessor.processes=1", lengths)
    assert one.out == shown(gin, "--gin.data.ProcessPreprocessor.processes=3", lengths).out
    made = one.out.split("preprocessed:")[1].split("mine packed:")[0]
    inputs = re.findall('inputs_pretokenized: "(.*)"', made)
    assert len(inputs) == 100 and re.fullmatch(r"once \d+ 64", inputs[0]), inputs
    assert re.fullmatch(r"twice \d+ 64", inputs[1]) and inputs[1] == inputs[2] and inputs[3].startswith("row 0"), inputs
    assert re.findall('targets_pretokenized: "(.*)"', made)[:4] == ["ANSWER 0", "ANSWER 1", "ANSWER 1", "ANSWER 3"], made
    assert "a line of the user's own" in one.err
    assert len({line.split()[2] for line in inputs[3:]}) > 50, inputs
    assert one.out == shown(gin, "--gin.data.ProcessPreprocessor.format='tf_example'", lengths).out


def test_records_of_any_kind_are_decoded(folder):
    def record(data):  # a TFRecord; its checksums by the CRC-32C of the framing
        length = struct.pack("<Q", len(data))
        return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))

    def masked(data):
        crc = 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        crc ^= 0xFFFFFFFF
        return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF

    (folder / "rows.bin").write_bytes(b"".join(record(b"\xff%d\xfe" % i) for i in range(20)))
    gin = task(folder, [], source="ProtoDataSource").removeprefix("--gin_file=")
    text = pathlib.Path(gin).read_text().replace("@data.ProtoDataSource()", "@seqio.ProtoDataSource()")
    pathlib.Path(gin).write_text(text + f"""
seqio.ProtoDataSource.split_to_filepattern = {{'train': '{folder}/rows.bin', 'validation': '{folder}/rows.bin'}}
seqio.ProtoDataSource.decode_proto_fn = @data.ProcessDecoder()
data.ProcessDecoder.command = ['{sys.executable}', '{folder}/functions.py', 'decode']
""")
    for format in "json", "tf_example":
        made = shown(f"--gin_file={gin}", f"--gin.data.ProcessDecoder.format='{format}'").out
        inputs = re.findall('inputs: "record ([^"]*)"', made)
        assert inputs == [str(i) for i in range(20)], made
    (folder / "rows.bin").write_bytes(record(b"none"))
    failed = shown(f"--gin_file={gin}", expect=3)
    assert "rows.bin: record 0 (byte 0)" in failed.err and "ValueError" in failed.err, failed.err


def test_examples_have_the_same_features_in_both_formats(folder):
    rows = [{"inputs": "ä", "targets": "b", "ids": [1, -5, 2147483647], "rate": [0.5, -2.25], "texts": ["x", ""], "none": []},
            {"inputs": "", "targets": "b" * 200, "ids": list(range(300)), "rate": [0.125], "texts": ["x", "y", "z"], "none": []}]
    gin = task(folder, rows)
    program = f"--gin.data.ProcessPreprocessor.command=['{sys.executable}', '{folder}/functions.py', 'wrong']"
    with_json = shown(gin, program).out
    assert "2147483647" in with_json and "-2.25" in with_json, with_json
    assert with_json == shown(gin, program, "--gin.data.ProcessPreprocessor.format='tf_example'").out


def test_a_wrong_answer_is_not_taken_for_the_next_example(folder):
    gin = task(folder, rows_of("first", "nonsense", *(f"later {i}" for i in range(9))))
    made = shown(gin, f"--gin.data.ProcessPreprocessor.command=['{sys.executable}', '{folder}/functions.py', 'wrong']",
                 "--gin.data.ProcessPreprocessor.processes=1", "--bad_records=skip:1").out.split("preprocessed:")[1].split("mine packed:")[0]
    assert re.findall('inputs_pretokenized: "(.*)"', made) == ["first", *(f"later {i}" for i in range(9))], made


def test_wrong_workers_are_named_with_their_example_and_what_they_said(folder):
    wrong = [f"--gin.data.ProcessPreprocessor.command=['{sys.executable}', '{folder}/functions.py', 'wrong']",
             "--gin.data.ProcessPreprocessor.timeout_seconds=1"]
    kinds_by_format = {
        "json": {"raise": "ValueError: not this one", "exit": "exit status 7", "kill": "signal 9", "hang": "no answer within 1 seconds",
                 "nonsense": "found 'nonsense'", "list": "expected an object of features", "more": "wrote more than its answer"},
        "tf_example": {"raise": "ValueError: not this one", "no example": "not a tf.train.Example", "minus": "announces -3 bytes",
                       "half an example": "no answer within 1 seconds, 3 bytes", "object": "answer.examples[0]"}}
    for form, kinds in kinds_by_format.items():
        for text, part in kinds.items():
            gin = task(folder, rows_of("fine", text, "fine"))
            failed = shown(gin, *wrong, f"--gin.data.ProcessPreprocessor.format='{form}'", expect=3)
            message, said = failed.err.split("its stderr:")
            for expected in "rows.jsonl:2", "worker process", "functions.py wrong", part:
                assert expected in message, (form, text, expected, failed.err)
            assert f"about {text}" in said and ("goodbye" in said) == (text == "exit"), (form, text, failed.err)
    missing = shown(gin, "--gin.data.ProcessPreprocessor.command=['/nowhere/program']", expect=4)
    assert "/nowhere/program" in missing.err and "cannot be started" in missing.err, missing.err
    for binding, part in ("command=[]", "command"), ("processes=-1", "processes"), ("timeout_seconds=0", "timeout_seconds"), ("format='xml'", "format: expected 'json' or 'tf_example', found 'xml'"):
        assert part in shown(gin, f"--gin.data.ProcessPreprocessor.{binding}", expect=2).err


def test_no_worker_is_left_behind(folder):
    gin = task(folder, rows_of("hang"))
    shown(gin, f"--gin.data.ProcessPreprocessor.command=['{sys.executable}', '{folder}/functions.py', 'wrong']",
          "--gin.data.ProcessPreprocessor.timeout_seconds=1", expect=3)
    commands = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            commands.append(open(f"/proc/{process}/cmdline").read())
        except OSError:
            pass
    assert not any(f"{folder}/functions.py" in command for command in commands), commands


def test_training_resumes_and_evaluates_with_ones_own_functions(folder):
    gin = task(folder, [], source="ProcessSource", include="include 'quintet/quickstart.gin'\nTASK = 'mine'\n")
    run = ["train", *TINY[1:], gin, "--gin.utils.SaveCheckpointConfig.period=3"]
    quintet(*run, f"--model_dir={folder}/whole", "--gin.TRAIN_STEPS=6")
    tf_examples = [f"--gin.data.Process{what}.format='tf_example'" for what in ("Preprocessor", "Postprocessor", "Source")]
    quintet(*run, f"--model_dir={folder}/one", "--gin.TRAIN_STEPS=6", "--gin.data.ProcessPreprocessor.processes=1", *tf_examples)
    assert tensor_checksums(folder / "whole", 6) == tensor_checksums(folder / "one", 6)
    quintet(*run, f"--model_dir={folder}/parts", "--gin.TRAIN_STEPS=3")
    quintet(*run, f"--model_dir={folder}/parts", "--gin.TRAIN_STEPS=6")
    assert tensor_checksums(folder / "whole", 6) == tensor_checksums(folder / "parts", 6)
    # A stranger's model starts nothing.
    refused = quintet("eval", f"--model_dir={folder}/whole", "--split=validation", expect=2)
    assert "--allow_commands" in refused.err and "config.gin" in refused.err, refused.err
    quintet("generate", f"--model_dir={folder}/whole", "a")
    for run in "whole", "one":
        found = quintet("eval", f"--model_dir={folder}/{run}", "--split=validation", "--allow_commands", f"--output_dir={folder}/{run}-eval")
        assert json.loads(found.out) == {"step": 6, "task": "mine", "examples": 40, "count": 40.0, "lengths": 77.0, "seen": 40.0}, found
        logged, = (folder / f"{run}-eval").rglob("mine-metrics.jsonl")
        values = json.loads(logged.read_text())
        assert values["grid"] == [[0.5], [2.0]] and values["first"] == "0", values


e2e.run(globals())
