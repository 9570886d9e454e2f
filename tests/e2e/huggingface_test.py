"""Hugging Face directories in every verb that takes a model; the answers are transformers' (tests/oracles/gen_huggingface.py)."""

import json
import os
import pathlib
import shutil

import e2e
from e2e import ROOT, quintet
from serving import serving, text_of

KINDS = pathlib.Path(os.environ.get("QUINTET_FIXTURES", ROOT / "tests" / "fixtures")) / "huggingface"
BYTES = KINDS / "byt5"  # whose ids are text


def expected(kind):
    return json.loads((KINDS / kind / "expected.json").read_text())


def line_of(ids):
    return " ".join(map(str, ids))


def generated(model_dir, *arguments):
    return [json.loads(line) for line in quintet("generate", f"--model_dir={model_dir}", "--format=json", *arguments).out.splitlines()]


def test_ids_in_ids_out_with_transformers_scores(folder):
    for kind in ("t5_1_0", "t5_1_1", "umt5", "switch"):
        want = expected(kind)
        inputs = [line_of(ids) for ids in want["inputs"]]
        tokens = f"--max_tokens={want['new_tokens']}"
        for name, flags in (("greedy", []), ("beam4", ["--beams=4"]), ("beam4_length_penalty_0", ["--beams=4", "--length_penalty=0"])):
            for i, one in enumerate(generated(KINDS / kind, "--ids", tokens, *flags, *inputs)):
                best = want["answers"][i][name][0]
                assert one["ids"] == best["ids"] and abs(one["score"] - best["score"]) < 1e-4, (kind, name, one, best)
                assert one["input_ids"] == want["inputs"][i] and one["finish_reason"] == ("eos" if 1 in one["ids"] else "length"), one


def test_a_given_answer_is_scored(folder):
    want = expected("mt5")
    for ids, target, log_prob in zip(want["inputs"], want["targets"], want["target_log_probs"]):
        [one] = generated(KINDS / "mt5", "--ids", f"--target={line_of(target)}", line_of(ids))
        assert one["ids"] == target and abs(one["score"] - log_prob) < 1e-4, (one, log_prob)


def test_generation_config_says_what_flags_do_not(folder):
    model, want = folder / "model", expected("t5_1_1")
    shutil.copytree(KINDS / "t5_1_1", model)
    config = {"num_beams": 4, "max_length": 13, "length_penalty": 0.0, "forced_eos_token_id": 1}
    (model / "generation_config.json").write_text(json.dumps(config))
    done = quintet("generate", f"--model_dir={model}", "--format=json", "--ids", line_of(want["inputs"][0]))
    best = want["answers"][0]["beam4_length_penalty_0"][0]
    assert json.loads(done.out)["ids"] == best["ids"], (done, best)
    assert "forced_eos_token_id = 1 has no effect" in done.err, done.err


def test_ids_that_are_none_are_usage_errors(folder):
    for bad in ("5 x", "0 4", "96", "-3", "1.5", " "):
        done = quintet("generate", f"--model_dir={KINDS / 't5_1_1'}", "--ids", "--", bad, expect=2)
        assert "token id" in done.err, done
    done = quintet("generate", f"--model_dir={KINDS / 't5_1_1'}", "text", expect=2)
    assert "no vocabulary" in done.err and "--ids" in done.err, done


def test_text_of_a_model_of_bytes(folder):
    [one] = generated(BYTES, "--max_tokens=5", "abc")
    [ids] = generated(BYTES, "--max_tokens=5", "--ids", line_of([*(b + 3 for b in b"abc"), 1]))
    assert one["score"] == ids["score"], (one, ids)
    with serving(BYTES) as server:
        assert text_of(server.complete(prompt="abc", temperature=0, max_tokens=5)) == [one["prediction"]]
    (folder / "q.jsonl").write_text('{"inputs": "abc"}\n')
    quintet("infer", f"--model_dir={BYTES}", f"--input={folder / 'q.jsonl'}", f"--output_dir={folder / 'out'}")
    [written] = (folder / "out").glob("*.jsonl-00000-of-00001")
    assert json.loads(written.read_text())["prediction"], written.read_text()


def test_it_converts_and_shows(folder):
    quintet("convert", f"--model_dir={BYTES}", "--quantize=int8", f"--output={folder / 'small'}")
    [one] = generated(folder / "small", "--max_tokens=5", "abc")
    assert "prediction" in one
    shown = json.loads(quintet("inspect", "--format=json", "--stats", BYTES).out)
    assert shown["kind"] == "a Hugging Face directory" and shown["weights"] == "torch", shown
    assert shown["layers"].startswith("encoder of 3 layers") and "ByteVocabulary" in shown["vocabulary"], shown
    assert shown["tensors"]["target/token_embedder/embedding"]["shape"] == [384, 24], shown
    assert "Hugging Face" in quintet("inspect", KINDS / "encoder").out
    assert "emb_dim = 24" in quintet("config", BYTES / "config.json").out
    assert "no decoder" in quintet("generate", f"--model_dir={KINDS / 'encoder'}", "--ids", "5 1", expect=3).err


def test_training_starts_from_it(folder):
    """The first step has a learning rate of 0: its checkpoint is the model that it began with."""
    quintet("train", "--gin_file=quintet/quickstart.gin", f"--gin_file={BYTES / 'config.json'}", f"--model_dir={folder / 'run'}",
            "--gin.TRAIN_STEPS=3", "--gin.WARMUP_STEPS=2", "--gin.EVAL_PERIOD=1", "--gin.utils.SaveCheckpointConfig.keep=None", "--gin.BATCH_SIZE=2", "--gin.train_script.train.infer_eval_dataset_cfg=None",
            "--gin.train_script.train.eval_steps=1", "--gin.train_script.train.verify_matching_vocabs_fn=None",
            "--gin.utils.CheckpointConfig.restore=@utils.RestoreCheckpointConfig()",
            f"--gin.utils.RestoreCheckpointConfig.path='{BYTES}'", "--gin.utils.RestoreCheckpointConfig.mode='specific'")
    ids = line_of(expected("byt5")["inputs"][0])
    ours, theirs = (generated(model, "--ids", "--beams=4", "--max_tokens=12", ids) for model in (folder / "run" / "checkpoint_1", BYTES))
    assert ours == theirs, (ours, theirs)


if __name__ == "__main__":
    e2e.run(globals())
