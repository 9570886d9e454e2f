"""t5x/<case>/: a training state of T5X after 3 steps, as its Checkpointer writes it, and the losses of the next 3.

Reference: google-research/t5x@cc342d4 (checkpoints.Checkpointer, optimizers, examples.t5, examples.scalable_t5). Run with
$ORACLE_ENVS/t/bin/python gen_t5x.py --out DIR --seed N --dims a|b. Per case:
  checkpoint_3/checkpoint        msgpack alone: every array is small enough to be inside ("zarr": arrays beside it, in chunks of several)
  batch.safetensors              the features of every step
  expected.json                  network configuration, optimizer, learning rate, losses of steps 3, 4, 5 (relative 1e-4)
"""
import sys
import os
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gen_model as gm
import oracle_common as oc
import shutil
import numpy as np
import jax
import jax.numpy as jnp
import optax
import seqio
from flax import core as flax_core
from flax import serialization, traverse_util
from t5x import adafactor, checkpoints, models, optimizers, partitioning, train_state as ts_lib
from t5x.examples.scalable_t5 import network as sc_net
from t5x.examples.t5 import network as t5_net
oc.highest()
if not hasattr(jax.config, 'jax_use_shardy_partitioner'):
  type(jax.config).jax_use_shardy_partitioner = False  # newer than jax 0.4.30; read by PjitPartitioner only

LR = 0.01
STANDARD = adafactor.standard_logical_factor_rules()


def ada(**kw):
  return adafactor.Adafactor(LR, decay_rate=0.8, step_offset=0, min_dim_size_to_factor=16, **kw)


def adamw():
  return optimizers.chain([optax.clip_by_global_norm(1.0), optax.adamw(LR, b1=0.9, b2=0.98, eps=1e-6, weight_decay=0.1)])


def multi():
  pick = lambda prefix: traverse_util.ModelParamTraversal(lambda path, _: path.startswith(prefix))
  return optimizers.MultiOptimizer([(pick('/encoder/'), ada(logical_factor_rules=STANDARD)), (pick('/decoder/'), ada(beta1=0.9, factored=False))])


CASES = {
    'scanned': (sc_net, dict(scan_layers=True, param_scan_axis=1), lambda: ada(logical_factor_rules=STANDARD), 'adafactor'),
    'scanned_axis_0': (sc_net, dict(scan_layers=True, param_scan_axis=0), lambda: ada(logical_factor_rules=STANDARD), 'adafactor'),
    'scanned_adamw': (sc_net, dict(scan_layers=True, param_scan_axis=1), adamw, 'adamw'),
    'unscanned': (sc_net, dict(scan_layers=False), lambda: ada(logical_factor_rules=STANDARD), 'adafactor'),
    'adamw': (t5_net, {}, adamw, 'adamw'),
    'multi_optimizer': (t5_net, {}, multi, 'multi_optimizer'),
    'zarr': (t5_net, {}, lambda: ada(logical_factor_rules=STANDARD), 'adafactor'),
}


def save(case, state, folder):
  """As the Checkpointer does; but for `zarr`, arrays go into the msgpack file, as those of no partition do."""
  if case != 'zarr':
    os.makedirs(folder)
    tree = jax.tree_util.tree_map(np.asarray, state.state_dict())
    with open(os.path.join(folder, 'checkpoint'), 'wb') as f:
      f.write(serialization.to_bytes({'version': checkpoints.VERSION, 'optimizer': tree}))
    return
  checkpoints._DESIRED_CHUNK_SIZE_BYTES = 1100  # pylint: disable=protected-access
  host = jax.tree_util.tree_map(np.asarray, state)
  checkpoints.Checkpointer(host, partitioning.PjitPartitioner(num_partitions=1), os.path.dirname(folder)).save(host)


def main():
  ns = oc.args('t5x', variants=list(CASES))
  d = dict(gm.DIMS[ns.dims])
  d.update(vocab=24, emb=16, heads=2, kv=8, mlp=20, enc=2, dec=2) if ns.dims == 'a' else d.update(vocab=28, emb=18, heads=3, kv=7, mlp=22, enc=3, dec=2)
  rng = np.random.default_rng(ns.seed + 404)
  voc = seqio.PassThroughVocabulary(size=d['vocab'], eos_id=1)
  for case, (net, extra, optimizer, kind) in CASES.items():
    batch = gm.encdec_batch(rng, d)
    if ns.variant not in ('all', case):
      continue
    cfg = gm.t5_cfg(net, d, ('gelu', 'linear'), False, **extra)
    opt = optimizer()
    model = models.EncoderDecoderModel(module=net.Transformer(config=cfg), input_vocabulary=voc, output_vocabulary=voc, optimizer_def=opt,
                                       z_loss=1e-4)
    shapes, types = {k: v.shape for k, v in batch.items()}, {k: v.dtype for k, v in batch.items()}
    variables = model.get_initial_variables(jax.random.PRNGKey(ns.seed), shapes, types)
    variables = flax_core.freeze({**flax_core.unfreeze(variables), 'params': gm.unflat(gm.jitter_params(variables['params'], rng))})
    state = ts_lib.FlaxOptimTrainState.create(opt, variables)
    jb = {k: jnp.asarray(v) for k, v in batch.items()}
    step = jax.jit(jax.value_and_grad(lambda p: model.loss_fn(p, jb, None), has_aux=True))
    folder = os.path.join(ns.out, case)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    losses = []
    for i in range(6):
      if i == 3:
        save(case, state, os.path.join(folder, 'checkpoint_3'))
      (loss, _), grads = step(state.params)
      losses.append(float(loss))
      state = state.apply_gradient(grads, learning_rate=LR)
    oc.save_st(os.path.join(folder, 'batch.safetensors'), batch)
    oc.save_json(os.path.join(folder, 'expected.json'),
                 dict(reference=oc.T5X_VERSION, config={k: (v if not callable(v) else 'float32') for k, v in vars(cfg).items()},
                      optimizer=kind, learning_rate=LR, step=3, next_losses=losses[3:], losses_before=losses[:3], loss_rtol=1e-4))
    print(case, losses)


if __name__ == '__main__':
  main()
