"""semantics/: what T5X and seqio do in places where another choice would be as natural.

Reference: t5x@cc342d4 (models, trainer, utils), seqio@b898b9f, jax 0.4.30, tensorflow 2.16.2 (environment t of setup_env.sh). Run with $ORACLE_ENVS/t/bin/python gen_semantics.py --out DIR; writes DIR/semantics:

shuffle.json          seqio.Task.get_dataset(shuffle=True) of documents that a preprocessor cuts into pieces: the mean distance between pieces
                      that were neighbours, and the part of places at which a piece of the same document follows
early_stopping.jsonl  trainer.EarlyStoppingAction: its arguments, the values it is shown, after which of them it stops (null: never)
weight_metrics.json   trainer.WeightMetricsComputer: parameters before and after an update, and its metrics
train_eval.json       utils.get_training_eval_datasets of three examples: the targets of each batch, packed and not
mixture_end.json      seqio.Mixture, num_epochs=1, tasks of 40 and 4000 examples at equal rates: examples of each, by stop_on_empty_dataset
characters.json       seqio.mixing_rate_num_characters of seqio/cache/cache/oracle_tsv
timing.json           models.compute_base_metrics: numerators of the rates in timing/, with 4 devices
model_info.json       utils.log_model_info: the text of model-info.txt, on a mesh of 2 x 2
num_decodes.json      models.EncoderDecoderModel.predict_batch_with_aux: rows of decodes by where num_decodes is bound in gin
"""
import argparse
import functools
import json
import math
import os
import tempfile
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'
import oracle_common
oracle_common.setup(t5x=True)
import gin
import jax
import jax.numpy as jnp
import numpy as np
import seqio
import tensorflow as tf
from t5x import adafactor
from t5x import models
from t5x import partitioning
from t5x import trainer
from t5x import utils
from t5x.examples.t5 import network

if not hasattr(jax.config, 'jax_use_shardy_partitioner'):
  type(jax.config).jax_use_shardy_partitioner = False  # newer than jax 0.4.30
HERE = os.path.dirname(os.path.abspath(__file__))
VOCABULARY = seqio.PassThroughVocabulary(1 << 30, 1)


def task(name, ids, preprocessors=(), shuffle_buffer_size=1000, splits=('train',)):
  def make(split, shuffle_files, seed=None):
    del split, shuffle_files, seed
    return tf.data.Dataset.from_tensor_slices({'targets': [[i] for i in ids]})
  return seqio.TaskRegistry.add(
      name, seqio.FunctionDataSource(make, splits=splits, num_input_examples={s: len(ids) for s in splits}),
      preprocessors=list(preprocessors), output_features={'targets': seqio.Feature(VOCABULARY, add_eos=False)},
      shuffle_buffer_size=shuffle_buffer_size)


def shuffle():
  rows = []
  for documents, pieces, buffer in ((4000, 6, 100), (8000, 6, 1000), (2000, 20, 500)):
    def cut(ds, pieces=pieces):
      return ds.map(lambda ex: {'targets': ex['targets'] * pieces + tf.range(pieces)[:, None]}).unbatch()
    made = task(f'cut_{documents}_{buffer}', list(range(documents)), [cut], buffer)
    # The order of documents is kept, so that what is seen is the buffer's work.
    ds = made.get_dataset({'targets': 4}, 'train', shuffle=True, seed=1, num_epochs=1)
    ids = [int(ex['targets'][0]) for ex in ds.as_numpy_iterator()]
    place = np.empty(len(ids), np.int64)
    place[ids] = np.arange(len(ids))
    gaps = np.abs(np.diff(place)).reshape(-1)[[i for i in range(len(ids) - 1) if i // pieces == (i + 1) // pieces]]
    documents_of = np.asarray(ids) // pieces
    rows.append({'documents': documents, 'pieces': pieces, 'shuffle_buffer_size': buffer, 'mean_gap': float(gaps.mean()),
                 'adjacent': float((documents_of[1:] == documents_of[:-1]).mean())})
  return rows


def early_stopping():
  rng = np.random.default_rng(0)
  rows = []
  for case in range(60):
    mode = ('min', 'max')[case % 2]
    args = {'mode': mode, 'patience': int(rng.integers(1, 5)), 'atol': float(rng.choice([0, 0, 0.05])), 'rtol': float(rng.choice([0, 0.02]))}
    values = np.round(3 + np.cumsum(rng.normal(0, 0.2, 12)), 2)
    if case % 7 == 0:
      values[int(rng.integers(0, 12))] = np.nan
    if case % 5 == 0:
      values[4:8] = values[4]
    action = trainer.EarlyStoppingAction(metric=('task', 'loss'), **args)
    stops = None
    for i, value in enumerate(values.tolist()):
      if action.run(None, {'task': {'loss': float(value)}}):
        stops = i
        break
    rows.append({**args, 'values': [None if math.isnan(v) else v for v in values.tolist()], 'stops_after': stops})
  return rows


def weight_metrics():
  rng = np.random.default_rng(1)
  old = {'decoder': {'kernel': rng.normal(0, 1, (4, 3)).astype(np.float32)}, 'scale': rng.normal(1, 0.1, 5).astype(np.float32)}
  gradients = jax.tree.map(lambda x: rng.normal(0, 1, x.shape).astype(np.float32), old)
  new = jax.tree.map(lambda x, g: x - np.float32(0.1) * g, old, gradients)
  class State:
    def __init__(self, params):
      self.params = params
  metrics = trainer.WeightMetricsComputer().compute_metrics(gradients, State(old), State(new))
  flat = lambda tree: {k: {'shape': list(v.shape), 'values': v.reshape(-1).tolist()} for k, v in utils.flatten_dict_string_keys(tree).items()}
  return {'sgd_learning_rate': 0.1, 'before': flat(old), 'gradients': flat(gradients),
          'metrics': {k: float(v.total) for k, v in metrics.items()}}


def train_eval():
  made = task('three', [5, 6, 7], splits=('validation',))
  rows = []
  for pack in (False, True):
    cfg = utils.DatasetConfig(mixture_or_task_name=made.name, task_feature_lengths={'targets': 2}, split='validation', batch_size=4,
                              shuffle=False, seed=0, pack=pack)
    sets = utils.get_training_eval_datasets(cfg, shard_id=0, num_shards=1, eval_steps=5, feature_converter_cls=seqio.LMFeatureConverter)
    rows.append({'pack': pack, 'length': 2, 'batch_size': 4, 'eval_steps': 5, 'ids': [5, 6, 7],
                 'batches': [batch['decoder_target_tokens'].tolist() for batch in sets[made.name].as_numpy_iterator()]})
  return rows


def mixture_end():
  few, many = task('few', [1] * 40), task('many', [2] * 4000)
  rows = []
  for stop in (True, False):
    mixture = seqio.MixtureRegistry.add(
        f'ends_{stop}', [(few.name, 1.0), (many.name, 1.0)],
        **({} if stop else {'sample_fn': functools.partial(tf.data.Dataset.sample_from_datasets, stop_on_empty_dataset=False)}))
    ids = [int(ex['targets'][0]) for ex in mixture.get_dataset({'targets': 4}, 'train', shuffle=False, seed=3, num_epochs=1).as_numpy_iterator()]
    rows.append({'stop_on_empty_dataset': stop, 'examples': [40, 4000], 'given': [ids.count(1), ids.count(2)]})
  return rows


def characters():
  seqio.set_global_cache_dirs([os.path.join(HERE, '..', 'fixtures', 'seqio', 'cache', 'cache')])
  seqio.TaskRegistry.add('oracle_tsv', seqio.TextLineDataSource({'train': 'none'}), preprocessors=[seqio.CacheDatasetPlaceholder()],
                         output_features={'targets': seqio.Feature(VOCABULARY)})
  made = seqio.TaskRegistry.get('oracle_tsv')
  names = sorted(made.get_cached_stats('train'))  # this cache counts tokens; any count will do
  return [{'char_count_name': name, 'temperature': t, 'rate': float(seqio.mixing_rate_num_characters(made, t, name))} for name in names for t in (1.0, 2.0, 3.3)]


def timing():
  targets = jnp.asarray([[5, 6, 1, 0], [7, 1, 0, 0]])
  metrics = models.compute_base_metrics(jnp.zeros((2, 4, 9)), targets, (targets > 0), jnp.asarray(1.0), jnp.asarray(0.5))
  return {'batch_size': 2, 'positions': 8, 'nonpadding': 5, 'devices': jax.device_count(), 'names': sorted(k for k in metrics if k.startswith('timing/')),
          'numerators': {k: float(v.numerator) for k, v in metrics.items() if k.startswith('timing/') and getattr(v, 'numerator', None) is not None}}


def num_decodes():
  class Module:
    dtype = jnp.float32
    scan_layers = False
    def apply(self, variables, *args, method=None, mutable=False, **kwargs):
      name = method.__name__ if method is not None else 'call'
      if name == 'encode':
        return jnp.zeros((2, 3, 4))
      batch = kwargs['decode'] and args[2].shape[0] if 'decode' in kwargs and len(args) > 2 else args[0].shape[0]
      logits = jnp.zeros((batch, 1, 9))
      return (logits, {'cache': {}}) if mutable else logits
    def encode(self): pass
    def decode(self): pass
  calls = []
  @gin.configurable(module='recorded')
  def search(inputs, cache, tokens_to_logits, num_decodes=1, **kwargs):
    calls.append(num_decodes)
    return jnp.zeros((inputs.shape[0], num_decodes, 4), jnp.int32), jnp.zeros((inputs.shape[0], num_decodes))
  rows = []
  for method, function in ((None, None), (None, 3), (2, None), (2, 3)):
    gin.clear_config()
    if function:
      gin.bind_parameter('search.num_decodes', function)
    vocabulary = seqio.ByteVocabulary()
    model = models.EncoderDecoderModel(Module(), vocabulary, vocabulary, optimizer_def=None, decode_fn=search)
    model._compute_kv_cache = lambda *a, **k: ({}, None)
    batch = {'encoder_input_tokens': jnp.ones((2, 3), jnp.int32), 'decoder_input_tokens': jnp.ones((2, 4), jnp.int32)}
    decodes, _ = model.predict_batch_with_aux({}, batch, return_all_decodes=True, **({'num_decodes': method} if method else {}))
    rows.append({'predict_batch_with_aux': method, 'decode_fn': function, 'decodes': int(decodes.shape[1])})
  return rows


def model_info():
  rows = []
  for dims in (1, 2):
    sizes = {'vocab_size': 96, 'emb_dim': 24, 'num_heads': 3, 'head_dim': 8, 'mlp_dim': 40, 'num_encoder_layers': 1, 'num_decoder_layers': 2}
    config = network.T5Config(**sizes, dtype='float32', mlp_activations=('gelu', 'linear'), logits_via_embedding=False)
    vocabulary = seqio.ByteVocabulary()
    optimizer = adafactor.Adafactor(decay_rate=0.8, step_offset=0, logical_factor_rules=adafactor.standard_logical_factor_rules())
    model = models.EncoderDecoderModel(network.Transformer(config), vocabulary, vocabulary, optimizer_def=optimizer)
    partitioner = partitioning.PjitPartitioner(
        num_partitions=2, logical_axis_rules=partitioning.standard_logical_axis_rules(parameter_partitioning_dims=dims))
    shapes = {name: (4, 8) for name in ('encoder_input_tokens', 'decoder_input_tokens', 'decoder_target_tokens')}
    state = utils.TrainStateInitializer(optimizer, model.get_initial_variables, shapes, partitioner).global_train_state_shape
    with tempfile.NamedTemporaryFile('r') as f:
      utils.log_model_info(f.name, state, partitioner)
      rows.append({'parameter_partitioning_dims': dims, 'config': sizes, 'text': open(f.name).read()})
  return rows


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--out', required=True)
  parser.add_argument('--only', nargs='*')
  args = parser.parse_args()
  out = os.path.join(args.out, 'semantics')
  os.makedirs(out, exist_ok=True)
  for make in (shuffle, weight_metrics, train_eval, mixture_end, characters, timing, num_decodes, model_info, early_stopping):
    if args.only and make.__name__ not in args.only:
      continue
    made = make()
    if make is early_stopping:
      with open(os.path.join(out, 'early_stopping.jsonl'), 'w') as f:
        f.writelines(json.dumps(row) + '\n' for row in made)
    else:
      with open(os.path.join(out, make.__name__ + '.json'), 'w') as f:
        json.dump(made, f, indent=1)
        f.write('\n')


if __name__ == '__main__':
  main()
