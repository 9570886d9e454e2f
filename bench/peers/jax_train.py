"""A training step of T5X's architecture on JAX: one jitted function, donated buffers, optax AdamW."""

import functools

import common

args = common.arguments()
common.limit_threads(args.threads)

import flax  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

import jax_t5  # noqa: E402

random = np.random.default_rng(0)
inputs = random.integers(1, common.VOCABULARY, (args.batch, args.inputs), dtype=np.int32)
targets = random.integers(1, common.VOCABULARY, (args.batch, args.targets), dtype=np.int32)
decoder_inputs = np.concatenate([np.zeros_like(targets[:, :1]), targets[:, :-1]], axis=1)
model = jax_t5.T5(vocabulary=common.VOCABULARY, **common.SIZES[args.model])
optimizer = optax.adamw(1e-3)


@jax.jit
def create():
    parameters = model.init(jax.random.PRNGKey(0), inputs[:1], decoder_inputs[:1], targets[:1])
    return parameters, optimizer.init(parameters)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train(parameters, state, inputs, decoder_inputs, targets):
    def loss_fn(p):
        return jax_t5.loss_of(model.apply(p, inputs, decoder_inputs, targets), targets)

    loss, gradients = jax.value_and_grad(loss_fn)(parameters)
    updates, state = optimizer.update(gradients, state, parameters)
    return optax.apply_updates(parameters, updates), state, loss


carried = list(create())


def step():
    carried[0], carried[1], loss = train(*carried, inputs, decoder_inputs, targets)
    return float(loss)


common.measure(step, args.steps, args.batch * (args.inputs + args.targets),
               peer=f"jax {jax.__version__}, flax {flax.__version__}, T5X's architecture")
