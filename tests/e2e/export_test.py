"""quintet export and precompile: a model as one file that answers as its directory does, T5X's gin files; and files that are cut,
changed or of another version."""

import json
import os
import pathlib
import shutil
import struct

import e2e
from e2e import ROOT, quintet, tiny
from serving import serving, text_of

KINDS = pathlib.Path(os.environ.get("QUINTET_FIXTURES", ROOT / "tests" / "fixtures")) / "huggingface"
TEXTS = ["words: 1234", "number: nine", ""]
# T5X's export of a run of the quickstart, by the names of its export.py.
MODEL = """
from __gin__ import dynamic_registration
from t5x import export_lib
include 't5x/examples/t5/byt5/tiny.gin'
include 't5x/configs/runs/{runs}.gin'
DROPOUT_RATE = 0.0
ACTIVATION_DTYPE = 'float32'
TASK_FEATURE_LENGTHS = {{'inputs': 8, 'targets': 5}}
"""


def trained(folder, *more):
    quintet(*tiny(folder / "run", 4, *more))
    return folder / "run"


def exported(source, file, *flags):
    quintet("export", source, f"--output={file}", *flags)
    return file


def answers(model, *flags, texts=TEXTS):
    lines = quintet("generate", f"--model_dir={model}", "--format=json", "--max_decode_len=8", *flags, *texts).out.splitlines()
    return [json.loads(line) for line in lines]


def header_of(file):
    data = file.read_bytes()
    [size] = struct.unpack_from("<Q", data)
    return json.loads(data[8:8 + size]), 8 + size


def test_a_bundle_is_a_model_for_every_verb(folder):
    run = trained(folder)
    file = exported(run, folder / "numbers.safetensors")
    assert sorted(path.name for path in folder.iterdir()) == ["numbers.safetensors", "run"], list(folder.iterdir())
    assert answers(file) == answers(run) and answers(file, "--beams=3", "--num_decodes=2") == answers(run, "--beams=3", "--num_decodes=2")
    assert answers(file, "--quantize=int8") == answers(run, "--quantize=int8")
    shutil.move(run, folder / "elsewhere")  # nothing of it is needed
    run = folder / "elsewhere"
    for verb in (["eval", "--num_examples=3", "--task=number_to_words"], ["inspect", "--stats"], ["config"]):
        quintet(verb[0], file, *verb[1:])
    (folder / "questions.jsonl").write_text('{"inputs": "4"}\n{"inputs": "words: 77"}\n')
    for model in (run, file):
        quintet("infer", f"--model_dir={model}", f"--input={folder}/questions.jsonl", f"--output_dir={folder}/of-{model.name}")
    one, other = (next((folder / f"of-{model.name}").glob("*.jsonl-*")).read_text() for model in (run, file))
    assert one == other, (one, other)
    quintet("convert", file, folder / "back", "--to=native")
    assert "differ" in quintet("inspect", folder / "back", file).out and answers(folder / "back") == answers(run)
    assert "a bundle of quintet export" in quintet("inspect", file).out
    (folder / "a.tsv").write_text("question\tanswer\nwords: 1\tone\nwords: 2\ttwo\n")
    quintet("finetune", file, f"--train={folder}/a.tsv", f"--validation={folder}/a.tsv", "--input=question", "--target=answer", f"--output_dir={folder}/tuned", "--steps=2")
    assert e2e.steps_of(folder / "tuned")[-1] == 2
    quintet("bench", "load", f"--model_dir={file}", "--repeat=1")
    with serving(file) as server:
        assert server.get("/v1/models")["data"][0]["id"] == "run"
        assert text_of(server.complete(model="run", prompt=TEXTS[0], max_tokens=8, temperature=0)) == [answers(run, texts=TEXTS[:1])[0]["prediction"]]


def test_precision_is_that_of_the_flags(folder):
    run = trained(folder)
    plain = exported(run, folder / "plain")
    half = exported(run, folder / "half", "--dtype=bfloat16")
    assert half.stat().st_size < 0.7 * plain.stat().st_size
    assert all(tensor["dtype"] == "BF16" for name, tensor in header_of(half)[0].items() if name.startswith("target/"))
    quintet("convert", run, folder / "rounded", "--to=native", "--dtype=bfloat16")
    assert answers(half) == answers(folder / "rounded")
    for kind in ("bf16", "int8", "fp8"):
        quintet("convert", f"--model_dir={run}", f"--quantize={kind}", f"--output={folder}/{kind}")
        small = exported(run, folder / f"{kind}.file", f"--quantize={kind}")
        again = exported(folder / kind, folder / f"{kind}.again")
        assert answers(small) == answers(folder / kind) == answers(again), kind
        assert "are written as they are" in quintet("export", small, f"--output={folder}/no", "--dtype=float32", expect=2).err
    assert "exclude each other" in quintet("export", run, f"--output={folder}/no", "--dtype=float16", "--quantize=int8", expect=2).err
    assert "int8_dynamic where" in quintet("export", run, f"--output={folder}/no", "--quantize=int8_dynamic", expect=2).err
    assert "there is something already" in quintet("export", run, f"--output={half}", expect=2).err
    assert "--output=FILE" in quintet("export", run, expect=2).err and not (folder / "no").exists()


def test_vocabularies_are_in_the_file(folder):
    """Even where another file has come to lie at the vocabulary's path."""
    vocabulary = folder / "spiece.model"
    shutil.copy(next(KINDS.parent.rglob("spiece.model")), vocabulary)
    run = trained(folder, "--gin.VOCABULARY=@seqio.SentencePieceVocabulary()",
                  f"--gin.seqio.SentencePieceVocabulary.sentencepiece_model_file='{vocabulary}'", "--gin.network.T5Config.vocab_size=2048",
                  "--gin.train_script.train.verify_matching_vocabs_fn=None")
    want = answers(run)
    file = exported(run, folder / "file")
    header, first = header_of(file)
    [name] = [name for name in header if name.startswith("vocabularies/")]
    begin, end = (first + at for at in header[name]["data_offsets"])
    assert file.read_bytes()[begin:end] == vocabulary.read_bytes()
    vocabulary.write_bytes(b"another file")
    assert answers(file) == want
    again = exported(file, folder / "again")
    vocabulary.unlink()
    assert answers(again) == want


def test_a_file_that_is_not_whole_is_exit_3(folder):
    file = exported(trained(folder), folder / "whole")
    data, (header, first) = file.read_bytes(), header_of(file)

    def refused(what, changed, *words):
        bad = folder / what
        bad.write_bytes(changed)
        for verb in ("generate", "inspect"):
            error = quintet(verb, f"--model_dir={bad}" if verb == "generate" else bad, *(["a"] if verb == "generate" else []), expect=3).err
            assert str(bad) in error and all(word in error for word in words), (what, error)

    for at in (60, first - 1, first, first + 100, len(data) - 1):
        refused(f"cut-{at}", data[:at], "" if at < first else "data")
    refused("longer", data + b"x", "after the last tensor")
    for name in ("target/token_embedder/embedding", "target/decoder/decoder_norm/scale"):
        at = first + header[name]["data_offsets"][0] + 5
        refused(f"changed-{name.replace('/', '-')}", data[:at] + bytes([data[at] ^ 1]) + data[at + 1:], name, "damaged", "CRC-32C")
    at = data.index(b"DROPOUT_RATE")
    refused("config", data[:at] + b"X" + data[at + 1:], "the header is damaged")
    refused("huge", struct.pack("<Q", 1 << 60) + data[8:], "does not fit the file")
    refused("version", data.replace(b'"bundle":"quintet 1"', b'"bundle":"quintet 9"', 1), "quintet 9", "a newer one")
    refused("prefix", data[:20], "")


def test_nothing_that_looks_whole_is_left_by_a_kill(folder):
    run = trained(folder)
    work = folder / "work"
    work.mkdir()
    environment = {"LD_PRELOAD": str(e2e.SHIM), "QT_FAULT_DIR": str(work)}
    quintet("export", run, f"--output={work}/whole", environment={**environment, "QT_FAULT_LOG": str(folder / "log")})
    operations = len((folder / "log").read_text().splitlines())
    assert operations > 8, operations
    for at in range(1, operations + 1, max(1, operations // 10)):
        quintet("export", run, f"--output={work}/cut", expect=None, environment={**environment, "QT_FAULT": f"any:{at}=KILL"})
        if (work / "cut").exists():
            assert (work / "cut").read_bytes() == (work / "whole").read_bytes(), at
            (work / "cut").unlink()
    for fault in ("write:2+=ENOSPC", "fsync:1=EIO", "rename:1=EDQUOT"):
        done = quintet("export", run, f"--output={work}/cut", expect=5, environment={**environment, "QT_FAULT": fault})
        assert str(work) in done.err and [path.name for path in work.iterdir()] == ["whole"], (fault, done, list(work.iterdir()))
    quintet("export", run, f"--output={work}/cut")
    assert sorted(path.name for path in work.iterdir()) == ["cut", "whole"], list(work.iterdir())


def test_t5x_gin_files_export(folder):
    sizes = ["--gin.network.T5Config.emb_dim=16", "--gin.network.T5Config.num_heads=2", "--gin.network.T5Config.head_dim=8",
             "--gin.network.T5Config.mlp_dim=16", "--gin.network.T5Config.num_encoder_layers=1", "--gin.network.T5Config.num_decoder_layers=1"]
    run = trained(folder)
    for runs in ("export", "export_seqio"):
        (folder / f"{runs}.gin").write_text(MODEL.format(runs=runs))
        task = ["--gin.MIXTURE_OR_TASK_NAME='number_to_words'"] if runs == "export_seqio" else []
        done = quintet("train", "--run_mode=export", f"--gin_file={folder}/{runs}.gin", *sizes, *task, f"--gin.CHECKPOINT_PATH='{run}'",
                       f"--gin.MODEL_OUTPUT_DIR='{folder}/{runs}/1'", "--gin.MODEL_NAME='/ml/numbers'")
        assert ("preprocessors are not run" in done.err) == bool(task), done
        file = folder / runs / "1" / "model.safetensors"
        header, _ = header_of(file)
        assert header["__metadata__"]["name"] == "numbers"
        assert all(tensor["dtype"] == "BF16" for name, tensor in header.items() if name.startswith("target/"))
        # As export_lib.save's task_feature_lengths say: inputs of 8 tokens, their EOS among them, and answers of 5.
        short, long, other = (one["score"] for one in answers(file, texts=["1234567", "12345678901234", "123456"]))
        assert short == long != other, (short, long, other)
        assert len(json.loads(quintet("generate", f"--model_dir={file}", "--format=json", "--ids", "5 1").out)["ids"]) <= 5
    refused = quintet("export", f"--gin_file={folder}/export.gin", *sizes, f"--gin.CHECKPOINT_PATH='{run}'", "--gin.MODEL_NAME='a'",
                      f"--gin.MODEL_OUTPUT_DIR='{folder}/no/1'", "--gin.export_lib.save.output_vocab_feature_name='inputs'", expect=2)
    assert "texts of the feature 'targets'" in refused.err, refused


def test_precompile_is_plan_by_t5x_names(folder):
    model = ["--gin_file=t5x/examples/t5/byt5/tiny.gin", "--gin.DROPOUT_RATE=0.0", "--gin.MIXTURE_OR_TASK_NAME='number_to_words'",
             "--gin.TASK_FEATURE_LENGTHS={'inputs': 16, 'targets': 8}", "--gin.BATCH_SIZE=8"]
    run = ["--gin_file=t5x/configs/runs/precompile.gin", f"--model_dir={folder}/step"]
    done = quintet("precompile", *model, *run, "--gin.partitioning.PjitPartitioner.num_partitions=2", "--format=json")
    planned = quintet("plan", "t5x/examples/t5/byt5/tiny.gin", "--gin.DROPOUT_RATE=0.0", "--batch=8", "--inputs=16", "--targets=8",
                      "--mesh=data=1,model=2", "--format=json")
    assert done.out == planned.out and '"collective"' in done.out, (done, planned)
    assert "forward" in (folder / "step" / "step.txt").read_text()
    assert done.out == quintet("train", "--run_mode=precompile", *model, *run, "--mesh=data=1,model=2", "--format=json").out
    assert "no_such_task" in quintet("precompile", *model, *run, "--gin.MIXTURE_OR_TASK_NAME='no_such_task'", expect=2).err
    switch = quintet("precompile", "--gin_file=flaxformer/t5x/configs/moe/models/switch_tiny.gin",
                     "--gin_file=t5x/contrib/moe/configs/runs/precompile.gin", "--gin.VOCABULARY=@seqio.ByteVocabulary()",
                     *model[1:], f"--model_dir={folder}/moe", "--format=json")
    assert '"all_to_all","over":"expert"' in switch.out, switch


e2e.run(globals())
