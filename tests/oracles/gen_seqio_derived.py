"""seqio/derived.json: tasks and mixtures that seqio.helpers and seqio.experimental make of others, and few-shot inputs.

Reference: seqio 0.0.20, tensorflow 2.21. Run with any environment that has seqio: gen_seqio_derived.py --out DIR; writes DIR/derived.json.
"""
import argparse
import json
import os
import tempfile
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
import seqio
import tensorflow as tf

ROWS = {'a': {'train': [['one two', 'uno dos'], ['three', 'tres'], ['four', 'cuatro'], ['a much longer line', 'largo'], ['six', 'seis']],
              'validation': [['ten', 'diez'], ['hundred', 'ciento'], ['no', 'no']]},
        'b': {'train': [['red', 'rojo'], ['green', 'verde'], ['blue', 'azul'], ['pink', 'rosa']]}}
LENGTHS = {'inputs': 7, 'targets': 6}
CODEPOINTS = [ord(c) for c in 'abcdefghijklmnopqrstuvwxyz ']


@seqio.map_over_dataset
def _tsv(line):
  f = tf.strings.split(line, '\t')
  return {'inputs': f[0], 'targets': f[1]}


def examples(ds):
  return [{k: v.decode() if isinstance(v, bytes) else v.tolist() for k, v in sorted(e.items())} for e in ds.as_numpy_iterator()]


def read(provider):
  tasks = provider.tasks if isinstance(provider, seqio.Mixture) else [provider]
  made = {}
  for task in tasks:
    made[task.name] = {s: examples(task.get_dataset(LENGTHS, split=s, shuffle=False)) for s in sorted(task.splits)}
  return made


def recorded(provider, with_examples=True):
  row = {'name': provider.name, 'registered': sorted(set(seqio.TaskRegistry.names()) | set(seqio.MixtureRegistry.names()))}
  if isinstance(provider, seqio.Mixture):
    row['rates'] = {t.name: provider.get_rate(t) for t in provider.tasks}
  if with_examples:
    row['examples'] = read(provider)
  return row


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--out', required=True)
  out = parser.parse_args().out
  folder = tempfile.mkdtemp()
  features = {n: seqio.Feature(seqio.ByteVocabulary(extra_ids=20)) for n in ('inputs', 'targets')}
  sources = {}
  for task, splits in ROWS.items():
    files = {}
    for split, rows in splits.items():
      files[split] = os.path.join(folder, f'{task}.{split}')
      with open(files[split], 'w') as f:
        f.writelines('\t'.join(row) + '\n' for row in rows)
    sources[task] = seqio.TextLineDataSource(files)
    seqio.TaskRegistry.add(task, source=sources[task],
                           preprocessors=[_tsv, seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos_after_trim],
                           output_features=features)
  seqio.MixtureRegistry.add('ab', [('a', 2.0), ('b', 1.0)])
  helpers, experimental = seqio.helpers, seqio.experimental
  cases = {}
  cases['new_vocab'] = recorded(helpers.mixture_or_task_with_new_vocab('ab', 'other', new_vocab=seqio.PartialCodepointVocabulary(CODEPOINTS)))
  cases['truncated'] = recorded(helpers.mixture_or_task_with_truncated_data('ab', 'short', split_sizes={'train': 2}))
  cases['missing_splits'] = recorded(helpers.mixture_with_missing_task_splits_removed('ab', 'validation', 'with_validation'))
  experimental.add_task_with_sentinels('a', 2)
  cases['sentinels'] = recorded(seqio.TaskRegistry.get('a_2_sentinel'))
  cached = experimental.add_fully_cached_mixture('ab', LENGTHS)
  cases['fully_cached'] = recorded(cached, with_examples=False)
  cases['fully_cached']['examples'] = {
      t.name: {s: examples(t.preprocess_precache(t.source.get_dataset(s, shuffle=False))) for s in sorted(t.splits)} for t in cached.tasks}
  names = [{'targets': 3}, {'inputs': 4, 'targets': 3}, {'targets': 1, 'targets_left': 2}, {'ab': 1, 'ac': 2, 'b': 3}]
  cases['fully_cached_names'] = [[n, experimental._get_fully_cached_name('t', n)] for n in names]
  shots = []
  for shot_count, kwargs in [(0, {}), (2, {}), (2, {'inputs_prefix': 'Q: ', 'targets_prefix': ' A: ', 'example_separator': '; '}),
                             (3, {'inputs_prefix': '0 ', 'targets_prefix': ' X 1 ', 'example_separator': ' X ', 'reverse': True}),
                             (0, {'prompt': 'Translate', 'targets_prefix': ' = '}), (1, {'prompt': 'Translate.', 'example_separator': '\n'})]:
    train = [dict(zip(('inputs', 'targets'), r)) for r in ROWS['a']['train']]
    datasets = {'eval': tf.data.Dataset.from_tensor_slices(
        {'inputs': ['ten', 'no'], 'targets': ['diez', 'no'], 'id': [7, 8]})}
    if shot_count:
      datasets['train'] = tf.data.Dataset.from_tensor_slices(
          {k: [e[k] for e in train] for k in ('inputs', 'targets')}).repeat().batch(shot_count)
    ds = tf.data.Dataset.zip(datasets)
    rows = [{k: {f: v.tolist() if v.dtype != object else [x.decode() for x in v] if v.ndim else v.item().decode()
                 for f, v in ((f, v if hasattr(v, 'dtype') else __import__('numpy').array(v, object)) for f, v in part.items())}
             for k, part in e.items()} for e in ds.as_numpy_iterator()]
    shots.append({'num_shots': shot_count, 'args': kwargs, 'in': rows, 'out': examples(experimental.fewshot_preprocessor(ds, **kwargs))})
  cases['fewshot_preprocessor'] = shots
  os.makedirs(out, exist_ok=True)
  with open(os.path.join(out, 'derived.json'), 'w', encoding='utf-8') as f:
    json.dump({'versions': {'tensorflow': tf.__version__, 'seqio': '0.0.20'}, 'rows': ROWS, 'lengths': LENGTHS, 'codepoints': CODEPOINTS, **cases},
              f, ensure_ascii=False, indent=1)


if __name__ == '__main__':
  main()
