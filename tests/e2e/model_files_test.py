"""Each model's gin file that is shipped, with its sizes made tiny, trains three steps, evaluates and generates."""

import json
import math
import os
import pathlib

import e2e
from e2e import ROOT, quintet

CONFIGS = ROOT / "models" / "configs"
FIXTURES = pathlib.Path(os.environ.get("QUINTET_FIXTURES", ROOT / "tests" / "fixtures"))
TINY = {"emb_dim": 16, "num_heads": 2, "head_dim": 8, "mlp_dim": 16, "num_layers": 1, "num_encoder_layers": 2,
        "num_decoder_layers": 2, "embed_dim": 16, "num_experts": 4, "num_encoder_sparse_layers": 1,
        "num_decoder_sparse_layers": 1, "group_size": 64}
WORDS = "".join(f"words: {number}\t{name}\n" for number, name in enumerate("one two three four five six seven".split(), 1))

# Its features have the model's own vocabulary.
TASK = """from __gin__ import dynamic_registration
import seqio
import quintet.data
from t5.evaluation import metrics
{imports}
{includes}
features/seqio.Feature.vocabulary = %VOCABULARY
lines/quintet.data.TsvDataSource.split_to_filepattern = {{'train': '{folder}/words.tsv', 'validation': '{folder}/words.tsv'}}
words/seqio.Task:
  name = 'words'
  source = @lines/quintet.data.TsvDataSource()
  preprocessors = [@seqio.preprocessors.tokenize, @seqio.preprocessors.append_eos]
  output_features = {{'inputs': @features/seqio.Feature(), 'targets': @features/seqio.Feature()}}
  metric_fns = [@metrics.sequence_accuracy]
seqio.TaskRegistry.tasks = [@words/seqio.Task()]
"""


def parsed(file):
    return json.loads(quintet("config", "--format=json", "--parse_only", file).out)


def model_files():
    """Those that a run includes: not an example, which is a run itself, nor a part of a model."""
    for path in sorted(CONFIGS.rglob("*.gin")):
        file = str(path.relative_to(CONFIGS))
        if path.parent.name not in ("examples", "runs", "quintet") and path.name != "base_model.gin" and "MODEL" in parsed(file)["macros"]:
            yield file


def tiny(said):
    """Bindings that make the sizes tiny, whether the file says them as macros or as parameters of a configuration."""
    names = [*said["macros"], *(name for name in said["bindings"] if "Config." in name)]
    return [f"--gin.{name}={TINY[size]}" for name in names if (size := name.rpartition(".")[2].lower()) in TINY]


def try_out(file, folder):
    said = parsed(file)
    is_run = "train_script.train.model" in said["bindings"]
    runs = "t5x/contrib/moe/configs/runs" if "NUM_EXPERTS" in said["macros"] else "t5x/configs/runs"
    text = TASK.format(imports="\n".join(line for line in said["imports"] if "__gin__" not in line), folder=folder,
                       includes="\n".join(f"include '{name}'" for name in [file, *([] if is_run else [f"{runs}/pretrain.gin"])]))
    (folder / "run.gin").write_text(text)
    bindings = {"MIXTURE_OR_TASK_NAME": "'words'", "TASK_FEATURE_LENGTHS": "{'inputs': 16, 'targets': 8}", "TRAIN_STEPS": 3,
                "BATCH_SIZE": 4, "DROPOUT_RATE": 0.1, "train_script.train.random_seed": 0, "train_script.train.eval_steps": 1,
                "utils.CheckpointConfig.restore": None, "train/utils.DatasetConfig.use_cached": False,
                "train_eval/utils.DatasetConfig.use_cached": False}
    if is_run:
        bindings["partitioning.PjitPartitioner.model_parallel_submesh"] = (1, 1, 1, 1)
    if "TRAIN_EVAL_MIXTURE_OR_TASK_NAME" in said["macros"]:
        bindings["TRAIN_EVAL_MIXTURE_OR_TASK_NAME"] = "'words'"
    if "adafactor.Adafactor.step_offset" in said["bindings"]:  # of a checkpoint to start from, which is not read
        bindings["adafactor.Adafactor.step_offset"] = 0
    if "NUM_EXPERTS" in said["macros"]:
        bindings["NUM_MODEL_PARTITIONS"] = 1
    if "seqio.SentencePieceVocabulary.sentencepiece_model_file" in said["bindings"]:
        bindings["seqio.SentencePieceVocabulary.sentencepiece_model_file"] = f"'{FIXTURES}/seqio/vocab/bpe_nofallback.model'"
    model = folder / "model"
    quintet("train", f"--gin_file={folder}/run.gin", *tiny(said), f"--model_dir={model}",
            *(f"--gin.{name}={value}" for name, value in bindings.items()))
    losses = [record["loss"] for record in e2e.metrics(model) if record["run"] == "train"]
    assert losses and all(map(math.isfinite, losses)), (file, losses)
    evaluated = [json.loads(line) for line in quintet("eval", f"--model_dir={model}", "--task=words").out.splitlines()]
    assert evaluated and all("sequence_accuracy" in record for record in evaluated), (file, evaluated)
    answers = quintet("generate", f"--model_dir={model}", "--max_decode_len=4", "--format=json", "words: 3", "words: 5").out
    assert [json.loads(line)["input"] for line in answers.splitlines()] == ["words: 3", "words: 5"], (file, answers)


def test_model_files(folder):
    files = list(model_files())
    assert len(files) > 60, files
    failed = []
    for place, file in enumerate(files):
        here = folder / str(place)
        here.mkdir()
        (here / "words.tsv").write_text(WORDS)
        try:
            try_out(file, here)
        except Exception as error:  # all of them are told at once
            failed.append(f"{file}: {error}")
    assert not failed, "\n".join(failed)


if __name__ == "__main__":
    e2e.run(globals())
