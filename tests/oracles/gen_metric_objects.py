"""tests/data/metric_objects.json: what seqio's Evaluator makes of metric_objs over given model outputs.

Reference: google/seqio@b898b9f, tensorflow 2.21.0. Run with `gen_metric_objects.py OUT.json` in an environment that has both, seqio's source on PYTHONPATH.
Metric objects: those of tests/data/metric_objects.py, and the legacy ones, of t5's squad-like functions written out below.
"""
import json
import os
import sys

os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
import numpy as np  # noqa: E402
import seqio  # noqa: E402
import tensorflow as tf  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../data'))
import metric_objects  # noqa: E402

ROWS = [dict(inputs='abc', targets='Paris', note='x', prediction='paris', score=-1.5), dict(inputs='d é', targets='Rome', note='é', prediction='Rome!', score=-0.25),
        dict(inputs='', targets='Wien', note='', prediction='', score=-3.0), dict(inputs='zz', targets='Oslo', note='abc', prediction='OSLO', score=0.5),
        dict(inputs='q', targets='Bern', note='n', prediction='Bern', score=-0.125)]


TARGET_LENGTH = 8  # of the decoder's rows: longer than any


def sequence_accuracy(targets, predictions):
  return {'sequence_accuracy': 100 * sum(t == p for t, p in zip(targets, predictions)) / len(targets)}


def lowered_accuracy(targets, predictions):
  return {'lowered_accuracy': sequence_accuracy(targets, predictions)['sequence_accuracy']}


def lower_text(text, **unused):
  return text.lower()


def vocabulary():
  return seqio.ByteVocabulary()


def dataset(split, shuffle_files, seed=None):
  ids = vocabulary().encode
  return tf.data.Dataset.from_generator(
      lambda: ({'inputs': ids(r['inputs']) + [1], 'targets': ids(r['targets']) + [1], 'targets_pretokenized': r['targets'], 'note': r['note']} for r in ROWS),
      output_signature={'inputs': tf.TensorSpec([None], tf.int32), 'targets': tf.TensorSpec([None], tf.int32),
                        'targets_pretokenized': tf.TensorSpec([], tf.string), 'note': tf.TensorSpec([], tf.string)})


def main(out):
  metric_objects.set_types(seqio.metrics.ModelOutputType)
  legacy = seqio.metrics.PassthroughLegacyMetric.from_metric_fn
  feature = seqio.Feature(vocabulary())
  objects = {'Overlap': metric_objects.Overlap, 'Arrays': metric_objects.Arrays, 'Lengths': metric_objects.Lengths, 'Likelihood': metric_objects.Likelihood,
             'passthrough': legacy(sequence_accuracy).empty(), 'passthrough_lower': legacy(sequence_accuracy, lower_text).empty(),
             'legacy_lower': seqio.metrics.LegacyMetric.empty(sequence_accuracy, lower_text)}

  class Collected(metric_objects.Collected, seqio.metrics.CollectingMetric):
    pass
  objects['Collected'] = Collected
  # The second of two compares lowered predictions with the first one's targets.
  tasks = {**{name: [metric] for name, metric in objects.items()}, 'two': [legacy(sequence_accuracy).empty(), legacy(lowered_accuracy, lower_text).empty()]}
  for name, metrics in tasks.items():
    seqio.TaskRegistry.add(name, source=seqio.FunctionDataSource(dataset, ['validation']), preprocessors=[], metric_objs=metrics,
                           output_features={'inputs': feature, 'targets': feature})
  tokens = [vocabulary().encode(r['prediction']) + [1] for r in ROWS]
  tokens = [np.array(row + [0] * (TARGET_LENGTH - len(row)), np.int32) for row in tokens]
  aux_values = {'scores': [2 * r['score'] if r['prediction'] else -np.inf for r in ROWS]}
  asked = []

  def model(kind, values, aux=None):
    def run(ds, unused_shapes=None):
      asked.append(kind)
      return list(enumerate(values)) if aux is None else (list(enumerate(values)), aux)
    return run

  results = {}
  for name in tasks:
    evaluator = seqio.Evaluator(name, seqio.EncDecFeatureConverter(pack=False), 'validation', sequence_length={'targets': TARGET_LENGTH}, async_compute_metrics=False)
    asked.clear()
    scores = [r['score'] for r in ROWS]
    metrics, _ = evaluator.evaluate(compute_metrics=True, predict_fn=model('PREDICTION', tokens), score_fn=model('SCORE', scores),
                                    predict_with_aux_fn=model('PREDICTION_WITH_AUX', tokens, aux_values))
    results[name] = dict(asked=list(asked), metrics={key: float(value) for key, value in metrics.result()[name].items()})
  with open(out, 'w', encoding='utf-8') as f:
    two = results.pop('two')['metrics']
    json.dump(dict(target_length=TARGET_LENGTH, rows=ROWS, results=results, two=two), f, ensure_ascii=False, indent=1)


if __name__ == '__main__':
  main(sys.argv[1])
