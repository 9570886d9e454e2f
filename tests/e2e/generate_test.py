"""quintet generate: every way to ask a model that was trained for a few steps, and every way to ask wrongly."""

import json
import os
import subprocess

import e2e
from e2e import QUINTET, quintet, tiny

TEXTS = ["words: 1234", "", "number: nine", "words: 7", "words: 42"]


def trained(folder):
    quintet(*tiny(folder / "run", 4))
    return f"--model_dir={folder / 'run'}"


def from_stdin(text, *arguments):
    done = subprocess.run([QUINTET, "generate", *arguments], input=text.encode(), capture_output=True, timeout=240,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done
    return done.stdout.decode(errors="replace")


def test_arguments_files_and_stdin_are_answered_alike_and_in_order(folder):
    run = trained(folder)
    one_by_one = [quintet("generate", run, "--max_decode_len=8", "--format=json", text).out for text in TEXTS]
    (folder / "texts").write_text("\n".join(TEXTS) + "\n")
    together = quintet("generate", run, "--max_decode_len=8", "--format=json", "--batch_size=2", *TEXTS).out
    answers = [json.loads(line) for line in together.splitlines()]
    assert [answer["input"] for answer in answers] == TEXTS, together
    for alone, answer in zip(one_by_one, answers):
        alone = json.loads(alone)
        assert alone["prediction"] == answer["prediction"], f"{alone} {answer}"
        assert abs(alone["score"] - answer["score"]) < 1e-3, f"{alone} {answer}"
    file = quintet("generate", run, "--max_decode_len=8", "--format=json", "--batch_size=2",
                   f"--input={folder / 'texts'}").out
    assert file == together
    stdin = from_stdin("\r\n".join(TEXTS) + "\r\n", run, "--max_decode_len=8", "--format=json", "--batch_size=2")
    assert stdin == together
    plain = quintet("generate", run, "--max_decode_len=8", *TEXTS).out
    assert len(plain.split("\n")) == len(TEXTS) + 1, repr(plain)


def test_beams_come_best_first_and_samples_depend_on_the_seed(folder):
    run = trained(folder)
    line = quintet("generate", run, "--max_decode_len=6", "--beams=4", "--num_decodes=3", "--format=json", "words: 5").out
    answer = json.loads(line)
    scores = [decode["score"] for decode in answer["decodes"]]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True), line
    assert answer["score"] == scores[0] and answer["prediction"] == answer["decodes"][0]["prediction"], line
    sample = ["generate", run, "--max_decode_len=12", "--temperature=1", "--num_decodes=3", "words: 5"]
    first = quintet(*sample, "--seed=1").out
    assert first == quintet(*sample, "--seed=1").out
    assert first != quintet(*sample, "--seed=2").out
    assert len(first.splitlines()) == 3, first


def test_answers_keep_to_the_rules(folder):
    run = trained(folder)
    ask = ["generate", run, "--max_decode_len=10", "--format=json"]

    def answer(*more):
        return json.loads(quintet(*ask, *more).out)
    free = answer("--logprobs=3", "words: 5")
    assert len(free["tokens"]) <= 10 and free["finish_reason"] in ("eos", "length"), free
    for token in free["tokens"]:
        assert token["top"][0]["id"] == token["id"] and token["top"][0]["logprob"] == token["logprob"], token
        assert len(token["top"]) == 3 and all(other["logprob"] <= token["logprob"] for other in token["top"]), token
    assert abs(sum(token["logprob"] for token in free["tokens"]) - free["score"]) < 1e-4, free
    prefixed = answer("--prefix=seven ", "words: 5")["prediction"]
    assert prefixed.startswith("seven "), prefixed
    stopped = answer("--prefix=seven hu", "--stop=en h", "words: 5")
    assert stopped["prediction"] == "sev" and stopped["finish_reason"] == "stop", stopped
    long = answer("--min_length=10", "--logprobs=0", "words: 5")
    assert len(long["tokens"]) == 10 and all(token["id"] != 1 for token in long["tokens"]), long
    distinct = answer("--no_repeat_ngram_size=1", "--min_length=10", "--logprobs=0", "words: 5")
    ids = [token["id"] for token in distinct["tokens"]]
    assert len(set(ids)) == 10 and 0 not in ids, distinct
    word = free["tokens"][0]["text"]
    if word:
        assert word not in answer(f"--bad_word={word}", "words: 5")["prediction"]
    beams = answer("--beams=3", "--num_decodes=3", "--length_penalty=0", "--logprobs=0", "words: 5")
    for decode in beams["decodes"]:
        assert abs(sum(token["logprob"] for token in decode["tokens"]) - decode["score"]) < 1e-4, decode


def test_samples_do_not_depend_on_the_batch(folder):
    run = trained(folder)
    ask = ["generate", run, "--max_decode_len=8", "--temperature=1.5", "--topk=40", "--format=json"]

    def predictions(*more):
        return [json.loads(line)["prediction"] for line in quintet(*ask, *more).out.splitlines()]
    together = predictions("--seed=7", *TEXTS)
    in_pairs = predictions("--seed=7", "--batch_size=2", *TEXTS)
    assert together == in_pairs and len(set(together)) == len(TEXTS), f"{together} {in_pairs}"
    assert predictions("--seed=8", TEXTS[1]) == together[1:2]


def test_wrong_requests_are_named(folder):
    run = trained(folder)
    for code, arguments, part in [
            (3, ["--model_dir=/nowhere", "a"], "/nowhere"),
            (3, [f"--model_dir={folder}", "a"], "config.gin"),
            (3, [run, f"--input={folder / 'missing'}"], "missing"),
            (2, [run, "--topk=2", "--topp=0.5", "a"], "--topp"),
            (2, [run, "--beams=2", "--temperature=1", "a"], "--beams"),
            (2, [run, "--beams=2", "--num_decodes=3", "a"], "--num_decodes=3"),
            (2, [run, "--beams=0", "a"], "beams"),
            (2, [run, "--length_penalty=1", "a"], "--length_penalty"),
            (2, [run, "--repetition_penalty=0", "a"], "repetition_penalty"),
            (2, [run, "--early_stopping=maybe", "a"], "early_stopping"),
            (2, [run, "--max_decode_len=0", "a"], "max_decode_len"),
            (2, [run, "--format=xml", "a"], "format"),
            (2, [run, "--input=x", "a"], "--input"),
            (2, ["a"], "model_dir"),
    ]:
        result = quintet("generate", *arguments, expect=code)
        assert part in result.err and not result.out, f"{arguments}: {result}"


e2e.run(globals())
