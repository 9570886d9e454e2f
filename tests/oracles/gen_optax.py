"""optax/: optax's optimizers, wrappers and schedules, and jestimator's Amos, as gin files name them.

Reference: optax 0.2.3, google-research/jestimator. T5X's own wrapper adds the update to the parameters and nothing else (t5x/optimizers.py: OptaxWrapper).
Run with $ORACLE_ENVS/t/bin/python gen_optax.py --out DIR --seed N [--dims b]; $ORACLE_REF/jestimator is its checkout.

inputs.safetensors: param/<name>; grad/<name> with a first axis of updates.
<case>.safetensors: param/<updates>/<name> after 1, 10 and all updates; state/<path> after all.
cases.json: logical axes, and for each case its gin text, NaNs put into gradients, `examples`, if not 0 how many gradients, this update's and those of
the next ones (from the first again after the last), are those of a batch's examples, and `atol`: 8 times the largest difference that moving every input by
one unit in the last place makes, and 2e-6 of the largest value.
schedules.json: gin text, steps, values.
"""
import argparse
import json
import operator
import os
import sys

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
sys.path.insert(0, os.path.join(os.environ['ORACLE_REF'], 'jestimator'))
import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib
from flax import serialization, traverse_util
from jestimator import amos, amos_helper
from safetensors.numpy import save_file

jax.config.update('jax_threefry_partitionable', True)  # as T5X sets it
UPDATES = 100
NORM = '^(?!.*norm).*'


def paths(tree, fn):
  flat = traverse_util.flatten_dict(tree)
  return traverse_util.unflatten_dict({k: fn('/' + '/'.join(k)) for k in flat})


def not_norm(tree):
  return paths(tree, lambda p: 'norm' not in p)


def case(gin, make, nan=(), examples=0):
  return dict(gin=gin, make=make, nan=list(nan), examples=examples)


def optimizer(name, gin, make, **kw):
  lines = ''.join(f'optimizers.{name}.{line}\n' for line in gin)
  return case(f'OPTIMIZER = @optimizers.{name}()\n{lines}', make, **kw)


def chain(members, gin, make, **kw):
  return case(f'OPTIMIZER = @optimizers.chain()\noptimizers.chain.transformations = [{members}]\n{gin}', make, **kw)


RATE = ['learning_rate = 0.01']
INJECT = 'OPTIMIZER = @optimizers.OptaxWrapper()\noptimizers.OptaxWrapper.optax_optimizer = @optax.inject_hyperparams()\n'
ETA = {'.*norm.*': 1.0, '.*logits.*': 0.3, '.*': 0.05}
ETA_GIN = ['eta_fn = @amos_helper.params_fn_from_assign_map()\n'
           f'amos_helper.params_fn_from_assign_map.assign_map = {ETA!r}']
ETA_OF_SHAPE = {'.*kernel': 'sqrt(1 / prod(SHAPE[:-1]))', '.*': 0.1}
SHAPES = {'.*mlp.*kernel': '(1,) + SHAPE[1:]', '.*kernel': '(SHAPE[0], 1)', '.*embedding': (1, 1), '.*bias': 'SHAPE', '.*': '()'}
SGD = 'optax.sgd.learning_rate = 0.1\n'
ADAM = 'optax.adam.learning_rate = 0.01\n'
CASES = {
    'adabelief': optimizer('adabelief', RATE, lambda: optax.adabelief(0.01)),
    'adagrad': optimizer('adagrad', RATE, lambda: optax.adagrad(0.01)),
    'rmsprop': optimizer('rmsprop', RATE, lambda: optax.rmsprop(0.01)),
    'rmsprop_momentum': optimizer('rmsprop', RATE + ['momentum = 0.9', 'nesterov = True', 'initial_scale = 0.1'],
                                  lambda: optax.rmsprop(0.01, momentum=0.9, nesterov=True, initial_scale=0.1)),
    'rmsprop_centered': optimizer('rmsprop', RATE + ['centered = True', 'decay = 0.8', 'eps = 1e-4'],
                                  lambda: optax.rmsprop(0.01, centered=True, decay=0.8, eps=1e-4)),
    'yogi': optimizer('yogi', RATE, lambda: optax.yogi(0.01)),
    'radam': optimizer('radam', RATE, lambda: optax.radam(0.01)),
    'radam_nesterov': optimizer('radam', RATE + ['nesterov = True', 'b2 = 0.99'],
                                lambda: optax.radam(0.01, nesterov=True, b2=0.99)),
    'lamb': optimizer('lamb', RATE + ['weight_decay = 0.1', f"mask = '{NORM}'"],
                      lambda: optax.lamb(0.01, weight_decay=0.1, mask=not_norm)),
    'lars': optimizer('lars', RATE + ['weight_decay = 0.1', f"trust_ratio_mask = '{NORM}'"],
                      lambda: optax.lars(0.01, weight_decay=0.1, trust_ratio_mask=not_norm)),
    'fromage': optimizer('fromage', RATE, lambda: optax.fromage(0.01)),
    'amos': optimizer('amos', RATE + ETA_GIN,
                      lambda: amos.amos(0.01, eta_fn=amos_helper.params_fn_from_assign_map(ETA))),
    'amos_momentum': optimizer(
        'amos', RATE + ETA_GIN + ['momentum = 0.9', 'clip_value = 0.5', 'beta = 0.98', 'extra_l2 = 0.01'],
        lambda: amos.amos(0.01, eta_fn=amos_helper.params_fn_from_assign_map(ETA), momentum=0.9, clip_value=0.5,
                          beta=0.98, extra_l2=0.01)),
    'amos_shapes': optimizer(
        'amos', RATE + ['eta_fn = @amos_helper.params_fn_from_assign_map()\n'
                        f'amos_helper.params_fn_from_assign_map.assign_map = {ETA_OF_SHAPE!r}\n'
                        'amos_helper.params_fn_from_assign_map.eval_str_value = True\n'
                        f'shapes/amos_helper.params_fn_from_assign_map.assign_map = {SHAPES!r}',
                        'shape_fn = @shapes/amos_helper.params_fn_from_assign_map()'],
        lambda: amos.amos(0.01, eta_fn=amos_helper.params_fn_from_assign_map(ETA_OF_SHAPE, eval_str_value=True),
                          shape_fn=amos_helper.params_fn_from_assign_map(SHAPES, eval_str_value=True))),
    'noisy_sgd': optimizer('noisy_sgd', RATE + ['seed = 3'], lambda: optax.noisy_sgd(0.01, seed=3)),
    'dpsgd': optimizer('dpsgd', RATE + ['l2_norm_clip = 0.5', 'noise_multiplier = 0.1', 'seed = 5'],
                       lambda: contrib.dpsgd(0.01, 0.5, 0.1, 5), examples=3),
    'dpsgd_momentum': optimizer(
        'dpsgd', RATE + ['l2_norm_clip = 2.0', 'noise_multiplier = 0.02', 'seed = 1', 'momentum = 0.9', 'nesterov = True'],
        lambda: contrib.dpsgd(0.01, 2.0, 0.02, 1, momentum=0.9, nesterov=True), examples=5),
    'inject_hyperparams': case(
        INJECT + 'optax.inject_hyperparams.inner_factory = @optax.adamw\noptax.inject_hyperparams.static_args = [\'mask\', \'eps\']\n'
        f"optax.adamw.learning_rate = @optax.linear_schedule()\noptax.adamw.b1 = @b1/optax.linear_schedule()\noptax.adamw.mask = '{NORM}'\n"
        'optax.adamw.weight_decay = 0.1\noptax.linear_schedule.init_value = 0.02\noptax.linear_schedule.end_value = 0.001\n'
        'optax.linear_schedule.transition_steps = 50\nb1/optax.linear_schedule.init_value = 0.8\nb1/optax.linear_schedule.end_value = 0.95\n',
        lambda: optax.inject_hyperparams(optax.adamw, static_args=['mask', 'eps'])(
            learning_rate=optax.linear_schedule(0.02, 0.001, 50), b1=optax.linear_schedule(0.8, 0.95, 50),
            weight_decay=0.1, mask=not_norm)),
    'inject_integer': case(
        INJECT + 'optax.inject_hyperparams.inner_factory = @optax.noisy_sgd\noptax.noisy_sgd.learning_rate = 0.01\noptax.noisy_sgd.seed = 3\n',
        lambda: optax.inject_hyperparams(optax.noisy_sgd)(learning_rate=0.01, seed=3)),
    'adam_mu_bfloat16': optimizer('adam', RATE + ["mu_dtype = 'bfloat16'"],
                                  lambda: optax.adam(0.01, mu_dtype=jnp.bfloat16)),
    'adamw_mask': optimizer('adamw', RATE + ['weight_decay = 0.1', f"mask = '{NORM}'"],
                            lambda: optax.adamw(0.01, weight_decay=0.1, mask=not_norm)),
    'lion_mask': optimizer('lion', RATE + ['weight_decay = 0.1', f"mask = '{NORM}'"],
                           lambda: optax.lion(0.01, weight_decay=0.1, mask=not_norm)),
    'sgd_accumulator_bfloat16': optimizer(
        'sgd', RATE + ['momentum = 0.9', "accumulator_dtype = 'bfloat16'"],
        lambda: optax.sgd(0.01, momentum=0.9, accumulator_dtype=jnp.bfloat16)),
    'adamax': chain('@optax.adamax()', 'optax.adamax.learning_rate = 0.01\n', lambda: optax.chain(optax.adamax(0.01))),
    'ema': chain('@optax.ema(), @optax.sgd()', 'optax.ema.decay = 0.9\n' + SGD,
                 lambda: optax.chain(optax.ema(0.9), optax.sgd(0.1))),
    'masked': chain('@optax.masked()', "optax.masked.inner = @optax.adam()\noptax.masked.mask = 'kernel'\n" + ADAM,
                    lambda: optax.chain(optax.masked(optax.adam(0.01), lambda t: paths(t, lambda p: 'kernel' in p)))),
    'multi_transform': chain(
        '@optax.multi_transform()',
        "optax.multi_transform.transforms = {'kernels': @optax.adam(), 'rest': @optax.sgd(), 'none': @optax.set_to_zero()}\n"
        "optax.multi_transform.param_labels = {'kernel$': 'kernels', 'bias': 'none', '.*': 'rest'}\n" + ADAM + SGD,
        lambda: optax.chain(optax.multi_transform(
            {'kernels': optax.adam(0.01), 'rest': optax.sgd(0.1), 'none': optax.set_to_zero()},
            lambda t: paths(t, lambda p: 'kernels' if p.endswith('kernel') else 'none' if 'bias' in p else 'rest')))),
    'multi_steps': chain('@optax.MultiSteps()', 'optax.MultiSteps.opt = @optax.adam()\n'
                         'optax.MultiSteps.every_k_schedule = 3\n' + ADAM,
                         lambda: optax.chain(optax.MultiSteps(optax.adam(0.01), 3).gradient_transformation())),
    'multi_steps_sum': chain('@optax.MultiSteps()', 'optax.MultiSteps.opt = @optax.sgd()\n'
                             'optax.MultiSteps.use_grad_mean = False\noptax.MultiSteps.every_k_schedule = 4\n' + SGD,
                             lambda: optax.chain(optax.MultiSteps(optax.sgd(0.1), 4, use_grad_mean=False)
                                                 .gradient_transformation())),
    'apply_if_finite': chain('@optax.apply_if_finite()', 'optax.apply_if_finite.inner = @optax.adam()\n'
                             'optax.apply_if_finite.max_consecutive_errors = 5\n' + ADAM,
                             lambda: optax.chain(optax.apply_if_finite(optax.adam(0.01), 5)), nan=[2, 3, 50, 99]),
    'zero_nans': chain('@optax.zero_nans(), @optax.adam()', ADAM,
                       lambda: optax.chain(optax.zero_nans(), optax.adam(0.01)), nan=[2, 3, 99]),
}

RESTARTS = [dict(init_value=0.0, peak_value=0.1, warmup_steps=10, decay_steps=100, end_value=0.01),
            dict(init_value=0.01, peak_value=0.05, warmup_steps=20, decay_steps=300)]
SCHEDULES = [
    ('constant_schedule', dict(value=0.3)),
    ('linear_schedule', dict(init_value=1.0, end_value=0.1, transition_steps=100, transition_begin=10)),
    ('polynomial_schedule', dict(init_value=1.0, end_value=0.1, power=2.5, transition_steps=200, transition_begin=7)),
    ('polynomial_schedule', dict(init_value=0.5, end_value=0.1, power=2, transition_steps=0)),
    ('cosine_decay_schedule', dict(init_value=0.7, decay_steps=300, alpha=0.1, exponent=1.3)),
    ('exponential_decay', dict(init_value=0.7, transition_steps=50, decay_rate=0.8, transition_begin=5)),
    ('exponential_decay', dict(init_value=0.7, transition_steps=50, decay_rate=0.8, staircase=True, end_value=0.2)),
    ('exponential_decay', dict(init_value=0.1, transition_steps=50, decay_rate=1.5, end_value=0.9)),
    ('piecewise_constant_schedule', dict(init_value=0.5, boundaries_and_scales={10: 0.5, 100: 0.1, 50: 3.0})),
    ('piecewise_constant_schedule', dict(init_value=0.5)),
    ('piecewise_interpolate_schedule', dict(interpolate_type='linear', init_value=0.5,
                                            boundaries_and_scales={10: 0.5, 100: 0.1, 50: 3.0})),
    ('piecewise_interpolate_schedule', dict(interpolate_type='cosine', init_value=0.5,
                                            boundaries_and_scales={10: 0.5, 100: 0.1, 50: 3.0})),
    ('linear_onecycle_schedule', dict(transition_steps=200, peak_value=0.5)),
    ('cosine_onecycle_schedule', dict(transition_steps=200, peak_value=0.5, pct_start=0.4, div_factor=10.0)),
    ('schedules.warmup_constant_schedule', dict(init_value=0.1, peak_value=0.5, warmup_steps=30)),
    ('warmup_cosine_decay_schedule', dict(init_value=0.0, peak_value=0.5, warmup_steps=30, decay_steps=300)),
    ('warmup_exponential_decay_schedule', dict(init_value=0.0, peak_value=0.5, warmup_steps=30, transition_steps=50,
                                               decay_rate=0.7, transition_begin=4, end_value=0.1)),
    ('sgdr_schedule', dict(cosine_kwargs=RESTARTS)),
]
STEPS = [0, 1, 2, 4, 5, 9, 10, 11, 29, 30, 31, 49, 50, 51, 59, 60, 80, 99, 100, 101, 120, 150, 169, 170, 199, 200, 201, 299, 300, 399, 400, 1000]


def join():
  return optax.join_schedules([optax.constant_schedule(0.5), optax.linear_schedule(0.2, 0.1, 50)], [40])


JOIN = ('SCHEDULE = @optax.join_schedules()\noptax.join_schedules.schedules = [@optax.constant_schedule(), @optax.linear_schedule()]\n'
        'optax.join_schedules.boundaries = [40]\noptax.constant_schedule.value = 0.5\noptax.linear_schedule.init_value = 0.2\n'
        'optax.linear_schedule.end_value = 0.1\noptax.linear_schedule.transition_steps = 50\n')


def flat(tree):
  return {k: v for k, v in traverse_util.flatten_dict(serialization.to_state_dict(tree), sep='/').items()}


def as_numpy(x):
  x = np.asarray(x)
  return x.astype(np.float32) if x.dtype == jnp.bfloat16 else x


def inputs(seed, dims):
  k = dict(E=12, M=10, V=16, H=3) if dims == 'a' else dict(E=6, M=9, V=10, H=4)
  shapes = {
      'encoder/layers_0/mlp/wi/kernel': ((k['E'], k['M']), ('embed', 'mlp')),
      'encoder/layers_0/pre_norm/scale': ((k['E'],), ('embed',)),
      'decoder/relpos/rel_embedding': ((k['H'], 8), ('heads', 'relpos_buckets')),
      'decoder/logits/kernel': ((k['E'], k['V']), ('embed', 'vocab')),
      'decoder/logits/bias': ((k['V'],), ('vocab',)),
      'temperature': ((), ()),
  }
  rng = np.random.default_rng(seed)
  params, grads, axes = {}, {}, {}
  for name, (shape, names) in shapes.items():
    params[name] = np.asarray((1.0 if 'norm' in name else 0.0) + 0.1 * rng.standard_normal(shape), np.float32)
    direction = rng.standard_normal(shape)
    size = 10.0 ** rng.uniform(-2, 0, (UPDATES,) + (1,) * len(shape))
    grads[name] = np.asarray(size * (direction + rng.standard_normal((UPDATES,) + shape)), np.float32)
    axes[name] = list(names)
  params['decoder/logits/bias'][:] = 0
  grads['decoder/logits/kernel'][4] = 0
  return params, grads, axes


def run(make, params, grads, nan, examples):
  """Parameters after each of the updates that are kept, and the state after all."""
  tx = make()
  tree = traverse_util.unflatten_dict({tuple(k.split('/')): jnp.asarray(v) for k, v in params.items()})
  state = tx.init(tree)

  @jax.jit
  def update(tree, state, g):
    updates, state = tx.update(g, state, tree)
    return optax.apply_updates(tree, updates), state

  out = {}
  for t in range(UPDATES):
    g = {k: np.stack([v[(t + i) % UPDATES] for i in range(examples)]) if examples else v[t].copy() for k, v in grads.items()}
    if t in nan:
      g['encoder/layers_0/mlp/wi/kernel'][1, 2] = np.nan
    tree, state = update(tree, state, traverse_util.unflatten_dict({tuple(k.split('/')): jnp.asarray(v) for k, v in g.items()}))
    if t + 1 in (1, 10, UPDATES):
      out.update({f'param/{t + 1}/{k}': as_numpy(v) for k, v in flat(tree).items()})
  out.update({f'state/{k}': as_numpy(v) for k, v in flat(state).items()})
  return out


def moved(arrays, rng):
  return {k: np.nextafter(v, np.where(rng.random(v.shape) < 0.5, -np.inf, np.inf).astype(np.float32)).astype(np.float32)
          for k, v in arrays.items()}


def atol(want, reruns):
  """Of float arrays; by array."""
  result = {}
  for k, v in want.items():
    if v.dtype == np.float32 and v.size:
      noise = max(float(np.max(np.abs(v - other[k]))) for other in reruns)
      result[k] = 8 * noise + 2e-6 * float(np.max(np.abs(v)))
  return result


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--out', required=True)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--dims', default='a')
  ns = parser.parse_args()
  os.makedirs(ns.out, exist_ok=True)
  params, grads, axes = inputs(ns.seed + 11, ns.dims)
  save_file({**{'param/' + k: v for k, v in params.items()}, **{'grad/' + k: v for k, v in grads.items()}},
            os.path.join(ns.out, 'inputs.safetensors'))
  meta = dict(packages=dict(jax=jax.__version__, flax=flax.__version__, optax=optax.__version__), updates=UPDATES,
              param_axes=axes, nan_gradient=['encoder/layers_0/mlp/wi/kernel', 1, 2], cases={})
  for name, c in CASES.items():
    want = run(c['make'], params, grads, c['nan'], c['examples'])
    rng = np.random.default_rng(ns.seed + 1)
    reruns = [run(c['make'], moved(params, rng), moved(grads, rng), c['nan'], c['examples']) for _ in range(3)]
    save_file({k: np.ascontiguousarray(v) for k, v in want.items()}, os.path.join(ns.out, name + '.safetensors'))
    meta['cases'][name] = dict(gin=c['gin'], nan=c['nan'], examples=c['examples'], atol=atol(want, reruns))
    os.chmod(os.path.join(ns.out, name + '.safetensors'), 0o644)
    print(name, max(meta['cases'][name]['atol'].values()))
  with open(os.path.join(ns.out, 'cases.json'), 'w') as f:
    json.dump(meta, f, indent=1)
  rows = []
  scale = 1.0 if ns.dims == 'a' else 0.7
  for name, args in SCHEDULES:
    args = {k: v * scale if k in ('init_value', 'peak_value', 'end_value') else v for k, v in args.items()}
    gin = f'SCHEDULE = @optax.{name}()\n' + ''.join(f'optax.{name}.{k} = {v!r}\n' for k, v in args.items())
    make = operator.attrgetter(name)(optax)
    rows.append(dict(gin=gin, steps=STEPS, values=[float(make(**args)(jnp.asarray(s))) for s in STEPS]))
  rows.append(dict(gin=JOIN, steps=STEPS, values=[float(join()(jnp.asarray(s))) for s in STEPS]))
  with open(os.path.join(ns.out, 'schedules.json'), 'w') as f:
    json.dump(rows, f, indent=1)


if __name__ == '__main__':
  main()
