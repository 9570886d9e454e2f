"""tests/data/tfds: small directories that TFDS prepared, and what TFDS reads from them.

Reference: tensorflow-datasets 4.9.10, tensorflow 2.21.0. Run with `gen_tfds.py OUT` in an environment that has both;
needs no network. tiny_questions/1.2.0/ is a data set, reads.json the ids of many splits in order and three examples;
tiny_media/1.0.0/ one of features in forms of their own, decoders.json what TFDS gives with many decoders, values flat and bytes
in hexadecimal, or that it fails.
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


class TinyMedia(tfds.core.GeneratorBasedBuilder):
  VERSION = tfds.core.Version('1.0.0')

  def _info(self):
    features = tfds.features
    return tfds.core.DatasetInfo(builder=self, features=features.FeaturesDict({
        'id': tf.int64,
        'text': features.Text(),
        'label': features.ClassLabel(num_classes=3),
        'image': features.Image(shape=(2, 2, 1)),
        'images': features.Sequence(features.Image(shape=(1, 1, 1))),
        'video': features.Video(shape=(None, 1, 1, 1)),
        'audio': features.Audio(),
        'box': features.BBoxFeature(),
        'zipped': features.Tensor(shape=(2, 2), dtype=tf.int32, encoding='zlib'),
        'raw': features.Tensor(shape=(None,), dtype=tf.float32, encoding='bytes'),
        'sized': features.Tensor(shape=(None, None), dtype=tf.int32, encoding='zlib'),
        'parts': features.Sequence(features.Tensor(shape=(2,), dtype=tf.int32, encoding='bytes')),
        'inner': {'a': features.Text(), 'b': features.Image(shape=(1, 1, 3))},
        'answers': features.Sequence({'text': features.Text(), 'start': tf.int32}),
        'pair': features.Translation(languages=['de', 'en'])}))

  def _split_generators(self, dl_manager):
    return {'train': self._generate_examples()}

  def _generate_examples(self):
    pixels = lambda *shape: (np.arange(np.prod(shape)).reshape(shape) + 1).astype(np.uint8)
    for i in range(2):
      yield i, dict(id=i, text=f'text {i}', label=i, image=pixels(2, 2, 1), images=[pixels(1, 1, 1)] * i, video=[pixels(1, 1, 1)] * 2,
                    audio=np.arange(3) + i, box=tfds.features.BBox(0., 0.25, 1., 0.5), zipped=np.arange(4).reshape(2, 2).astype(np.int32),
                    raw=np.arange(2 + i).astype(np.float32), sized=np.ones((1 + i, 2), np.int32),
                    parts=[np.array([1, 2], np.int32)] * (i + 1), inner={'a': 'x', 'b': pixels(1, 1, 3)},
                    answers=[dict(text='q', start=3)] * 2, pair={'de': 'ja', 'en': 'yes'})


# decoders, and features of a PartialDecoding around them or None; SKIP is tfds.decode.SkipDecoding().
DECODERS = ([(f"{{'{name}': SKIP}}", f"['{name}']") for name in ('id text label image images video audio box zipped raw sized parts '
                                                               'inner answers pair').split()] +
            [("{'inner': {'b': SKIP}, 'answers': {'text': SKIP}, 'pair': {'de': SKIP}}", "['inner', 'answers', 'pair']"),
             ("{'image': SKIP, 'images': SKIP, 'inner': {'b': SKIP}, 'video': SKIP, 'zipped': SKIP, 'raw': SKIP, 'sized': SKIP, 'parts': SKIP}",
              None),
             ('{}', "['id', 'text']"), ('None', "{'inner': {'a': True}, 'id': False, 'label': True}"), ('None', "{'inner': ['a']}"),
             ('None', "{'answers': ['text']}"), ('None', "{'nope': False, 'id': True}"), ("{'text': None}", "['text']"),
             ('None', "['nope']"), ('None', '[]'), ('None', "{'text': ['a']}"), ('None', "{'id': None}"), ("{'image': SKIP}", "['inner']"),
             ("{'nope': SKIP}", None), ("{'inner': SKIP}", None), ("{'image': {'a': SKIP}}", None), ("{'inner': {'z': SKIP}}", None),
             ('SKIP', None)])


def flat(value, name=''):
  """{'inner/a': {'shape': [], 'values': ['78']}}"""
  if isinstance(value, dict):
    return {key: item for part, inner in value.items() for key, item in flat(inner, f'{name}/{part}' if name else part).items()}
  array = np.asarray(value)
  return {name: dict(shape=list(array.shape), values=[v.hex() if isinstance(v, bytes) else v.item() if hasattr(v, 'item') else v
                                                      for v in array.reshape(-1).tolist()])}


def decoded(builder, decoders, features):
  row = dict(decoders=decoders, features=features)
  try:
    given = eval(decoders, {'SKIP': tfds.decode.SkipDecoding()})
    if features is not None:
      given = tfds.decode.PartialDecoding(eval(features), decoders=given)
    row['examples'] = [flat(e) for e in tfds.as_numpy(builder.as_dataset(split='train', decoders=given))]
  except (ValueError, TypeError, AttributeError) as e:
    row['error'] = type(e).__name__
  return row


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
  media = TinyMedia(data_dir=out)
  media.download_and_prepare()
  with open(os.path.join(out, 'decoders.json'), 'w', encoding='utf-8') as f:
    f.write('[\n' + ',\n'.join(json.dumps(decoded(media, *case)) for case in DECODERS) + ']\n')


if __name__ == '__main__':
  main(sys.argv[1])
