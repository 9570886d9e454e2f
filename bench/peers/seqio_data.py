"""seqio: text, TFRecord or an offline cache to packed rows of a language model, one core."""

import functools
import os

import data_common as common

args = common.arguments()
common.one_core()

import numpy as np  # noqa: E402
import seqio  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
vocabulary = seqio.SentencePieceVocabulary(os.path.join(args.folder, "bench.model"), extra_ids=100)
if args.source == "tfrecord":
    source = seqio.TFExampleDataSource({"train": os.path.join(args.folder, "text.tfrecord-*")},
                                       {"text": tf.io.FixedLenFeature([], tf.string)})
else:
    source = seqio.TextLineDataSource({"train": os.path.join(args.folder, "text-*.txt")})
first = [functools.partial(seqio.preprocessors.rekey, key_map={"targets": "text"})] if args.source == "tfrecord" else \
    [seqio.map_over_dataset(lambda line: {"targets": line})]
seqio.TaskRegistry.add(
    "bench", source=source,
    preprocessors=first + [functools.partial(seqio.preprocessors.tokenize, copy_pretokenized=False),
                           seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos_after_trim],
    output_features={"targets": seqio.Feature(vocabulary)}, metric_fns=[])
seqio.add_global_cache_dirs([os.path.join(args.folder, "cache")])


def batches():
    dataset = seqio.get_dataset(
        "bench", {"targets": common.LENGTH}, dataset_split="train", shuffle=True, num_epochs=None, seed=1,
        use_cached=args.source == "cached", feature_converter=seqio.LMFeatureConverter(pack=True))
    for batch in dataset.batch(args.batch).as_numpy_iterator():
        yield (int(batch["decoder_segment_ids"].max(axis=1).sum()),
               int(np.count_nonzero(batch["decoder_target_tokens"])), args.batch)


common.measure(batches(), args.seconds, peer=f"seqio {seqio.__version__}, tensorflow {tf.__version__}")
