"""quintet convert: from every format to every other, by one process and by several, killed and with a full disk."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import e2e
from e2e import QUINTET, ROOT, quintet

FIXTURES = pathlib.Path(os.environ.get("QUINTET_FIXTURES", ROOT / "tests" / "fixtures"))
KINDS = FIXTURES / "huggingface"
FORMATS = ("native", "t5x", "hf")


def ids_of(model_dir, inputs, tokens):
    lines = quintet("generate", f"--model_dir={model_dir}", "--format=json", "--ids", f"--max_tokens={tokens}", *inputs).out.splitlines()
    return [json.loads(line)["ids"] for line in lines]


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_model_answers_the_same_in_every_format(folder):
    want = json.loads((KINDS / "t5_1_1" / "expected.json").read_text())
    inputs = [" ".join(map(str, ids)) for ids in want["inputs"]]
    answers = [answer["greedy"][0]["ids"] for answer in want["answers"]]
    source = KINDS / "t5_1_1"
    for number, to in enumerate((*FORMATS, "native")):
        destination = folder / f"{number}-{to}"
        done = quintet("convert", source, destination, f"--to={to}", "--check")
        check = json.loads(done.out)
        assert check["largest_difference"] == 0 and check["largest_logit"] > 0, done
        assert "read back and compared" in done.err, done
        assert ids_of(destination, inputs, want["new_tokens"]) == answers, to
        source = destination
    assert json.loads((folder / "2-hf" / "generation_config.json").read_text())["eos_token_id"] == 1


def test_layers_in_one_array_and_apart_again(folder):
    source = KINDS / "umt5"
    for axis in (0, 1):
        stacked, again = folder / f"stacked_{axis}", folder / f"again_{axis}"
        done = quintet("convert", source, stacked, "--to=t5x", f"--scan_axis={axis}", "--check")
        assert json.loads(done.out)["largest_difference"] == 0, done
        names = [path.name for path in stacked.glob("checkpoint_*/*")]
        assert "target.encoder.encoder.attention.query.kernel" in names and not any("layers_0" in name for name in names), names
        quintet("convert", stacked, again, "--to=native")
        assert "layers_0" in quintet("inspect", next(again.glob("checkpoint_*"))).out
        quintet("convert", again, folder / f"hf_{axis}", "--to=hf")
        same = quintet("inspect", source, folder / f"hf_{axis}").out
        assert "64 tensors have the same numbers, 0 have others, 0 differ" in same, same
    # Without the flag, as the model's configuration has it: layers and heads apart.
    quintet("convert", source, folder / "apart", "--to=t5x", "--check")
    kernel = next((folder / "apart").glob("checkpoint_*/target.encoder.layers_0.attention.query.kernel"))
    assert len(json.loads((kernel / ".zarray").read_text())["shape"]) == 3, kernel
    quintet("convert", folder / "apart", folder / "hf_apart", "--to=hf")
    assert "64 tensors have the same numbers, 0 have others, 0 differ" in quintet("inspect", source, folder / "hf_apart").out
    refused = quintet("convert", KINDS / "t5_1_1", folder / "shared", "--to=t5x", "--scan_axis=1", expect=2)
    assert "is shared by all layers" in refused.err and not (folder / "shared").exists(), refused
    assert "--to=t5x" in quintet("convert", source, folder / "no", "--to=hf", "--scan_axis=1", expect=2).err


def test_rounded_weights_are_distinguished(folder):
    done = quintet("convert", KINDS / "t5_1_0", folder / "half", "--to=hf", "--dtype=bfloat16", "--check")
    assert 0 < json.loads(done.out)["largest_difference"] < json.loads(done.out)["largest_logit"] / 10, done
    assert json.loads((folder / "half" / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_a_run_with_its_vocabulary(folder):
    vocabulary = FIXTURES / "seqio" / "vocab" / "unigram_nmt_nfkc.model"
    (folder / "pieces.gin").write_text(f"""
VOCABULARY = @seqio.SentencePieceVocabulary()
seqio.SentencePieceVocabulary.sentencepiece_model_file = '{vocabulary}'
seqio.SentencePieceVocabulary.extra_ids = 10
network.T5Config.vocab_size = 512
train_script.train.verify_matching_vocabs_fn = None
""")
    quintet(*e2e.tiny(folder / "bytes", 4))
    quintet("convert", folder / "bytes", folder / "bytes-hf", "--to=hf", "--check")
    settings = json.loads((folder / "bytes-hf" / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "ByT5Tokenizer", settings
    done = quintet("convert", folder / "bytes", folder / "bytes-t5x", "--to=t5x")
    assert "optimizer" not in done.err, done
    assert quintet("convert", folder / "bytes", folder / "again", "--to=hf").err.count("without") == 1
    quintet(*e2e.tiny(folder / "pieces", 4, f"--gin_file={folder / 'pieces.gin'}"))
    quintet("convert", folder / "pieces", folder / "pieces-hf", "--to=hf", "--check")
    assert (folder / "pieces-hf" / "spiece.model").read_bytes() == vocabulary.read_bytes()
    settings = json.loads((folder / "pieces-hf" / "tokenizer_config.json").read_text())
    assert settings["extra_ids"] == 10 and settings["additional_special_tokens"][9] == "<extra_id_9>", settings
    quintet("generate", f"--model_dir={folder / 'pieces-hf'}", "some text")


def test_ranks_write_what_one_process_writes(folder):
    for to in ("hf", "t5x"):
        quintet("convert", KINDS / "switch", folder / f"one-{to}", f"--to={to}")
        done = e2e.mpirun(QUINTET, 3, "convert", KINDS / "switch", folder / f"three-{to}", f"--to={to}")
        assert done.code == 0, done
        assert files_of(folder / f"one-{to}") == files_of(folder / f"three-{to}"), to
    done = e2e.mpirun(QUINTET, 3, "convert", KINDS / "switch", folder / "native", "--to=native")
    assert done.code == 0 and len(list((folder / "native" / "checkpoint_0").glob("data-*"))) == 3, done
    quintet("convert", folder / "native", folder / "back", "--to=hf")
    assert files_of(folder / "back")["model.safetensors"] == files_of(folder / "one-hf")["model.safetensors"]


def faulty(folder, fault, *arguments):
    environment = {"LD_PRELOAD": str(e2e.SHIM), "QT_FAULT_DIR": str(folder), "QT_FAULT": fault}
    return quintet("convert", *arguments, expect=None, environment=environment)


def test_nothing_that_looks_whole_is_left_by_a_kill(folder):
    for to in FORMATS:
        work = folder / to
        work.mkdir()
        log = folder / f"{to}.log"
        environment = {"LD_PRELOAD": str(e2e.SHIM), "QT_FAULT_DIR": str(work), "QT_FAULT_LOG": str(log)}
        quintet("convert", KINDS / "buckets", work / "whole", f"--to={to}", environment=environment)
        operations = len(log.read_text().splitlines())
        assert operations > 10, operations
        for at in range(1, operations + 1, max(1, operations // 12)):
            done = faulty(work, f"any:{at}=KILL", KINDS / "buckets", work / "cut", f"--to={to}")
            if done.code == 0:
                assert at > operations - 4, (to, at)  # what comes after the name is there
            if (work / "cut").exists():
                assert files_of(work / "cut").keys() == files_of(work / "whole").keys(), (to, at)
                shutil.rmtree(work / "cut")
        quintet("convert", KINDS / "buckets", work / "cut", f"--to={to}")
        assert sorted(path.name for path in work.iterdir()) == ["cut", "whole"], list(work.iterdir())


def test_a_full_disk_is_exit_5_and_leaves_nothing(folder):
    for to in FORMATS:
        for fault in ("write:4+=ENOSPC", "fsync:2=EIO", "rename:1=EDQUOT"):
            done = faulty(folder, fault, KINDS / "t5_1_0", folder / "out", f"--to={to}")
            assert done.code == 5 and str(folder) in done.err, (to, fault, done)
            assert list(folder.iterdir()) == [], (to, fault, list(folder.iterdir()))


def model_of_one_tensor(folder, mebibytes):
    """A T5 1.0 whose embeddings, zeros that no disk block holds, are nearly all of it."""
    folder.mkdir()
    rows, width = mebibytes << 12, 64
    config = json.loads((KINDS / "t5_1_0" / "config.json").read_text())
    config.update(vocab_size=rows, d_model=width, d_kv=8, d_ff=8, num_heads=1, num_layers=1, num_decoder_layers=1)
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"shared.weight": [rows, width]}
    for side, blocks in (("encoder", ("SelfAttention",)), ("decoder", ("SelfAttention", "EncDecAttention"))):
        for layer, attention in enumerate(blocks):
            at = f"{side}.block.0.layer.{layer}."
            shapes[at + "layer_norm.weight"] = [width]
            for name, shape in (("q", [8, width]), ("k", [8, width]), ("v", [8, width]), ("o", [width, 8])):
                shapes[f"{at}{attention}.{name}.weight"] = shape
        at = f"{side}.block.0.layer.{len(blocks)}."
        shapes[at + "layer_norm.weight"] = [width]
        shapes[at + "DenseReluDense.wi.weight"], shapes[at + "DenseReluDense.wo.weight"] = [8, width], [width, 8]
        shapes[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = [32, 1]
        shapes[f"{side}.final_layer_norm.weight"] = [width]
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + end)


# Runs a program and prints its peak memory in bytes.
MEASURE = "import resource, subprocess, sys; code = subprocess.run(sys.argv[1:]).returncode; " \
          "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024); sys.exit(code)"


def test_memory_is_that_of_the_largest_tensor(folder):
    if os.environ.get("QUINTET_SANITIZE"):
        e2e.skip("instrumented programs need more")
    mebibytes = 160
    model_of_one_tensor(folder / "model", mebibytes)
    most = 2.2 * (mebibytes << 20) + (64 << 20)
    source = folder / "model"
    for to in (*FORMATS, "native"):
        done = subprocess.run([sys.executable, "-c", MEASURE, QUINTET, "convert", source, folder / f"to-{to}", f"--to={to}"], capture_output=True, text=True,
                              timeout=600 * e2e.PATIENCE, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
        peak = int(done.stdout.splitlines()[-1])  # behind what convert prints
        print(f"        {source.name} to {to}: {peak / 2**20:.0f} MiB for a tensor of {mebibytes} MiB")
        assert peak < most, f"{to}: {peak} bytes, at most {most:.0f} expected"
        if to == "native":
            shutil.rmtree(folder / "to-native-was", ignore_errors=True)
            (folder / "to-native").rename(folder / "to-native-was")
            source = folder / "to-native-was"
        elif to == "t5x":
            source = folder / "to-t5x"


def test_what_cannot_be_done_is_reported(folder):
    model = KINDS / "t5_1_1"
    for arguments, words in (
            ([model, folder / "out", "--to=gguf"], "formats are native, t5x, hf"),
            ([model, "--to=hf"], "the folder that is written"),
            ([model, folder / "out"], "expected either SRC DST --to=FORMAT"),
            ([model, folder / "out", "--to=hf", "--quantize=int8"], "expected either"),
            ([model, folder / "out", "--to=hf", "--shard_size=5gb"], "--shard_size=5gb: expected a size"),
            ([model, folder / "out", "--to=native", "--shard_size=5GB"], "Hugging Face directories alone"),
            ([model, KINDS, "--to=hf"], "there is something already")):
        done = quintet("convert", *arguments, expect=2)
        assert words in done.err, (arguments, done)
        assert not (folder / "out").exists()
    done = quintet("convert", folder / "nothing", folder / "out", "--to=hf", expect=3)
    assert "nothing" in done.err and not (folder / "out").exists(), done
    quintet("convert", model, folder / "native", "--to=native")
    data = next((folder / "native" / "checkpoint_0").glob("data-*"))
    with open(data, "r+b") as file:
        file.seek(data.stat().st_size // 2)
        file.write(b"damage")
    done = quintet("convert", folder / "native", folder / "out", "--to=hf", expect=3)
    assert "damaged" in done.err and not (folder / "out").exists(), done


if __name__ == "__main__":
    e2e.run(globals())
