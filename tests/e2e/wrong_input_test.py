"""Wrong input: a clear message, the right exit code, nothing damaged."""

import json
import os
import pathlib
import re
import resource
import subprocess

import e2e
from e2e import ROOT, quintet, start, steps_of, switch, tiny, wait_for


def refuses(code, words, *arguments, **options):
    """The command ends with this code and all these words in its message."""
    result = quintet(*arguments, expect=code, **options)
    missing = [word for word in words if word not in result.err]
    assert not missing, f"{missing} not in the message of {' '.join(map(str, arguments))}: {result}"
    assert "terminate called" not in result.err, result
    return result


def gin(folder, text):
    file = folder / "wrong.gin"
    file.write_text(text)
    return f"--gin_file={file}"


def test_configurations(folder):
    run = folder / "run"
    refuses(2, ["--gin_file"], "train")
    refuses(2, ["/no/such/file.gin"], "train", "--gin_file=/no/such/file.gin")
    refuses(2, ["wrong.gin", "2"], "train", gin(folder, "A = 1\nB = = 2\n"))
    refuses(2, ["wrong.gin:1", "no_such_thing"], "train", gin(folder, "no_such_thing.size = 1\n"))
    refuses(2, ["MODEL_DIR"], "train", "--gin_file=quintet/quickstart.gin")
    refuses(2, ["emb_dmi", "emb_dim"], *tiny(run, 10, "--gin.network.T5Config.emb_dmi=8"))
    refuses(2, ["emb_dim", "int"], *tiny(run, 10, "--gin.network.T5Config.emb_dim='wide'"))
    refuses(2, ["no_such_task"], *tiny(run, 10, "--gin.TASK='no_such_task'"))
    refuses(2, ["number_words"], *tiny(run, 10, "--gin.TASK='number_word'"))
    refuses(2, ["num_partitions"], *tiny(run, 10, "--gin.partitioning.PjitPartitioner.num_partitions=2"))
    refuses(2, ["total_steps"], *tiny(run, 10, "--gin.train_script.train.total_steps=-5"))
    refuses(2, ["actions", "'EVAL'", "TRAIN_EVAL"], *tiny(run, 10, "--gin.train_script.train.actions={'EVAL': []}"))
    small = ["plan", "t5x/examples/t5/t5_1_1/small.gin", "--gin.DROPOUT_RATE=0.0"]
    refuses(2, ["relpos_bias/rel_embedding", "'heads' of size 6", "'model' of size 4"], *small, "--mesh=data=2,model=4")
    refuses(2, ["batch=10", "'data' of size 4"], *small, "--mesh=data=4,model=2", "--batch=10")
    refuses(2, ["('batch', 'data')", "tensor=2"], *small, "--mesh=tensor=2")
    refuses(2, ["--mesh=data"], *small, "--mesh=data")


def test_a_decode_function_that_is_none_is_found_before_the_first_step(folder):
    decoding = ["--gin.train_script.train.infer_eval_dataset_cfg=@infer_eval/utils.DatasetConfig()",
                "--gin.models.EncoderDecoderModel.decode_fn=@seqio.Task"]
    refuses(2, ["decode_fn", "expected @decoding.beam_search"], *tiny(folder / "run", 10, *decoding))
    assert not steps_of(folder / "run")


def test_flags_that_nothing_reads(folder):
    run = folder / "run"
    refuses(2, ["--gin.TRIAN_STEPS", "'TRAIN_STEPS'"], *tiny(run, 10, "--gin.TRIAN_STEPS=5"))
    refuses(2, ["--gin.TRIAN_STEPS", "'TRAIN_STEPS'"], "config", "quintet/quickstart.gin", "--gin.MODEL_DIR='x'",
            "--gin_bindings=TRIAN_STEPS = 5")
    refuses(2, ["--gin.UNUSED", "--gin.TO_UNUSED"], *tiny(run, 10, "--gin.UNUSED=%TO_UNUSED", "--gin.TO_UNUSED=1"))
    refuses(2, ["--gin.TASK_FEATURE_LENGTHS"], *tiny(run, 10, "--gin.TASK_FEATURE_LENGTHS={'inputs': 8, 'targets': 8}"))
    refuses(2, ["scope 'tarin'", "'train'"], *tiny(run, 10, "--gin.tarin/utils.DatasetConfig.seed=1"))
    refuses(2, ["t5x.optimizers.lion", "optimizers.lion.b1"], *tiny(run, 10, "--gin.optimizers.lion.b1=0.5"))
    assert not run.exists()
    # Read by another verb, by a verb itself, through another macro, or overridden: all fine.
    config = ["config", "quintet/quickstart.gin", "--gin.MODEL_DIR='x'"]
    quintet(*config, "--gin.infer.infer.mode='score'", "--gin.MODEL=None", "--gin.seqio.Evaluator.num_examples=3",
            "--gin.models.EncoderDecoderModel.score_batch.return_intermediates=True", "--gin.STEPS=3",
            "--gin.TRAIN_STEPS=%STEPS", "--gin.decoding.beam_search.alpha=0.5")
    quintet(*config, "--gin.train_script.train.infer_eval_dataset_cfg=None", "--gin.infer_eval/utils.DatasetConfig.seed=1")
    refuses(2, ["--gin.TRIAN_STEPS"], "data", "show", "number_words", "--gin.TRIAN_STEPS=5")
    quintet("data", "show", "number_words", "--num=1", "--gin.TASK_FEATURE_LENGTHS={'inputs': 64, 'targets': 64}")


def test_dropout_of_t5x_that_it_would_not_draw(folder):
    t5x = "--gin.trainer.Trainer.t5x_dropout=True"
    hardware = ["t5x_dropout", "hardware's generator"]
    refuses(2, ["random_seed", *hardware], *tiny(folder / "run", 10, t5x, "--gin.RANDOM_SEED=None"))
    refuses(2, ["use_hardware_rng", *hardware], *tiny(folder / "run", 10, t5x, "--gin.train_script.train.use_hardware_rng=True"))
    refuses(2, ["t5x_dropout", "jitter_noise is 0.01", "JITTER_NOISE = 0"], "train", "--gin_file=quintet/switch_quickstart.gin",
            f"--model_dir={folder / 'run'}", t5x, "--gin.JITTER_NOISE=0.01", "--gin.TRAIN_STEPS=2", "--gin.WARMUP_STEPS=1", timeout=30)


# A line of gin after quintet/quickstart.gin, and what is said besides that line's place.
DENSE = [("network.T5Config.emb_dim = 0", "T5Config.emb_dim: expected a positive number, found 0"),
         ("network.T5Config.num_encoder_layers = -1", "num_encoder_layers: expected 0 to 10000 layers, found -1"),
         ("network.T5Config.vocab_size = 10", "has 259 ids"),
         ("network.T5Config.dtype = 'int7'", "dtype: expected 'float32' or 'bfloat16', found 'int7'"),
         ("network.T5Config.mlp_activations = ('nope',)", "mlp_activations: 'nope' is not known; use one of linear"),
         ("network.T5Config.dropout_rate = 1.5", "dropout_rate: expected 0 <= rate < 1, found 1.5"),
         ("network.T5Config.remat_policy = 'some'", "remat_policy: expected 'none', 'minimal' or 'full', found 'some'"),
         ("trainer.Trainer.num_microbatches = 3", "num_microbatches 3 does not divide train/utils.DatasetConfig.batch_size 4"),
         ("partitioning.PjitPartitioner.logical_axis_rules = [('embed', 'nope')]", "has no axis 'nope'"),
         ("models.EncoderDecoderModel.optimizer_def = @optimizers.nope()", "No configurable matching 'optimizers.nope'"),
         ("optimizers.adamw.b1 = 1.5", "adamw.b1: scale_by_adam: b1 must be at least 0 and below 1, got 1.5"),
         ("optimizers.adamw.mask = 'nothing/at/all'", "the mask selects none of the"),
         ("optimizers.adamw.mask = '(('", "'((' is not a regular expression over parameter paths")]
# And after quintet/switch_quickstart.gin.
SPARSE = [("EMBED_DIM = 0", "Embed.features: expected 1 or more, found 0"),
          ("NUM_EXPERTS = 0", "MoeLayer.num_experts: expected 1 or more, found 0"),
          ("NUM_ENCODER_SPARSE_LAYERS = 5", "num_sparse_layers: expected 0 to num_layers = 1, found 5"),
          ("NUM_SELECTED_EXPERTS = 9", "num_selected_experts: expected 1 to num_experts=4, found 9"),
          ("expert/dense.MlpBlock.activations = ('nope',)", "activations: 'nope' is not known")]
IMPORTS = """from __gin__ import dynamic_registration
from flaxformer.components import dense
from t5x import models
from t5x import optimizers
from t5x import partitioning
from t5x import trainer
from t5x.examples.t5 import network
"""


def test_a_configuration_that_does_not_fit_names_the_binding_and_its_line(folder):
    for flags, cases in ((tiny(folder / "run", 3), DENSE), (switch(folder / "run", 3), SPARSE)):
        quickstart = next(flag for flag in flags if "gin_file" in flag).partition("=")[2]
        for line, said in cases:
            file = folder / "wrong.gin"
            text = f"{IMPORTS}include '{quickstart}'\n{line}\n"
            name = line.partition(" ")[0]
            rest = [flag for flag in flags if "gin_file" not in flag and not flag.startswith(f"--gin.{name}=")]
            refuses(2, [said, f"{file}:{text.count(chr(10))}"], *rest, gin(folder, text))


def test_numbers_that_make_no_sense(folder):
    run = folder / "run"
    refuses(2, ["batch_size"], *tiny(run, 10, "--gin.BATCH_SIZE=0"))
    refuses(2, ["num_microbatches", "3", "4"], *tiny(run, 10, "--gin.trainer.Trainer.num_microbatches=3"))
    run = folder / "none of these makes it"
    refuses(2, ["PjitPartitioner.ici_mesh_shape = (1, 1)", "dcn_mesh_shape"],
            *tiny(run, 10, "--gin.partitioning.PjitPartitioner.ici_mesh_shape=(1, 1)"))
    clipped = [f"--gin.optimizers.dpsgd.{x}" for x in ("learning_rate=1.0", "l2_norm_clip=1.0", "noise_multiplier=1.0", "seed=0")]
    clipped.append("--gin.OPTIMIZER=@optimizers.dpsgd()")
    refuses(2, ["num_microbatches = 2", "the gradient of each example"],
            *tiny(run, 10, "--gin.trainer.Trainer.num_microbatches=2", *clipped))
    refuses(2, ["trainer.Trainer.t5x_dropout", "each example"],
            *tiny(run, 10, "--gin.trainer.Trainer.t5x_dropout=True", *clipped))
    refuses(2, ["num_microbatches", "-1"], *tiny(run, 10, "--gin.trainer.Trainer.num_microbatches=-1"))
    refuses(2, ["adamw.learning_rate", "-0.1"], *tiny(run, 10, "--gin.optimizers.adamw.learning_rate=-0.1"))
    refuses(2, ["peak_value", "-0.1"], *tiny(run, 10, "--gin.optax.warmup_cosine_decay_schedule.peak_value=-0.1"))
    refuses(2, ["num_encoder_layers", "100000"], *tiny(run, 10, "--gin.network.T5Config.num_encoder_layers=100000"),
            timeout=30)
    refuses(4, ["train/utils.DatasetConfig", "batch_size 1000000000000", "GiB"],
            *tiny(run, 10, "--gin.BATCH_SIZE=1000000000000"), timeout=30)
    refuses(4, ["train/utils.DatasetConfig", "inputs: 1000000000000", "GiB"],
            *tiny(run, 10, "--gin.TRAIN_LENGTHS={'inputs': 1000000000000, 'targets': 60}"), timeout=30)
    for name in ("train_script.train.model", "models.EncoderDecoderModel.module", "train_script.train.partitioner"):
        refuses(2, [name.split(".")[-1], "found None"], *tiny(run, 10, f"--gin.{name}=None"))
    assert not run.exists()
    run = folder / "run"
    refuses(2, ["targets"], *tiny(run, 10, "--gin.TRAIN_LENGTHS={'inputs': 72, 'targets': 0}"))
    refuses(2, ["inputs"], *tiny(run, 10, "--gin.TRAIN_LENGTHS={'targets': 60}"))
    refuses(2, ["eval_steps"], *tiny(run, 10, "--gin.train_script.train.eval_steps=0"))
    refuses(2, ["period"], *tiny(run, 10, "--gin.utils.SaveCheckpointConfig.period=0"))
    refuses(2, ["--batch"], "bench", "train", "--batch=0")
    refuses(2, ["--model"], "bench", "train", "--model=t5_1_1_smal")


LOOKED_FOR = """
from __gin__ import dynamic_registration
import __main__ as train_script
include 't5x/examples/t5/t5_1_1/tiny.gin'
DROPOUT_RATE = 0.0
train_script.train.gc_period = 7
train_script.train.use_jax_array = True
"""


def test_every_verb_looks_for_bindings_that_nothing_reads(folder):
    gin = folder / "looked_for.gin"
    gin.write_text(LOOKED_FOR)
    sizes = ["--batch=2", "--inputs=8", "--targets=8"]
    for verb in (["config", gin], ["plan", gin, *sizes], ["bench", "layouts", gin, *sizes], ["data", "list", f"--gin_file={gin}"],
                 ["data", "show", "number_words", f"--gin_file={gin}"]):
        done = refuses(2, ["looked_for.gin:7", "use_jax_array = True", "delete the line"], *verb)
        assert "looked_for.gin:6: t5x.train.train.gc_period = 7 has no effect" in done.err, done
        refuses(2, ["nothing in the configuration reads the macro 'DROPOUT_RAT'"], *verb, "--gin.DROPOUT_RAT=0.1")


def test_verbs_that_open_a_run_look_for_them_too(folder):
    run = f"--model_dir={folder}/run"
    quintet(*tiny(folder / "run", 3, "--gin.train_script.train.gc_period=7"))
    for verb, *more in (["generate", "x"], ["eval"], ["infer", f"--output_dir={folder}/out"], ["serve", "--port=0"]):
        refuses(2, ["use_jax_array = 1", "delete the line"], verb, run, "--gin.train_script.train.use_jax_array=1", *more)
    done = quintet("generate", run, "--max_tokens=2", "--gin.decoding.beam_search.cache_offset=1", "x")
    assert "cache_offset = 1 has no effect" in done.err and "gc_period" not in done.err, done


def test_a_lenient_run_warns_of_what_is_unknown_or_cannot_be_met(folder):
    run = tiny(folder / "run", 3, "--gin.train_script.train.use_jax_array=True", "--gin.utils.NoSuchThing.x=1")
    refuses(2, ["utils.NoSuchThing"], *run)
    done = quintet(*run, "--skip_unknown")
    assert "NoSuchThing" in done.err and "use_jax_array = True has no effect" in done.err, done
    assert e2e.steps_of(folder / "run")[-1] == 3


TEXT_TASK = """
from __gin__ import dynamic_registration
import seqio
from t5.data import preprocessors
seqio.TextLineDataSource.split_to_filepattern = {'train': '%s', 'validation': '%s'}
preprocessors.rekey.key_map = {'inputs': None, 'targets': 'text'}
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.Task:
  name = 'lines'
  source = @seqio.TextLineDataSource()
  preprocessors = [@preprocessors.rekey, @seqio.preprocessors.tokenize, @seqio.preprocessors.append_eos]
  output_features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}
  metric_fns = []
seqio.TaskRegistry.tasks = [@seqio.Task()]
"""


def test_data(folder):
    text = folder / "text.txt"
    task = gin(folder, TEXT_TASK % (text, text))
    command = tiny(folder / "run", 10, task, "--gin.TASK='lines'")
    refuses(3, ["text.txt"], *command)  # not there
    text.write_bytes(b"")
    refuses(3, ["text.txt"], *command)  # empty
    text.write_bytes(b"good line\n\xff\xfe bad line\n" * 50)
    refuses(3, ["text.txt", "UTF-8"], *command)


def test_files_that_cannot_be_read_or_never_end(folder):
    refuses(2, ["/proc/self/mem", "Input/output error"], "config", "/proc/self/mem")

    def little_memory():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    refuses(2, ["/dev/zero", "the limit is 67108864"], "config", "/dev/zero", preexec_fn=little_memory)
    pipe = folder / "pipe.gin"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f"echo 'X = 3' > {pipe}"])
    assert "X = 3" in quintet("config", pipe).out
    writer.wait()
    quintet(*tiny(folder / "run", 4))
    refuses(3, ["/proc/self/mem", "Input/output error"], "generate", f"--model_dir={folder / 'run'}", "--input=/proc/self/mem")


def test_model_directories(folder):
    (folder / "a_file").write_text("not a folder")
    refuses(5, ["a_file"], *tiny(folder / "a_file", 10))
    refuses(5, ["/proc/no_such_place"], *tiny("/proc/no_such_place", 10))
    (folder / "link").symlink_to("nowhere/at/all")
    for path in (folder / "link", f"{folder}/link/", folder / "link/below"):
        refuses(5, [str(folder / "link"), "dangling link", "nowhere/at/all"], *tiny(path, 10))
    spaces = folder / "with spaces und Ümlauten"
    quintet(*tiny(spaces, 10))
    assert steps_of(spaces) == [0, 10]
    refuses(2, ["total_steps", "10"], *tiny(spaces, 5))
    refuses(2, ["random_seed"], *tiny(spaces, 20, "--gin.RANDOM_SEED=1"))


def test_a_second_run_in_the_same_directory_is_refused(folder):
    process = start(*tiny(folder / "run", 100000))
    wait_for(lambda: steps_of(folder / "run"))
    refuses(2, [str(process.pid), "run"], *tiny(folder / "run", 100000), timeout=10)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 75


def trained(folder):
    quintet(*tiny(folder / "run", 20))
    assert steps_of(folder / "run") == [0, 10, 20]
    return folder / "run"


def data_file(run, step):
    return next((run / f"checkpoint_{step}").glob("data-*.h5"))


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_used(folder):
    run = trained(folder)
    whole = e2e.tensor_checksums(run, 20)
    file = data_file(run, 20)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    result = quintet(*tiny(run, 20))
    assert "checkpoint_20" in result.err, result  # loudly
    assert e2e.tensor_checksums(run, 20) == whole  # trained again from step 10


def test_a_truncated_checkpoint_is_set_aside_too(folder):
    run = trained(folder)
    file = data_file(run, 20)
    os.truncate(file, file.stat().st_size // 2)
    assert "checkpoint_20" in quintet(*tiny(run, 20)).err


def test_a_half_written_save_is_removed(folder):
    run = trained(folder)
    for leftover in ("checkpoint_30.tmp-123", ".tmp-checkpoint_30"):
        (run / leftover).mkdir()
    quintet(*tiny(run, 20))
    assert steps_of(run) == [0, 10, 20]


def test_with_no_good_checkpoint_the_run_is_refused(folder):
    run = trained(folder)
    for step in (0, 10, 20):
        os.truncate(data_file(run, step), 100)
    refuses(3, ["checkpoint"], *tiny(run, 20))


def test_a_checkpoint_of_another_model_is_refused(folder):
    run = trained(folder)
    refuses(3, ["token_embedder/embedding", "[384, 16]", "[384, 8]"],
            *tiny(run, 30, "--gin.network.T5Config.emb_dim=8"))
    refuses(3, ["no such"], "eval", "--model_dir=/no/such/run")
    refuses(3, ["config.gin"], "eval", f"--model_dir={folder}")


def test_a_full_disk_leaves_the_checkpoints_before_intact(folder):
    run = trained(folder)
    before = e2e.tensor_checksums(run, 20)

    def small_files():  # the system ends writes beyond this size, as a quota would
        limit = 20000
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    result = quintet(*tiny(run, 40), expect=5, preexec_fn=small_files)
    assert str(run) in result.err, result
    assert steps_of(run) == [0, 10, 20] and e2e.tensor_checksums(run, 20) == before
    quintet(*tiny(run, 40))  # with room again it goes on
    assert steps_of(run) == [0, 10, 20, 30, 40]


def test_a_small_file_system_fails_cleanly(folder):
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk], capture_output=True)
    if mounted.returncode != 0:
        e2e.skip("needs the right to mount; test_a_full_disk_... stands in")
    try:
        result = quintet(*tiny(disk / "run", 200), expect=None)
        assert result.code == 5, result
        assert "needed" in result.err or "free" in result.err or "space" in result.err, result
    finally:
        subprocess.run(["umount", disk], check=True)


def test_gradients_that_are_not_finite_never_reach_the_weights(folder):
    run = folder / "run"
    wild = ["--gin.optimizers.adamw.learning_rate=1e30"]
    result = quintet(*tiny(run, 100, *wild), expect=7)
    assert "10 updates in a row" in result.err, result
    assert "not finite" in result.err and "skipped" in result.err, result
    # The batches of the ten steps are in a file that the message names.
    report = pathlib.Path(re.search(r"batches: (\S+)", result.err)[1])
    assert report.parent == run, report
    steps = json.loads(report.read_text())["steps"]
    assert [step["step"] for step in steps] == list(range(steps[0]["step"], steps[0]["step"] + 10)), steps
    assert all(step["tensor"] and step["data_position"] for step in steps), steps
    tokens = [step["features"]["decoder_target_tokens"] for step in steps]
    assert all(feature["shape"][0] == 4 and any(feature["first_rows"][0]) for feature in tokens), tokens
    assert len({feature["crc32c"] for feature in tokens}) == 10, "the data did not go on"


NAN_ENDS = """
from __gin__ import dynamic_registration
from t5x import trainer
from t5x import train as train_script
trainer.TerminateOnNanAction.task = 'train'
trainer.TerminateOnNanAction.metric = 'loss'
train_script.train.actions = {'TRAIN': [@trainer.TerminateOnNanAction()]}
"""


def test_an_action_that_ends_a_run_on_numbers_leaves_the_batch(folder):
    # The update makes the parameters infinite, the next loss is not a number: before ten are skipped, the summary
    # of step 5 has nothing but the losses before.
    run = folder / "run"
    (folder / "nan.gin").write_text(NAN_ENDS)
    result = quintet(*tiny(run, 100, f"--gin_file={folder}/nan.gin", "--gin.optimizers.adamw.learning_rate=1e30"),
                     expect=7)
    assert list(run.glob("not_finite_*.json")), result


e2e.run(globals())
