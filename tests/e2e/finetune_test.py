"""quintet finetune: from every kind of model and file to a run that the other verbs take; wrong input."""

import json
import resource

import e2e
from e2e import PATIENCE, ROOT, quintet

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


def test_classes_frozen_parts_and_the_best_checkpoint(folder):
    rows = [{"text": f"number {i}", "label": "odd" if i % 2 else "even"} for i in range(40)]
    train, valid = folder / "train.jsonl", folder / "valid.jsonl"
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    valid.write_text("".join(json.dumps(row) + "\n" for row in [*rows[:4], {"text": "number 41", "label": "prime"}]))
    flags = [f"--train={train}", "--input=text", "--target=label", f"--output_dir={folder / 'run'}", "--optimizer=adamw", "--weight_decay=0.1",
             "--layer_decay=0.5", "--freeze=^/encoder/", "--freeze=token_embedder", "--epochs=20", "--patience=1"]
    refused = quintet("finetune", BYT5, *flags, f"--validation={valid}", "--labels=even,odd", expect=3)
    assert f"{valid}:5: the target 'prime' is none of --labels=even,odd" in refused.err, refused
    refused = quintet("finetune", BYT5, *flags, "--freeze=nowhere", expect=2)
    assert "--freeze=nowhere: found in no parameter" in refused.err, refused
    done = quintet("finetune", BYT5, *flags, f"--validation={valid}")
    assert f"warning: {valid}:5: the label 'prime' of 1 validation examples is no training example's" in done.err, done
    assert "| target \\ predicted | even | odd | prime | other |" in done.err and "\n| prime | 0 | 0 | 0 | 1 |" in done.err, done
    assert "finetune/accuracy has not improved for 1 evaluations: 0, 0; stopping early" in done.err, done
    kept = e2e.steps_of(folder / "run")
    assert len(kept) == 2 and f"best: {folder / 'run'}/checkpoint_{kept[0]}" in done.err, (kept, done)
    compared = quintet("inspect", BYT5, folder / "run").out.splitlines()
    changed = {line.split()[0] for line in compared if line.startswith("target/")}
    assert any("decoder" in name for name in changed), compared
    assert not [name for name in changed if "/encoder/" in name or "embedder" in name], compared


def test_several_tasks_and_memory(folder):
    (folder / "a.csv").write_text("question,answer\n" + "".join(f"{q},{a}\n" for q, a in PAIRS))
    write_jsonl(folder / "b.jsonl", PAIRS)
    flags = [f"--train=first={folder / 'a.csv'}", f"--train=second={folder / 'b.jsonl'}", f"--validation=second={folder / 'b.jsonl'}",
             "--input=question", "--target=answer", f"--output_dir={folder / 'run'}", "--metrics=bleu,chrf,rouge,f1", "--max_target_length=4"]
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))} if PATIENCE == 1 else {}
    rows = 16384 if limited else 1 << 20  # sanitizers have no room under a limit
    planned = quintet("finetune", BYT5, *flags, f"--batch_size={rows}", "--dry_run", **limited)
    assert "trainer.Trainer.num_microbatches = 1\n" not in planned.out and "microbatches: with them a step needs" in planned.err, planned
    assert not (folder / "run").exists()
    done = quintet("finetune", BYT5, *flags, "--steps=2", "--microbatches=2")
    assert "46 of 46 training targets are longer than 4 tokens and are cut; the longest has 7" in done.err, done
    records = e2e.metrics(folder / "run")
    for task in ("first", "second"):
        found = {name for record in records if record.get("run") == f"inference_eval/{task}" for name in record}
        assert {"eval/bleu", "eval/chrf", "eval/rougeLsum", "eval/f1"} <= found, (task, found)
    assert any(record.get("run") == "training_eval/finetune" for record in records)


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
    refused(2, "of several tasks each has a name", flags=[f"--train=b={folder / 'train.jsonl'}"])
    refused(2, "no --train=b=FILE is given", flags=["--validation=b=x.jsonl"])
    refused(2, "go with --optimizer=adamw", flags=["--layer_decay=0.9"])
    refused(2, "a brace without its other half", base=[*good[:2], "--template={question", "--target=answer"])
    refused(3, "spearman: target 0: expected a number, found 'town 0'", flags=["--metrics=spearman"])
    below_a_file = quintet("finetune", BYT5, *good, f"--output_dir={folder / 'train.jsonl' / 'run'}", "--steps=2", expect=5)
    assert f"{folder / 'train.jsonl' / 'run'}" in below_a_file.err, below_a_file
    done = quintet("finetune", folder / "nothing", *good, f"--output_dir={folder / 'run'}", expect=3)
    assert "nothing: no such folder" in done.err, done


if __name__ == "__main__":
    e2e.run(globals())
