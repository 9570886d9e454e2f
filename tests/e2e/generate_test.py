"""quintet generate: every way to ask a model that was trained for a few steps, and every way to ask wrongly."""

import json
import os
import subprocess

import e2e
from device_test import has_emulator
from e2e import QUINTET, quintet, tiny
from serving import serving, text_of

TEXTS = ["words: 1234", "", "number: nine", "words: 7", "words: 42"]


# The quickstart's task for a decoder that reads its inputs both ways.
PREFIX_LM = """
from __gin__ import dynamic_registration
import seqio
from t5x import decoding
from t5x import models
from t5x.examples.decoder_only import network
MODEL = @models.DecoderOnlyModel()
models.DecoderOnlyModel:
  module = @network.DecoderWrapper()
  vocabulary = %VOCABULARY
  optimizer_def = %OPTIMIZER
  decode_fn = @decoding.temperature_sample
  feature_converter_cls = @seqio.PrefixLMFeatureConverter
  inputs_bidirectional_attention = True
network.DecoderWrapper.config = @network.TransformerConfig()
network.TransformerConfig:
  vocab_size = 384
  emb_dim = 32
  num_heads = 2
  num_layers = 1
  head_dim = 8
  mlp_dim = 32
  mlp_activations = ('gelu', 'linear')
  dropout_rate = 0.0
"""


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


def bytes_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_quantized_models_answer_as_those_quantized_when_loaded(folder):
    model = folder / "run"
    quintet(*tiny(model, 4, "--gin.network.T5Config.emb_dim=64", "--gin.network.T5Config.mlp_dim=256"))
    ask = ["--max_decode_len=12", "--format=json", "--logprobs=2", *TEXTS]
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps({"inputs": text}) + "\n" for text in TEXTS))

    def answers(run, *more):
        return quintet("generate", f"--model_dir={run}", *more, *ask).out

    def inferred(name, run, *more):
        quintet("infer", f"--model_dir={run}", f"--input={file}", "--mode=predict_with_aux", f"--output_dir={folder / name}",
                *more)
        return next((folder / name).glob("infer_*-of-00001")).read_bytes()
    exact = answers(model)
    for weights in ("bf16", "int8", "fp8"):
        small = folder / weights
        quintet("convert", f"--model_dir={model}", f"--quantize={weights}", f"--output={small}")
        want = answers(model, f"--quantize={weights}")
        assert want != exact and answers(small) == want == answers(small, f"--quantize={weights}")
        assert inferred(f"small {weights}", small) == inferred(f"large {weights}", model, f"--quantize={weights}")
        if has_emulator():
            on_cpu, on_gpu = ([json.loads(line) for line in answers(small, f"--device={device}").splitlines()]
                              for device in ("cpu", "emulated"))
            for a, b in zip(on_cpu, on_gpu, strict=True):
                assert a["prediction"] == b["prediction"] and abs(a["score"] - b["score"]) < 1e-4, f"{weights}: {a} {b}"
            if weights == "int8":
                emulated = inferred("emulated", small, "--device=emulated")
                assert emulated == inferred("emulated large", model, "--device=emulated", "--quantize=int8")
    assert bytes_of(folder / "int8") < bytes_of(folder / "bf16") < bytes_of(model)
    assert abs(bytes_of(folder / "fp8") - bytes_of(folder / "int8")) < 4096
    small = folder / "int8"
    assert answers(small, "--quantize=int8_dynamic") == answers(model, "--quantize=int8_dynamic")
    evaluated = [quintet("eval", f"--model_dir={run}", "--num_examples=4", *more).out for run, *more in
                 ([small], [model, "--quantize=int8"])]
    assert evaluated[0] == evaluated[1] and json.loads(evaluated[0].splitlines()[0])["examples"] == 4, evaluated
    inspected = quintet("inspect", small / "checkpoint_4").out
    assert "int8" in inspected and "_scale" in inspected, inspected
    with serving(small) as server:
        whole = [json.loads(line)["prediction"] for line in answers(small).splitlines()]
        assert text_of(server.complete(prompt="words: 7", temperature=0, max_tokens=12)) == whole[3:4]
        assert server.post("/v1/embeddings", input="one")["data"][0]["embedding"]
    run, step = f"--model_dir={small}", small / "checkpoint_4"
    for code, arguments, part in [
            (2, ["generate", run, "--quantize=bf16", "a"], "holds weights in int8"),
            (2, ["generate", run, "--quantize=f32", "a"], "holds weights in int8"),
            (2, ["generate", run, "--quantize=fp8", "a"], "holds weights in int8"),
            (2, ["infer", run, f"--input={file}", "--mode=score", f"--output_dir={folder / 'no'}"], "scores"),
            (2, ["infer", f"--model_dir={model}", f"--input={file}", "--mode=score", f"--output_dir={folder / 'no'}",
                 "--quantize=int8"], "scores"),
            (2, ["eval", run, "--quantize=bf16"], "holds weights in int8"),
            (3, ["convert", run, "--quantize=int8", f"--output={folder / 'again'}"], "holds weights in int8"),
            (3, tiny(small, 8), "cannot be trained"),
            (2, ["convert", f"--model_dir={model}", "--quantize=int8", f"--output={small}"], "checkpoint already"),
            (2, ["convert", f"--model_dir={model}", "--quantize=int8", f"--output={model}"], "checkpoint already"),
            (2, ["convert", f"--model_dir={model}", "--quantize=int8"], "--output"),
            (2, ["convert", f"--model_dir={model}", f"--output={folder / 'again'}"], "--quantize"),
            (2, ["convert", f"--model_dir={model}", "--quantize=int8_dynamic", f"--output={folder / 'again'}"], "write int8"),
    ]:
        result = quintet(*arguments, expect=code)
        assert part in result.err, f"{arguments}: {result}"
    data = next(step.glob("data-*"))
    damaged = bytearray(data.read_bytes())
    damaged[len(damaged) // 2] ^= 16
    data.write_bytes(damaged)
    assert "checkpoint_4" in quintet("generate", run, "a", expect=3).err


def test_a_decoder_only_model_loses_and_is_quantized_too(folder):
    model = folder / "run"
    (folder / "prefix.gin").write_text(PREFIX_LM)
    quintet(*tiny(model, 4), f"--gin_file={folder / 'prefix.gin'}")
    written, *report = [json.loads(line) for line in quintet("convert", f"--model_dir={model}", "--quantize=int8", "--report",
                                                             "--num_examples=4", f"--output={folder / 'small'}").out.splitlines()]
    assert written["folder"] == str(folder / "small") and written["weights"] == "int8", written
    assert [loss["part"] for loss in report] == ["decoder/layers_0", "logits", "all"], report
    assert all(loss["weight_error"] > 0 and loss["kl_divergence"] >= 0 for loss in report) and report[-1]["kl_divergence"] > 0
    ask = ["--max_decode_len=8", "--format=json", "words: 5"]
    want = quintet("generate", f"--model_dir={model}", "--quantize=int8", *ask).out
    assert quintet("generate", f"--model_dir={folder / 'small'}", *ask).out == want


def test_wrong_requests_are_named(folder):
    run = trained(folder)
    for code, arguments, part in [
            (3, ["--model_dir=/nowhere", "a"], "/nowhere"),
            (3, [f"--model_dir={folder}", "a"], "config.gin"),
            (3, [run, f"--input={folder / 'missing'}"], "missing"),
            (2, [run, "--topk=2", "--topp=0.5", "a"], "--top_p"),
            (2, [run, "--beams=2", "--temperature=1", "a"], "--beams"),
            (2, [run, "--beams=2", "--num_decodes=3", "a"], "--num_decodes=3"),
            (2, [run, "--beams=0", "a"], "beams"),
            (2, [run, "--length_penalty=1", "a"], "--length_penalty"),
            (2, [run, "--repetition_penalty=0", "a"], "repetition_penalty"),
            (2, [run, "--early_stopping=maybe", "a"], "early_stopping"),
            (2, [run, "--max_decode_len=0", "a"], "--max_tokens: Value 0"),
            (2, [run, "--format=xml", "a"], "format"),
            (2, [run, "--input=x", "a"], "--input"),
            (2, ["a"], "model_dir"),
    ]:
        result = quintet("generate", *arguments, expect=code)
        assert part in result.err and not result.out, f"{arguments}: {result}"


if __name__ == "__main__":
    e2e.run(globals())
