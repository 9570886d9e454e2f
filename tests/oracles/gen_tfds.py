"""tests/data/tfds: a small directory that TFDS prepared, and what TFDS reads from it.

Reference: tensorflow-datasets 4.9.10, tensorflow 2.21.0. Run with `gen_tfds.py OUT` in an environment that has both;
needs no network. tiny_questions/1.2.0/ is the data set, reads.json the ids of many splits in order and three examples.
"""
import json
import os
import sys

os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402

SPLITS = ['train', 'validation', 'train[:90%]', 'train[10:20]', 'train+validation', 'train[-10%:]',
          'train[33%:66%]+validation[2:]', 'train[50%:51%]', 'train[:1%]', 'train[-7:-2]', 'train[20:]', 'all']


class TinyQuestions(tfds.core.GeneratorBasedBuilder):
  VERSION = tfds.core.Version('1.2.0')

  def _info(self):
    return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({
        'id': tf.int64,
        'question': tfds.features.Text(),
        'label': tfds.features.ClassLabel(names=['no', 'yes']),
        'answers': tfds.features.Sequence({'text': tfds.features.Text(), 'start': tf.int32}),
        'scores': tfds.features.Tensor(shape=(None,), dtype=tf.float32),
        'grid': tfds.features.Tensor(shape=(2, 3), dtype=tf.int32),
        'weight': tf.float32,
        'flag': tf.bool,
        'pair': tfds.features.Translation(languages=['de', 'en'])}))

  def _split_generators(self, dl_manager):
    return {'train': self._generate_examples(0, 103), 'validation': self._generate_examples(1000, 7)}

  def _generate_examples(self, first, count):
    for i in range(first, first + count):
      yield i, dict(id=i, question=f'Wie viel ist {i}?', label=i % 2,
                    answers=[dict(text=f'{j} ü', start=j) for j in range(i % 4)],
                    scores=np.arange(i % 3, dtype=np.float32) / 4,
                    grid=np.arange(6).reshape(2, 3).astype(np.int32) + i, weight=i / 8, flag=i % 3 == 0,
                    pair={'de': f'nummer {i}', 'en': f'number {i}'})


def plain(value):
  if isinstance(value, dict):
    return {key: plain(item) for key, item in value.items()}
  if isinstance(value, np.ndarray):
    return [plain(item) for item in value] if value.dtype == object else value.tolist()
  if isinstance(value, bytes):
    return value.decode()
  return value.item() if hasattr(value, 'item') else value


def main(out):
  builder = TinyQuestions(data_dir=out)
  builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=5))
  read = lambda split: tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False))
  rows = dict(reads=[dict(split=split, ids=[int(e['id']) for e in read(split)]) for split in SPLITS],
              examples=[plain(e) for e in tfds.as_numpy(builder.as_dataset(split='train').take(3))])
  with open(os.path.join(out, 'reads.json'), 'w', encoding='utf-8') as f:
    json.dump(rows, f, ensure_ascii=False)


if __name__ == '__main__':
  main(sys.argv[1])
