"""flaxformer/<case>/: train states of flaxformer's models as T5X saves them, through flaxformer's parameter remapping.

Reference: google/flaxformer@399ea3a (t5_architecture, the MoE architecture, t5x/checkpointing_util), google-research/t5x@cc342d4
(FlaxOptimTrainState, Adafactor, the format of checkpoints.Checkpointer). Run with $ORACLE_ENVS/t/bin/python gen_flaxformer.py --out DIR
--seed N. Per case:
  checkpoint_2/checkpoint   msgpack, version 3, every array inside; with flaxformer's "__save_format_metadata__"
  values.safetensors        the same arrays before the remapping, by T5X's names
  expected.json             the gin bindings of the model

fused: a decoder of parallel fused layers. moe_scanned: blocks of a dense and a sparse layer, scanned. scanned: T5 1.1 with scan_layers, of which the stacks lie on axis 1. switch: experts in encoder and decoder, routers with a
bias. Gradients of the two steps are random numbers: nothing here depends on a loss.
"""
import sys
import os
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gen_model as gm
import oracle_common as oc
import shutil
import numpy as np
import jax
from flax import core as flax_core
from flax import serialization
from flaxformer.t5x import checkpointing_util
from t5x import adafactor, checkpoints, train_state as ts_lib

SIZES = dict(vocab=24, emb=16, heads=2, kv=8, mlp=20, enc=2, dec=2)
# flaxformer scans layers with a position bias of their own only
SCANNED = """
t5_architecture.Encoder.scan_layers = True
t5_architecture.Decoder.scan_layers = True
t5_architecture.EncoderLayer.scanned = True
t5_architecture.DecoderLayer.scanned = True
t5_architecture.Encoder.shared_relative_position_bias_factory = None
t5_architecture.Decoder.shared_relative_position_bias_factory = None
t5_architecture.EncoderLayer.relative_position_bias_factory = @relative_position_biases.RelativePositionBiases
t5_architecture.DecoderLayer.relative_position_bias_factory = @relative_position_biases.RelativePositionBiases
"""
CASES = {
    'scanned': (gm.DENSE_GIN, gm.DENSE_COMMON.format(**SIZES) + SCANNED),
    'fused': (gm.DENSE_GIN, gm.DENSE_COMMON.format(**SIZES) + gm.FUSED),
    'moe_scanned': (gm.MOE_GIN, gm.MOE_COMMON.format(emlp=14, experts=3, group=16, **SIZES) + gm.MOE_VARIANTS['moe_scanned']),
    'switch': (gm.MOE_GIN, gm.MOE_COMMON.format(emlp=14, experts=3, group=16, **SIZES) + gm.MOE_VARIANTS['moe_switch'] + 'routing.RouterWeights.use_bias = True\n'),
}


def main():
  ns = oc.args('flaxformer', variants=list(CASES))
  for case, (include, bindings) in CASES.items():
    if ns.variant not in ('all', case):
      continue
    rng = np.random.default_rng(ns.seed + sum(map(ord, case)))
    module = gm.flaxformer_module(include, bindings)
    tokens = np.ones((3, 8), np.int32)
    inputs = dict(encoder_input_tokens=tokens) if hasattr(module, 'encoder_factory') else {}
    variables = module.init(jax.random.PRNGKey(ns.seed), decoder_input_tokens=tokens, decoder_target_tokens=tokens, enable_dropout=False, **inputs)
    keep = {k: v for k, v in flax_core.unfreeze(variables).items() if k in ('params', 'params_axes')}
    variables = flax_core.freeze({**keep, 'params': gm.unflat(gm.jitter_params(variables['params'], rng))})
    rules = dict(adafactor.standard_logical_factor_rules())
    rules.update({'expert': adafactor.FactorDim.BATCH, 'expert_mlp': adafactor.FactorDim.COLUMN, 'unmodeled': adafactor.FactorDim.NONE,
                  'mlp_embed': adafactor.FactorDim.ROW if case == 'moe_scanned' else adafactor.FactorDim.NONE})
    optimizer = adafactor.Adafactor(0.01, decay_rate=0.8, step_offset=0, min_dim_size_to_factor=12, logical_factor_rules=rules)
    state = ts_lib.FlaxOptimTrainState.create(optimizer, variables)
    for _ in range(2):
      grads = jax.tree_util.tree_map(lambda p: rng.standard_normal(p.shape).astype(np.float32), state.params)
      state = state.apply_gradient(grads, learning_rate=0.01)
    tree = jax.tree_util.tree_map(np.asarray, flax_core.unfreeze(state.state_dict()))
    folder = os.path.join(ns.out, case)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, 'checkpoint_2'))
    oc.save_st(os.path.join(folder, 'values.safetensors'), oc.flat({k: tree[k] for k in ('state', 'target')}))
    saved, _ = checkpointing_util.make_to_save_format_fn(module)(tree, {'target': tree['target'], 'state': tree['state']})
    with open(os.path.join(folder, 'checkpoint_2', 'checkpoint'), 'wb') as f:
      f.write(serialization.to_bytes({'version': checkpoints.VERSION, 'optimizer': saved}))
    oc.save_json(os.path.join(folder, 'expected.json'), dict(reference=[oc.FLAXFORMER_VERSION, oc.T5X_VERSION], include=include, gin=bindings, step=2))
    print(case, len(oc.flat(tree)), 'arrays')


if __name__ == '__main__':
  main()
