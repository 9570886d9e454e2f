"""A small TFDS directory and what TFDS reads from it. Usage: gen.py OUT"""
import json, os, sys
os.environ['TF_CPP_MIN_LOG_LEVEL']='3'
import numpy as np, tensorflow_datasets as tfds, tensorflow as tf
class TinyQuestions(tfds.core.GeneratorBasedBuilder):
  VERSION = tfds.core.Version('1.2.0')
  def _info(self):
    return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({
      'id': tf.int64, 'question': tfds.features.Text(), 'label': tfds.features.ClassLabel(names=['no','yes']),
      'answers': tfds.features.Sequence({'text': tfds.features.Text(), 'start': tf.int32}),
      'scores': tfds.features.Tensor(shape=(None,), dtype=tf.float32),
      'grid': tfds.features.Tensor(shape=(2, 3), dtype=tf.int32),
      'weight': tf.float32, 'flag': tf.bool,
      'pair': tfds.features.Translation(languages=['de', 'en'])}))
  def _split_generators(self, dl_manager):
    return {'train': self._generate_examples(0, 103), 'validation': self._generate_examples(1000, 7)}
  def _generate_examples(self, lo, n):
    for i in range(lo, lo + n):
      yield i, dict(id=i, question=f'Wie viel ist {i}?', label=i % 2, answers=[dict(text=f'{j} ü', start=j) for j in range(i % 4)],
        scores=np.arange(i % 3, dtype=np.float32) / 4, grid=np.arange(6).reshape(2, 3).astype(np.int32) + i, weight=i / 8, flag=i % 3 == 0,
        pair={'de': f'nummer {i}', 'en': f'number {i}'})
out = sys.argv[1]
b = TinyQuestions(data_dir=out)
b.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=5))
want = []
for s in ['train', 'validation', 'train[:90%]', 'train[10:20]', 'train+validation', 'train[-10%:]', 'train[33%:66%]+validation[2:]', 'train[50%:51%]', 'train[:1%]', 'train[-7:-2]', 'train[20:]', 'all']:
  ids = [int(x['id']) for x in tfds.as_numpy(b.as_dataset(split=s, shuffle_files=False))]
  want.append(dict(split=s, ids=ids))
ex = [ {k: v for k, v in x.items()} for x in tfds.as_numpy(b.as_dataset(split='train').take(3))]
def enc(v):
  if isinstance(v, dict): return {k: enc(x) for k, x in v.items()}
  if isinstance(v, np.ndarray): return [enc(x) for x in v] if v.dtype == object else v.tolist()
  if isinstance(v, bytes): return v.decode()
  return v.item() if hasattr(v, 'item') else v
json.dump(dict(reads=want, examples=[enc(e) for e in ex]), open(os.path.join(out, 'reads.json'), 'w'), ensure_ascii=False)
