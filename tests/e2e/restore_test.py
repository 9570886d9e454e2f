#!/usr/bin/env python3
"""What a run starts from and what it keeps: T5X's RestoreCheckpointConfig and SaveCheckpointConfig, from gin to disk."""

import json
import math

import e2e
from e2e import metrics, quintet, steps_of, tensor_checksums

RESTORE = "--gin.utils.CheckpointConfig.restore=@utils.RestoreCheckpointConfig()"


def tiny(model_dir, steps, *more):
    return e2e.tiny(model_dir, steps, "--gin.WARMUP_STEPS=1", *more)


def restoring(path, **values):
    """Flags that bind utils.RestoreCheckpointConfig."""
    return [RESTORE, f"--gin.utils.RestoreCheckpointConfig.path='{path}'",
            *(f"--gin.utils.RestoreCheckpointConfig.{name}={value!r}" for name, value in values.items())]


def saving(**values):
    return [f"--gin.utils.SaveCheckpointConfig.{name}={value!r}" for name, value in values.items()]


def with_import(folder, lines):
    """A gin file that binds what is in T5X's modules checkpoints and state_utils."""
    file = folder / "more.gin"
    file.write_text("from __gin__ import dynamic_registration\nfrom t5x import checkpoints\nfrom t5x import state_utils\n"
                    "from t5x import utils\n" + lines)
    return f"--gin_file={file}"


def test_a_dropped_step_begins_at_zero(folder):
    quintet(*tiny(folder / "run", 4))
    result = quintet(*tiny(folder / "goes_on", 6, *restoring(folder / "run")))
    assert "step 4" in result.err and steps_of(folder / "goes_on") == [4, 6], result
    rules = [("state/step", None), ("state/param_states/.*", None)]
    result = quintet(*tiny(folder / "anew", 2, *restoring(folder / "run/checkpoint_4", mode="specific", assignment_map=rules,
                                                          fallback_to_scratch=True)))
    assert "starting from" in result.err and ", step 0" in result.err and steps_of(folder / "anew") == [0, 2], result
    begun, was = tensor_checksums(folder / "anew", 0), tensor_checksums(folder / "run", 4)
    for name in was:
        if name.startswith("target/"):
            assert begun[name] == was[name], name
    assert any(begun[name] != was[name] for name in was if "/nu/" in name)
    # A run's own checkpoint goes before, without the rules.
    result = quintet(*tiny(folder / "anew", 3, *restoring(folder / "run/checkpoint_4", mode="specific", assignment_map=rules,
                                                          fallback_to_scratch=True)))
    assert "starting from" not in result.err and steps_of(folder / "anew") == [0, 2, 3], result


def test_rules_that_are_wrong_end_the_run(folder):
    quintet(*tiny(folder / "run", 2))
    start = dict(assignment_map=[("target/token_embedder/embedding", "target/token_embeder/embedding")], fallback_to_scratch=True)
    result = quintet(*tiny(folder / "typo", 4, *restoring(folder / "run", **start)), expect=2)
    assert "reads target/token_embedder/embedding from target/token_embeder/embedding, which is not in" in result.err, result
    assert "did you mean 'target/token_embedder/embedding'" in result.err, result
    start["assignment_map"] = [("target/encoders/.*", None)]
    result = quintet(*tiny(folder / "idle", 4, *restoring(folder / "run", **start)), expect=2)
    assert "'target/encoders/.*' matches no name of the model" in result.err, result
    result = quintet(*tiny(folder / "no_rule", 4, *restoring(folder / "run", fallback_to_scratch=True)), expect=2)
    assert "wants an assignment_map" in result.err, result
    assert not steps_of(folder / "typo") + steps_of(folder / "idle") + steps_of(folder / "no_rule")


DEEPER = "--gin.network.T5Config.num_encoder_layers=2"
DOUBLED = (r"target/encoder/layers_1/(.*)", r"target/encoder/layers_0/\1")


def test_strict_names_everything_that_differs(folder):
    quintet(*tiny(folder / "run", 2))
    result = quintet(*tiny(folder / "deep", 4, DEEPER, "--gin.network.T5Config.mlp_dim=8", *restoring(folder / "run")), expect=3)
    deep = result.err.count("not in the checkpoint")
    assert deep > 20 and result.err.count("/mlp/") and "shape [16, 16] in the checkpoint, [16, 8] in the model" in result.err, result
    assert "more" not in result.err.split("does not fit this model")[1], result
    assert "with fallback_to_scratch = True None keeps its initial value" in result.err, result
    quintet(*tiny(folder / "deep_run", 2, DEEPER))
    result = quintet(*tiny(folder / "flat", 4, *restoring(folder / "deep_run")), expect=3)
    assert result.err.count("in the checkpoint, not in the model") == deep, result
    quintet(*tiny(folder / "lax", 4, *restoring(folder / "deep_run", strict=False)))


def test_transformations_follow_the_assignment_map(folder):
    quintet(*tiny(folder / "run", 2))
    more = with_import(folder, "utils.RestoreCheckpointConfig.state_transformation_fns = [@state_utils.apply_assignment_map]\n"
                       "state_utils.apply_assignment_map.assignment_map = [(r'target/encoder/layers_1/(.*)', "
                       "r'target/encoder/layers_0/\\1')]\n")
    start = restoring(folder / "run", fallback_to_scratch=True, assignment_map=[("state/.*", None)])
    quintet(*tiny(folder / "deep", 2, DEEPER, more, *start))
    first = tensor_checksums(folder / "deep", 0)
    kernel = "target/encoder/layers_{}/mlp/wo/kernel"
    assert first[kernel.format(0)] == first[kernel.format(1)] == tensor_checksums(folder / "run", 2)[kernel.format(0)]
    idle = "--gin.state_utils.apply_assignment_map.assignment_map=[('nothing', None)]"
    assert "matches no name" in quintet(*tiny(folder / "idle", 2, DEEPER, more, *start, idle), expect=2).err
    quintet(*tiny(folder / "met", 2, more, idle, "--gin.state_utils.apply_assignment_map.require_all_rules_match=False", *start))


EVALUATION = """
from __gin__ import dynamic_registration
import __main__ as script
import seqio
from t5x import partitioning
from t5x import utils
include 'quintet/byte_tiny.gin'
DROPOUT_RATE = 0.0
TRAIN_STEPS = 200
script.{verb}:
  model = %MODEL
  dataset_cfg = @utils.DatasetConfig()
  partitioner = @partitioning.PjitPartitioner()
  restore_checkpoint_cfg = @utils.RestoreCheckpointConfig()
  output_dir = '{out}'
  {more}
partitioning.PjitPartitioner.num_partitions = 1
utils.DatasetConfig:
  mixture_or_task_name = 'number_to_words'
  task_feature_lengths = {{'inputs': 52, 'targets': 44}}
  split = 'validation'
  batch_size = 8
  shuffle = False
  seed = 0
utils.RestoreCheckpointConfig.path = '{path}'
"""
SMALL = [flag for flag in e2e.TINY if ".T5Config." in flag]


def asking(folder, verb, path, *more):
    out = folder / f"{verb}-{len(list(folder.iterdir()))}"
    gin = folder / f"{verb}.gin"
    gin.write_text(EVALUATION.format(verb=verb, out=out, path=path, more={
        "evaluate": "inference_evaluator_cls = @seqio.Evaluator\nseqio.Evaluator.num_examples = 4",
        "infer": "mode = 'score'\n  checkpoint_period = 100"}[verb]))
    return ["eval" if verb == "evaluate" else "infer", f"--gin_file={gin}", *SMALL, *more], out


def scores(out):
    return [json.loads(line)["score"] for file in sorted(out.glob("*.jsonl*")) for line in file.read_text().splitlines()]


def test_eval_and_infer_take_the_same_rules(folder):
    quintet(*tiny(folder / "run", 2))
    rules = f"--gin.utils.RestoreCheckpointConfig.assignment_map={[DOUBLED]!r}"
    for verb in ("evaluate", "infer"):
        ask, out = asking(folder, verb, folder / "run", DEEPER)
        assert "layers_1/mlp/wo/kernel: not in the checkpoint" in quintet(*ask, expect=3).err
        quintet(*ask, rules)
        typo = quintet(*ask, rules.replace("layers_0", "layer_0"), expect=2)
        assert "which is not in the checkpoint" in typo.err, typo
        # The optimizer's state is no part of the model that is evaluated.
        idle = quintet(*ask, "--gin.utils.RestoreCheckpointConfig.assignment_map=[('state/param_states/.*', None)]", expect=2)
        assert "matches no name" in idle.err, idle
        dropped = [*ask, "--gin.utils.RestoreCheckpointConfig.fallback_to_scratch=True",
                   "--gin.utils.RestoreCheckpointConfig.assignment_map=[('target/encoder/layers_1/.*', None)]"]
        assert "fallback_init_rng" in quintet(*dropped, expect=2).err
        seeded = quintet(*dropped, f"--gin.script.{verb}.fallback_init_rng=3", f"--gin.script.{verb}.output_dir='{out}-seeded'")
        assert "not read from the checkpoint and have initial values: encoder/layers_1/" in seeded.err, seeded


def test_a_path_is_a_checkpoint_a_folder_of_them_or_none(folder):
    quintet(*tiny(folder / "run", 4, *saving(period=2)))
    for name, path, mode, step in (("a", "run", "latest", 4), ("b", "run/checkpoint_2", "latest", 2), ("c", "run/checkpoint_2", "specific", 2)):
        result = quintet(*tiny(folder / name, 5, *restoring(folder / path, mode=mode)))
        assert f"starting from {folder}/run/checkpoint_{step}, step {step}" in result.err, result
    scratch = quintet(*tiny(folder / "d", 2, RESTORE, "--gin.utils.RestoreCheckpointConfig.path=[]"))
    assert "starting from" not in scratch.err and "step 0 of 2" in scratch.err, scratch
    for error, *flags in (("path is required; [] starts from scratch", RESTORE), ("is for evaluation", *restoring(folder / "run", mode="all")),
                          ("'latest', 'specific' or 'all', found 'lates'", *restoring(folder / "run", mode="lates"))):
        assert error in quintet(*tiny(folder / "e", 5, *flags), expect=2).err, error
    (folder / "empty").mkdir()
    for path in ("empty", "run/checkpoint_3"):
        assert f"{folder}/{path}: this is" in quintet(*tiny(folder / "e", 5, *restoring(folder / path)), expect=3).err
    for paths in ([folder / "run"], [folder / "empty", folder / "run"]):
        flags = [f"--gin.utils.RestoreCheckpointConfig.path={[*map(str, paths)]}"]
        for mode, steps in (("all", [0, 2, 4]), ("latest", [4])):
            ask, out = asking(folder, "evaluate", folder / "run", *flags, f"--gin.utils.RestoreCheckpointConfig.mode='{mode}'")
            assert [json.loads(line)["step"] for line in quintet(*ask).out.splitlines()] == steps, mode
        assert "starting from" in quintet(*tiny(folder / f"list-{len(paths)}", 5, RESTORE, *flags)).err
    both = f"--gin.utils.RestoreCheckpointConfig.path={[str(folder / 'run/checkpoint_2'), str(folder / 'run/checkpoint_4')]}"
    two = quintet(*tiny(folder / "e", 5, RESTORE, both, "--gin.utils.RestoreCheckpointConfig.mode='specific'"), expect=2)
    assert "expected one path, found 2" in two.err, two
    twice = [str(folder / "run/checkpoint_2"), str(folder / "a/checkpoint_4"), str(folder / "run/checkpoint_4")]
    ask, out = asking(folder, "infer", folder / "run", f"--gin.utils.RestoreCheckpointConfig.path={twice}",
                      "--gin.utils.RestoreCheckpointConfig.mode='specific'")
    assert f"{folder}/run/checkpoint_4: is another checkpoint of step 4" in quintet(*ask, expect=2).err
    for verb in ("evaluate", "infer"):
        ask, out = asking(folder, verb, folder / "run", "--gin.utils.RestoreCheckpointConfig.path=[]")
        assert "expected a checkpoint or a folder of them, found none" in quintet(*ask, expect=2).err


def test_a_restored_dtype_rounds(folder):
    quintet(*tiny(folder / "run", 2))
    exact, out = asking(folder, "infer", folder / "run")
    quintet(*exact)
    wide = scores(out)
    rounded, out = asking(folder, "infer", folder / "run/checkpoint_2", "--gin.utils.RestoreCheckpointConfig.dtype='bfloat16'",
                          "--gin.utils.RestoreCheckpointConfig.mode='specific'")
    quintet(*rounded)
    half = scores(out)
    assert len(wide) == len(half) > 0 and wide != half
    assert all(abs(a - b) < 0.05 * abs(a) for a, b in zip(wide, half)), (wide, half)


def test_a_position_in_the_data_is_taken_over(folder):
    quintet(*tiny(folder / "run", 4))
    quintet(*tiny(folder / "run", 8))
    start = folder / "run/checkpoint_4"
    quintet(*tiny(folder / "same", 8, *restoring(start, mode="specific", restore_dataset=True)))
    quintet(*tiny(folder / "again", 8, *restoring(start, mode="specific")))
    wanted = tensor_checksums(folder / "run", 8)
    assert tensor_checksums(folder / "same", 8) == wanted
    assert tensor_checksums(folder / "again", 8) != wanted


def test_the_best_and_the_pinned_checkpoints_stay(folder):
    run = folder / "run"
    more = with_import(folder, "utils.SaveCheckpointConfig.checkpointer_cls = @checkpoints.SaveBestCheckpointer\n"
                       "checkpoints.SaveBestCheckpointer:\n  metric_name_to_monitor = 'train/loss'\n  metric_mode = 'max'\n")
    often = [more, "--gin.train_script.train.stats_period=1", *saving(period=1, keep=2)]
    quintet(*tiny(run, 10, *often))
    loss = {record["step"]: record["loss"] for record in metrics(run) if record.get("run") == "train"}
    best = sorted(sorted(range(1, 10), key=lambda step: -loss[step])[:2])
    # The first step has no loss, and stays for that.
    assert steps_of(run) == [0, *best, 10], (steps_of(run), loss)
    (run / f"checkpoint_{best[0]}" / "PINNED").write_text("")
    flags = [*often, *saving(keep=1), "--gin.checkpoints.SaveBestCheckpointer.keep_checkpoints_without_metrics=False",
             "--gin.checkpoints.SaveBestCheckpointer.metric_mode='min'", "--gin.checkpoints.SaveBestCheckpointer.force_keep_period=6"]
    quintet(*tiny(run, 14, *flags))
    loss = {record["step"]: record["loss"] for record in metrics(run) if record.get("run") == "train"}
    least = min((step for step in (best[1], 10, 11, 13)), key=lambda step: loss[step])
    assert steps_of(run) == sorted({0, best[0], least, 12, 14}), (steps_of(run), loss)


def test_a_metric_that_nobody_writes_is_reported(folder):
    more = with_import(folder, "checkpoints.OrbaxCheckpointManagerInterface.metric_name_to_monitor = 'train/los'\n")
    result = quintet(*tiny(folder / "run", 5, more, *saving(period=1, keep=1)))
    assert "there is no metric 'train/los' by which checkpoints are kept" in result.err, result
    assert len(steps_of(folder / "run")) == 6, result
    other = with_import(folder, "utils.SaveCheckpointConfig.checkpointer_cls = @state_utils.apply_assignment_map\n")
    assert "or @t5x.checkpoints.SaveBestCheckpointer" in quintet(*tiny(folder / "no", 2, other), expect=2).err


def test_inspect_says_what_a_run_is(folder):
    run = folder / "run"
    quintet(*tiny(run, 2))
    lines = [json.loads(line) for line in quintet("inspect", run, "--format=json").out.splitlines()]
    assert [line.get("step") for line in lines] == [None, 0, 2], lines
    summary = lines[0]
    assert "encoder of 1 layers, 16 wide, 2 heads of 8, MLP of 16" in summary["architecture"], summary
    assert "ByteVocabulary" in summary["vocabulary"] and summary["task"] == "number_words", summary
    last = [record for record in metrics(run) if record.get("run") == "train"][-1]
    assert summary["last_metrics"]["train"]["loss"] == last["loss"] and summary["last_metrics"]["train"]["step"] == 2, summary
    shapes = json.loads(quintet("inspect", run / "checkpoint_2", "--format=json").out)["tensors"]
    sizes = [tensor["shape"] for name, tensor in shapes.items() if name.startswith("target/")]
    assert summary["parameters"] == sum(math.prod(shape) for shape in sizes), summary
    text = quintet("inspect", run).out
    assert "architecture" in text and "checkpoint_2" in text and "last         train: " in text, text
    with (run / "config.gin").open("a") as config:  # as T5X writes it, on a machine without the vocabulary
        config.write("VOCABULARY = @seqio.SentencePieceVocabulary()\n"
                     "seqio.SentencePieceVocabulary.sentencepiece_model_file = 'gs://t5-data/vocabs/a.model'\n")
    without = json.loads(quintet("inspect", run, "--format=json").out.splitlines()[0])
    assert "gs://t5-data/vocabs/a.model: is not on this machine" in without["vocabulary"], without
    assert {**without, "vocabulary": summary["vocabulary"]} == summary, without
    (run / "config.gin").write_text("nonsense\n")
    broken = quintet("inspect", run).out
    assert "problem" in broken and "checkpoint_2" in broken, broken


if __name__ == "__main__":
    e2e.run(globals())
