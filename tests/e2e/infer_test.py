"""quintet infer: T5X's files and lines, any number of ranks and shards, kills, checkpoints, wrong requests."""

import json
import os
import pathlib
import random
import signal
import subprocess
import time

import e2e
from e2e import QUINTET, quintet, start, tiny, wait_for



def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def trained(folder, steps=4):
    quintet(*tiny(folder / "run", steps, "--gin.utils.SaveCheckpointConfig.period=2"))
    return folder / "run"


def questions(folder, count=23):
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps({"inputs": f"words: {i}", "targets": f"täst {i}"}) + "\n" for i in range(count)))
    return path


def infer(folder, run, name, *more, **options):
    out = folder / name
    return out, quintet("infer", f"--model_dir={run}", f"--output_dir={out}", *more, **options)


def one_result(out, mode="predict"):
    names = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    results = [name for name in names if name.startswith("infer_") and not name.endswith(".COMPLETED")]
    assert len(results) == 1 and f"-{mode}.jsonl-00000-of-00001" in results[0], names
    assert results[0] + ".COMPLETED" in names and {"config.gin", "model-info.txt"} < set(names) and len(names) == 4, names
    return out / results[0]


def test_lines_are_t5xs(folder):
    run, file = trained(folder), questions(folder)
    out, _ = infer(folder, run, "predict", f"--input={file}", "--batch_size=4", "--output_ids")
    answers = lines(one_result(out))
    assert [answer["inputs"]["inputs_pretokenized"] for answer in answers] == [f"words: {i}" for i in range(23)]
    for answer in answers:
        assert list(answer) == ["inputs", "prediction", "prediction_tokens"], answer
        assert 0 not in answer["prediction_tokens"], answer
    out, _ = infer(folder, run, "aux", f"--input={file}", "--batch_size=4", "--mode=predict_with_aux")
    with_aux = lines(one_result(out, "predict_with_aux"))
    assert [a["prediction"] for a in with_aux] == [a["prediction"] for a in answers]
    assert all(isinstance(answer["aux"]["scores"], float) for answer in with_aux), with_aux[0]
    out, _ = infer(folder, run, "score", f"--input={file}", "--batch_size=4", "--mode=score", "--include_all_inputs")
    scores = lines(one_result(out, "score"))
    assert all(answer["score"] < 0 for answer in scores)
    assert scores[3]["inputs"]["targets_pretokenized"] == "täst 3" and scores[3]["inputs"]["targets"][-1] == 1, scores[3]


def test_all_decodes_and_fields_are_bound_in_gin(folder):
    run, file = trained(folder), questions(folder, 5)
    out, _ = infer(folder, run, "all", f"--input={file}", "--mode=predict_with_aux",
                   "--gin.models.EncoderDecoderModel.predict_batch_with_aux.return_all_decodes=True",
                   "--gin.models.EncoderDecoderModel.predict_batch_with_aux.num_decodes=3",
                   "--gin.models.EncoderDecoderModel.decode_fn=@decoding.beam_search")
    for answer in lines(one_result(out, "predict_with_aux")):
        assert len(answer["prediction"]) == 3 and len(answer["aux"]["scores"]) == 3, answer
        assert answer["aux"]["scores"] == sorted(answer["aux"]["scores"]), answer


def test_num_decodes_of_the_model_wins_as_in_t5x(folder):
    fixture = pathlib.Path(os.environ.get("QUINTET_FIXTURES", e2e.ROOT / "tests" / "fixtures")) / "semantics/num_decodes.json"
    if not fixture.exists():
        e2e.skip("these fixtures have no semantics/num_decodes.json")
    run, file = trained(folder), questions(folder, 2)
    method, beam_search = "models.EncoderDecoderModel.predict_batch_with_aux", "decoding.beam_search.num_decodes"
    for i, row in enumerate(json.loads(fixture.read_text())):
        bound = [f"--gin.{name}={row[key]}" for name, key in
                 ((f"{method}.num_decodes", "predict_batch_with_aux"), (beam_search, "decode_fn")) if row[key] is not None]
        out, _ = infer(folder, run, f"decodes{i}", f"--input={file}", f"--gin.{method}.return_all_decodes=True", *bound,
                          f"--gin.models.EncoderDecoderModel.decode_fn=@decoding.beam_search")
        assert {len(answer["prediction"]) for answer in lines(one_result(out))} == {row["decodes"]}, row
    _, refused = infer(folder, run, "params", f"--input={file}", f"--gin.{method}.decoder_params={{'num_decodes': 2}}", expect=2)
    assert "bind that" in refused.err, refused


def test_default_decoder_params_hold_where_the_method_binds_none(folder):
    run, file = trained(folder), questions(folder, 2)
    model = "models.EncoderDecoderModel"
    params = [f"--gin.{model}.default_decoder_params=@models.DecoderParams()", "--gin.models.DecoderParams.num_decodes=2",
              "--gin.models.DecoderParams.return_all_decodes=True", f"--gin.{model}.decode_fn=@decoding.beam_search"]
    for name, bound, decodes in (("default", [], 2), ("bound", [f"--gin.{model}.predict_batch_with_aux.num_decodes=3"], 3)):
        out, _ = infer(folder, run, name, f"--input={file}", *params, *bound)
        assert {len(answer["prediction"]) for answer in lines(one_result(out))} == {decodes}, name
    one = f"--gin.{model}.predict_batch_with_aux.return_all_decodes=False"
    out, _ = infer(folder, run, "best", f"--input={file}", *params, one)
    assert all(isinstance(answer["prediction"], str) for answer in lines(one_result(out)))


def test_ranks_and_chunks_change_nothing_and_shards_partition(folder):
    run, file = trained(folder), questions(folder)
    whole, _ = infer(folder, run, "whole", f"--input={file}", "--batch_size=2")
    expected = one_result(whole).read_bytes()
    for period in (1, 3):
        out, _ = infer(folder, run, f"period{period}", f"--input={file}", "--batch_size=2",
                       f"--checkpoint_period={period}")
        assert one_result(out).read_bytes() == expected
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    out = folder / "ranks"
    done = subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", "3", QUINTET, "infer", f"--model_dir={run}",
                           f"--output_dir={out}", f"--input={file}", "--batch_size=2", "--checkpoint_period=4"],
                          capture_output=True, timeout=200, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done
    assert one_result(out).read_bytes() == expected
    shards = []
    for shard in range(3):
        out, _ = infer(folder, run, "shards", f"--input={file}", "--batch_size=2", f"--shard_id={shard}", "--num_shards=3")
        shards.append(next(out.glob(f"infer_*-predict.jsonl-{shard:05}-of-00003")).read_text().splitlines())
    merged = [shards[i % 3][i // 3] for i in range(23)]
    assert sorted(map(len, shards)) == [7, 8, 8]
    assert [json.loads(a)["inputs"] for a in merged] == [json.loads(a)["inputs"] for a in expected.decode().splitlines()]


# Its last preprocessor prints every example.
SPOKEN = """
from __gin__ import dynamic_registration
from quintet import data
import seqio
spoken/data.TsvDataSource:
  split_to_filepattern = {'train': '%(file)s', 'validation': '%(file)s'}
  field_names = ['inputs', 'targets']
spoken/seqio.Feature.vocabulary = %%VOCABULARY
spoken/seqio.Task:
  name = 'spoken'
  source = @spoken/data.TsvDataSource()
  preprocessors = [@seqio.preprocessors.tokenize_and_append_eos, @seqio.preprocessors.print_dataset]
  output_features = {'inputs': @spoken/seqio.Feature(), 'targets': @spoken/seqio.Feature()}
seqio.TaskRegistry.tasks = [@spoken/seqio.Task()]
"""


def test_ranks_share_the_preprocessing(folder):
    file, config = folder / "pairs.tsv", folder / "spoken.gin"
    file.write_text("".join(f"say {i}\tanswer {i}\n" for i in range(1000)))
    config.write_text(SPOKEN % {"file": file})
    run = folder / "run"
    quintet(*tiny(run, 4, f"--gin_file={config}"))
    more = ["--task=spoken", "--mode=score", "--batch_size=16", "--checkpoint_period=20"]
    expected, alone = infer(folder, run, "alone", *more)
    assert alone.err.count('"say ') == 1000
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    done = subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "--output-filename", folder / "said", "-n", "3",
                           QUINTET, "infer",
                           f"--model_dir={run}", f"--output_dir={folder / 'ranks'}", *more],
                          capture_output=True, timeout=200, env=environment, stdin=subprocess.DEVNULL, text=True)
    assert done.returncode == 0, done
    name = "spoken-score.jsonl-00000-of-00001"
    assert (folder / "ranks" / name).read_bytes() == (expected / name).read_bytes()
    printed = [(folder / "said" / "1" / f"rank.{rank}" / "stderr").read_text().count('"say ') for rank in range(3)]
    assert sum(printed) == 1000 and min(printed) > 200, printed


def test_intermediates_of_scores_are_t5xs(folder):
    run, file = trained(folder), questions(folder, 5)
    more = [f"--input={file}", "--mode=score", "--batch_size=4"]
    plain, _ = infer(folder, run, "plain", *more)
    bound, _ = infer(folder, run, "bound", *more, "--gin.models.EncoderDecoderModel.score_batch.return_intermediates=True")
    for without, line in zip(lines(one_result(plain, "score")), lines(one_result(bound, "score"))):
        decoder = line.pop("aux")["decoder"]
        assert line == without, line
        (tokens,), (weights,), (scores,) = (decoder[name] for name in ("target_tokens", "loss_weights", "token_scores"))
        assert len(tokens) == len(weights) == len(scores) and weights == [int(token != 0) for token in tokens], decoder
        text = line["inputs"]["targets_pretokenized"]
        assert bytes(token - 3 for token in tokens[:tokens.index(1)]).decode() == text, decoder
        assert abs(sum(scores) - line["score"]) < 1e-4 and all((score < 0) == (w > 0) for score, w in zip(scores, weights))


def test_what_flaxformers_layers_sow_is_beside_scores(folder):
    quintet(*e2e.switch(folder / "run", 3))
    file = questions(folder, 5)
    more = [f"--input={file}", "--mode=score", "--batch_size=4"]
    method = "--gin.models.MoeEncoderDecoderModel.score_batch.return_intermediates=True"
    sows = [f"--gin.moe_architecture.{name}.sow_intermediates=True" for name in ("SparseEncoder", "SparseDecoderLayer")]
    plain, _ = infer(folder, folder / "run", "plain", *more)
    bound, _ = infer(folder, folder / "run", "bound", *more, method, *sows)
    for without, line in zip(lines(one_result(plain, "score")), lines(one_result(bound, "score"))):
        encoder, decoder = line["aux"]["encoder"], line["aux"]["decoder"]
        assert abs(line["score"] - without["score"]) < 1e-4, (line["score"], without["score"])
        assert set(encoder) == {"embedder", "final_encoder_outputs", "input_tokens_ids"}, set(encoder)
        (ids,), (outputs,) = encoder["input_tokens_ids"], encoder["final_encoder_outputs"]
        assert bytes(token - 3 for token in ids[:ids.index(1)]).decode() == line["inputs"]["inputs_pretokenized"], ids
        assert len(outputs) == len(ids) and any(outputs[0]) and not any(outputs[-1]), outputs  # padding leaves as zeros
        layers = {name for name in decoder if name.startswith("layers_")}
        assert layers == {"layers_0"} and set(decoder["layers_0"]) == {"activations"}, decoder.keys()
    # None is asked for without the method's argument.
    asked, _ = infer(folder, folder / "run", "asked", *more, *sows)
    assert "aux" not in lines(one_result(asked, "score"))[0]
    ranks = subprocess.run(["mpirun", "-n", "2", "--oversubscribe", "--allow-run-as-root", QUINTET, "infer", f"--model_dir={folder / 'run'}",
                            f"--output_dir={folder / 'ranks'}", *more, method, *sows], capture_output=True, text=True, timeout=100)
    assert ranks.returncode == 0, ranks.stderr
    assert one_result(folder / "ranks", "score").read_bytes() == one_result(bound, "score").read_bytes()


def chunks(out):
    """How many chunks are written so far; the folder may get its last name meanwhile."""
    try:
        return len(list(out.glob("tmp-*/*-chunk?????")))
    except FileNotFoundError:
        return 0


def ranks_of(out):
    """Ids of the processes that write to a folder."""
    words = f"--output_dir={out}".encode()
    commands = [(path.parent.name, path.read_bytes().split(b"\0")) for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
    return sorted(int(number) for number, command in commands if command[0] == QUINTET.encode() and words in command)


def test_a_killed_rank_ends_all_and_the_next_run_goes_on(folder):
    run, file = trained(folder), questions(folder, 400)
    arguments = [f"--model_dir={run}", f"--input={file}", "--batch_size=2", "--checkpoint_period=2", "--threads=1"]
    out, _ = infer(folder, run, "clean", *arguments[1:])
    expected = one_result(out).read_bytes()
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    for together in (1, 2):
        out = folder / f"killed{together}"
        command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", "2", QUINTET, "infer", f"--output_dir={out}", *arguments,
                   f"--num_partitions={together}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, stdin=subprocess.DEVNULL)
        wait_for(lambda: process.poll() is not None or chunks(out) >= 4)
        os.kill(ranks_of(out)[-1], signal.SIGKILL)
        _, err = process.communicate(timeout=60 * e2e.PATIENCE)
        assert process.returncode in (6, 137), (process.returncode, err)
        wait_for(lambda: not ranks_of(out), 20)
        assert not list(out.glob("*.COMPLETED")), list(out.iterdir())
        done = subprocess.run(command, capture_output=True, timeout=200 * e2e.PATIENCE, env=environment, stdin=subprocess.DEVNULL)
        assert done.returncode == 0 and b"goes on at chunk" in done.stderr, done
        assert json.loads(done.stdout)["examples"] == 400, done  # with those that were answered before
        assert one_result(out).read_bytes() == expected


def test_killed_runs_go_on_and_end_with_the_same_bytes(folder):
    run, file = trained(folder), questions(folder, 120)
    arguments = [f"--model_dir={run}", f"--input={file}", "--batch_size=2", "--checkpoint_period=2", "--threads=1"]
    out, clean = infer(folder, run, "clean", *arguments[1:])
    expected = one_result(out).read_bytes()
    assert clean.err.count("chunk ") == 30, clean.err
    rng = random.Random(5)
    kills, resumed = 0, 0
    for attempt in range(3):
        out = folder / f"killed{attempt}"
        while True:
            process = start("infer", f"--output_dir={out}", *arguments)
            wanted = chunks(out) + rng.randint(1, 12)
            wait_for(lambda: process.poll() is not None or chunks(out) >= wanted)
            # delay: the moment of the kill
            time.sleep(rng.random() * 0.01)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
            _, err = process.communicate()
            resumed += b"goes on at chunk" in err
            if process.returncode == 0:
                break
        assert one_result(out).read_bytes() == expected
        again = quintet("infer", f"--output_dir={out}", *arguments)
        assert "is there already" in again.err and one_result(out).read_bytes() == expected
    assert kills >= 5 and resumed >= 3, (kills, resumed)


def test_a_signal_stops_with_75(folder):
    run, file = trained(folder), questions(folder, 200)
    out = folder / "out"
    arguments = [f"--model_dir={run}", f"--input={file}", "--batch_size=1", "--checkpoint_period=4", f"--output_dir={out}"]
    process = start("infer", *arguments)
    e2e.wait_for(lambda: list(out.glob("tmp-*/input.ckpt")))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75 and b"SIGTERM" in err, err
    quintet("infer", *arguments)
    assert len(lines(one_result(out))) == 200


def test_a_started_folder_is_not_gone_on_with_otherwise(folder):
    run, file = trained(folder), questions(folder, 200)
    out = folder / "out"
    arguments = [f"--model_dir={run}", f"--input={file}", "--checkpoint_period=2", f"--output_dir={out}"]
    process = start("infer", *arguments, "--batch_size=1")
    e2e.wait_for(lambda: list(out.glob("tmp-*/input.ckpt")))
    process.kill()
    process.communicate()
    result = quintet("infer", *arguments, "--batch_size=2", expect=2)
    assert "batch_size 1" in result.err and "batch_size 2" in result.err and "output_dir" in result.err, result
    result = quintet("infer", *arguments, "--batch_size=1", "--beams=2", expect=2)
    assert "beams=2" in result.err, result


def test_answers_are_searched_and_drawn_as_generate_is_told(folder):
    run, file = trained(folder), questions(folder, 6)
    texts = folder / "texts"
    texts.write_text("".join(json.loads(line)["inputs"] + "\n" for line in file.read_text().splitlines()))

    def predictions(name, *flags, model=run):
        out = folder / name
        quintet("infer", model, f"--output-dir={out}", f"--input={file}", "--batch-size=4", *flags)
        return [answer["prediction"] for answer in lines(one_result(out))]

    greedy = predictions("greedy", "--max-tokens=7")
    assert predictions("cold", "--max_decode_len=7", "--temperature=0") == greedy
    for name, flags in (("plain", []), ("beams", ["--beams=3"])):
        told = quintet("generate", f"--model_dir={run}", f"--input={texts}", "--max_tokens=7", "--format=json", *flags).out
        assert predictions(name, "--max_tokens=7", *flags) == [json.loads(line)["prediction"] for line in told.splitlines()], name
    assert all(len(text) <= 2 for text in predictions("short", "--max_tokens=2"))
    drawn = predictions("drawn", "--max_tokens=7", "--temperature=3", "--top_k=30")
    assert drawn != greedy and predictions("again", "--max_tokens=7", "--temperature=3", "--topk=30") == drawn
    for flags, words in ((["--top_k=2", "--top_p=0.5"], "--top_k or --top_p"), (["--beams=2", "--temperature=1"], "one kind"),
                         (["--mode=score", "--beams=2"], "nothing is generated; leave out beams=2")):
        assert words in quintet("infer", run, f"--output_dir={folder / 'no'}", f"--input={file}", *flags, expect=2).err


def test_every_checkpoint(folder):
    run, file = trained(folder), questions(folder, 3)
    out, _ = infer(folder, run, "all", f"--input={file}", "--checkpoint=all")
    steps = [f"checkpoint_{step}" for step in e2e.steps_of(run)]
    assert len(steps) > 1 and sorted(p.name for p in out.iterdir()) == [*steps, "config.gin", "model-info.txt"], steps
    latest, _ = infer(folder, run, "latest", f"--input={file}")
    result = one_result(latest)
    assert (out / "checkpoint_4" / result.name).read_bytes() == result.read_bytes()


def test_t5xs_gin_files(folder):
    run, file = trained(folder), questions(folder)
    expected, _ = infer(folder, run, "expected", f"--input={file}", "--batch_size=4")
    answers = lines(one_result(expected))
    tfrecord = folder / "questions.tfrecord"
    quintet_records(tfrecord, [line["inputs"]["inputs_pretokenized"] for line in answers])
    out = folder / "out"
    model = ["--gin_file=quintet/byte_tiny.gin", "--gin.DROPOUT_RATE=0.0", "--gin.TRAIN_STEPS=4", "--gin.WARMUP_STEPS=2",
             *(flag for flag in e2e.TINY if "network.T5Config" in flag)]
    quintet("infer", *model, "--gin_file=t5x/configs/runs/infer_from_tfexample_file.gin",
            f"--gin.TF_EXAMPLE_FILE_PATHS=['{tfrecord}']", "--gin.TF_EXAMPLE_FILE_TYPE='tfrecord'",
            "--gin.FEATURE_LENGTHS={'inputs': 52, 'targets': 44}", f"--gin.CHECKPOINT_PATH='{run}/checkpoint_4'",
            f"--gin.INFER_OUTPUT_DIR='{out}'", "--gin.utils.DatasetConfig.batch_size=4",
            "--gin.utils.RestoreCheckpointConfig.dtype='float32'")  # the file rounds parameters to bfloat16
    got = lines(one_result(out))
    assert [a["prediction"] for a in got] == [a["prediction"] for a in answers]
    out = folder / "task"
    quintet("infer", *model, "--gin_file=t5x/configs/runs/infer.gin",
            "--gin.MIXTURE_OR_TASK_NAME='number_words'", "--gin.TASK_FEATURE_LENGTHS={'inputs': 52, 'targets': 44}",
            f"--gin.CHECKPOINT_PATH='{run}/checkpoint_4'", f"--gin.INFER_OUTPUT_DIR='{out}'",
            "--gin.utils.DatasetConfig.split='validation'", "--gin.infer_script.infer.mode='score'")
    names = sorted(p.name for p in out.iterdir() if p.name.endswith("-of-00001"))
    assert names and all("-score.jsonl-00000-of-00001" in name for name in names), names
    assert all(answer["score"] < 0 for name in names for answer in lines(out / name))


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, payload):
    return bytes([number << 3 | 2]) + varint(len(payload)) + payload


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8 & 0xffffffff).to_bytes(4, "little")


def quintet_records(path, texts):
    """A TFRecord file of tf.Example with one feature, inputs."""
    with open(path, "wb") as file:
        for text in texts:
            feature = field(1, field(1, text.encode()))
            record = field(1, field(1, field(1, b"inputs") + field(2, feature)))
            length = len(record).to_bytes(8, "little")
            file.write(length + crc32c(length) + record + crc32c(record))


def test_wrong_requests_are_named(folder):
    run, file = trained(folder), questions(folder, 3)
    empty = folder / "empty.jsonl"
    empty.write_text("")
    out = f"--output_dir={folder / 'out'}"
    for code, arguments, part in [
            (2, [f"--model_dir={run}", f"--input={file}"], "--output_dir"),
            (2, [out, f"--input={file}"], "--model_dir"),
            (2, [f"--model_dir={run}", f"--input={file}", out, "--mode=guess"], "guess"),
            (2, [f"--model_dir={run}", f"--input={file}", out, "--shard_id=3", "--num_shards=3"], "shard_id 3"),
            (3, [f"--model_dir={run}", f"--input={folder / 'missing.jsonl'}", out], "missing.jsonl"),
            (3, [f"--model_dir={run}", f"--input={empty}", out], "empty.jsonl"),
            (3, ["--model_dir=/nowhere", f"--input={file}", out], "/nowhere")]:
        result = quintet("infer", *arguments, expect=code)
        assert part in result.err, f"{arguments}: {result}"


e2e.run(globals())
