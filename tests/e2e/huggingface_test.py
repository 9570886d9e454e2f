"""Hugging Face directories in every verb that takes a model; the answers are transformers' (tests/oracles/gen_huggingface.py)."""

import json
import math
import os
import pathlib
import shutil
import subprocess

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
    for kind in ("t5_1_0", "t5_1_1", "umt5", "switch", "switch_steps"):
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
    config = {"num_beams": 4, "max_length": 13, "length_penalty": 0.0, "diversity_penalty": 0.5, "unheard_of": 1}
    (model / "generation_config.json").write_text(json.dumps(config))
    done = quintet("generate", f"--model_dir={model}", "--format=json", "--ids", line_of(want["inputs"][0]))
    best = want["answers"][0]["beam4_length_penalty_0"][0]
    assert json.loads(done.out)["ids"] == best["ids"], (done, best)
    assert "diversity_penalty = 0.5 has no effect" in done.err and "unheard_of = 1 has no effect" in done.err, done.err


def test_generation_config_forbids_and_forces(folder):
    model, want = folder / "model", expected("t5_1_1")
    shutil.copytree(KINDS / "t5_1_1", model)
    line = line_of(want["inputs"][0])
    first = want["answers"][0]["greedy"][0]["ids"][0]
    for rule, holds in (({"bad_words_ids": [[first]]}, lambda ids: first not in ids), ({"suppress_tokens": [first]}, lambda ids: first not in ids),
                        ({"begin_suppress_tokens": [first]}, lambda ids: ids[0] != first), ({"forced_bos_token_id": 9}, lambda ids: ids[0] == 9),
                        ({"forced_eos_token_id": 1}, lambda ids: ids[-1] == 1), ({"min_length": 4}, lambda ids: 1 not in ids[:3])):
        (model / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, **rule}))
        [one] = generated(model, "--ids", "--max_tokens=6", line)
        assert holds(one["ids"]), (rule, one)
    (model / "generation_config.json").write_text('{"decoder_start_token_id": 5}')
    assert "decoder_start_token_id" in quintet("generate", f"--model_dir={model}", "--ids", line, expect=3).err


def test_rules_on_inputs_do_not_see_their_batch(folder):
    """A shorter input is padded: its padding is no token that is favoured, where all but it and three others are forbidden."""
    model, want = folder / "model", expected("t5_1_1")
    shutil.copytree(KINDS / "t5_1_1", model)
    lines = sorted(map(line_of, want["inputs"]), key=len)
    others = sorted(set(range(2, 96)) - {x for ids in want["inputs"] for x in ids})
    config = {"eos_token_id": 1, "max_new_tokens": 8, "encoder_repetition_penalty": 1e6, "suppress_tokens": [x for x in range(1, 96) if x not in others[:3]]}
    (model / "generation_config.json").write_text(json.dumps(config))
    together = generated(model, "--ids", *lines)
    assert [one["ids"] for one in together] == [generated(model, "--ids", line)[0]["ids"] for line in lines], together


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


def test_its_tokenizer_gives_ids_and_text(folder):
    """Those of transformers, but for the end token."""
    for kind in ("t5_spiece", "t5_json", "byt5"):
        tokenizer = KINDS.parent / "huggingface_tokenizers" / kind
        want = json.loads((tokenizer / "expected.json").read_text())
        lines = [(text, ids) for text, ids in zip(want["texts"], want["ids"]) if text.splitlines() == [text] and "\0" not in text]
        done = subprocess.run([e2e.QUINTET, "tokenizer", "encode", f"--model={tokenizer}"], input="".join(text + "\n" for text, _ in lines),
                              capture_output=True, text=True, check=True)
        for (text, ids), line in zip(lines, done.stdout.splitlines(), strict=True):
            ours = [*map(int, line.split())]
            assert ids in ([*ours, 1], ours), (kind, text, ours, ids)  # bytes that end with "</s>" get no second one
        ids = quintet("tokenizer", "encode", f"--model={tokenizer}", "--text=cat<extra_id_0>").out.strip()
        assert quintet("tokenizer", "decode", f"--model={tokenizer}", f"--text={ids}").out == "cat<extra_id_0>\n", (kind, ids)
    assert "--extra_ids" in quintet("tokenizer", "encode", f"--model={tokenizer}", "--extra_ids=100", "--text=a", expect=2).err
    (folder / "spiece.model").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 308\n")
    assert "Git LFS's pointer" in quintet("tokenizer", "encode", f"--model={folder}", "--text=a", expect=3).err


def test_a_task_is_evaluated_and_scored(folder):
    """Of bytes as the model's, but for its extra ids."""
    flags = [f"--model_dir={BYTES}", "--task=number_to_words", "--gin_bindings=train_script.train.verify_matching_vocabs_fn = None"]
    assert "different vocabularies" in quintet("eval", *flags[:2], expect=2).err
    [metrics] = map(json.loads, quintet("eval", *flags, "--num_examples=3").out.splitlines())
    assert metrics["task"] == "number_to_words" and metrics["examples"] == 3 and "sequence_accuracy" in metrics, metrics
    quintet("infer", *flags, "--mode=score", "--num_shards=100", f"--output_dir={folder / 'out'}")
    [written] = (folder / "out").glob("*-score.jsonl-00000-of-00100")
    for one in map(json.loads, written.read_text().splitlines()[:2]):
        inputs, target = ([*(b + 3 for b in one["inputs"][f"{x}_pretokenized"].encode()), 1] for x in ("inputs", "targets"))
        [scored] = generated(BYTES, "--ids", f"--target={line_of(target)}", line_of(inputs))
        assert abs(scored["score"] - one["score"]) < 1e-3, (scored, one)


def test_generation_is_timed(folder):
    path = str(KINDS / "t5_1_1")
    done = quintet("bench", "generate", f"--model_dir={path}", "--batch=1", "--inputs=4", "--targets=4", "--steps=1")
    assert json.loads(done.out)["model"] == path and f"generate {path}: " in done.err, done
    one, many = (json.loads(quintet("bench", "generate", f"--model_dir={path}", f"--batch={batch}", "--inputs=4", "--targets=4", "--steps=1",
                                    "--kv_cache_dtype=int8").out) for batch in (1, 64))
    assert (one["bound"], many["bound"]) == ("memory", "arithmetic") and many["of_bound"] > many["of_bound_with_encoder"] > 0, (one, many)
    bytes_ = json.loads(quintet("bench", "generate", f"--model_dir={path}", "--batch=64", "--inputs=4", "--targets=4", "--steps=1",
                                "--quantize=int8_dynamic").out)
    assert bytes_["bound"] == "memory" and bytes_["multiply_adds_per_step"] == many["multiply_adds_per_step"], bytes_
    assert one["weight_bytes_per_step"] == many["weight_bytes_per_step"], (one, many)
    assert 64 * one["cache_bytes_per_step"] == many["cache_bytes_per_step"] > 0, (one, many)
    reading = 4 * (bytes_["weight_bytes_per_step"] + bytes_["cache_bytes_per_step"]) / bytes_["read_bytes_per_second"]
    assert abs(bytes_["of_bound"] * bytes_["decoder_seconds"] / reading - 1) < 1e-6, bytes_
    assert 64 * one["multiply_adds_per_step"] == many["multiply_adds_per_step"], (one, many)
    for flag in ("--model=t5_1_1_tiny", "--dtype=float32"):
        assert "excludes" in quintet("bench", "generate", f"--model_dir={path}", flag, expect=2).err


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


def test_an_encoder_gives_embeddings_and_no_answers(folder):
    want = expected("encoder")
    lines = [line_of(ids) for ids in want["inputs"]]
    encoder = KINDS / "encoder"
    tokens = generated(encoder, "--ids", "--embed=tokens", *lines)
    for one, mean in zip(tokens, generated(encoder, "--ids", "--embed=mean", "--batch_size=2", *lines)):
        rows = one["embeddings"]
        assert len(rows) == len(one["input_ids"])
        for i, x in enumerate(mean["embedding"]):
            assert abs(x - sum(row[i] for row in rows) / len(rows)) < 1e-5, (i, x)
    for flags in ([], ["--target=5"], ["--beams=2"]):
        assert "encoder alone" in quintet("generate", f"--model_dir={encoder}", "--ids", *flags, "5 1", expect=2).err
    assert "answers" in quintet("generate", f"--model_dir={encoder}", "--ids", "--embed=mean", "--target=5", "5 1", expect=2).err
    wide = folder / "bytes"  # an encoder whose ids are text
    shutil.copytree(BYTES, wide)
    config = json.loads((wide / "config.json").read_text())
    (wide / "config.json").write_text(json.dumps({**config, "architectures": ["T5EncoderModel"]}))
    [one] = generated(wide, "--embed=mean", "abc")
    assert one["input"] == "abc"
    assert "keeps no keys" in quintet("serve", wide, "--port=0", "--kv_cache_dtype=int8", expect=2).err
    assert "encoder alone" in quintet("serve", wide, "--port=0", "--prompt_lookup_num_tokens=4", expect=2).err
    with serving(wide) as server:
        served = server.post("/v1/embeddings", input="abc")["data"][0]["embedding"]
        assert len(served) == 24 and max(abs(a - b) for a, b in zip(served, one["embedding"])) < 1e-5, (served, one)
        for address, body in (("/v1/completions", {"prompt": "abc"}), ("/v1/score", {"prompt": "abc", "target": "d"})):
            assert "encoder alone" in str(server.post(address, expect=400, **body))


def sparse_directory(folder, vocab, width, mlp=256):
    """A model of one layer a side, its weights zeros that take no room on the disk."""
    layer = {f"layer.0.SelfAttention.{x}.weight": [width, width] for x in "qkvo"}
    bias = {"block.0.layer.0.SelfAttention.relative_attention_bias.weight": [32, 4]}
    last_layer = {"DenseReluDense.wi.weight": [mlp, width], "DenseReluDense.wo.weight": [width, mlp], "layer_norm.weight": [width]}
    shapes = {"shared.weight": [vocab, width], "lm_head.weight": [vocab, width]}
    for side, last in (("encoder", 1), ("decoder", 2)):
        cross = {f"layer.1.EncDecAttention.{x}.weight": [width, width] for x in "qkvo"} if last == 2 else {}
        parts = {**layer, **cross, **{f"layer.{i}.layer_norm.weight": [width] for i in range(last)}, **{f"layer.{last}.{k}": v for k, v in last_layer.items()}}
        shapes |= {f"{side}.final_layer_norm.weight": [width], **{f"{side}.{k}": v for k, v in bias.items()}, **{f"{side}.block.0.{k}": v for k, v in parts.items()}}
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    config = {"model_type": "t5", "vocab_size": vocab, "d_model": width, "d_kv": width // 4, "d_ff": mlp, "num_layers": 1, "num_heads": 4,
              "feed_forward_proj": "relu", "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def peak_of(model_dir):
    """Bytes of memory that generation took at most."""
    command = [e2e.QUINTET, "generate", f"--model_dir={model_dir}", "--ids", "--max_tokens=1", "--quantize=int8", "--threads=1", "5 1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, status
    return 1024 * usage.ru_maxrss


def test_a_large_matrix_is_read_in_parts(folder):
    """The file's matrices have 64 MB each, what is made of them 16 (8 bits) and 32 (an MLP's second, bfloat16)."""
    width, mlp = 256, 1 << 16
    small, large = sparse_directory(folder / "small", 512, width), sparse_directory(folder / "large", 512, width, mlp)
    packed = 2 * width * mlp * 3
    peak = peak_of(large) - peak_of(small)
    assert peak < packed + (48 << 20), f"{peak / 2**20:.0f} MiB for {packed / 2**20:.0f} MiB of weights"


def test_a_large_vocabulary_is_read_in_parts(folder):
    """The file's tables have 64 MB each, what is made of them 16 (8 bits) and 32 (bfloat16)."""
    vocab, width = 1 << 16, 256
    small, large = sparse_directory(folder / "small", 512, width), sparse_directory(folder / "large", vocab, width)
    packed = vocab * width * 3
    peak = peak_of(large) - peak_of(small)
    assert peak < packed + (48 << 20), f"{peak / 2**20:.0f} MiB for {packed / 2**20:.0f} MiB of weights"


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
