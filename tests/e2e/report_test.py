"""`quintet report`: one page about runs, which needs nothing else and takes whatever their logs hold."""

import html.parser
import json
import os
import random
import re
import shutil

import e2e
from e2e import quintet, tiny


class Page(html.parser.HTMLParser):
    """Tags of a page, and the JSON in it."""

    def __init__(self, file):
        super().__init__()
        self.tags, self.data, self.within = [], "", False
        text = file.read_text()
        assert not re.search(r"<[^>]*\b(src|href)=(?!\"data:)|@import|url\(|//# source", text), "something from elsewhere"
        self.feed(text)
        self.data = json.loads(self.data)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.within = tag == "script" and ("id", "data") in attributes

    def handle_endtag(self, tag):
        self.within = False

    def handle_data(self, data):
        self.data += data if self.within else ""


def report(folder, *runs, **options):
    result = quintet("report", *runs, f"--output={folder}/page.html", **options)
    return result, Page(folder / "page.html")


def logged(folder, lines, tail=""):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return folder


def series(run, name, place="train"):
    return next(one for one in run["series"] if (one["place"], one["name"]) == (place, name))


def test_two_runs_with_a_restart_are_compared(folder):
    for name, more in (("base", []), ("other", ["--gin.DROPOUT_RATE=0.2"])):
        quintet(*tiny(folder / name, 10, *more))
    quintet(*tiny(folder / "base", 20))
    (folder / "base" / "inference_eval").mkdir()
    for step in (10, 20):
        (folder / "base" / "inference_eval" / f"number_to_words-{step:06}.jsonl").write_text(
            "".join(json.dumps({"input": {"inputs_pretokenized": f"words: {i}"}, "target": "x", "prediction": f"at {step}"}) + "\n"
                    for i in range(20)))
    result, page = report(folder, folder / "base", folder / "other")
    assert not result.err and "2 runs" in result.out, result
    base, other = page.data["runs"]
    records = [record for record in e2e.metrics(folder / "base") if record["run"] == "train"]
    loss = series(base, "loss")
    assert loss["steps"] == [record["step"] for record in records] and loss["mean"] == [record["loss"] for record in records], loss
    assert "low" not in loss and loss["last"] == [20, records[-1]["loss"]] and series(base, "accuracy", "training_eval/number_words")
    differences = {row[0]: row[1:] for row in page.data["config"]}
    assert differences["DROPOUT_RATE"] == ["0.1", "0.2"] and differences["TRAIN_STEPS"] == ["20", "10"] and "BATCH_SIZE" not in differences
    starts = [event for event in base["events"] if "started" in event["what"]]
    assert [event["step"] for event in starts] == [0, 10] and "again" in starts[1]["what"] and re.match(r"\d{4}-\d\d-\d\d ", starts[0]["time"])
    assert len(other["events"]) == 1, other["events"]
    # Every example of the batches is of one of the two tasks; the run that went on has drawn what one without a stop draws.
    quintet(*tiny(folder / "whole", 20))
    whole = report(folder, folder / "whole")[1].data["runs"][0]
    examples = sum(record["effective_batch_size/encoder"] * 5 for record in records)
    drawn = dict(base["mixture"])
    assert drawn == dict(whole["mixture"]) and drawn.keys() == {"number_to_words", "words_to_number"}, (drawn, whole["mixture"])
    assert 0 <= sum(drawn.values()) - examples < 100 and min(drawn.values()) > examples / 4, (drawn, examples)
    # A run that begins where another ended, whose log has one record.
    quintet(*tiny(folder / "further", 25, "--gin.utils.CheckpointConfig.restore=@utils.RestoreCheckpointConfig()",
                  f"--gin.utils.RestoreCheckpointConfig.path='{folder / 'base'}'"))
    further = dict(report(folder, folder / "further")[1].data["runs"][0]["mixture"])
    assert 0 < sum(further.values()) < sum(drawn.values()) / 2, (further, drawn)
    assert series(base, "memory/resident_bytes")["least"][1] > 1e6 and series(base, "memory/peak_tensor_bytes")["least"][1] > 1e5
    samples = base["samples"]
    assert [(one["task"], one["step"], len(one["rows"])) for one in samples] == [("number_to_words", 10, 8), ("number_to_words", 20, 8)]
    assert samples[1]["rows"][3] == ["words: 3", "x", "at 20"]
    # Without metrics.jsonl, as T5X's runs are: the same from TensorBoard's events, which have 24 bits of a number.
    (folder / "base" / "metrics.jsonl").unlink()
    _, page = report(folder, folder / "base")
    again = series(page.data["runs"][0], "loss")
    assert again["steps"] == loss["steps"] and all(abs(a / b - 1) < 1e-6 for a, b in zip(again["mean"], loss["mean"])), (again, loss)


def test_a_long_run_keeps_its_extremes(folder):
    random.seed(1)
    values = [random.random() for _ in range(100_000)]
    values[77_776], values[50_000], values[3] = 55.5, float("nan"), -7.25
    text = (lambda value: value if value == value else "NaN")
    run = logged(folder / "run", [{"step": i + 1, "run": "train", "loss": text(value)} for i, value in enumerate(values)])
    _, page = report(folder, run)
    loss = series(page.data["runs"][0], "loss")
    assert loss["n"] == 99_999 and len(loss["steps"]) == 1000 and (folder / "page.html").stat().st_size < 200_000
    assert loss["most"] == [77_777, 55.5] == [77_777, max(loss["high"])] and loss["least"] == [4, -7.25] == [4, min(loss["low"])]
    i = loss["high"].index(55.5)
    assert abs(loss["steps"][i] - 77_777) <= 50 and loss["low"][i] < 1 and loss["mean"][i] < 2, i
    assert abs(sum(loss["mean"]) / 1000 - (sum(v for v in values if v == v) / 99_999)) < 1e-3
    assert any(event["step"] == 50_001 and "not finite" in event["what"] for event in page.data["runs"][0]["events"])


def test_texts_of_runs_never_become_markup(folder):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    plain = logged(folder / "plain", [{"step": 1, "run": "train", "loss": 1.0}])
    _, page = report(folder, plain)
    name = "<script>alert(1)<" + "!--"
    run = logged(folder / name, [{"step": 1, "run": evil, evil: 1.0, "loss": 2.0}])
    (run / "config.gin").write_text(f"DROPOUT_RATE = '{evil}'\n")
    (run / "inference_eval").mkdir()
    (run / "inference_eval" / "<b>-000001.jsonl").write_text(json.dumps({"input": evil, "target": evil, "prediction": evil}) + "\n")
    _, ours = report(folder, run)
    assert ours.tags == page.tags, ours.tags
    found = ours.data["runs"][0]
    assert found["name"] == name and series(found, evil, evil)["mean"] == [1.0] and found["samples"][0]["rows"] == [[evil] * 3]
    assert evil in found["config"]
    script = (e2e.ROOT / "apps/report/report.js").read_text() + (e2e.ROOT / "apps/page/chart.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script)


def test_faults_are_listed(folder):
    line = lambda step, skipped: {"step": step, "run": "train", "loss": 1.0, "skipped_updates": skipped}
    run = logged(folder / "run", [line(5, 0.0), line(10, 2.0), line(15, 2.0), line(20, 3.0)])
    (run / "not_finite_20.json").write_text(json.dumps({"steps": [{"step": 19, "tensor": "decoder/norm"}, {"step": 20, "tensor": "b"}]}))
    (run / "damaged-checkpoint_10").mkdir()
    _, page = report(folder, run)
    events = [(event["step"], event["what"]) for event in page.data["runs"][0]["events"]]
    assert len(events) == 4 and all(event["mark"] for event in page.data["runs"][0]["events"]), events
    for step, words in ((10, "2 updates skipped"), (20, "1 update skipped"), (20, "decoder/norm"), (10, "damaged-checkpoint_10")):
        assert any(step == at and words in what for at, what in events), (step, words, events)


def test_damaged_logs(folder):
    lines = [{"step": i, "run": "train", "loss": 1.0 / i} for i in range(1, 6)]
    result, page = report(folder, logged(folder / "run", lines, '{"step": 6, "run": "tr'))
    assert "line 6: ends within its last line; left out" in result.err and len(series(page.data["runs"][0], "loss")["steps"]) == 5, result
    assert page.data["warnings"] == [result.err.strip().removeprefix("warning: ")], page.data["warnings"]
    result, page = report(folder, logged(folder / "run", lines[:2] + [7, {"loss": 1}] + lines[2:]))
    assert "line 3: " in result.err and "2 lines in all" in result.err and series(page.data["runs"][0], "loss")["n"] == 5, result
    logged(folder / "run", [], "no log\nof metrics\n")
    assert "no line of it is a record" in quintet("report", folder / "run", f"--output={folder}/page.html", expect=3).err
    result, page = report(folder, logged(folder / "run", []))
    assert "no metrics yet" in result.err and page.data["runs"][0]["series"] == [], result
    # Events that were cut off, of a run without a log.
    quintet(*tiny(folder / "events", 10))
    (folder / "events" / "metrics.jsonl").unlink()
    file, = (folder / "events" / "train").glob("events*")
    file.write_bytes(file.read_bytes()[:-5])
    result, page = report(folder, folder / "events")
    assert file.name in result.err and "left out" in result.err and series(page.data["runs"][0], "loss")["steps"] == [5, 10], result


def test_what_is_refused(folder):
    run = logged(folder / "a" / "run", [{"step": 1, "run": "train", "loss": 1.0}])
    twin = logged(folder / "b" / "run", [{"step": 1, "run": "train", "loss": 2.0}])
    _, page = report(folder, run, twin)
    assert [one["name"] for one in page.data["runs"]] == ["a/run", "b/run"], page.data
    (folder / "link").symlink_to(run)
    assert "named twice" in quintet("report", run, folder / "link", f"--output={folder}/page.html", expect=2).err
    (folder / "empty").mkdir()
    for wrong, words in ((folder / "nope", "No such file"), (folder / "empty", "not the directory of a training run"),
                         (run / "metrics.jsonl", "not the directory of a training run")):
        error = quintet("report", wrong, f"--output={folder}/page.html", expect=3).err
        assert str(wrong) in error and words in error, error
    assert "--model_dir is required" in quintet("report", expect=2).err
    (folder / "thesis.html").write_text("<p>mine")
    error = quintet("report", run, f"--output={folder}/thesis.html", expect=2).err
    assert "no report of quintet" in error and (folder / "thesis.html").read_text() == "<p>mine", error
    os.mkfifo(folder / "pipe")
    for output, words in ((folder / "no" / "page.html", "No such file"), (folder / "empty", "Is a directory"),
                          (folder / "pipe", "no ordinary file")):
        error = quintet("report", run, f"--output={output}", expect=5).err
        assert output.name in error and words in error and not output.is_file(), error
    shutil.rmtree(folder / "b")


e2e.run(globals())
