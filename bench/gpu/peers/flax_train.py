"""T1 to T3: a training step of T5X's architecture in flax, one jitted function, bfloat16, donated buffers.

    flax_train.py --model t5_1_1_base [--fused]      # --fused: attention through cuDNN
"""

import common


def flags(parser):
    parser.add_argument("--model", default="t5_1_1_base")
    parser.add_argument("--fused", action="store_true")


args = common.arguments(__doc__, flags)

import functools  # noqa: E402
import pathlib  # noqa: E402
import sys  # noqa: E402

import flax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "peers"))

import jax_t5  # noqa: E402
from workloads import SIZES, VOCABULARY, train_cases  # noqa: E402

case = next(case for case in train_cases(args.tiny, more=True) if case["model"] == args.model)
model = jax_t5.T5(vocabulary=VOCABULARY, **SIZES[args.model], dtype=jnp.bfloat16,
                  fused=args.fused and args.device == "cuda")
optimizer = optax.adafactor(1e-3) if case["optimizer"] == "adafactor" else optax.adamw(1e-3)
random = np.random.default_rng(0)
inputs = random.integers(3, VOCABULARY, (case["batch"], case["inputs"]), dtype=np.int32)
targets = random.integers(3, VOCABULARY, (case["batch"], case["targets"]), dtype=np.int32)
decoder_inputs = np.concatenate([np.zeros_like(targets[:, :1]), targets[:, :-1]], axis=1)


def create():
    parameters = model.init(jax.random.PRNGKey(0), inputs[:1], decoder_inputs[:1], targets[:1])
    return parameters, optimizer.init(parameters)


def noise_and_zeros(shapes):
    """Parameters without compiling their initialisation, which takes longer than the step's own compilation."""
    parameters, state = shapes

    def fill(shape):
        if len(shape.shape) < 2:
            return jnp.ones(shape.shape, shape.dtype)
        return 0.02 * jax.random.normal(jax.random.PRNGKey(random.integers(1 << 30)), shape.shape, shape.dtype)

    return jax.tree.map(fill, parameters), jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), state)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train(parameters, state, inputs, decoder_inputs, targets):
    def loss_fn(p):
        return jax_t5.loss_of(model.apply(p, inputs, decoder_inputs, targets), targets)

    loss, gradients = jax.value_and_grad(loss_fn)(parameters)
    updates, state = optimizer.update(gradients, state, parameters)
    return optax.apply_updates(parameters, updates), state, loss


variant = "flax_cudnn" if args.fused else "flax"
note = f"jax {jax.__version__}, flax {flax.__version__}, bfloat16, T5X's architecture"
job = common.Job(case, variant, None, note=note)
try:
    shapes = jax.eval_shape(create)
    compiled = train.lower(*shapes, inputs, decoder_inputs, targets).compile()
    carried = list(noise_and_zeros(shapes))
except Exception as error:  # noqa: BLE001 - a variant that fails is a result
    job.fail(error)
    raise SystemExit(0)
common.wait_for_turn(args)
try:
    batch = [jax.device_put(x) for x in (inputs, decoder_inputs, targets)]

    def step():
        carried[0], carried[1], loss = compiled(*carried, *batch)
        return loss

    for round_number in range(1, args.rounds + 1):
        job.record("step", round_number, common.time_jax(args, [step], args.iterations))
    stats = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        common.print_line(workload=case["workload"], case=case["name"], part="memory", variant=variant,
                          peak_bytes=stats["peak_bytes_in_use"])
except Exception as error:  # noqa: BLE001
    job.fail(error)
