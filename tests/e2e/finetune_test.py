"""quintet finetune: from every kind of model and file to a run that the other verbs take; wrong input."""

import json
import re
import resource
import shutil

import e2e
from e2e import PATIENCE, ROOT, quintet

BYT5 = ROOT / "tests" / "fixtures" / "huggingface" / "byt5"
ADAPTER = ROOT / "tests" / "fixtures" / "lora" / "byt5"
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
             "--layer_decay=0.5", "--freeze=^/encoder/", "--freeze=token_embedder", "--epochs=20", "--patience=1",
             "--best_metric=loss", "--learning_rate=3"]
    refused = quintet("finetune", BYT5, *flags, f"--validation={valid}", "--labels=even,odd", expect=3)
    assert f"{valid}:5: the target 'prime' is none of --labels=even,odd" in refused.err, refused
    refused = quintet("finetune", BYT5, *flags, "--freeze=nowhere", expect=2)
    assert "--freeze=nowhere: found in no parameter" in refused.err, refused
    done = quintet("finetune", BYT5, *flags, f"--validation={valid}")
    # Layers have rates of their own and some do not decay, but gradients have one norm.
    assert done.out.count("@optax.clip_by_global_norm()") == 1 and "optax.multi_transform" in done.out, done
    assert f"warning: {valid}:5: the label 'prime' of 1 validation examples is no training example's" in done.err, done
    assert "| target \\ predicted | even | odd | prime | other |" in done.err and "\n| prime | 0 | 0 | 0 | 1 |" in done.err, done
    assert "finetune/loss_per_nonpadding_target_token has not improved for 1 evaluations: " in done.err, done
    kept = e2e.steps_of(folder / "run")
    assert len(kept) == 2 and f"best: {folder / 'run'}/checkpoint_{kept[0]}" in done.err, (kept, done)
    compared = quintet("inspect", BYT5, folder / "run").out.splitlines()
    changed = {line.split()[0] for line in compared if line.startswith("target/")}
    assert any("decoder" in name for name in changed), compared
    assert not [name for name in changed if "/encoder/" in name or "embedder" in name], compared


def test_defaults_fit_the_model_and_the_examples(folder):
    """Batches and their number by the examples, the highest learning rate by the model's width."""
    width = json.loads((BYT5 / "config.json").read_text())["d_model"]
    narrow, steps = min(16, max(1, 512 / width) ** 2), (6000, 8000) if width < 512 else (2000, 2000)

    def bindings(count, *flags):
        write_jsonl(folder / "many.jsonl", [(f"{i:09} is a question", f"answer {i:09}") for i in range(count)])
        shown = quintet("finetune", BYT5, f"--train={folder / 'many.jsonl'}", "--input=question", "--target=answer",
                        f"--output_dir={folder / 'run'}", "--dry_run", *flags).out
        return {name.strip(): float(value) for name, value in re.findall(r"^( *BATCH_SIZE| *TRAIN_STEPS|  peak_value) = (.*)$", shown, re.M)}

    few, some, many = bindings(20), bindings(600), bindings(20000)
    rates = [one["peak_value"] for one in (few, bindings(20, "--optimizer=adamw"), bindings(20, "--lora_rank=2"))]
    assert all(abs(rate / expected - 1) < 1e-5 for rate, expected in zip(rates, (0.001 * narrow, 0.0003 * narrow, 0.001))), rates
    assert few["BATCH_SIZE"] == 8 and 100 <= few["TRAIN_STEPS"] < 400, few  # 100 epochs
    assert 8 <= some["BATCH_SIZE"] <= 10 and some["TRAIN_STEPS"] == steps[0], some
    assert many["BATCH_SIZE"] > 100 and many["TRAIN_STEPS"] == steps[1], many
    assert bindings(600, "--epochs=2")["TRAIN_STEPS"] < 200


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


def score(model, *flags):
    """Of an answer, as the model gives it with six digits."""
    done = quintet("generate", f"--model_dir={model}", "--target=town 1", "--format=json", "capital of land 1?", *flags)
    return json.loads(done.out)["score"]


def near(a, b):
    return abs(a - b) < 1e-4 * abs(b)


def test_adapters(folder):
    flags = ["finetune", BYT5, *jsonl(folder), "--steps=6", "--batch_size=4", "--lora_rank=3", "--lora_alpha=6", "--lora_dropout=0.1",
             "--lora_target=query", "--lora_target=/mlp/", "--learning_rate=0.05", "--output_format=peft"]
    run, again, gone, moved = (folder / name for name in ("run", "again", "gone", "moved"))
    quintet(*flags, f"--output_dir={run}")
    again.mkdir()
    (again / "STOP").touch()
    shutil.copytree(BYT5, gone)
    quintet("finetune", gone, *flags[2:], f"--output_dir={again}", expect=75)
    assert e2e.steps_of(again)[-1] < 6
    gone.rename(moved)
    (again / "finetune.gin").write_text((again / "finetune.gin").read_text().replace(str(gone), str(moved)))
    resume = ["train", f"--gin_file={again / 'finetune.gin'}"]
    lost = quintet(*resume, f"--gin.utils.RestoreCheckpointConfig.path='{gone}'", expect=3)
    assert f"the base of its adapters, {gone}, is not there any more; bind utils.RestoreCheckpointConfig.path" in lost.err, lost
    resumed = quintet(*resume)
    assert f"adapters of rank 3 for 17 kernels of {moved}" in resumed.err, resumed
    peft = run / "peft" / "checkpoint_6"
    weights = [(folder / name / "peft" / "checkpoint_6" / "adapter_model.safetensors").read_bytes() for name in ("run", "again")]
    assert weights[0] == weights[1]  # bit for bit

    tensors = json.loads((run / "checkpoint_6" / "MANIFEST.json").read_text())["tensors"]
    names = set(tensors)
    assert sum("/lora_" in name and name.startswith("target/") for name in names) == 34, names
    assert all("/lora_" in name or name.startswith("state/") for name in names), names
    config = json.loads((peft / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (3, 6.0, "LORA"), config
    assert set(config["target_modules"]) == {"q", "wi_0", "wi_1", "wo"}, config

    base, trained = score(BYT5), score(run)
    assert not near(base, trained), (base, trained)
    merged = folder / "merged"
    quintet("convert", run, merged, "--to=hf")
    quintet("convert", BYT5, folder / "native", "--to=native", f"--adapter={peft}")
    quintet("convert", run, "--quantize=bf16", f"--output={folder / 'bf16'}")
    for other in (score(BYT5, f"--adapter={run}"), score(BYT5, f"--adapter={peft}"), score(peft), score(merged), score(folder / "native")):
        assert near(other, trained), (other, trained)
    assert abs(score(folder / "bf16") - trained) < 0.01 * abs(trained)
    assert "@lora.LoraConfig" not in (folder / "bf16" / "config.gin").read_text()
    evaluated = [json.loads(quintet("eval", f"--model_dir={run}", *more).out.splitlines()[0]) for more in ([], [f"--checkpoint={6}"])]
    assert evaluated[0] == evaluated[1] and evaluated[0]["examples"] == 4, evaluated

    def refused(code, words, *command):
        done = quintet(*command, expect=code)
        assert words in done.err, f"{words}: {done}"

    out = f"--output_dir={folder / 'wrong'}"
    refused(2, "--lora_rank", *flags[:-8], "--lora_rank=0", out)
    refused(2, "'nowhere' is found in no dense kernel of a layer, such as /", *flags, "--lora_target=nowhere", out)
    refused(2, "expected no more than the smaller one", *[f for f in flags if "lora_rank" not in str(f)], "--lora_rank=1000", out)
    refused(2, "all parameters but adapters stay", *flags, "--freeze=encoder", out)
    refused(2, "requires --lora_rank", *[f for f in flags if "lora_rank" not in str(f)], out)
    refused(3, "was trained on another base than", "generate", f"--model_dir={merged}", f"--adapter={run}", "a")
    refused(3, "name the base that it was trained on", "generate", f"--model_dir={BYT5.parent / 't5_1_1'}", "--ids", f"--adapter={run}", "5 1")
    refused(3, "this is no adapter", "generate", f"--model_dir={BYT5}", f"--adapter={BYT5}", "a")
    refused(2, "has no adapter that --to=peft could write", "convert", BYT5, folder / "none", "--to=peft")
    text = json.dumps(config)
    for name, words, damaged, bytes_of_weights in [
            ("dora", "use_dora: expected false", json.dumps({**config, "use_dora": True}), weights[0]),
            ("half", "half/adapter_config.json", text[:len(text) // 2], weights[0]), ("list", "list/adapter_config.json", "[]", weights[0]),
            ("rankless", "rankless/adapter_config.json", json.dumps({k: v for k, v in config.items() if k != "r"}), weights[0]),
            ("rank0", "has rank 3, ", json.dumps({**config, "r": 0}), weights[0]), ("cut", "cut/adapter_model.safetensors", text, weights[0][:-100]),
            ("garbage", "garbage/adapter_model.safetensors", text, b"x" * 500)]:
        (folder / name).mkdir()
        (folder / name / "adapter_config.json").write_text(damaged)
        (folder / name / "adapter_model.safetensors").write_bytes(bytes_of_weights)
        refused(3, words, "generate", f"--model_dir={BYT5}", f"--adapter={folder / name}", "a")


def adapter_in(folder, **fields):
    """A copy of PEFT's adapter of BYT5, with other fields in its configuration."""
    shutil.copytree(ADAPTER, folder, ignore=shutil.ignore_patterns("expected.*"), dirs_exist_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, **fields}))
    return folder


def test_where_adapters_and_their_bases_lie(folder):
    base, adapted = score(BYT5), score(BYT5, f"--adapter={ADAPTER}")
    assert not near(base, adapted), (base, adapted)
    beside = adapter_in(shutil.copytree(BYT5, folder / "beside"), base_model_name_or_path=str(folder / "beside"))
    assert near(score(beside), base) and near(score(BYT5, f"--adapter={beside}"), adapted)
    with_config = adapter_in(folder / "with_config", base_model_name_or_path=str(BYT5))
    shutil.copy(BYT5 / "config.json", with_config)
    quintet("convert", with_config, folder / "merged", "--to=hf")
    assert near(score(with_config), adapted) and near(score(folder / "merged"), adapted)
    a, _ = (adapter_in(folder / one, base_model_name_or_path=str(folder / other)) for one, other in ("ab", "ba"))
    for words, model in [("is an adapter of 'google/byt5-small', which is not here; name its base as the model, and it with --adapter=",
                          adapter_in(folder / "hub", base_model_name_or_path="google/byt5-small")),
                         ("is an adapter of '', which is not here", adapter_in(folder / "none", base_model_name_or_path=None)),
                         ("names itself as its base", adapter_in(folder / "self", base_model_name_or_path=str(folder / "self"))),
                         ("does one of them name another that names it?", a)]:
        for command in [["inspect", model], ["generate", f"--model_dir={model}", "a"]][:1 if model == a else 2]:
            refused = quintet(*command, expect=3)
            assert words in refused.err and str(model) in refused.err, refused


def test_adapters_decide_the_answers_of_infer_and_eval(folder):
    (folder / "in.jsonl").write_text(json.dumps({"inputs": "capital of land 1?", "targets": "town 1"}) + "\n")
    command = ["infer", BYT5, f"--input={folder / 'in.jsonl'}", "--mode=score", f"--output_dir={folder / 'out'}"]
    quintet(*command, f"--adapter={ADAPTER}")
    (line,) = (folder / "out").glob("*-of-00001")
    assert near(json.loads(line.read_text())["score"], score(BYT5, f"--adapter={ADAPTER}")), line.read_text()
    assert "is there already" in quintet(*command, f"--adapter={ADAPTER}").err
    other = adapter_in(folder / "other", lora_alpha=9)
    for adapter in ([], [f"--adapter={other}"]):
        refused = quintet(*command, *adapter, expect=2)
        assert f"was answered with {BYT5}, adapter {ADAPTER}, step 0, checksum " in refused.err and "output_dir" in refused.err, refused
    for verb, where in (("infer", "INFER"), ("eval", "EVAL")):
        refused = quintet(verb, "--gin_file=quintet/byte_tiny.gin", f"--gin_file=t5x/configs/runs/{verb}.gin", f"--adapter={BYT5}", "--gin.DROPOUT_RATE=0.0",
                          "--gin.TRAIN_STEPS=4", "--gin.WARMUP_STEPS=2", "--gin.MIXTURE_OR_TASK_NAME='number_words'", f"--gin.CHECKPOINT_PATH='{BYT5}'", f"--gin.{where}_OUTPUT_DIR='{folder}'",
                          "--gin.TASK_FEATURE_LENGTHS={'inputs': 52, 'targets': 44}", "--gin.utils.DatasetConfig.split='validation'", expect=3)
        assert "this is no adapter" in refused.err, refused
    refused = quintet("convert", BYT5, folder / "a", folder / "b", "--to=hf", expect=2)
    assert str(folder / "b") in refused.err, refused


def test_a_base_is_restored_as_the_configuration_says(folder):
    ruined = folder / "ruined"
    quintet("convert", BYT5, ruined, "--to=hf")
    weights = (ruined / "model.safetensors").read_bytes()
    size = int.from_bytes(weights[:8], "little")
    names = {name: tensor for name, tensor in json.loads(weights[8:8 + size]).items() if name != "__metadata__"}  # its checksums
    at = 8 + size + names["encoder.block.0.layer.0.SelfAttention.q.weight"]["data_offsets"][0]
    damaged = weights[:8] + json.dumps(names).encode().ljust(size) + weights[8 + size:]
    (ruined / "model.safetensors").write_bytes(damaged[:at] + b"\0\0\xc0\x7f" + damaged[at + 4:])
    restore = "--gin.utils.RestoreCheckpointConfig."
    for i, (code, words, model, flag) in enumerate([
            (2, "as it is stored", BYT5, f"{restore}assignment_map=[('target/encoder.*', None), ('state/.*', None)]"), (2, "is for evaluation", BYT5, f"{restore}mode='all'"),
            (3, "holds no position in the data", BYT5, f"{restore}restore_dataset=True"),
            (3, "in the checkpoint, not in the model", BYT5, "--gin.network.T5Config.num_encoder_layers=2"),
            (3, "training cannot begin with them", ruined, "--lora_base=bfloat16"), (3, "1 values are not finite", ruined, "--lora_base=int8")]):
        refused = quintet("finetune", model, *jsonl(folder), "--steps=2", "--lora_rank=2", flag, f"--output_dir={folder / str(i)}", expect=code)
        assert words in refused.err, f"{words}: {refused}"


def test_adapters_of_a_base_in_fewer_bits(folder):
    flags = ["finetune", BYT5, *jsonl(folder), "--steps=6", "--batch_size=4", "--lora_rank=3", "--learning_rate=0.05", "--metrics=exact_match"]
    losses, scores = {}, {}
    for base in ("float32", "bfloat16", "int8", "fp8"):
        quintet(*flags, f"--lora_base={base}", f"--output_dir={folder / base}")
        losses[base] = [record["loss"] for record in e2e.metrics(folder / base) if record.get("run") == "train"]
        scores[base] = score(folder / base)
    assert len({tuple(one) for one in losses.values()}) == 4, losses  # all of them act
    for base in ("bfloat16", "int8", "fp8"):
        assert all(abs(x - y) < 0.1 * y for x, y in zip(losses[base], losses["float32"], strict=True)), losses
        assert abs(scores[base] - scores["float32"]) < 0.1 * abs(scores["float32"]), scores
    refused = quintet(*flags, "--lora_base=int4", f"--output_dir={folder / 'wrong'}", expect=2)
    assert "--lora_base" in refused.err and "int8" in refused.err, refused


def test_a_full_disk_is_exit_5_and_the_same_command_goes_on(folder):
    """Wherever the disk becomes full: the gin file, a checkpoint, logs, Hugging Face's directory."""
    command = ["finetune", BYT5, *jsonl(folder), f"--output_dir={folder / 'run'}", "--steps=4", "--output_format=hf", "--batch_size=4"]

    def run(fault, expect):
        environment = {"LD_PRELOAD": str(e2e.SHIM), "QT_FAULT_DIR": str(folder / "run"), "QT_FAULT_LOG": str(folder / "log"), "QT_FAULT": fault,
                       "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
        return quintet(*command, expect=expect, environment=environment)

    def files():
        return {str(path.relative_to(folder)) for path in (folder / "run").rglob("*") if "tfevents" not in path.name}

    run("any:999999=EIO", 0)
    whole = files()
    weights = (folder / "run" / "hf" / "checkpoint_4" / "model.safetensors").read_bytes()
    operations = [line.split(" ", 2)[1:] for line in (folder / "log").read_text().splitlines()]
    reserved = [path for call, path in operations if call == "fallocate"]
    places = [0, *(next(i for i, path in enumerate(reserved) if word in path)
                   for word in (".tmp-checkpoint_0/data", "inference_eval", ".tmp-checkpoint_4/data", "model.safetensors"))]
    for place in places:
        shutil.rmtree(folder / "run")
        failed = run(f"fallocate:{place + 1}+=ENOSPC", 5)
        assert "No space left on device" in failed.err and str(folder / "run") in failed.err, failed
        quintet(*command)
        assert files() == whole, (place, files() ^ whole)
        assert (folder / "run" / "hf" / "checkpoint_4" / "model.safetensors").read_bytes() == weights, place


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
