"""T1 to T4: a training step of T5X's architecture (plain_jax_t5.py), one jitted function, bfloat16, donated buffers.

    jax_train.py --case "train_base_128x(512/114)" [--fused]      # --fused: attention through cuDNN

With examples of given lengths the batch is padded to the case's, as T5X pads.
"""

import common


def flags(parser):
    parser.add_argument("--case", required=True, help="its whole name")
    parser.add_argument("--fused", action="store_true")


args = common.arguments(__doc__, flags)

import functools  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import plain_jax_optimizers as optimizers  # noqa: E402
import plain_jax_t5 as t5  # noqa: E402
from workloads import VOCABULARY, train_cases  # noqa: E402

case = next(case for case in train_cases(args.tiny) if case["name"] == args.case)
examples, rate = case.get("examples"), case.get("dropout", 0.0)
dtype = jnp.bfloat16
start, update = getattr(optimizers, case["optimizer"])(1e-3)
random = np.random.default_rng(0)


def padded(which):
    """Random tokens; behind an example's length, 0. Lengths of inputs (0) or targets (1)."""
    width = case[("inputs", "targets")[which]]
    lengths = np.array([example[which] for example in examples] if examples else [width] * case["batch"])
    tokens = random.integers(3, VOCABULARY, (len(lengths), width), dtype=np.int32)
    return np.where(np.arange(width)[None, :] < lengths[:, None], tokens, 0)


def create():
    parameters = t5.random_parameters(case["model"])
    return parameters, start(parameters)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train(parameters, state, inputs, targets, key):
    def loss_fn(p):
        logits = t5.logits_of(p, case["model"], inputs, targets, dtype, args.fused, bool(examples), rate, key)
        return t5.loss_of(logits, targets)

    loss, gradients = jax.value_and_grad(loss_fn)(parameters)
    parameters, state = update(parameters, gradients, state)
    return parameters, state, loss


variant = "jax_cudnn" if args.fused else "jax"
job = common.Job(case, variant, None, note=f"jax {jax.__version__}, bfloat16, T5X's architecture")
batch = padded(0), padded(1)
try:
    compiled = train.lower(*jax.eval_shape(create), *batch, jax.random.PRNGKey(0)).compile()
    carried = list(create())
except Exception as error:  # noqa: BLE001 - a variant that fails is a result
    job.fail(error)
    raise SystemExit(0)
common.wait_for_turn(args)
try:
    batch = [jax.device_put(x) for x in batch]
    key = jax.random.PRNGKey(1)

    def step():
        carried[0], carried[1], loss = compiled(*carried, *batch, key)
        return loss

    for round_number in range(1, args.rounds + 1):
        job.record("step", round_number, common.time_jax(args, [step], args.iterations))
    stats = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        common.print_line(workload=case["workload"], case=case["name"], part="memory", variant=variant,
                          peak_bytes=stats["peak_bytes_in_use"])
except Exception as error:  # noqa: BLE001
    job.fail(error)
