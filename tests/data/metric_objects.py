"""Metric objects that seqio's Evaluator (tests/oracles/gen_metric_objects.py) and a worker process run alike."""
import dataclasses
import math
import os
import sys


def text_of(feature, ids, example, name):
  """As seqio's legacy metrics get the text of a target."""
  value = example.get(name + '_pretokenized')
  return value.decode('utf-8') if value is not None else feature.vocabulary.decode(list(ids))


@dataclasses.dataclass
class Overlap:
  """Of characters of each prediction that its target has, too; sums that merge."""
  shared: int = 0
  total: int = 0
  examples: int = 0
  model_output_type = None  # set below: an enum of seqio, or of quintet_worker

  @classmethod
  def from_model_output(cls, inputs, model_output, features, target_field_name='targets', mask=None, indices_2d=None):
    made, feature = cls(), features[target_field_name]
    for example, ids in zip(inputs, model_output):
      target = text_of(feature, example[target_field_name], example, target_field_name)
      prediction = feature.vocabulary.decode([int(i) for i in ids])
      made.shared += sum(c in target for c in prediction)
      made.total += len(prediction)
      made.examples += 1
    assert mask is None or sum(mask) == made.examples
    return made

  def merge(self, other):
    return Overlap(self.shared + other.shared, self.total + other.total, self.examples + other.examples)

  def compute(self):
    return {'overlap': self.shared / max(1, self.total), 'examples': self.examples}


@dataclasses.dataclass
class Lengths:
  """What is seen of inputs and outputs without decoding."""
  sums: dict
  model_output_type = None

  @classmethod
  def from_model_output(cls, inputs, model_output, features, target_field_name='targets'):
    ids, aux = model_output
    eos = features[target_field_name].vocabulary.eos_id
    return cls({'input_ids': sum(int(sum(e['inputs'])) for e in inputs), 'widest': max(len(row) for row in ids), 'ended': sum(eos in list(row) for row in ids),
                'aux': float(sum(s for s in aux['scores'] if math.isfinite(s))), 'infinite': sum(map(math.isinf, aux['scores'])), 'id_sum': sum(int(i) for row in ids for i in row),
                'encoded': sum(features['inputs'].vocabulary.encode('aé')), 'texts': sum(len(e['note']) for e in inputs)})

  def compute(self):
    return self.sums


@dataclasses.dataclass
class Likelihood:
  scores: object
  model_output_type = None

  @classmethod
  def from_model_output(cls, inputs, model_output, features, target_field_name='targets'):
    return cls(list(model_output))

  def merge(self, other):
    return Likelihood(self.scores + other.scores)

  def compute(self):
    return {'mean_score': float(sum(self.scores)) / len(self.scores)}


@dataclasses.dataclass
class Arrays:
  """What NumPy alone has."""
  ids: object
  notes: object
  model_output_type = None

  @classmethod
  def from_model_output(cls, inputs, model_output, features, target_field_name='targets'):
    return cls(model_output, [e['inputs'] for e in inputs])

  def compute(self):
    return {'int32': int(self.ids.dtype == 'int32'), 'width': self.ids.shape[1], 'most': self.ids.max(), 'inputs': sum(row.sum() for row in self.notes)}


class Collected:
  """As seqio.metrics.CollectingMetric: what it gives is computed by actual_compute."""
  model_output_type = None

  def __init__(self, model_output):
    self.__dict__['output'] = model_output  # seqio's base class is frozen

  @classmethod
  def from_model_output(cls, inputs, model_output, features, target_field_name='targets', mask=None, indices_2d=None):
    return cls(model_output)

  def actual_compute(self, task_dataset_as_numpy, task_output_features, target_field_name, cached_targets):
    targets = [list(map(int, e[target_field_name])) for e in task_dataset_as_numpy]
    return {'first_ids': sum(int(row[0]) == target[0] for row, target in zip(self.output, targets))}, {'targets': targets}


METRICS = {'PREDICTION': [Overlap, Collected, Arrays], 'PREDICTION_WITH_AUX': [Lengths], 'SCORE': [Likelihood]}


def set_types(enum):
  for name, classes in METRICS.items():
    for one in classes:
      one.model_output_type = enum[name]


if __name__ == '__main__':
  sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../python'))
  import quintet_worker
  set_types(quintet_worker.ModelOutputType)
  quintet_worker.run(globals()[sys.argv[1]])
