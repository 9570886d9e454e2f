"""tfds_prepare/: miniatures of published archives that we wrote in their documented layouts, and what TFDS prepares of them.

Reference: tensorflow-datasets 4.9.10. Run with $ORACLE_ENVS/seqio/bin/python gen_tfds_prepare.py --out DIR/tfds_prepare.
  archives/<name>/...   the archives, unpacked
  datasets.json         for each data set: its archive, its features.json and labels, and each split's examples in the order of TFDS's files

gen_tfds_prepare.py --check DATA_DIR --out DIR/tfds_prepare reads by TFDS what `quintet data prepare` made, and compares.
"""
import argparse
import json
import os
import pathlib
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.utils import gcs_utils
from tensorflow_datasets.datasets.squad import squad_dataset_builder
from tensorflow_datasets.text import glue

WORDS = "the cat sat on a mat while rain fell over seven quiet hills and nobody said “why” naïvely".split()
gcs_utils._is_gcs_disabled = True


class Text:
  def __init__(self, seed):
    self.rng = np.random.default_rng(seed)

  def sentence(self):
    return " ".join(self.rng.choice(WORDS, self.rng.integers(3, 9)))

  def choice(self, items):
    return items[self.rng.integers(len(items))]


def table(path, header, rows, end="\n"):
  path.parent.mkdir(parents=True, exist_ok=True)
  lines = ([header] if header else []) + rows
  path.write_bytes("".join("\t".join(map(str, row)) + end for row in lines).encode())


def write_glue(folder, text):
  """The nine tasks and the diagnostic set, 23 rows a file; odd rows: too short, quoted, of Windows' line ends."""
  count = 23

  def rows(*columns):
    return [[column(i) for column in columns] for i in range(count)]

  index, sentence = lambda i: i, lambda i: text.sentence()
  label = lambda *names: lambda i: text.choice(names)
  kinds = {
      "SST-2": (("sentence", "label"), (sentence, label("0", "1")), ("index", "sentence"), (index, sentence)),
      "QQP": (("id", "qid1", "qid2", "question1", "question2", "is_duplicate"), (index, index, index, sentence, sentence, label("0", "1")),
              ("id", "question1", "question2"), (index, sentence, sentence)),
      "STS-B": (("index", "genre", "sentence1", "sentence2", "score"), (index, label("news"), sentence, sentence, label("0.000", "3.750", "5.000", "1.2")),
                ("index", "genre", "sentence1", "sentence2"), (index, label("news"), sentence, sentence)),
      "QNLI": (("index", "question", "sentence", "label"), (index, sentence, sentence, label("entailment", "not_entailment")),
               ("index", "question", "sentence"), (index, sentence, sentence)),
      "RTE": (("index", "sentence1", "sentence2", "label"), (index, sentence, sentence, label("entailment", "not_entailment")),
              ("index", "sentence1", "sentence2"), (index, sentence, sentence)),
      "WNLI": (("index", "sentence1", "sentence2", "label"), (index, sentence, sentence, label("0", "1")),
               ("index", "sentence1", "sentence2"), (index, sentence, sentence)),
  }
  for name, (header, columns, test_header, test_columns) in kinds.items():
    for part in "train", "dev":
      table(folder / name / f"{part}.tsv", header, rows(*columns), "\r\n" if name == "RTE" else "\n")
    table(folder / name / "test.tsv", test_header, rows(*test_columns))
  with open(folder / "QQP" / "train.tsv", "a") as file:
    file.write("99\t1\t2\tonly a question\n\n100\t3\t4\t\"quoted\tquestion\"\t0\n")
  for part in "train", "dev":
    table(folder / "CoLA" / f"{part}.tsv", None, rows(label("gj04"), label("0", "1"), label("", "*"), sentence))
  table(folder / "CoLA" / "test.tsv", ("index", "sentence"), rows(index, sentence))
  inference = label("entailment", "neutral", "contradiction")
  for part in "train", "dev_matched", "dev_mismatched":
    table(folder / "MNLI" / f"{part}.tsv", ("index", "sentence1", "sentence2", "gold_label"), rows(index, sentence, sentence, inference))
  for part in "test_matched", "test_mismatched":
    table(folder / "MNLI" / f"{part}.tsv", ("index", "sentence1", "sentence2"), rows(index, sentence, sentence))
  table(folder / "AX" / "AX.tsv", ("index", "sentence1", "sentence2"), rows(index, sentence, sentence))
  pairs = rows(label("0", "1"), lambda i: 100 + i, lambda i: 200 + i, sentence, sentence)
  header = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
  for part in "train", "test":
    table(folder / "MRPC" / f"msr_paraphrase_{part}.txt", header, pairs)
  path = folder / "MRPC" / "msr_paraphrase_train.txt"
  path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
  table(folder / "MRPC" / "mrpc_dev_ids.tsv", None, [row[1:3] for row in pairs[::4]])


def write_squad(folder, text):
  folder.mkdir(parents=True)
  for part in "train", "dev":
    for version in "v1.1", "v2.0":
      articles = []
      for article in range(3):
        questions = []
        for i in range(5):
          answers = [{"text": text.choice(WORDS), "answer_start": int(text.rng.integers(0, 50))} for _ in range(text.rng.integers(1, 4))]
          question = {"id": f"{part}{article}{i}", "question": text.sentence(), "answers": answers}
          if version == "v2.0":
            question["is_impossible"] = i % 2 == 1
            if question["is_impossible"]:
              question |= {"answers": [], "plausible_answers": answers}
          questions.append(question)
        if version == "v1.1":
          questions.append({**questions[0], "answers": [{"text": "again", "answer_start": 7}]})
        articles.append({"title": f"Article {article}", "paragraphs": [{"context": text.sentence(), "qas": questions}]})
      (folder / f"{part}-{version}.json").write_text(json.dumps({"version": version, "data": articles}))


class Archive:
  """In place of TFDS's download manager: the folder in which an archive was unpacked."""

  def __init__(self, folder):
    self.folder = folder

  def download_and_extract(self, urls):
    return self.download(urls) if isinstance(urls, dict) else str(self.folder)

  def download(self, urls):
    if isinstance(urls, dict):
      return {name: self.download(url) for name, url in urls.items()}
    if "mrpc_dev_ids" in urls:
      return str(self.folder / "MRPC" / "mrpc_dev_ids.tsv")
    if "bit.ly" in urls:
      return str(self.folder / "AX" / "AX.tsv")
    name = urls.rsplit("/", 1)[1]
    return str(next(self.folder.rglob(name)))


def builder_of(cls, config, folder, data_dir):
  builder = cls(config=config, data_dir=data_dir)
  split_generators = builder._split_generators
  builder._split_generators = lambda dl_manager, *rest: split_generators(Archive(folder))
  return builder


def plain(value):
  if isinstance(value, dict):
    return {name: plain(item) for name, item in value.items()}
  if isinstance(value, np.ndarray):
    return [plain(item) for item in value]
  if isinstance(value, bytes):
    return value.decode()
  return value.item() if isinstance(value, np.generic) else value


def contents(builder):
  examples = {split: [plain(one) for one in tfds.as_numpy(builder.as_dataset(split=split))] for split in builder.info.splits}
  files = {}
  for path in sorted(pathlib.Path(builder.data_dir).iterdir()):
    if path.name == "features.json":
      files[path.name] = json.loads(path.read_text())
    elif path.name.endswith(".labels.txt"):
      files[path.name] = path.read_text()
  return {"splits": examples, "files": files, "sizes": {name: [split.num_bytes, split.shard_lengths] for name, split in builder.info.splits.items()}}


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--out", type=pathlib.Path, required=True)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--check", type=pathlib.Path)
  arguments = parser.parse_args()
  if arguments.check:
    for name, recorded in json.loads((arguments.out / "datasets.json").read_text()).items():
      found = contents(tfds.builder_from_directory(str(next((arguments.check / name).iterdir()))))
      for what in "splits", "sizes":
        assert json.loads(json.dumps(found[what])) == recorded[what], (name, what, found[what], recorded[what])
      print(name, {split: len(examples) for split, examples in found["splits"].items()})
    return
  archives = arguments.out / "archives"
  write_glue(archives / "glue", Text(arguments.seed))
  write_squad(archives / "squad", Text(arguments.seed + 1))
  datasets = {}
  with tempfile.TemporaryDirectory() as folder:
    for cls, archive in (glue.Glue, "glue"), (squad_dataset_builder.Builder, "squad"):
      for config in cls.BUILDER_CONFIGS:
        builder = builder_of(cls, config.name, archives / archive, folder)
        builder.download_and_prepare()
        datasets[f"{archive}/{config.name}"] = {"archive": archive, "version": str(builder.version), **contents(builder)}
  (arguments.out / "datasets.json").write_text(json.dumps(datasets, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
  main()
