"""tfds_prepare/: miniatures of published archives that we wrote in their documented layouts, and what TFDS prepares of them.

Reference: tensorflow-datasets 4.9.10. Run with $ORACLE_ENVS/d/bin/python gen_tfds_prepare.py --out DIR/tfds_prepare.
  archives/<name>/...   the archives, unpacked
  datasets.json         for each data set: its archive, its features.json and labels, and each split's examples in the order of TFDS's files

gen_tfds_prepare.py --check DATA_DIR --out DIR/tfds_prepare reads by TFDS what `quintet data prepare` made, and compares.
"""
import argparse
import gzip
import hashlib
import json
import os
import pathlib
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow_datasets as tfds
import tree
from tensorflow_datasets.core.utils import gcs_utils
from tensorflow_datasets.datasets.squad import squad_dataset_builder
from tensorflow_datasets.summarization import cnn_dailymail
from tensorflow_datasets.text import glue
from tensorflow_datasets.text import super_glue
from tensorflow_datasets.translate import wmt
from tensorflow_datasets.translate import wmt13
from tensorflow_datasets.translate import wmt14
from tensorflow_datasets.translate import wmt15
from tensorflow_datasets.translate import wmt16
from tensorflow_datasets.translate import wmt17
from tensorflow_datasets.translate import wmt18
from tensorflow_datasets.translate import wmt19
from tensorflow_datasets.translate import wmt_t2t

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


def write_super_glue(folder, text):
  sentence, number = text.sentence, lambda: int(text.rng.integers(0, 9))

  def wsc(i):
    whole = "The cat of Anna sat on the mat. She was warm."
    spans = [("The cat of Anna.", 0), ("the cat", 0), ("Anna", 3), ("the\nmat", 6)]
    name, place = spans[i % len(spans)]
    return {"text": whole, "target": {"span1_text": name, "span1_index": place, "span2_text": "She", "span2_index": 8}}

  tasks = {
      "BoolQ": (lambda i: {"question": sentence(), "passage": sentence()}, (True, False)),
      "CB": (lambda i: {"premise": sentence(), "hypothesis": sentence()}, ("entailment", "contradiction", "neutral")),
      "COPA": (lambda i: {"premise": sentence(), "choice1": sentence(), "choice2": sentence(), "question": text.choice(["cause", "effect"])}, (0, 1)),
      "RTE": (lambda i: {"premise": sentence(), "hypothesis": sentence()}, ("entailment", "not_entailment")),
      "WiC": (lambda i: {"word": "cat", "sentence1": sentence(), "sentence2": sentence(), **{name: number() for name in ("start1", "start2", "end1", "end2")}}, (True, False)),
      "WSC": (wsc, (True, False)),
  }

  def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=text.rng.random() < 0.5) + "\n" for row in rows))

  for name, (row, labels) in tasks.items():
    for part in "train", "val", "test":
      lines(folder / name / f"{part}.jsonl",
            [{**row(i), "idx": i, **({} if part == "test" else {"label": text.choice(labels)})} for i in range(13)])
  lines(folder / "AX-b" / "AX-b.jsonl", [{"sentence1": sentence(), "sentence2": sentence(), "idx": i, "label": "entailment"} for i in range(5)])
  lines(folder / "AX-g" / "AX-g.jsonl", [{"premise": sentence(), "hypothesis": sentence(), "idx": i, "label": "not_entailment"} for i in range(5)])
  for part in "train", "val", "test":
    lines(folder / "MultiRC" / f"{part}.jsonl", [
        {"idx": i, "passage": {"text": sentence(), "questions": [
            {"question": sentence(), "idx": 10 * i + q, "answers": [
                {"text": sentence(), "idx": 100 * i + 10 * q + a, **({} if part == "test" else {"label": int(text.rng.integers(0, 2))})} for a in range(3)]}
            for q in range(2)]}} for i in range(4)])
    rows = []
    for i in range(4):
      words = sentence().split()
      whole, entities, at = "“naïve” " + " ".join(words), [], len("“naïve” ")
      for word in words:
        entities.append({"start": at, "end": at + len(word) - 1})
        at += len(word) + 1
      answers = {} if part == "test" else {"answers": [{"start": e["start"], "end": e["end"], "text": whole[e["start"]:e["end"] + 1]} for e in entities[:2]]}
      rows.append({"idx": i, "source": "daily", "passage": {"text": whole, "entities": entities},
                   "qas": [{"idx": 10 * i + q, "query": "@placeholder " + sentence(), **answers} for q in range(2)]})
    lines(folder / "ReCoRD" / f"{part}.jsonl", rows)


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


def write_cnn_dailymail(folder, text):
  for part in "train", "val", "test":
    addresses = [f"http://news.example/{part}/{i}.html" for i in range(6)]
    path = folder / "url_lists" / f"all_{part}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(addresses) + "\n")
    for i, address in enumerate(addresses):
      lines = [text.sentence().capitalize() + end for end in (".", "", " \u2019", "\u00a0", "?")] + ["", "  "]
      if i != 5:  # without highlights: left out
        for _ in range(1 + i % 3):
          lines += ["@highlight", "", text.sentence()]
      name = hashlib.sha1(address.encode()).hexdigest() + ".story"
      path = folder / ("cnn" if i % 2 else "dailymail") / "stories" / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text("\r\n".join(lines) if i == 1 else "\n".join(lines) + "\n", newline="")
  (folder / "cnn" / "stories" / "0123.story").write_text("Of no list.\n\n@highlight\n\nNone.\n")


def write_web_text(folder, text):
  """C4 and The Pile: TFDS makes C4 by Beam of Common Crawl, and The Pile's builder is T5X's; what they give of these is said in expected_web_text."""
  pages = {split: [{"text": text.sentence(), "timestamp": f"2019-04-2{i % 10}T12:57:54Z", "url": f"https://page.example/{split}/{i}"} for i in range(9)]
           for split in ("train", "validation")}
  for split, rows in pages.items():
    for part in range(2):
      path = folder / "c4" / "en" / f"c4-{split}.0000{part}-of-00002.json.gz"
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows[part::2]).encode(), mtime=0))
  lines = {split: [{"text": text.sentence(), "meta": {"pile_set_name": "Github"}} for _ in range(7)] for split in ("train", "val", "test")}
  lines["train"][2]["text"] = ["one", "two"]
  for split, rows in lines.items():
    for part in range(2 if split == "train" else 1):
      path = folder / "the_pile" / ("train" if split == "train" else "") / (f"0{part}.jsonl" if split == "train" else f"{split}.jsonl")
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text("".join(json.dumps(row) + "\n" for row in rows[4 * part:][:4 if split == "train" else 7]))
  return pages, lines


def write_wmt(folder, text):
  """Every published file of the pairs in WMT, by TFDS's own tables; unpacked archives in folders of their names."""
  def pairs(count):
    return [(text.sentence(), text.sentence()) for _ in range(count)]

  def write(path, contents):
    if path.exists():
      return
    path.parent.mkdir(parents=True, exist_ok=True)
    data = contents.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)

  def sgm(sentences):
    return '<srcset setid="x">\n<doc docid="1">\n<p>\n' + "".join(f'<seg id="{i + 1}">{sentence}</seg>\n' for i, sentence in enumerate(sentences)) + " <seg id=\"99\">indented</seg>\n</p>\n</doc>\n"

  def tmx(rows, source, target):
    unit = '<tu tuid="{}"><prop type="score">0.5</prop>\n<tuv xml:lang="{}"><prop/><seg>{}</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>\n'
    texts = [unit.format(i, source, a, target, b) for i, (a, b) in enumerate(rows)]
    texts.append(unit.format("x", source, "a &lt; b &amp; c&#233;<!-- no --><ph>gone</ph> gone", target, "<![CDATA[a < b]]> &#x201c;"))
    texts.append(unit.format("y", source, "", target, "left out"))
    return '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="en"/><body>\n' + "".join(texts) + "</body></tmx>\n"

  for module, source, target in WMT:
    builder = wmt_builder(module, source, target, "/nowhere")
    for name in sorted({name for names in builder.subsets.values() for name in names}):
      subset, rows = wmt.DATASET_MAP[name], pairs(5)
      urls, paths = subset.get_url(source), subset.get_path(source)
      where = [folder / url.rsplit("/", 1)[1] if url.endswith(".gz") and not path else folder / stem_of((subset.get_manual_dl_files(source) or [url])[0]) / path
               for url, path in zip(urls * len(paths), paths)] if len(urls) < len(paths) else [folder / url.rsplit("/", 1)[1] for url in urls] if not paths[0] else [folder / stem_of(urls[0]) / paths[0]]
      if name in wmt.CWMT_SUBSET_NAMES:
        for i, ends in enumerate((("a_ch.txt", "a_en.txt"), ("b_cn.txt", "b_en.txt"))):
          for column, end in enumerate(ends):
            write(folder / name / name / end, "\n".join(row[column] for row in rows[3 * i:3 * i + 3]) + "\n")
      elif name == "czeng_17":
        write(folder / "convert_czeng16_to_17.pl", "my @bad = qw{1\n 23};\n")
        for i in range(10):
          lines = [f"web-b{j}-0{i}train-f-{j}\t0.5\t {a}\t{b}\n" for j, (a, b) in enumerate(pairs(4))]
          write(folder / f"data-plaintext-format.{i}" / "data.plaintext-format" / f"{i}7train.gz", lines[0] + " \n" + "".join(lines[1:]))
      elif name == "czeng_16pre":
        write(folder / "czeng16pre.deduped-ignoring-sections.txt.gz", "".join(f"{a}\t{b}\n" for a, b in rows) + "one column\n")
      elif name == "hindencorp_01":
        where = [folder / "hindencorp0.1.gz"]
        write(where[0], "".join(f"a\tb\tc\t {a}\t{b} \n" for a, b in rows) + "four\tcolumns\tare\tnone\n")
      elif len(where) == 2:
        rows += [("", "left out"), ("with\rreturn", "too\r")]
        for column, path in enumerate(where):
          sentences = [row[column] for row in rows]
          write(path, sgm(sentences) if path.suffix == ".sgm" else "\n".join(sentences) + "\n")
      elif ".tmx" in where[0].name:
        write(where[0], tmx(rows, source, target))
      elif ".tsv" in where[0].name:
        write(where[0], "".join(f" {a}\t{b}\u00a0\n" for a, b in rows) + "three\tcolumns\there\r\nlast\tone\r\n")
      else:
        write(where[0], "".join(f"{a} ||| {b}\n" for a, b in rows))


WMT = [("wmt14", "de", "en"), ("wmt14", "fr", "en"), ("wmt14", "ru", "en"), ("wmt15", "fi", "en"), ("wmt15", "fr", "en"), ("wmt16", "ro", "en"), ("wmt16", "fi", "en"),
       ("wmt19", "de", "en"), ("wmt19", "lt", "en"), ("wmt19", "ru", "en"), ("wmt19", "fr", "de"), ("wmt_t2t", "de", "en"),
       ("wmt13", "es", "en"), ("wmt14", "hi", "en"), ("wmt17", "lv", "en"), ("wmt17", "fi", "en"), ("wmt18", "et", "en"),
       ("wmt16", "cs", "en"), ("wmt18", "cs", "en"), ("wmt17", "zh", "en")]


def stem_of(url):
  name = url.rsplit("/", 1)[1] if "/" in url else url
  for end in (".tar.gz", ".tgz", ".tar", ".zip"):
    name = name.removesuffix(end)
  return name


def wmt_builder(module, source, target, data_dir):
  cls = {"wmt13": wmt13.Wmt13Translate, "wmt17": wmt17.Wmt17Translate, "wmt18": wmt18.Wmt18Translate, "wmt14": wmt14.Wmt14Translate, "wmt15": wmt15.Wmt15Translate, "wmt16": wmt16.Wmt16Translate, "wmt19": wmt19.Wmt19Translate, "wmt_t2t": wmt_t2t.WmtT2tTranslate}[module]
  return cls(config=f"{source}-{target}", data_dir=data_dir)


class WmtArchive:
  """In place of TFDS's download manager: single files *.gz are unpacked beside, others are folders."""

  def __init__(self, folder, unpacked):
    self.folder, self.unpacked, self.manual_dir = folder, pathlib.Path(unpacked), str(folder)

  def download_and_extract(self, urls):
    return tree.map_structure(self.one, urls)

  def extract(self, paths):
    return tree.map_structure(lambda path: self.one(path) if path.endswith(".gz") else str(self.folder / stem_of(os.path.basename(path))), paths)

  def one(self, url):
    name = url.rsplit("/", 1)[1]
    if "czeng16_to_17" in name:
      return str(self.folder)
    if not (self.folder / name).exists():
      return str(self.folder / stem_of(url))
    path = self.unpacked / name.removesuffix(".gz")
    path.write_bytes(gzip.decompress((self.folder / name).read_bytes()))
    return str(path)


def prepare_wmt(folder, data_dir):
  datasets = {}
  for module, source, target in WMT:
    builder = wmt_builder(module, source, target, data_dir)
    with tempfile.TemporaryDirectory() as unpacked:
      archive, split_generators = WmtArchive(folder, unpacked), builder._split_generators
      builder._split_generators = lambda dl_manager, *rest: split_generators(archive)
      working = os.getcwd()
      os.chdir("/")  # TFDS looks for patterns from here
      manual = [folder / name for name in ("1mcorpus.zip", *(f"data-plaintext-format.{i}.tar" for i in range(10)))]
      for path in manual:
        path.touch()
      builder.download_and_prepare()
      for path in manual:
        path.unlink()
      os.chdir(working)
    datasets[f"{module}_translate/{source}-{target}"] = {"archive": "wmt", "version": str(builder.version), **contents(builder)}
  return datasets


def expected_web_text(pages, lines):
  text = tfds.features.Text()
  c4 = tfds.features.FeaturesDict({name: text for name in ("content-length", "content-type", "text", "timestamp", "url")})
  c4_examples = {split: [(row["url"], {**row, "content-length": "", "content-type": ""}) for row in rows[0::2] + rows[1::2]] for split, rows in pages.items()}
  pile_examples = {{"val": "validation"}.get(split, split): [(f"{i}_the_pile", {"text": "\n\n".join(row["text"]) if isinstance(row["text"], list) else row["text"]})
                                                            for i, row in enumerate(rows)] for split, rows in lines.items()}
  return {"c4/en": ("3.1.0", c4, c4_examples), "the_pile/lm": ("1.0.0", tfds.features.FeaturesDict({"text": text}), pile_examples)}


def written_by_tfds(name, version, features, examples, folder):
  """A data set of examples with their keys, by a builder of TFDS."""
  class Writer(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version(version)
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name.split("/")[1])]
    pkg_dir_path = pathlib.Path(folder)

    def _info(self):
      return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
      return {split: iter(rows) for split, rows in examples.items()}

    def _generate_examples(self):
      raise NotImplementedError
  Writer.name = name.split("/")[0]
  builder = Writer(config=name.split("/")[1], data_dir=folder)
  builder.download_and_prepare()
  return builder


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
    if "drive.google" in urls:
      return str(self.folder)
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
  web_text = write_web_text(archives, Text(arguments.seed + 4))
  write_cnn_dailymail(archives / "cnn_dailymail", Text(arguments.seed + 3))
  write_super_glue(archives / "super_glue", Text(arguments.seed + 2))
  write_wmt(archives / "wmt", Text(arguments.seed + 5))
  datasets = {}
  with tempfile.TemporaryDirectory() as folder:
    for cls, archive in (glue.Glue, "glue"), (super_glue.SuperGlue, "super_glue"), (squad_dataset_builder.Builder, "squad"), (cnn_dailymail.CnnDailymail, "cnn_dailymail"):
      for config in [config.name for config in cls.BUILDER_CONFIGS] or [None]:
        builder = builder_of(cls, config, archives / archive, folder)
        builder.download_and_prepare()
        datasets[archive + (f"/{config}" if config else "")] = {"archive": archive, "version": str(builder.version), **contents(builder)}
    for name, (version, features, examples) in expected_web_text(*web_text).items():
      builder = written_by_tfds(name, version, features, examples, folder)
      datasets[name] = {"archive": name.split("/")[0], "version": version, **contents(builder)}
    datasets |= prepare_wmt((archives / "wmt").resolve(), folder)
  (arguments.out / "datasets.json").write_text(json.dumps(datasets, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
  main()
