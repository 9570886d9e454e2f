"""tests/fixtures/seqio/provenance.json: the provenance features that seqio's PreprocessTask gives of examples.

Reference: google/seqio@b898b9f beam_utils.py, tensorflow 2.21.0, without Apache Beam: its transform's function is called by itself.
Run with `gen_seqio_provenance.py OUT.json` in an environment that has both, seqio's source on PYTHONPATH.
"""
import json
import os
import sys
import tempfile
from unittest import mock

os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
for name in ('apache_beam', 'apache_beam.metrics', 'array_record', 'array_record.python'):
  sys.modules[name] = mock.MagicMock()
import apache_beam  # noqa: E402

apache_beam.PTransform = apache_beam.DoFn = apache_beam.io.filebasedsink.FileBasedSink = type('Base', (), {})
import seqio  # noqa: E402
from seqio import beam_utils  # noqa: E402
import tensorflow as tf  # noqa: E402

FILES = {'a.txt': ['one', 'drop', 'two two', 'three'], 'b.txt': ['drop', 'four four', 'five']}


def words(dataset):
  """Each word of a line an example; no example of 'drop'."""
  return dataset.flat_map(lambda e: tf.data.Dataset.from_tensor_slices({'targets': tf.strings.split(e)})).filter(lambda e: e['targets'] != 'drop')


def main(out):
  rows = {}
  with tempfile.TemporaryDirectory() as folder:
    for name, lines in FILES.items():
      with open(os.path.join(folder, name), 'w', encoding='utf-8') as f:
        f.write(''.join(line + '\n' for line in lines))
    task = seqio.TaskRegistry.add(
        'mine', source=seqio.TextLineDataSource({'train': os.path.join(folder, '*.txt')}), preprocessors=[words, seqio.CacheDatasetPlaceholder()],
        output_features={'targets': seqio.Feature(seqio.ByteVocabulary())})
    for seed in (None, 42):
      transform = beam_utils.PreprocessTask(task, 'train', preprocessors_seed=seed, add_provenance=True)
      made = [e for shard in transform.shards for e in transform._emit_examples(shard)]  # pylint: disable=protected-access
      plain = lambda v: v.numpy().decode() if hasattr(v, 'numpy') else v
      rows[str(seed)] = [{k: os.path.basename(plain(v)) if k.endswith('source_shard') else plain(v) for k, v in e.items()} for e in made]
  with open(out, 'w', encoding='utf-8') as f:
    json.dump(dict(files=FILES, examples=rows), f, indent=1)


if __name__ == '__main__':
  main(sys.argv[1])
