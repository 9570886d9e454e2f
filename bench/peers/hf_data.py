"""Hugging Face datasets: streamed text, or an Arrow file of ids, to rows of a language model, one core.

Examples are joined and cut into rows (its own recipe, "group_texts"), which is less work than packing them whole.
"""

import glob
import os

import data_common as common

args = common.arguments()
common.one_core()

import datasets  # noqa: E402
import numpy as np  # noqa: E402
import sentencepiece  # noqa: E402

datasets.disable_progress_bars()
processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(args.folder, "bench.model"))
texts = sorted(glob.glob(os.path.join(args.folder, "text-*.txt")))


def tokenize(batch):
    return {"ids": [ids + [1] for ids in processor.encode(batch["text"])]}


def group(batch):
    joined = np.concatenate(batch["ids"])
    rows = len(joined) // common.LENGTH
    whole = joined[:rows * common.LENGTH].reshape(rows, common.LENGTH)
    return {"targets": list(whole), "examples": [len(batch["ids"]) / max(1, rows)] * rows}


def stream():
    if args.source == "text":
        dataset = datasets.load_dataset("text", data_files=texts, split="train", streaming=True)
        return dataset.shuffle(seed=1, buffer_size=1000).map(tokenize, batched=True, remove_columns=["text"])
    folder = os.path.join(args.folder, "arrow")
    if not os.path.isdir(folder):
        lines = [line.rstrip("\n") for file in texts for line in open(file, encoding="utf-8")]
        datasets.Dataset.from_dict({"ids": tokenize({"text": lines})["ids"]}).save_to_disk(folder)
    return datasets.load_from_disk(folder).shuffle(seed=1).to_iterable_dataset()


def batches():
    while True:
        grouped = stream().map(group, batched=True, remove_columns=["ids"]).with_format("numpy")
        for batch in grouped.iter(batch_size=args.batch):
            yield float(np.sum(batch["examples"])), int(np.size(batch["targets"])), len(batch["targets"])


common.measure(batches(), args.seconds, peer=f"datasets {datasets.__version__}")
