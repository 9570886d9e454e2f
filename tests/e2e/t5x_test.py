"""Checkpoints of T5X wherever a path to a checkpoint is asked for: the same state as T5X stores it and as we do gives the same run."""

import gzip
import json
import pathlib
import shutil
import struct

import e2e
from e2e import quintet

ZARR = ("target/", "v_row")  # what a T5X of several devices keeps in folders
RESTORE = ["--gin.utils.CheckpointConfig.restore=@utils.RestoreCheckpointConfig()", "--gin.utils.RestoreCheckpointConfig.mode='specific'"]
DTYPES = {"float32": "<f4", "int32": "<i4"}


def pack(value):
    """msgpack as flax writes it; an array is (dtype, shape, bytes)."""
    if isinstance(value, dict):
        return b"\xdf" + struct.pack(">I", len(value)) + b"".join(pack(key) + pack(member) for key, member in value.items())
    if isinstance(value, str):
        return b"\xda" + struct.pack(">H", len(value)) + value.encode()
    if isinstance(value, int):
        return b"\xce" + struct.pack(">I", value)
    if isinstance(value, list):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))
    dtype, shape, data = value
    payload = b"\x93" + pack(shape) + pack(dtype) + b"\xc6" + struct.pack(">I", len(data)) + data
    return b"\xc9" + struct.pack(">I", len(payload)) + b"\x01" + payload


def arrays_of(native):
    """Name -> (dtype, shape, bytes) of one of our checkpoints, by its manifest."""
    manifest = json.loads((native / "MANIFEST.json").read_text())
    for name, tensor in manifest["tensors"].items():
        [whole] = tensor["slices"]
        data = (native / whole["file"]).read_bytes()
        yield name, (tensor["dtype"], tensor["shape"], b"".join(data[offset:offset + size] for offset, size in whole["extents"]))


def as_t5x(native, folder):
    """The same state as T5X's Checkpointer writes it."""
    folder.mkdir(parents=True)
    tree = {}
    for name, (dtype, shape, data) in arrays_of(native):
        leaf = (dtype, shape, data)
        if any(part in name for part in ZARR) and data:
            array = folder / name.replace("/", ".")
            array.mkdir()
            metadata = {"chunks": shape, "compressor": {"id": "gzip", "level": 1}, "shape": shape}
            (array / ".zarray").write_text(json.dumps({**metadata, "dtype": DTYPES[dtype], "fill_value": None, "filters": None, "order": "C", "zarr_format": 2}))
            (array / (".".join("0" for _ in shape) or "0")).write_bytes(gzip.compress(data, 1))
            leaf = {"driver": "zarr", "dtype": dtype, "kvstore": {"driver": "file", "path": array.name + "/"}, "metadata": metadata}
        node = tree
        *parents, last = name.split("/")
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = leaf
    (folder / "checkpoint").write_bytes(pack({"version": 3, "optimizer": tree}))


def run_and_its_twin(folder):
    """A run of ours, and the directory that T5X would have left."""
    quintet(*e2e.tiny(folder / "run", 10))
    as_t5x(folder / "run" / "checkpoint_10", folder / "t5x" / "checkpoint_10")
    shutil.copy(folder / "run" / "config.gin", folder / "t5x")
    return folder / "run", folder / "t5x"


def test_training_goes_on_from_it(folder):
    run, twin = run_and_its_twin(folder)
    for name, start in (("a", run / "checkpoint_10"), ("b", twin / "checkpoint_10"), ("c", twin)):
        quintet(*e2e.tiny(folder / name, 20, *RESTORE, f"--gin.utils.RestoreCheckpointConfig.path='{start}'"))
    e2e.assert_same_run(folder / "a", folder / "b", 20)
    e2e.assert_same_run(folder / "a", folder / "c", 20)


def test_verbs_that_take_a_model(folder):
    run, twin = run_and_its_twin(folder)
    (folder / "q.jsonl").write_text('{"inputs": "words: 12"}\n{"inputs": "number: ten"}\n')

    def said(model, lone=()):
        answers = quintet("generate", f"--model_dir={model}", *lone, "--format=json", "--max_tokens=5", "words: 12").out
        out = folder / f"out-{len(list(folder.iterdir()))}"
        if not lone:
            quintet("infer", f"--model_dir={model}", f"--input={folder / 'q.jsonl'}", f"--output_dir={out}")
            answers += "".join(path.read_text() for path in sorted(out.glob("*.jsonl-*")))
            answers += quintet("eval", f"--model_dir={model}", "--num_examples=3").out
        return answers

    want = said(run)
    assert said(twin) == want
    assert said(twin / "checkpoint_10") == want
    alone = folder / "alone"
    shutil.copytree(twin / "checkpoint_10", alone)
    assert said(alone, lone=(f"--gin_file={run / 'config.gin'}",)) == said(run, lone=("--gin.MODEL_DIR='x'",))
    done = quintet("generate", f"--model_dir={alone}", "words: 12", expect=3)
    assert "a T5X checkpoint" in done.err and "--gin_file" in done.err, done


def test_inspect_says_what_it_is(folder):
    run, twin = run_and_its_twin(folder)
    ours, theirs = (json.loads(quintet("inspect", "--format=json", "--stats", model / "checkpoint_10").out) for model in (run, twin))
    assert theirs["kind"] == "a T5X checkpoint" and theirs["step"] == 10 and "version 3" in theirs["written by"], theirs
    assert ours["tensors"] == theirs["tensors"], (ours, theirs)
    text = quintet("inspect", twin).out
    assert "checkpoint_10" in text and "format       a T5X checkpoint" in text, text
    # Without a config.gin the newest checkpoint says how many parameters there are.
    (twin / "config.gin").unlink()
    summaries = [json.loads(quintet("inspect", "--format=json", model).out.splitlines()[0]) for model in (run, twin)]
    assert summaries[0]["parameters"] == summaries[1]["parameters"] > 0, summaries
    assert json.loads(quintet("inspect", "--format=json", "--stats", twin).out) == theirs
    for more in ((run, "--stats"), (run, "--tensor=x"), ("--stats", "--tensor=x")):
        quintet("inspect", twin, *more, expect=2)
    done = quintet("inspect", twin, "--tensor=target/decoder/decoder_norm", expect=2)
    assert f"'quintet inspect {twin / 'checkpoint_10'}' lists them" in done.err, done
    chunk = next((twin / "checkpoint_10").glob("target.*kernel/0.0"))
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 4
    chunk.write_bytes(data)
    done = quintet("inspect", twin / "checkpoint_10", expect=3)
    assert chunk.parent.name in done.err and "0.0" in done.err, done
    assert "DAMAGED" in quintet("inspect", twin, expect=3).out


if __name__ == "__main__":
    e2e.run(globals())
