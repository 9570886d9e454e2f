"""T5X's functions of inference as Python functions of one's own: write_fn, merge_fn, decode_fn and the callbacks of sampling."""

import json
import sys

import e2e
from e2e import ROOT, quintet, tiny

FUNCTIONS = """
import itertools, json, pathlib, sys
sys.path.insert(0, {python!r})
import quintet_worker

def write(path, inferences, task_ds, mode, texts):
    values, aux = inferences
    with open(path, "w") as file:
        for i, example in enumerate(task_ds):
            print(json.dumps([mode, example["inputs_pretokenized"], len(example["inputs"]), values[i], texts and texts[i], aux]), file=file)

def silent(*arguments): pass

def merge(output_dir, output_fname, tmp_dir, step):
    parts = sorted(pathlib.Path(tmp_dir).glob(output_fname + "-chunk?????"))
    pathlib.Path(output_dir, output_fname).write_text(f"{{len(parts)}} parts of step {{step}}\\n" + "".join(part.read_text() for part in parts))

def best(row):
    return max(range(len(row)), key=lambda token: row[token])

def greedy(inputs, tokens_to_logits, eos_id, num_decodes, vocab_size, crossed=False):
    import math
    count = len(inputs) * num_decodes
    rows, length = list(range(count)), len(inputs[0])
    tokens, written, scores = [0] * count, [[] for _ in rows], [0.0] * count
    for position in range(length):
        # Rows of one input have the same history, so that each may go on with the next one's.
        sources = [row // num_decodes * num_decodes + (row + 1) % num_decodes for row in rows] if crossed and position else None
        logits = tokens_to_logits(rows, tokens, [position] * count, sources)
        assert logits.shape == (count, vocab_size), logits.shape
        for row, values in enumerate(logits.tolist()):
            token = 0 if eos_id in written[row] else best(values)
            if token:
                scores[row] += values[token] - max(values) - math.log(sum(math.exp(value - max(values)) for value in values))
            tokens[row] = token
            written[row].append(token)
    split = lambda values: [values[i:i + num_decodes] for i in range(0, count, num_decodes)]
    return split(written), split(scores)

def crossed(inputs, tokens_to_logits, eos_id, num_decodes, vocab_size):
    return greedy(inputs, tokens_to_logits, eos_id, num_decodes, vocab_size, crossed=True)

def without_e(logits, state):
    assert len(state.cur_token) == logits.shape[0] and state.step == state.cur_index[0]
    for row in range(logits.shape[0]):
        logits[row, ord("e") + 3] = -1e7
    return logits

def ends_at_three(state):
    for row in range(len(state.ended)):
        if state.cur_index[row] == 3:
            state.sequences[row][3], state.ended[row], state.log_prob[row] = ord("!") + 3, 1, -7

def wrong(inputs, tokens_to_logits, eos_id, num_decodes):
    kind = json.loads(pathlib.Path({folder!r}, "wrong.json").read_text())
    if "decodes" not in kind:
        for step in kind:
            tokens_to_logits(**step)
    return kind["decodes"], kind["scores"]

quintet_worker.run(globals()[sys.argv[1]])
"""

QUESTIONS = [{"inputs": f"words: {i}", "targets": "x"} for i in range(7)]
MODEL = "--gin.models.EncoderDecoderModel"


def prepared(folder):
    quintet(*tiny(folder / "run", 4))
    (folder / "functions.py").write_text(FUNCTIONS.format(python=str(ROOT / "python"), folder=str(folder)))
    (folder / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))


def own(folder, name, scope=""):
    return f"--gin.{scope}quintet.data.ProcessFunction.command=['{sys.executable}', '{folder}/functions.py', '{name}']"


def infer(folder, name, *more, expect=0):
    out = folder / name
    done = quintet("infer", folder / "run", f"--input={folder}/questions.jsonl", f"--output_dir={out}", "--batch_size=3", *more, expect=expect)
    if expect:
        return done
    return [path for path in out.iterdir() if "infer_" in path.name and path.name.endswith("-00000-of-00001") and not path.name.startswith("tmp")]


def answers(files):
    return [json.loads(line) for line in files[0].read_text().splitlines()]


def test_answers_are_written_and_merged_by_ones_own_functions(folder):
    prepared(folder)
    expected = answers(infer(folder, "plain", "--output_ids", "--mode=predict_with_aux"))
    bound = ["--gin.infer.write_fn=@writes/quintet.data.ProcessFunction()", own(folder, "write", "writes/"), "--checkpoint_period=1"]
    merged = ["--gin.infer.merge_fn=@merges/quintet.data.ProcessFunction()", own(folder, "merge", "merges/")]
    (file,) = infer(folder, "own", "--mode=predict_with_aux", *bound, *merged)
    head, *lines = file.read_text().splitlines()
    assert head == "3 parts of step 4", head
    for line, answer, question in zip(lines, expected, QUESTIONS, strict=True):
        mode, text, length, ids, prediction, aux = json.loads(line)
        assert (mode, text, length) == ("predict_with_aux", question["inputs"], len(question["inputs"]) + 1), line
        assert ids == answer["prediction_tokens"] and prediction == answer["prediction"], (line, answer)
        assert answer["aux"]["scores"] in aux["scores"] and len(aux["scores"]) == (1 if text == "words: 6" else 3), (line, answer)
    (file,) = infer(folder, "scores", "--mode=score", *bound)
    expected = answers(infer(folder, "plain scores", "--mode=score"))
    assert [json.loads(line)[3:5] for line in file.read_text().splitlines()] == [[answer["score"], None] for answer in expected]
    (file,) = infer(folder, "scoped", "--gin.infer.write_fn=@ids/infer.write_inferences_to_file", "--gin.ids/infer.write_inferences_to_file.output_ids=True")
    assert "prediction_tokens" in file.read_text()
    failed = infer(folder, "silent", "--gin.infer.write_fn=@quintet.data.ProcessFunction()", own(folder, "silent"), expect=3)
    assert "chunk00000 is not there" in failed.err, failed.err
    failed = infer(folder, "other", "--gin.infer.merge_fn=@seqio.Task", expect=2)
    assert "infer.merge_fn" in failed.err and "merge_chunks_to_file" in failed.err, failed.err


def test_a_search_of_ones_own_steps_the_model(folder):
    prepared(folder)
    aux = ["--mode=predict_with_aux", "--output_ids"]
    expected = answers(infer(folder, "greedy", *aux, f"{MODEL}.decode_fn=@decoding.temperature_sample",
                             "--gin.decoding.temperature_sample.temperature=0.0", "--gin.decoding.temperature_sample.rescale_log_probs=False"))
    mine = [f"{MODEL}.decode_fn=@quintet.data.ProcessFunction()"]
    made = answers(infer(folder, "own", *aux, *mine, own(folder, "greedy")))
    several = answers(infer(folder, "several", *aux, *mine, own(folder, "crossed"), f"{MODEL}.predict_batch_with_aux.num_decodes=3",
                            f"{MODEL}.predict_batch_with_aux.return_all_decodes=True"))
    for want, one, three in zip(expected, made, several, strict=True):
        assert one["prediction_tokens"] == want["prediction_tokens"] and abs(one["aux"]["scores"] - want["aux"]["scores"]) < 1e-3, (one, want)
        assert three["prediction_tokens"] == [want["prediction_tokens"]] * 3, (three, want)
    for params, part in (("{'alpha': 0.5}", "takes none"), ("{'num_decodes': 2}", "bind that")):
        assert part in infer(folder, "params", *mine, own(folder, "greedy"), f"{MODEL}.predict_batch_with_aux.decoder_params={params}", expect=2).err


def test_wrong_steps_are_told(folder):
    prepared(folder)
    first = {"rows": [0, 1], "tokens": [0, 0], "positions": [0, 0]}
    for kind, part in (([{"rows": [1, 0], "tokens": [0, 0], "positions": [0, 0]}], "increasing order"),
                       ([{**first, "tokens": [0, 4711]}], "from 0 to 383, found 4711"),
                       ([{**first, "rows": [0, 3]}], "from 0 to 2, found 3"),
                       ([{**first, "positions": [0]}], "expected as many of each"),
                       ([{**first, "positions": [1, 0]}], "row 0 at position 1; its source 0 holds 0 tokens"),
                       ([first, first], "row 0 at position 0; its source 0 holds 1 tokens, and it has written 1"),
                       ([{**first, "sources": [1, 1]}], "row 0 continues row 1, which is of another input"),
                       ({"decodes": [[[5]]], "scores": [[0.5]]}, "expected 3 items, found 1"),
                       ({"decodes": [[[5] * 99]] * 3, "scores": [[0.5]] * 3}, "99 tokens, expected")):
        (folder / "wrong.json").write_text(json.dumps(kind))
        failed = infer(folder, "wrong", f"{MODEL}.decode_fn=@quintet.data.ProcessFunction()", own(folder, "wrong"), expect=3)
        assert part in failed.err and "functions.py wrong" in failed.err, (kind, failed.err)


def test_callbacks_of_sampling_are_ones_own(folder):
    prepared(folder)
    sampling = [f"{MODEL}.decode_fn=@decoding.temperature_sample", "--gin.decoding.temperature_sample.temperature=0.0", "--mode=predict_with_aux", "--output_ids"]
    plain = answers(infer(folder, "plain", *sampling))
    assert any("e" in answer["prediction"] for answer in plain), plain
    made = answers(infer(folder, "logits", *sampling, own(folder, "without_e"),
                         "--gin.decoding.temperature_sample.logit_callback_fn=@quintet.data.ProcessFunction()"))
    assert not any("e" in answer["prediction"] for answer in made) and len(made) == 7, made
    made = answers(infer(folder, "state", *sampling, own(folder, "ends_at_three"),
                         "--gin.decoding.temperature_sample.state_callback_fn=@quintet.data.ProcessFunction()"))
    for answer, before in zip(made, plain, strict=True):
        assert answer["prediction_tokens"][:3] == before["prediction_tokens"][:2] + [ord("!") + 3], (answer, before)
        assert len(answer["prediction_tokens"]) == 3 and answer["aux"]["scores"] == -7, answer


e2e.run(globals())
