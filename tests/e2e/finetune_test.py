"""quintet finetune: from every kind of model and file to a run that the other verbs take; wrong input."""

import json

import e2e
from e2e import ROOT, quintet

BYT5 = ROOT / "tests" / "fixtures" / "huggingface" / "byt5"
PAIRS = [(f"capital of land {i}?", f"town {i % 4}") for i in range(24)]


def write_jsonl(file, pairs):
    file.write_text("".join(json.dumps({"question": q, "answer": a, "meta": {"unused": 1}}) + "\n" for q, a in pairs))
    return file


def jsonl(folder):
    """The flags that name two files of questions and answers."""
    return [f"--train={write_jsonl(folder / 'train.jsonl', PAIRS)}", f"--validation={write_jsonl(folder / 'valid.jsonl', PAIRS[::6])}",
            "--input=question", "--target=answer"]


def test_from_hugging_face_our_run_and_t5x(folder):
    first = ["finetune", BYT5, *jsonl(folder), f"--output_dir={folder / 'first'}", "--steps=4", "--output_format=hf", "--batch_size=4"]
    (folder / "first").mkdir()
    (folder / "first" / "STOP").touch()
    stopped = quintet(*first, expect=75)
    assert e2e.steps_of(folder / "first")[-1] < 4, stopped
    done = quintet(*first)
    written = (folder / "first" / "finetune.gin").read_text()
    assert done.out == written and "include '" + str(BYT5 / "config.json") in written, done
    assert "4 of 4 validation examples are training examples, too, first " + str(folder / "valid.jsonl") + ":1" in stopped.err, stopped
    assert e2e.steps_of(folder / "first")[-1] == 4
    answers = [quintet("generate", f"--model_dir={model}", "--max_tokens=8", "capital of land 1?").out
               for model in (folder / "first", folder / "first" / "hf" / "checkpoint_4")]
    assert answers[0] == answers[1], answers
    other = quintet(*first, "--learning_rate=0.1", expect=2)
    assert "written by other flags" in other.err, other

    (folder / "train.csv").write_text('answer,question\r\n' + "".join(f'"to, ""{a}""\nor so","{q}"\r\n' for q, a in PAIRS))
    quintet("finetune", folder / "first", f"--train={folder / 'train.csv'}", "--template={{{question}}} {answer}", "--target=answer",
            "--source_prefix={answer}: ", f"--output_dir={folder / 'second'}", "--steps=2", "--batch_size=4")
    shown = quintet("data", "show", "finetune", f"--gin_file={folder / 'second' / 'finetune.gin'}", "--num=1").out
    assert "{answer}: {capital of land 1?} to, " in shown, shown

    quintet("convert", folder / "first", folder / "t5x", "--to=t5x")
    (folder / "train.tsv").write_text("question\tanswer\n" + "".join(f'{q} 5" wide\t{a}\n' for q, a in PAIRS))
    quintet("finetune", f"--model_dir={folder / 't5x'}", f"--train={folder / 'train.tsv'}", "--input=question", "--target=answer",
            f"--output_dir={folder / 'third'}", "--steps=2", "--batch_size=4")
    assert json.loads(quintet("eval", f"--model_dir={folder / 'third'}").out)["examples"] == 2


def test_wrong_input(folder):
    good = jsonl(folder)

    def refused(code, *words, flags=(), base=good):
        done = quintet("finetune", BYT5, *base, f"--output_dir={folder / 'run'}", "--steps=2", *flags, expect=code)
        for word in words:
            assert str(word) in done.err, f"{word}: {done}"
        assert not (folder / "run").exists(), done

    bad = folder / "bad.jsonl"
    rows = [json.dumps({"question": q, "answer": a}) for q, a in PAIRS]
    bad.write_text("\n".join(rows[:16] + [json.dumps({"question": "q", "reply": "a"})] + rows[17:]) + "\n")
    base = [f"--train={bad}", *good[1:]]
    refused(3, f"{bad}:17: field 'answer' is missing; there are: question, reply", base=base)
    bad.write_text("")
    refused(3, bad, "no example", base=base)
    ragged = folder / "ragged.csv"
    ragged.write_text("question,answer\na,b\nc,d,e\n")
    refused(3, f"{ragged}:3: 3 values, but the first line names 2 columns: question, answer", base=[f"--train={ragged}", *good[2:]])
    ragged.write_text('question,answer\na,b\n"c,d\n')
    refused(3, f"{ragged}:3", "a quote that is not closed", base=[f"--train={ragged}", *good[2:]])
    ragged.write_text("question,reply\na,b\n")
    refused(3, f"{ragged}:2: no field 'answer'; there are: question, reply", base=[f"--train={ragged}", *good[2:]])
    refused(2, "to_json", "a.jsonl", base=[f"--train={folder / 'a.parquet'}", *good[2:]])
    refused(2, "ends in .jsonl, .csv or .tsv", base=[f"--train={folder / 'a.txt'}", *good[2:]])
    refused(2, "--train=FILE is required", base=good[2:])
    refused(2, "--input=FIELD or by --template", "not both", flags=["--template={question}"])
    done = quintet("finetune", folder / "nothing", *good, f"--output_dir={folder / 'run'}", expect=3)
    assert "nothing: no such folder" in done.err, done


if __name__ == "__main__":
    e2e.run(globals())
