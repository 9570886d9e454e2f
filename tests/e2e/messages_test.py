"""What a person at a terminal is told: causes, limits and units, in sentences that can be acted on."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios

import e2e
from e2e import ROOT, quintet, start, tiny


def trained(folder):
    quintet(*tiny(folder / "run", 10))
    return f"--model_dir={folder / 'run'}"


def test_a_schedule_that_is_all_warm_up_names_the_macro(folder):
    result = quintet("train", "--gin_file=quintet/quickstart.gin", f"--model_dir={folder}/x", "--gin.TRAIN_STEPS=20", expect=2)
    assert "WARMUP_STEPS" in result.err and "decay_steps (20)" in result.err, result


def test_eval_of_a_split_that_no_task_has_is_an_error(folder):
    model = trained(folder)
    result = quintet("eval", model, "--split=test2", expect=2)
    assert "split 'test2'" in result.err and "--split" in result.err and not result.out, result


def test_eval_and_infer_take_a_run_or_a_configuration(folder):
    for verb in ("eval", "infer"):
        assert "not both" in quintet(verb, f"--model_dir={folder}", "--gin_file=x.gin", expect=2).err
        assert "not both" not in quintet(verb, expect=2).err


def test_a_dash_in_a_flag_is_an_underscore_and_gin_files_need_no_flag(folder):
    run = tiny(folder / "run", 3)[1:]
    files = [flag.removeprefix("--gin_file=") for flag in run if flag.startswith("--gin_file=")]
    rest = [flag.replace("--model_dir", "--model-dir") for flag in run if not flag.startswith("--gin_file=")]
    assert files and any(flag.startswith("--model-dir") for flag in rest), run
    quintet("train", *files, *rest)
    assert (folder / "run" / "checkpoint_3").exists()
    assert quintet("generate", f"--model-dir={folder / 'run'}", "--max-tokens=2", "--", "--a-b", "c-d").out.count("\n") == 2
    (folder / "flags").write_text(f"--model-dir={folder / 'run'}\n--dry-run\n")
    assert "T5Config.emb_dim" in quintet("eval", f"--flagfile={folder / 'flags'}").out
    assert "no-such.gin" in quintet("train", "no-such.gin", expect=2).err


def test_limits_of_numbers_can_be_read(folder):
    result = quintet("generate", "--model_dir=x", "--temperature=-1", expect=2)
    assert "--temperature" in result.err and len(result.err) < 200, result
    for verb, flag in (("train", "--collective_timeout"), ("train", "--initialization_timeout"), ("eval", "--check_replicas"),
                       ("train", "--data_timeout"), ("plan", "--batch"), ("bench", "--steps")):
        result = quintet(*([verb, "layouts"] if verb == "bench" else [verb]), f"{flag}=abc", expect=2)
        assert "abc not in range" in result.err and len(result.err) < 200, result
    for port in ("abc", "80000"):
        result = quintet("serve", "--model=x", f"--port={port}", expect=2)
        assert "--port" in result.err and "65535" in result.err, result


def test_a_file_that_infer_cannot_read_is_reported_before_it_is_read(folder):
    model = trained(folder)
    (folder / "plain.txt").write_text("words: 17\n")
    result = quintet("infer", model, f"--input={folder}/plain.txt", f"--output_dir={folder}/o", expect=2)
    assert ".jsonl" in result.err and ".tfrecord" in result.err and "checksum" not in result.err, result


def test_another_model_s_directory_is_reported_in_a_few_lines(folder):
    trained(folder)
    result = quintet(*tiny(folder / "run", 20, "--gin.network.T5Config.emb_dim=24"), expect=3)
    lines = result.err.strip().splitlines()
    assert len(lines) < 12 and re.search(r"and \d+ more", result.err), result


def test_convert_says_which_weights_it_writes(folder):
    model = trained(folder)
    result = quintet("convert", model, "--quantize=f32", f"--output={folder}/o", expect=2)
    assert "found f32" in result.err and "int8" in result.err, result
    assert "found none" in quintet("convert", model, f"--output={folder}/o", expect=2).err


def test_losses_of_a_run_have_one_unit(folder):
    more = ["--gin.models.EncoderDecoderModel.loss_normalizing_factor=None"]  # T5X's default: summed over the batch
    result = quintet(*tiny(folder / "run", 10, *more), environment={"QUINTET_PROGRESS": "lines"})
    bar = float(re.findall(r"10/10 .*?loss (\d+\.\d+)", result.err)[-1])
    evaluated = float(re.search(r"teacher-forced:.* loss (\d+\.\d+) per target token", result.err)[1])
    assert 0.3 < evaluated / bar < 3, result


def test_addresses_of_storage_are_mapped_to_folders(folder):
    text = folder / "data" / "text"
    text.mkdir(parents=True)
    (text / "a.txt").write_text("".join(f"line {i} of a small text\n" for i in range(200)))
    quintet("tokenizer", "train", f"--input={text}/a.txt", "--vocab_size=40", f"--model_prefix={text}/pieces", "--quiet")
    run = folder / "text.gin"
    run.write_text("include 'quintet/text_pretrain.gin'\n")
    train = ["train", f"--gin_file={run}", "--gin.VOCABULARY_FILE='gs://bucket/text/pieces.model'", "--model_dir=gs://runs/a",
             "--gin.TRAIN_STEPS=2", "--gin.WARMUP_STEPS=1", "--gin.TRAIN_FILES='s3://texts/*.txt'",
             "--gin.VALIDATION_FILES='s3://texts/*.txt'", "--gin.network.T5Config.emb_dim=8", "--gin.network.T5Config.mlp_dim=8",
             "--gin.network.T5Config.num_encoder_layers=1", "--gin.network.T5Config.num_decoder_layers=1"]
    rules = [f"--path_map=gs://bucket={folder}/data", f"--path_map=gs://runs={folder}/runs", f"--path_map=s3://texts={text}"]
    for missing in range(3):
        result = quintet(*train, *(rule for i, rule in enumerate(rules) if i != missing), expect=3)
        assert re.search(r"--path_map=\w+://\w+=FOLDER", result.err), result
    quintet(*train, *rules)
    assert (folder / "runs" / "a" / "config.gin").exists()
    result = quintet("generate", "--model_dir=gs://runs/a", "line 7", environment={"QUINTET_PATH_MAP": f"gs://runs={folder}/runs"})
    assert "the run's own copy" in result.err, result
    assert "expected SCHEME" in quintet("generate", "--model_dir=x", "--path_map=a=b", "x", expect=2).err
    quintet("generate", "--help", environment={"QUINTET_PATH_MAP": "no rule"})


def test_addresses_are_mapped_in_flags_that_name_what_is_written(folder):
    """Not taken for folders below the current one; without a rule exit 3 and nothing written."""
    quintet(*tiny(folder / "run", 3))
    (folder / "gin").mkdir()
    (folder / "gin" / "more.gin").write_text("EXTRA = 1\n")
    verbs = [["inspect", "gs://x/run"], ["inspect", "gs://x/run", "gs://x/run"],
             ["inspect", "gs://x/run", "--tensor=target/decoder/decoder_norm/scale", "--output=gs://x/scale.npy"],
             ["convert", "gs://x/run", "gs://x/hf", "--to=hf"],
             ["convert", "--model_dir=gs://x/run", "--quantize=int8", "--output=gs://x/int8"],
             ["eval", "--model_dir=gs://x/run", "--output_dir=gs://x/eval", "--num_examples=2"],
             ["infer", "--model_dir=gs://x/run", "--output_dir=gs://x/infer"],
             ["tokenizer", "train", f"--input={folder}/gin/more.gin", "--vocab_size=11", "--model_prefix=gs://x/tokens"],
             ["config", "more.gin", "--gin_search_paths=gs://x/gin"], ["config", "gs://x/gin/more.gin"]]
    for verb in verbs:
        assert "--path_map=gs://x=FOLDER" in quintet(*verb, cwd=folder, expect=3).err, verb
        quintet(*verb, f"--path_map=gs://x={folder}", cwd=folder)
    assert not (folder / "gs:").exists()
    for written in ("scale.npy", "hf/config.json", "int8", "eval", "infer", "tokens.model"):
        assert (folder / written).exists(), written


def test_a_cpu_says_once_that_it_computes_in_float32(folder):
    said = "dtype = 'bfloat16' has no effect on a CPU"
    assert quintet(*tiny(folder / "run", 3, "--gin.network.T5Config.dtype='bfloat16'")).err.count(said) == 1
    assert quintet("generate", f"--model={folder}/run", "5").err.count(said) == 1
    assert quintet("eval", f"--model={folder}/run", "--num_examples=1").err.count(said) == 1
    assert said not in quintet("generate", f"--model={folder}/run", "5", "--gin.network.T5Config.dtype='float32'").err


def test_fp8_on_a_cpu_is_said_to_be_for_tests_and_goes_on_as_it_was(folder):
    fp8 = "--gin_file=quintet/fp8.gin"
    assert "it is for tests" in quintet(*tiny(folder / "parts", 3, fp8)).err
    quintet(*tiny(folder / "parts", 6, fp8))
    quintet(*tiny(folder / "whole", 6, fp8))
    assert "fp8_metas/decoder/layers_0/encoder_decoder_attention/key/amax_history" in quintet("inspect", folder / "whole/checkpoint_6").out
    same = quintet("inspect", folder / "parts/checkpoint_6", folder / "whole/checkpoint_6")
    assert "same numbers, 0 have others, 0 differ" in same.out, same
    # A run without goes on from one with, and the other way around.
    assert "for tests" not in quintet(*tiny(folder / "parts", 7)).err
    quintet(*tiny(folder / "parts", 8, fp8))
    wrong = quintet(*tiny(folder / "wrong", 3, fp8, "--gin.network.T5Config.mlp_dim=24"), expect=2).err
    assert "mlp of size 24" in wrong and "multiples of 16" in wrong, wrong


def test_flags_of_other_launchers_act_or_say_that_they_do_not(folder):
    result = quintet(*tiny(folder / "run", 3), "--alsologtostderr", "--logtostderr", "--initialization_timeout=60", "--run_mode=train")
    assert "without effect" not in result.err, result
    result = quintet(*tiny(folder / "run", 4), "--multiprocess_gpu", "--coordinator_address=h:1", "--process_index=1")
    assert "--multiprocess_gpu, --coordinator_address, --process_index: without effect" in result.err, result
    result = quintet(*tiny(folder / "run", 4), "-v=1", "--stderrthreshold=info", "--nologtostderr", "--nomultiprocess_gpu", "--dry_run")
    assert "--verbosity, --stderrthreshold, --nologtostderr: without effect" in result.err, result
    result = quintet(*tiny(folder / "run", 5), "--process_count=4", expect=2)
    assert "mpirun -n 4" in result.err, result
    result = quintet("train", "--run_mode=eval", f"--model_dir={folder}/run", "--num_examples=2", "--samples=1")
    assert '"step": 4' in result.out or '"step":4' in result.out, result
    assert "quintet precompile" in quintet("train", "--run_mode", "precompile", expect=2).err
    assert "quintet export" in quintet("train", "--run_mode=Export", expect=2).err
    assert "--run_mode" in quintet("train", "--run_mode=nothing", "--gin.A=1", expect=2).err
    (folder / "questions.jsonl").write_text('{"inputs": "4"}\n')
    quintet("train", "--run_mode", "infer", f"--model_dir={folder}/run", f"--input={folder}/questions.jsonl", f"--output_dir={folder}/out")
    assert list((folder / "out").glob("*.COMPLETED"))
    assert "emb_dim = 16" in quintet("train", "--run_mode=EVAL", f"--model_dir={folder}/run", "--dry_run").out
    assert "emb_dim = 16" in quintet("eval", "--run_mode=Eval", f"--model_dir={folder}/run", "--dry_run").out
    assert "not in {infer}" in quintet("infer", "--run_mode=eval", f"--model_dir={folder}/run", expect=2).err


def test_every_verb_that_takes_a_gin_file_takes_the_flags_of_a_launch(folder):
    flags = ["--alsologtostderr", "--verbosity=1", "--coordinator_address=h:1", "--initialization_timeout=9", "--undefok=new", "--new=1", "--jax_backend=cpu"]
    byte_tiny = ["--gin_file=quintet/byte_tiny.gin", "--gin.DROPOUT_RATE=0.0", "--gin.TRAIN_STEPS=1", "--gin.WARMUP_STEPS=0"]
    for verb in (["config"], ["plan", "--batch=8"], ["data", "list"]):
        result = quintet(*verb, *byte_tiny, *flags)
        for flag in ("--verbosity", "--coordinator_address, --initialization_timeout", "--jax_backend=cpu"):
            assert f"{flag}: without effect" in result.err, result
        assert quintet(*verb, *byte_tiny, "--only_check_args").out == ""
    # config takes what a run takes, and shows what its flags bind.
    run = [*byte_tiny, "--run_mode=train", "--dry_run", "--tfds_data_dir=/data/tfds"]
    assert "tfds_data_dir = '/data/tfds'" in quintet("config", *run).out


def test_a_dry_run_of_any_mode_prints_its_configuration(folder):
    run = [f"--model_dir={folder}/run", f"--output_dir={folder}/none"]
    quintet(*tiny(folder / "run", 3))
    for mode in ("eval", "infer"):
        assert "emb_dim = 16" in quintet("train", f"--run_mode={mode}", *run, "--dry_run").out, mode
    gin = folder / "infer.gin"
    gin.write_text("include 'quintet/byte_tiny.gin'\ninclude 't5x/configs/runs/infer.gin'\n")
    bound = {"DROPOUT_RATE": 0.0, "TRAIN_STEPS": 1, "MIXTURE_OR_TASK_NAME": "'number_words'", "CHECKPOINT_PATH": f"'{folder}/nowhere'",
             "TASK_FEATURE_LENGTHS": "{'inputs': 8, 'targets': 8}", "INFER_OUTPUT_DIR": f"'{folder}/none'"}
    flags = [f"--gin.{name}={value}" for name, value in bound.items()]
    assert "infer_script.infer" in quintet("infer", f"--gin_file={gin}", *flags, "--dry_run").out
    assert not (folder / "none").exists()


def test_flags_of_absl_act_or_say_that_they_do_not(folder):
    run = tiny(folder / "run", 2)
    result = quintet(*run, "--run_with_pdb", "--nopdb", "--pdb_post_mortem", "--run_with_profiling", "--profile_file=x",
                     "--use_cprofile_for_profiling", "--only_check_args")
    assert "--pdb, --pdb_post_mortem, --run_with_pdb, --run_with_profiling, --use_cprofile_for_profiling, --profile_file: " \
           "without effect; no Python is run" in result.err, result
    assert not (folder / "run").exists()  # --only_check_args
    assert "--helpxml" in quintet(*run, "--helpxml", expect=2).err
    assert "did you mean '--logtostderr'" in quintet(*run, "-logtostderr", expect=2).err
    assert "--verbosity: without effect" in quintet(*run, "--v=1", "--nodry_run", "--only_check_args").err
    shown = quintet("train", "--help").out
    for flag in ("--helpfull", "--helpshort"):
        assert quintet("train", flag).out == shown, flag


def test_a_flagfile_stands_for_its_flags(folder):
    (folder / "more.flags").write_text("--gin.TRAIN_STEPS=3\n")
    (folder / "run.flags").write_text("# of this run\n// and of others\n\n" + "\n".join(tiny(folder / "run", 2)[1:]) +
                                      f"\n  --flagfile={folder}/more.flags\n")
    printed = quintet("train", "--flagfile", folder / "run.flags", "--dry_run").out
    assert "total_steps = %TRAIN_STEPS" in printed and "TRAIN_STEPS = 3" in printed, printed
    assert "cannot be read" in quintet("train", f"--flagfile={folder}/none.flags", expect=2).err
    (folder / "more.flags").write_text(f"--flagfile={folder}/run.flags\n")
    assert "run.flags: names itself" in quintet("train", f"--flagfile={folder}/run.flags", expect=2).err


def test_flags_that_undefok_names_are_ignored_where_unknown(folder):
    run = [*tiny(folder / "run", 2), "--only_check_args"]
    quintet(*run, "--undefok=new,newer", "--new=1", "--nonewer", "--newer")
    assert "--jax_backend=cpu, --nojax_jit: without effect" in quintet(*run, "--jax_backend=cpu", "--nojax_jit").err
    assert "--newest" in quintet(*run, "--undefok=new,newer", "--newest", expect=2).err
    # A flag that is known keeps its meaning.
    assert "mpirun -n 4" in quintet(*run, "--undefok=process_count", "--process_count=4", expect=2).err


def on_a_terminal(*words, streams=("stdout", "stderr"), columns=80, expect=0, **environment):
    """What a terminal of so many columns is shown of these streams."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    places = {name: theirs if name in streams else subprocess.DEVNULL for name in ("stdout", "stderr")}
    process = subprocess.Popen([e2e.QUINTET, *map(str, words)], stdin=subprocess.DEVNULL, **places,
                               env={**os.environ, "TERM": "xterm", "OMP_NUM_THREADS": "1", **environment})
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(ours, 65536):
            text += part
    assert process.wait() == expect, text
    return text.decode().replace("\r\n", "\n")


def test_errors_and_warnings_are_coloured_on_a_terminal_alone(folder):
    red, yellow = "\033[1;31merror:\033[0m ", "\033[1;33mwarning:\033[0m "
    assert on_a_terminal("inspect", "/no/such", expect=2).startswith(red)
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_a_terminal("inspect", "/no/such", expect=2, **plain).startswith("error: ")
    assert on_a_terminal("inspect", "/no/such", expect=2, NO_COLOR="").startswith(red)  # empty: as if it was not set
    assert quintet("inspect", "/no/such", expect=2).err.startswith("error: ")
    warned = ["eval", trained(folder), "--num_examples=1", "--share_gpus"]
    assert yellow in on_a_terminal(*warned) and "\nwarning: " in "\n" + quintet(*warned).err


def test_a_terminal_has_text_and_a_pipe_objects(folder):
    bench = ["bench", "gemm", "--m=8", "--n=8", "--k=8", "--steps=1"]
    assert re.fullmatch(r"gemm: \S+ ms, \S+ TFLOP/s\n", on_a_terminal(*bench))
    assert json.loads(on_a_terminal(*bench, streams=["stdout"]))["bench"] == "gemm"  # the text is elsewhere
    assert json.loads(on_a_terminal(*bench, "--format=json"))["bench"] == "gemm"
    piped = quintet(*bench)
    assert json.loads(piped.out)["bench"] == "gemm" and piped.err.startswith("gemm: ")
    text = quintet(*bench, "--format=text")
    assert text.out.startswith("gemm: ") and text.err == "" and quintet(*bench, "--format=json").err == ""
    assert "--format" in quintet(*bench, "--format=xml", expect=2).err
    evaluation = ["eval", trained(folder), "--num_examples=2"]
    assert [json.loads(line)["examples"] for line in quintet(*evaluation).out.splitlines()] == [2, 2]
    shown = on_a_terminal(*evaluation)
    assert "{" not in shown and "accuracy" in shown, shown


def test_results_of_every_verb_are_texts_or_objects(folder):
    run = trained(folder).removeprefix("--model_dir=")
    (folder / "words.tsv").write_text("one\tuno\n" * 30)
    (folder / "words.gin").write_text(e2e.WORDS_TASK.format(folder=folder))
    (folder / "lines").write_text("predict words: 1\nstatus\n")
    plan = ["plan", "quintet/quickstart.gin", "--gin.MODEL_DIR='x'", "--batch=2", "--inputs=8", "--targets=4"]
    for verb in (["inspect", run], ["inspect", f"{run}/checkpoint_10"], ["inspect", f"{run}/checkpoint_10", f"{run}/checkpoint_10"],
                 ["inspect", run, "--tensor=target/decoder/decoder_norm/scale"], ["data", "list"],
                 ["data", "show", "number_to_words", "--num=1"], ["config", f"{run}/config.gin"],
                 ["generate", run, "words: 1", "--max_tokens=2"],
                 ["interactive", run, f"--commands={folder}/lines"], ["tokenizer", "encode", "--model=byte", "--text=abc"],
                 ["tokenizer", "decode", "--model=byte", "--text=100"], [*plan, "--mesh=data=2,model=1"],
                 ["tokenizer", "train", f"--input={folder}/words.gin", "--vocab_size=60", f"--model_prefix={folder}/new"],
                 ["cache", f"--gin_file={folder}/words.gin", f"--output_cache_dir={folder}/new"],
                 ["convert", run, folder / "new", "--to=hf", "--check"], ["report", run, f"--output={folder}/r.html"],
                 ["convert", run, "--quantize=int8", f"--output={folder}/new", "--report", "--num_examples=2"],
                 ["eval", run, "--num_examples=2"], ["infer", run, "--task=number_to_words", f"--output_dir={folder}/new"],
                 ["finetune", run, f"--train={folder}/words.csv", "--input=a", "--target=b", f"--output_dir={folder}/new", "--dry_run"]):
        (folder / "words.csv").write_text("a,b\n" + "one,uno\n" * 30)
        shown = {}
        for how in ("text", "json"):
            shutil.rmtree(folder / "new", ignore_errors=True)
            shown[how] = quintet(*verb, f"--format={how}").out
        objects = [json.loads(shown["json"])] if verb[0] == "config" else [json.loads(line) for line in shown["json"].splitlines()]
        assert objects and all(isinstance(one, dict) for one in objects), (verb, shown)
        assert shown["text"] and not shown["text"].startswith("{"), (verb, shown)
        assert not re.search(r"\d\.\d{10,}", shown["text"]), (verb, shown["text"])
    assert "--format=json" in quintet(*plan, "--explain", "--format=json", expect=2).err


def test_long_verbs_show_how_far_they_are(folder):
    model = trained(folder)
    (folder / "in.txt").write_text("".join(f"words: {i}\n" for i in range(40)))
    (folder / "words.tsv").write_text("one\tuno\n" * 30)
    (folder / "words.gin").write_text(e2e.WORDS_TASK.format(folder=folder))
    for text, verb in {
            "words_to_number 418/418 examples": ["eval", model],
            "number_to_words 418/418 examples": ["infer", model, "--task=number_words", f"--output_dir={folder}/new"],
            "words validation: ranges written 1/1": ["cache", f"--gin_file={folder}/words.gin", f"--output_cache_dir={folder}/new"],
            "convert 1/1 MB": ["convert", folder / "run", folder / "new", "--to=hf"],
            "read back 1/1 MB": ["convert", folder / "run", folder / "new", "--to=hf"],
            "quantize 29/29 parameters": ["convert", folder / "run", f"--output={folder}/new", "--quantize=int8"],
            "generate 40/40 lines": ["generate", model, f"--input={folder}/in.txt", "--max_tokens=4"]}.items():
        for columns in (80, 40, None):
            shutil.rmtree(folder / "new", ignore_errors=True)
            if columns is None:
                in_a_log = quintet(*verb).err
                assert text in in_a_log and not re.search(r"\r|\[#", in_a_log), in_a_log
                continue
            drawn = re.split(r"[\r\n]", on_a_terminal(*verb, streams=["stderr"], columns=columns).replace("\033[K", ""))
            bars = [line for line in drawn if text in line]
            assert bars and max(map(len, bars)) < columns, (columns, drawn)
            assert columns == 40 or re.match(r"\[#+\] ", bars[-1]), drawn


def test_help_is_in_plain_words_and_fits_the_terminal(folder):
    for columns in (60, 140):
        shown = on_a_terminal("train", "--help", columns=columns)
        flags = shown[:shown.index("Examples:")].splitlines()
        long = [line for line in flags if len(line) > columns and len(line.split()) > 1]
        assert not long and max(map(len, flags)) > 0.7 * columns, (columns, long)
    for verb in ("train", "serve", "generate", "plan", "cache", "convert", "inspect"):
        shown = quintet("help", verb).out
        assert not re.search(r":(INT|FLOAT|POSITIVE|NONNEGATIVE)| in \[|\n\n\n|\{false\}|Option Group", shown), shown
        assert shown == quintet(verb, "--help").out
    assert "(0 to 4096; default 0)" in re.sub(r"\s+", " ", quintet("train", "--help").out)
    assert "1 or more; default 0" not in re.sub(r"\s+", " ", quintet("eval", "--help").out)  # 0 is "not given" there


def test_help_of_every_verb_fits_is_grouped_and_prints_defaults(folder):
    for verb in e2e.helps():
        flags = on_a_terminal(*verb.split(), "--help", columns=80).partition("Examples:")[0]
        assert max(map(len, flags.splitlines())) <= 80, (verb, flags)
        for group in flags.split("\n\n"):
            texts = [" ".join(text.split()) for text in re.split(r"\n  (?=-)", group)[1:]]
            assert len(texts) <= 25, f"{verb}: {len(texts)} flags under {group.splitlines()[0]}"
            for text in texts:
                has_number = re.match(r"\S+ (INT|FLOAT|UINT)\b", text) or re.match(r"\S+ \w+\|", text)
                assert not has_number or re.search("default|required|instead of", text), (verb, text)


def test_a_model_is_an_argument_or_model_dir(folder):
    run = trained(folder).removeprefix("--model_dir=")
    (folder / "lines").write_text("predict words: 1\n")
    (folder / "words.tsv").write_text("a\tb\n" + "c\td\n" * 30)
    new = folder / "new"
    for verb in (["eval", "--dry_run"], ["infer", "--dry_run", f"--output_dir={folder}"], ["generate", "words: 1", "--max-decode-len=3"],
                 ["interactive", f"--commands={folder}/lines"], ["inspect"], ["config"], ["report", f"--output={folder}/r.html"],
                 ["convert", new, "--to=hf"], ["convert", "--quantize=int8", f"--output={new}"],
                 ["finetune", f"--train={folder}/words.tsv", "--input=a", "--target=b", f"--output_dir={new}", "--dry_run"],
                 ["bench", "load", "--repeat=1"]):
        words = 2 if verb[0] == "bench" else 1
        for model in (run, f"--model_dir={run}", f"--model-dir={run}"):
            shutil.rmtree(new, ignore_errors=True)
            assert quintet(*verb[:words], model, *verb[words:]).out, (verb, model)
    assert "MODEL" in quintet("serve", "--help").out and "--model_dir" in quintet("serve", "--help").out


def test_flags_of_answers_have_the_same_names_in_every_verb(folder):
    for verb in ("generate", "infer", "serve"):
        names = set(re.findall(r"--\w+", quintet(verb, "--help").out))
        assert names >= {"--beams", "--num_beams", "--temperature", "--top_k", "--topk", "--top_p", "--topp", "--max_tokens",
                         "--max_decode_len"}, (verb, names)


def test_a_gin_file_without_its_flag_is_answered_with_the_flag(folder):
    result = quintet("cache", "quintet/quickstart.gin", expect=2)
    assert "--gin_file=quintet/quickstart.gin" in result.err, result.err


def test_what_was_refused_is_named_without_a_hint_at_something_else(folder):
    plan = ["plan", "quintet/quickstart.gin", "--gin.MODEL_DIR='x'", "--batch=2", "--inputs=8", "--targets=4"]
    refused = quintet(*plan, "--reduce_gradients_in=float8", expect=2).err
    assert "float8" in refused and "--gin_file" not in refused, refused
    assert "--report go with --cluster" in quintet(*plan, f"--report={folder}/r.html", expect=2).err
    bench = quintet("bench", "layouts", "--model=t5_1_1_tiny", "--report=/dev/null", expect=5)
    assert "/dev/null" in bench.err and "tokens/s" not in bench.err, bench
    assert "--commands=/nope" in quintet("interactive", "--gin_file=quintet/byte_tiny.gin", "--commands=/nope", expect=3).err
    (folder / "one.tsv").write_text("a\tb\nc\td\n")
    tuned = quintet("finetune", trained(folder), f"--train={folder}/one.tsv", "--input=a", "--target=b", f"--output_dir={folder}/t", expect=3)
    assert "0 examples to train on and 1 to validate" in tuned.err, tuned
    assert "0 to 1000000;" in quintet("generate", "x", "--temperature=-1", expect=2).err
    assert quintet("-V").out == quintet("--version").out


def test_data_show_needs_no_more_of_a_run_than_its_tasks(folder):
    (folder / "words.tsv").write_text("one\tuno\n")
    (folder / "run.gin").write_text("include 't5x/configs/runs/finetune.gin'\ninclude 'quintet/byte_tiny.gin'\n" +
                                    e2e.WORDS_TASK.format(folder=folder))
    assert "uno" in quintet("data", "show", "words", f"--gin_file={folder}/run.gin", "--num=1").out
    assert "MODEL_DIR" in quintet("train", f"--gin_file={folder}/run.gin", "--dry_run", expect=2).err


def test_infer_reads_the_fields_that_are_named(folder):
    model = trained(folder)
    (folder / "in.jsonl").write_text('{"question": "words: 1", "answer": "one"}\n')
    ask = ["infer", model, f"--input={folder}/in.jsonl", "--inputs_key=question"]
    quintet(*ask, f"--output_dir={folder}/predict")
    quintet(*ask, f"--output_dir={folder}/score", "--mode=score", "--targets_key=answer")
    [line] = [json.loads(path.read_text()) for path in (folder / "score").glob("*-score.jsonl-00000-of-00001")]
    assert line["inputs"]["inputs_pretokenized"] == "words: 1" and line["score"] < 0, line
    assert "--mode=score" in quintet(*ask, f"--output_dir={folder}/no", "--targets_key=answer", expect=2).err
    assert "--input" in quintet("infer", model, "--inputs_key=question", f"--output_dir={folder}/no", expect=2).err


def test_folders_and_addresses_that_cannot_be_used_are_named(folder):
    model = trained(folder)
    (folder / "file").write_text("")
    result = quintet("infer", model, "--task=number_to_words", f"--output_dir={folder}/file/o", expect=5)
    assert f"{folder}/file/o" in result.err and "filesystem error" not in result.err, result
    result = quintet("serve", model, "--host=192.0.2.1", "--port=0", expect=4)
    assert "choose another --host" in result.err, result


def test_the_message_of_a_signal_fits_every_verb(folder):
    model = trained(folder)
    process = start("infer", model, "--task=number_words", f"--output_dir={folder}/o", "--batch_size=1", "--checkpoint_period=1")
    e2e.wait_for(lambda: list((folder / "o").glob("tmp-*/*chunk00000")))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert b"finishing what was begun" in err and b"the step" not in err, err


def test_the_table_of_layouts_comes_after_the_results(folder):
    done = subprocess.run([e2e.QUINTET, "bench", "layouts", "--ranks=2", "--model=t5_1_1_tiny", "--batch=4", "--inputs=8",
                           "--targets=4", "--steps=1", "--device=cpu"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240,
                          env={**e2e.os.environ, "OMP_NUM_THREADS": "1"})
    lines = done.stdout.decode().splitlines()
    results = [i for i, line in enumerate(lines) if line.startswith("{")]
    assert done.returncode == 0 and results and all(json.loads(lines[i]) for i in results), done.stdout
    table = [i for i, line in enumerate(lines) if line.startswith("layout")]
    assert table and table[0] > results[-1], done.stdout


def test_an_unknown_task_is_answered_with_how_to_find_the_known_ones(folder):
    result = quintet("data", "show", "nope", expect=2)
    assert "quintet data list" in result.err and len(result.err) < 200, result
    listed = quintet("data", "list")
    assert "number_words" in listed.out and listed.err.startswith("-: "), listed


def test_the_page_times_an_answer_from_its_request(folder):
    page = (ROOT / "apps/serve/page.html").read_text()
    body = page[page.index("async function stream()"):]
    assert body.index("performance.now()") < body.index("await post(body)")


e2e.run(globals())
