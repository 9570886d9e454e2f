"""A run's vocabularies are part of it: recorded in its checkpoints, copied beside them, and another one is refused wherever
ids are made or read. Under mpirun so are data files that differ between ranks."""

import json
import shutil
import subprocess

import e2e
from e2e import QUINTET, quintet, steps_of, tiny
from mpi_train_test import ENVIRONMENT, MPIRUN

MODEL = e2e.ROOT / "tests" / "fixtures" / "seqio" / "vocab" / "unigram_bytefallback.model"
TASK = """
from __gin__ import dynamic_registration
import seqio
from quintet import data
VOCABULARY = @seqio.SentencePieceVocabulary()
seqio.SentencePieceVocabulary.sentencepiece_model_file = 'sp.model'
data.TsvDataSource.split_to_filepattern = {'train': 'pairs.tsv', 'validation': 'asked.tsv'}
seqio.Feature.vocabulary = %VOCABULARY
seqio.Task:
  name = 'pairs'
  source = @data.TsvDataSource()
  preprocessors = [@seqio.preprocessors.tokenize, @seqio.CacheDatasetPlaceholder(), @seqio.preprocessors.append_eos]
  output_features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}
  metric_fns = []
seqio.TaskRegistry.tasks = [@seqio.Task()]
"""


def other_model():
    """A model of the same size in which two pieces changed places."""
    bytes_ = MODEL.read_bytes()
    a, b = b"\x0a\x01a", b"\x0a\x01e"
    assert bytes_.count(a) == bytes_.count(b) == 1
    changed = bytes_.replace(a, b"\0\0\0").replace(b, a).replace(b"\0\0\0", b)
    assert len(changed) == len(bytes_) and changed != bytes_
    return changed


def prepared(folder):
    """A folder with a task's files, and the command line of a run of it."""
    folder.mkdir(exist_ok=True)
    shutil.copy(MODEL, folder / "sp.model")
    for name, numbers in (("pairs.tsv", range(50)), ("asked.tsv", range(50, 54))):
        (folder / name).write_text("".join(f"question {i}\tanswer {i * 7 % 50}\n" for i in numbers))
    (folder / "task.gin").write_text(TASK)
    return ["--gin_file=task.gin", "--gin.TASK='pairs'", "--gin.network.T5Config.vocab_size=2048",
            "--gin.train_script.train.train_eval_dataset_cfg=None"]


def trained(folder, *more):
    task = prepared(folder)
    quintet(*tiny("run", 10, *task, *more), cwd=folder)
    return task


def refused(folder, *arguments, code=3):
    """Exit 3 with both: size and checksum of what was recorded and of what was found."""
    result = quintet(*arguments, expect=code, cwd=folder)
    size = MODEL.stat().st_size
    assert result.err.count(f"({size} bytes, CRC-32C ") == 2, result
    assert "vocabularies/" in result.err and "sp.model" in result.err, result
    return result


def test_another_vocabulary_is_refused_by_every_verb(folder):
    task = trained(folder)
    quintet("convert", "--model_dir=run", "--quantize=int8", "--output=small", cwd=folder)
    (folder / "sp.model").write_bytes(other_model())
    for run in ("run", "run/checkpoint_0", "small"):
        refused(folder, "generate", f"--model_dir={run}", "question 3")
    refused(folder, *tiny("run", 20, *task))
    refused(folder, "eval", "--model_dir=run", "--task=pairs", "--split=validation")
    refused(folder, "infer", "--model_dir=run", "--task=pairs", "--output_dir=answers")
    refused(folder, "serve", "--model_dir=run", "--port=0")
    refused(folder, "convert", "--model_dir=run", "--quantize=int8", "--output=smaller")
    assert steps_of(folder / "run") == [0, 10]
    shutil.copy(MODEL, folder / "sp.model")
    quintet(*tiny("run", 20, *task), cwd=folder)


def test_options_that_change_ids_are_another_vocabulary(folder):
    task = trained(folder)
    more = "--gin.seqio.SentencePieceVocabulary.extra_ids=5"
    result = quintet(*tiny("run", 20, *task, more), expect=3, cwd=folder)
    assert "inputs was SentencePieceVocabulary(pieces=400" in result.err and "extra_ids" in result.err, result
    (folder / "sp.model").write_bytes(MODEL.read_bytes() + b"\x12\x00")  # the same pieces
    result = quintet("generate", "--model_dir=run", "question 3", expect=3, cwd=folder)
    assert f"({MODEL.stat().st_size} bytes" in result.err and f"({MODEL.stat().st_size + 2} bytes" in result.err, result
    bytes_ = ["--gin.VOCABULARY=@seqio.ByteVocabulary()"]
    result = quintet(*tiny("run", 20, *task, *bytes_), expect=3, cwd=folder)
    assert "found ByteVocabulary(extra_ids=0)" in result.err, result


def test_a_run_carries_its_vocabularies(folder):
    """Moved, and without the file that it was trained with, it generates the same and goes on."""
    task = trained(folder)
    quintet("convert", "--model_dir=run", "--quantize=int8", "--output=small", cwd=folder)
    before = quintet("generate", "--model_dir=run", "question 3", cwd=folder).out
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    shutil.move(folder / "run", elsewhere / "moved")
    shutil.move(folder / "small", elsewhere / "small")
    (folder / "sp.model").unlink()
    result = quintet("generate", "--model_dir=moved", "question 3", cwd=elsewhere)
    assert result.out == before, (result, before)
    assert result.err.count("sp.model: is not there; reading the run's own copy moved/vocabularies/") == 1, result
    quintet("generate", "--model_dir=small", "question 3", cwd=elsewhere)
    quintet(*tiny("elsewhere/moved", 20, *task), cwd=folder)
    (copy,) = (elsewhere / "moved" / "vocabularies").glob("*-sp.model")
    assert copy.read_bytes() == MODEL.read_bytes()
    copy.write_bytes(other_model())  # a copy is compared, too
    refused(elsewhere, "generate", "--model_dir=moved", "question 3")
    copy.unlink()
    lost = quintet("generate", "--model_dir=moved", "question 3", expect=3, cwd=elsewhere)
    assert "sp.model" in lost.err and "moved/vocabularies/" in lost.err, lost


def test_two_files_of_one_name_are_both_kept(folder):
    task = prepared(folder)
    (folder / "in").mkdir()
    (folder / "in" / "sp.model").write_bytes(other_model())
    (folder / "two.gin").write_text("""
INPUTS = @inputs/seqio.SentencePieceVocabulary()
inputs/seqio.SentencePieceVocabulary.sentencepiece_model_file = 'in/sp.model'
inputs/seqio.Feature.vocabulary = %INPUTS
models.EncoderDecoderModel.input_vocabulary = %INPUTS
seqio.Task.output_features = {'inputs': @inputs/seqio.Feature(), 'targets': @seqio.Feature()}
""")
    command = tiny("run", 10, *task, "--gin_file=two.gin")
    quintet(*command, cwd=folder)
    kept = sorted((folder / "run" / "vocabularies").glob("*-sp.model"))
    assert sorted(path.read_bytes() for path in kept) == sorted([MODEL.read_bytes(), other_model()]), kept
    (folder / "in" / "sp.model").write_bytes(MODEL.read_bytes())
    assert "model.input_vocabulary was" in refused(folder, "generate", "--model_dir=run", "question 3").err
    (folder / "in" / "sp.model").unlink()
    quintet("generate", "--model_dir=run", "question 3", cwd=folder)


def test_checkpoints_from_before_warn(folder):
    """Their state names no vocabularies."""
    trained(folder)
    shutil.rmtree(folder / "run" / "vocabularies")
    for manifest in (folder / "run").glob("checkpoint_*/MANIFEST.json"):
        text = manifest.read_text()
        body = text[:text.rindex(',\n"crc32c":"')]
        begin = body.index(',"vocabularies":', body.index('"state":'))
        body = body[:begin] + "}"
        manifest.write_text(f'{body},\n"crc32c":"{crc32c(body.encode()):08x}"}}\n')
    (folder / "sp.model").write_bytes(other_model())
    result = quintet("generate", "--model_dir=run", "question 3", cwd=folder)
    assert "warning" in result.err and "does not say with which vocabularies" in result.err, result


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_another_runs_checkpoint_is_started_from_with_its_vocabularies(folder):
    task = trained(folder)
    (folder / "sp.model").write_bytes(other_model())
    start = ["--gin.utils.CheckpointConfig.restore=@utils.RestoreCheckpointConfig()",
             "--gin.utils.RestoreCheckpointConfig.path='run'", "--gin.utils.RestoreCheckpointConfig.mode='latest'"]
    result = refused(folder, *tiny("tuned", 12, *task, *start))
    assert "verify_matching_vocabs_fn = None" in result.err, result
    result = quintet(*tiny("tuned", 12, *task, *start, "--gin.train_script.train.verify_matching_vocabs_fn=None"), cwd=folder)
    assert "warning" in result.err and "was trained with another vocabulary" in result.err, result


def test_task_and_model_must_have_the_same_vocabulary(folder):
    """T5X's verify_matching_vocabs."""
    task = prepared(folder)
    other = "--gin.models.EncoderDecoderModel.input_vocabulary=@seqio.ByteVocabulary()"
    result = quintet(*tiny("run", 10, *task, other), expect=2, cwd=folder)
    for word in ("task 'pairs'", "model.input_vocabulary", "ByteVocabulary", "SentencePieceVocabulary",
                 "verify_matching_vocabs_fn = None"):
        assert word in result.err, (word, result)
    verify = "--gin.train_script.train.verify_matching_vocabs_fn=@utils.verify_matching_vocabs"
    assert "task 'pairs'" in quintet(*tiny("run", 10, *task, other, verify), expect=2, cwd=folder).err
    none = "--gin.models.EncoderDecoderModel.output_vocabulary=None"
    assert "model.output_vocabulary is None" in quintet(*tiny("run", 10, *task, none), expect=2, cwd=folder).err
    quintet(*tiny("run", 10, *task, other, "--gin.train_script.train.verify_matching_vocabs_fn=None"), cwd=folder)
    result = quintet("eval", "--model_dir=run", "--task=pairs", "--num_examples=2", expect=2, cwd=folder)
    assert "'pairs' has no metric" in result.err and "vocabular" not in result.err, result
    quintet(*tiny("same", 4, *task), cwd=folder)
    for verb in (["eval"], ["infer", "--output_dir=answers"]):
        result = quintet(*verb, "--model_dir=same", "--task=number_words", expect=2, cwd=folder)
        assert "task 'number_" in result.err and "different vocabularies" in result.err, result
    # Also where the model has not even ids for the other vocabulary.
    few = ["--gin.network.T5Config.vocab_size=200", "--gin.models.EncoderDecoderModel.input_vocabulary=@few/seqio.PassThroughVocabulary()",
           "--gin.models.EncoderDecoderModel.output_vocabulary=@few/seqio.PassThroughVocabulary()", "--gin.few/seqio.PassThroughVocabulary.size=200"]
    assert "different vocabularies" in quintet(*tiny("few", 4, *task, *few), expect=2, cwd=folder).err


def test_ids_beyond_the_models_are_refused(folder):
    small = ["--gin.network.T5Config.vocab_size=256"]
    result = quintet(*tiny(folder / "run", 10, *small), expect=2)
    for word in ("259 ids", "vocab_size 256", "network.T5Config.vocab_size", "ByteVocabulary"):
        assert word in result.err, (word, result)
    assert not steps_of(folder / "run")
    quintet(*tiny(folder / "run", 10, "--gin.network.T5Config.vocab_size=259"))
    more = "--gin.seqio.ByteVocabulary.extra_ids=1"  # now 260
    for verb in (["generate", "words: 1"], ["serve", "--port=0"], ["eval"], ["infer", f"--output_dir={folder / 'answers'}"]):
        result = quintet(verb[0], f"--model_dir={folder / 'run'}", more, *verb[1:], expect=2)
        assert "260 ids" in result.err and "vocab_size 259" in result.err, result


def test_caches_are_of_a_vocabulary(folder):
    """Of a vocabulary's file, too: one in which the pieces are the same is still another."""
    prepared(folder)
    cache = ["cache", "--gin_file=task.gin", "--output_cache_dir=cache"]
    quintet(*cache, cwd=folder)
    (folder / "sp.model").write_bytes(other_model())
    result = quintet(*cache, expect=3, cwd=folder)
    assert "was cached with vocabulary" in result.err and result.err.count("bytes, CRC-32C") == 2, result
    # Cached as text, whatever makes ids of it later.
    task = folder / "task.gin"
    task.write_text(TASK.replace("[@seqio.preprocessors.tokenize, @seqio.CacheDatasetPlaceholder()",
                                 "[@seqio.CacheDatasetPlaceholder(), @seqio.preprocessors.tokenize"))
    texts = ["cache", "--gin_file=task.gin", "--output_cache_dir=texts"]
    quintet(*texts, cwd=folder)
    shutil.copy(MODEL, folder / "sp.model")
    assert "is cached at" in quintet(*texts, cwd=folder).out


def on_two_ranks(first, second, *arguments):
    """One command as two ranks, each in its own folder: relative paths name files of different hosts."""
    ranks = [["-n", "1", "env", "-C", str(folder), QUINTET, *map(str, arguments)] for folder in (first, second)]
    done = subprocess.run([*MPIRUN, *ranks[0], ":", *ranks[1]], capture_output=True, env=ENVIRONMENT,
                          timeout=120 * e2e.PATIENCE, stdin=subprocess.DEVNULL)
    return e2e.Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def test_ranks_with_other_files_are_refused(folder):
    task = prepared(folder / "one")
    prepared(folder / "two")
    arguments = tiny(folder / "run", 4, *task)
    evaluated = "--gin.train_script.train.train_eval_dataset_cfg=@train_eval/utils.DatasetConfig()"

    def differ(file, *more):
        result = on_two_ranks(folder / "one", folder / "two", *arguments, *more)
        assert result.code == 2 and "different data file or vocabulary" in result.err, result
        for word in ("rank 0 on", "rank 1 on", file, "bytes, CRC-32C"):
            assert word in result.err, (word, result)
        assert not steps_of(folder / "run")

    def exchange(file):  # a digit, so that sizes stay
        path = folder / "two" / file
        text = path.read_text()
        path.write_text(text.replace("answer 7\n", "answer 8\n", 1))
        assert path.read_text() != text
        return lambda: path.write_text(text)

    back = exchange("pairs.tsv")
    differ("pairs.tsv")
    differ("pairs.tsv", "--data_service_ranks=1")
    back()
    back = exchange("asked.tsv")
    differ("asked.tsv", evaluated)
    back()
    (folder / "two" / "sp.model").write_bytes(other_model())
    differ("sp.model")
    shutil.copy(MODEL, folder / "two" / "sp.model")
    same = on_two_ranks(folder / "one", folder / "two", *arguments)
    assert same.code == 0, same


def test_ranks_that_cache_other_files_are_refused(folder):
    task = prepared(folder / "one")
    prepared(folder / "two")
    (folder / "two" / "sp.model").write_bytes(other_model())
    result = on_two_ranks(folder / "one", folder / "two", "cache", *[flag for flag in task if "gin_file" in flag],
                          f"--output_cache_dir={folder / 'caches'}")
    assert result.code == 2 and "different data file or vocabulary" in result.err and "sp.model" in result.err, result
    assert not (folder / "caches").exists() or not list((folder / "caches").rglob("*.tfrecord*")), result


if __name__ == "__main__":
    e2e.run(globals())
