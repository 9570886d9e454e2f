"""Evaluation through the program: metrics of predictions and of scores, seqio's files, the same values from `eval`."""

import collections
import fcntl
import json
import select
import signal

import e2e
from e2e import quintet, tiny
from judged import TASK, TRAINING_EVALUATOR


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def area_under_roc(labels, scores):
    pairs = [(p, n) for p, label in zip(scores, labels) if label for n, other in zip(scores, labels) if not other]
    return sum(1 if p > n else 0.5 if p == n else 0 for p, n in pairs) / len(pairs)


def train_judged(folder, results="None", more=()):
    labels = [i % 3 == 0 for i in range(11)]
    (folder / "pairs.tsv").write_text("".join(f"row {i}\t{'yes' if label else 'no'}\n" for i, label in enumerate(labels)))
    (folder / "judged.gin").write_text(TASK.format(file=folder / "pairs.tsv", results=results))
    quintet(*tiny(folder / "run", 4, f"--gin_file={folder}/judged.gin",
                  "--gin.train_script.train.infer_eval_dataset_cfg=@infer_eval/utils.DatasetConfig()",
                  "--gin.infer_eval/utils.DatasetConfig.mixture_or_task_name='judged'",
                  "--gin.infer_eval/utils.DatasetConfig.batch_size=4", *more))
    return labels


def test_training_writes_seqios_files(folder):
    labels = train_judged(folder)
    logs = folder / "run" / "inference_eval"
    results = lines(logs / "judged-000004.jsonl")
    assert [set(result) for result in results] == [{"input", "target", "score", "output", "prediction"}] * 11, results[0]
    assert [result["target"] for result in results] == [int(label) for label in labels]
    assert results[3]["input"]["inputs_pretokenized"] == "row 3" and results[3]["input"]["targets"][-1] == 1
    assert all(result["score"] < 0 for result in results)
    metrics = lines(logs / "judged-metrics.jsonl")
    assert [record["step"] for record in metrics] == [4]
    assert set(metrics[0]) == {"step", "accuracy", "auc-roc", "auc-pr"}
    roc = area_under_roc(labels, [result["score"] for result in results])
    assert abs(metrics[0]["auc-roc"] - roc) < 1e-9, (metrics, roc)
    right = sum(result["prediction"] == result["target"] for result in results)
    assert abs(metrics[0]["accuracy"] - 100 * right / 11) < 1e-9
    assert list((logs / "judged").glob("events.out.tfevents.*"))
    written = {name for record in lines(folder / "run/metrics.jsonl") if record.get("run") == "train" for name in record}
    assert {f"timing/{name}" for name in ("evaluate_seconds", "train_iter_warmup", "compilation_seconds")} <= written, written

    # `eval` gives the same numbers on stdout and the same files.
    done = quintet("eval", f"--model_dir={folder}/run", f"--output_dir={folder}/again")
    printed = json.loads(done.out)
    assert {name: printed[name] for name in metrics[0]} == metrics[0]
    assert printed["examples"] == 11 and printed["task"] == "judged"
    assert lines(folder / "again/inference_eval/judged-000004.jsonl") == results
    info = (folder / "again/model-info.txt").read_text()
    assert (folder / "run/model-info.txt").read_text().startswith(info.split("Total")[0]), info
    assert "T5Config.emb_dim = 16" in (folder / "again/config.gin").read_text()
    # A run's own directory keeps what training wrote.
    kept = (folder / "run/config.gin").read_bytes(), (folder / "run/model-info.txt").read_bytes()
    quintet("eval", f"--model_dir={folder}/run", f"--output_dir={folder}/run")
    assert kept == ((folder / "run/config.gin").read_bytes(), (folder / "run/model-info.txt").read_bytes())
    refused = quintet("eval", f"--model_dir={folder}/run", "--quantize=int8", expect=2).err
    assert "scores, which are computed in float32" in refused, refused
    refused = quintet("eval", f"--model_dir={folder}/run", "--gin.judged/seqio.Task.metric_fns=[@metrics.score_auc]", "--kv_cache_dtype=int8",
                      expect=2).err
    assert "--kv_cache_dtype=int8: no metric of this task" in refused, refused


CHOICE = """
from __gin__ import dynamic_registration
import seqio
from quintet import data
from t5.data import preprocessors
from t5.data import postprocessors
from t5.evaluation import metrics

data.JsonlDataSource.split_to_filepattern = {{'validation': '{file}'}}
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
inputs/data.texts_of.key = 'prefix'
targets/data.texts_of.key = 'suffix'
data.one_hot_of.key = 'label'
data.one_hot_of.num_classes = 2
preprocessors.rank_classification:
  inputs_fn = @inputs/data.texts_of
  targets_fn = @targets/data.texts_of
  is_correct_fn = @data.one_hot_of
choice/seqio.Task:
  name = 'choice'
  source = @data.JsonlDataSource()
  preprocessors = [@preprocessors.rank_classification, @seqio.preprocessors.tokenize, @seqio.preprocessors.append_eos]
  output_features = {{'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}}
  postprocess_fn = @postprocessors.rank_classification
  metric_fns = [@metrics.rank_classification]
summary/seqio.Task:
  name = 'summary'
  source = @words/data.JsonlDataSource()
  preprocessors = [@seqio.preprocessors.tokenize, @seqio.preprocessors.append_eos]
  output_features = {{'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}}
  metric_fns = [@metrics.rouge_mean]
words/data.JsonlDataSource.split_to_filepattern = {{'train': '{texts}', 'validation': '{texts}'}}
metrics.rouge_mean.score_keys = ('rouge1',)
metrics.rouge_mean.tokenizer = @seqio.ByteVocabulary()
seqio.TaskRegistry.tasks = [@choice/seqio.Task(), @summary/seqio.Task()]
seqio.JSONLogger.write_n_results = None
"""


def run_with_tasks(folder, steps, *more):
    (folder / "choice.gin").write_text(CHOICE.format(file=folder / "pairs.jsonl", texts=folder / "texts.jsonl"))
    quintet(*tiny(folder / "run", steps, f"--gin_file={folder}/choice.gin", *more))


def test_a_model_chooses_among_texts(folder):
    labels = [1, 1, 0, 1, 1, 0, 1]
    (folder / "pairs.jsonl").write_text("".join(
        json.dumps({"prefix": [f"{i} is ", f"{i} was "], "suffix": ["wet", "a cow"], "label": label}) + "\n"
        for i, label in enumerate(labels)))
    run_with_tasks(folder, 4)
    quintet("infer", f"--model_dir={folder}/run", "--task=choice", "--split=validation", "--mode=score", f"--output_dir={folder}/scores")
    scores = [line["score"] for file in (folder / "scores").glob("choice*-of-00001") for line in lines(file)]
    assert len(scores) == 2 * len(labels), scores
    chosen = [int(wrong > right) for right, wrong in zip(scores[::2], scores[1::2])]
    want = 100 * sum(a == b for a, b in zip(chosen, labels)) / len(labels)
    got = json.loads(quintet("eval", f"--model_dir={folder}/run", "--task=choice", "--split=validation").out.splitlines()[-1])
    assert want not in (0, 50, 100) and abs(got["accuracy"] - want) < 1e-4, (got, want)


def test_rouge_counts_the_tokens_of_a_vocabulary(folder):
    (folder / "texts.jsonl").write_text("".join(json.dumps({"inputs": f"{i}", "targets": "éa bc " * i}) + "\n" for i in range(1, 5)))
    run_with_tasks(folder, 60, "--gin.TASK='summary'", "--gin.WARMUP_STEPS=5")
    got = json.loads(quintet("eval", f"--model_dir={folder}/run", "--task=summary", "--split=validation",
                             f"--output_dir={folder}/out").out.splitlines()[-1])
    answers = lines(folder / "out/inference_eval/summary-000060.jsonl")
    assert len(answers) == 4
    f_measures = []
    for answer in answers:
        wanted, found = (collections.Counter(answer[key].encode()) for key in ("target", "prediction"))
        f_measures.append(200 * (wanted & found).total() / (wanted.total() + found.total()))
    assert sum(f_measures) > 0 and abs(got["rouge1"] - sum(f_measures) / 4) < 1e-4, (got, f_measures)


def test_the_number_of_results_and_of_examples_can_be_limited(folder):
    train_judged(folder, results=3, more=["--gin.seqio.Evaluator.num_examples=6"])
    logs = folder / "run" / "inference_eval"
    assert len(lines(logs / "judged-000004.jsonl")) == 3
    assert json.loads(quintet("eval", f"--model_dir={folder}/run", "--num_examples=5").out)["examples"] == 5


def test_logger_cls_says_what_is_written(folder):
    def files(*loggers):
        (folder / "-".join(loggers)).mkdir()
        at = folder / "-".join(loggers)
        train_judged(at, more=["--gin.seqio.Evaluator.logger_cls=[" + ", ".join(f"@seqio.{name}" for name in loggers) + "]"])
        return {path.name.split(".")[0] for path in (at / "run/inference_eval").rglob("*") if path.is_file()}
    assert files("JSONLogger") == {"judged-metrics", "judged-000004"}
    assert files("TensorBoardLogger", "PyLoggingLogger") == {"events"}
    # The run's own metrics.jsonl has them in any case.
    records = lines(folder / "JSONLogger" / "run" / "metrics.jsonl")
    assert any(record.get("run") == "inference_eval/judged" and "eval/accuracy" in record for record in records), records


def test_metrics_that_cannot_judge_name_the_task(folder):
    (folder / "pairs.tsv").write_text("a\tyes\n")
    (folder / "judged.gin").write_text(
        TASK.format(file=folder / "pairs.tsv", results="None").replace("@metrics.score_auc", "@metrics.squad"))
    done = quintet(*tiny(folder / "run", 4, f"--gin_file={folder}/judged.gin",
                         "--gin.train_script.train.infer_eval_dataset_cfg=@infer_eval/utils.DatasetConfig()",
                         "--gin.infer_eval/utils.DatasetConfig.mixture_or_task_name='judged'"), expect=3)
    assert "evaluation of task 'judged': squad: target 0: expected a list, found 1" in done.err, done


def test_all_skips_checkpoints_that_have_been_evaluated(folder):
    quintet(*tiny(folder / "run", 4, "--gin.utils.SaveCheckpointConfig.period=2"))
    ask = ["eval", f"--model_dir={folder / 'run'}", "--checkpoint=all", "--num_examples=2",
           f"--output_dir={folder / 'out'}", "--task=number_to_words"]
    first = quintet(*ask)
    steps = e2e.steps_of(folder / "run")
    assert len(steps) > 1 and [json.loads(line)["step"] for line in first.out.splitlines()] == steps, first
    log = folder / "out" / "eval.number_to_words.ckpt"
    done = log.read_text().splitlines()
    assert [int(path.rsplit("_", 1)[1]) for path in done] == steps, done
    again = quintet(*ask)
    assert not again.out and again.err.count("has been evaluated") == len(steps), again
    log.write_text("\n".join(done[1:]))
    assert [json.loads(line)["step"] for line in quintet(*ask).out.splitlines()] == steps[:1]
    assert log.read_text().splitlines() == done


def test_all_goes_on_past_a_checkpoint_that_is_deleted_meanwhile(folder):
    run = folder / "run"
    quintet(*tiny(run, 4, "--gin.utils.SaveCheckpointConfig.period=2"))
    steps = e2e.steps_of(run)
    process = e2e.start("eval", f"--model_dir={run}", "--checkpoint=all", "--task=number_to_words", "--samples=500",
                        "--num_examples=500", "--batch_size=500")
    # More samples than a pipe of one page holds: the program has listed the checkpoints, is at the first, and waits.
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
    select.select([process.stderr], [], [])
    (run / f"checkpoint_{steps[-1]}").rename(run / f".trash-checkpoint_{steps[-1]}")
    out, err = process.communicate(timeout=60 * e2e.PATIENCE)
    assert process.returncode == 0, err.decode()[-2000:]
    assert f"checkpoint_{steps[-1]} was deleted meanwhile" in err.decode(), err.decode()[-2000:]
    assert [json.loads(line)["step"] for line in out.splitlines()] == steps[:-1]


def test_follow_evaluates_checkpoints_as_they_appear_and_ends_with_the_run(folder):
    run = folder / "run"
    follow = ["eval", run, "--follow", "--num_examples=2", "--task=number_to_words", f"--output_dir={folder / 'out'}"]
    process = e2e.start(*follow)
    assert b"to begin" in process.stderr.readline()
    quintet(*tiny(run, 4, "--gin.utils.SaveCheckpointConfig.period=2"))
    out, err = process.communicate(timeout=60 * e2e.PATIENCE)
    assert process.returncode == 0 and json.loads(out.splitlines()[-1])["step"] == 4, (out, err)

    # A run that was killed keeps its lock: whoever starts it again is waited for.
    (run / "LOCK").write_text("host elsewhere pid 1 started 2026-01-01T00:00:00Z\n")
    process = e2e.start(*follow)
    while b"waits for a checkpoint" not in (line := process.stderr.readline()):
        assert line, process.wait()
    quintet(*tiny(run, 6, "--gin.utils.SaveCheckpointConfig.period=2"))
    out, err = process.communicate(timeout=60 * e2e.PATIENCE)
    assert process.returncode == 0 and [json.loads(line)["step"] for line in out.splitlines()] == [6], (out, err)

    (run / "LOCK").write_text("")
    process = e2e.start(*follow)
    while b"waits for a checkpoint" not in (line := process.stderr.readline()):
        assert line, process.wait()
    process.send_signal(signal.SIGINT)
    assert process.wait(60 * e2e.PATIENCE) == 75
    (run / "LOCK").unlink()
    assert "expected the directory of one run" in quintet(*follow, "--checkpoint=4", expect=2).err
    (folder / "others").mkdir()
    (folder / "others" / "notes").write_text("no run")
    quintet("eval", folder / "others", "--follow", expect=3)
    for checkpoint in run.glob("checkpoint_*"):
        checkpoint.rename(folder / checkpoint.name)
    assert "no run trains here, and there is no checkpoint" in quintet(*follow, expect=3).err


MIXTURE = """
from __gin__ import dynamic_registration
import seqio
from quintet import data

seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.Task:
  preprocessors = [@seqio.preprocessors.tokenize, @seqio.preprocessors.append_eos]
  output_features = {{'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}}
both/data.TsvDataSource.split_to_filepattern = {{'train': '{file}', 'validation': '{file}'}}
both/seqio.Task:
  name = 'both'
  source = @both/data.TsvDataSource()
one/data.TsvDataSource.split_to_filepattern = {{'train': '{file}'}}
one/seqio.Task:
  name = 'only_train'
  source = @one/data.TsvDataSource()
seqio.TaskRegistry.tasks = [@both/seqio.Task(), @one/seqio.Task()]
seqio.Mixture:
  name = 'mixed'
  tasks = ['both', 'only_train']
  default_rate = 1.0
seqio.MixtureRegistry.mixtures = [@seqio.Mixture()]
"""


def test_teacher_forced_evaluation_skips_tasks_without_the_split(folder):
    (folder / "pairs.tsv").write_text("".join(f"question {i}\tanswer {i}\n" for i in range(20)))
    (folder / "mixed.gin").write_text(MIXTURE.format(file=folder / "pairs.tsv"))
    gin = f"--gin_file={folder}/mixed.gin"
    done = quintet(*tiny(folder / "run", 4, gin, "--gin.TASK='mixed'"))
    assert done.err.count("task 'only_train' has no split 'validation' and is skipped") == 1, done
    evaluated = {record["run"] for record in lines(folder / "run" / "metrics.jsonl") if "run" in record}
    assert {"training_eval/both", "training_eval/mixed"} <= evaluated, evaluated
    assert not any("only_train" in run for run in evaluated), evaluated
    # None of a mixture has it: an error, as in T5X. A task by itself is skipped.
    wrong = "--gin.train_eval/utils.DatasetConfig.split='test'"
    assert "split 'test'" in quintet(*tiny(folder / "a", 4, gin, "--gin.TASK='mixed'", wrong), expect=2).err
    alone = quintet(*tiny(folder / "b", 4, gin, "--gin.TASK='only_train'"))
    assert alone.err.count("task 'only_train' has no split 'validation' and is skipped") == 1, alone
    assert {record["run"] for record in lines(folder / "b" / "metrics.jsonl")} == {"train"}


def test_teacher_forced_evaluation_reads_a_small_set_until_eval_steps_batches_are_full(folder):
    (folder / "pairs.tsv").write_text("".join(f"question {i}\tanswer {i}\n" for i in range(3)))
    (folder / "mixed.gin").write_text(MIXTURE.format(file=folder / "pairs.tsv"))
    batch = "--gin.train_eval/utils.DatasetConfig.batch_size=4"
    losses = {}
    for steps in (3, 6):  # 12 and 24 rows: each example 4 and 8 times
        quintet(*tiny(folder / f"run{steps}", 4, f"--gin_file={folder}/mixed.gin", "--gin.TASK='both'", batch,
                      f"--gin.train_script.train.eval_steps={steps}"))
        record = next(record for record in lines(folder / f"run{steps}" / "metrics.jsonl")
                      if record.get("run") == "training_eval/both")
        assert record["timing/seqs"] == 4 * steps and record["timing/steps_per_second"] > 0, record
        assert record["timing/seqs_per_second_per_core"] == record["timing/seqs_per_second"], record
        assert record["timing/target_tokens_per_second"] > record["timing/seqs_per_second"], record
        losses[steps] = record["loss"]
    # A mean over whole batches; with padded or missing rows a step's loss would be lower.
    assert abs(losses[6] - losses[3]) < 1e-5 * losses[3], losses


def test_ranks_share_the_examples_and_give_one_ranks_metrics(folder):
    train_judged(folder, results="6")  # of which one metric is made of scores
    ask = ["eval", f"--model_dir={folder}/run", "--samples=3"]
    alone = quintet(*ask, f"--output_dir={folder}/alone")
    shared = e2e.mpirun(e2e.QUINTET, 3, *ask, f"--output_dir={folder}/shared")
    assert shared.code == 0 and shared.out == alone.out and json.loads(alone.out)["examples"] == 11, (alone, shared)
    assert shared.err.count("->") == 3, shared.err
    for name in ("judged.jsonl", "judged-metrics.jsonl"):
        for file in (folder / "alone").rglob(f"*{name}"):
            assert (folder / "shared" / file.relative_to(folder / "alone")).read_bytes() == file.read_bytes(), file
    held = e2e.mpirun(e2e.QUINTET, 2, *ask, "--num_partitions=2")
    assert held.code == 0 and held.out == alone.out, held


def test_a_training_evaluator_gives_the_losses_of_training(folder):
    run, out = folder / "run", folder / "out"
    quintet(*tiny(run, 4))
    gin = folder / "eval.gin"
    gin.write_text(TRAINING_EVALUATOR.format(run=run, out=out))
    steps = "utils.get_training_eval_datasets.eval_steps"
    ask = ["eval", f"--gin_file={gin}", *(flag for flag in e2e.TINY if ".T5Config." in flag)]
    assert f"bind {steps}" in quintet(*ask, expect=2).err
    result = quintet(*ask, f"--gin.{steps}=1")
    trained = {record["run"]: record for record in lines(run / "metrics.jsonl") if record.get("step") == 4}
    printed = {f"training_eval/{line['training_eval']}": line for line in map(json.loads, result.out.splitlines())
               if "training_eval" in line}
    assert set(printed) == {name for name in trained if name.startswith("training_eval/")} and len(printed) == 3, result
    written = {record["run"]: record for record in lines(out / "metrics.jsonl")}
    for name, line in printed.items():
        for loss in ("loss", "accuracy", "loss_per_nonpadding_target_token"):
            assert abs(line[loss] - trained[name][loss]) <= 1e-6 * trained[name][loss], (name, line, trained[name])
        assert written[name]["loss"] == line["loss"], written
    three = f"--gin.{steps}=3"
    printed = {}
    for ranks in (1, 2):
        shared = e2e.mpirun(e2e.QUINTET, ranks, *ask, three, f"--gin.script.evaluate.output_dir='{folder}/out{ranks}'")
        assert shared.code == 0, shared
        printed[ranks] = shared.out.splitlines()
    assert printed[1] == printed[2] and len(printed[1]) > 3, printed
    quantized = quintet(*ask, f"--gin.{steps}=1", "--quantize=int8", expect=2)
    assert "losses are computed in float32 alone" in quantized.err, quantized
    # Training has a number of its own, so there the binding is told to have no effect.
    told = quintet(*tiny(folder / "told", 3, f"--gin.{steps}=3"))
    assert f"t5x.{steps} = 3 has no effect" in told.err, told


e2e.run(globals())
