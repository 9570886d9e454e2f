"""S1 and S2: generation in plain JAX as T5X decodes (plain_jax_t5.py), one jitted function a case, bf16 parameters."""

import common


def flags(parser):
    parser.add_argument("--set", default="serve")


args = common.arguments(__doc__, flags)

import functools  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import plain_jax_t5 as t5  # noqa: E402
from workloads import VOCABULARY, serve_cases  # noqa: E402

dtype = jnp.bfloat16 if args.device == "cuda" else jnp.float32
random = np.random.default_rng(0)
held = {}


def parameters_of(model):
    """One model's at a time."""
    if model not in held:
        held.clear()
        held[model] = t5.random_parameters(model, dtype)
    return held[model]


def arguments_of(case):
    inputs = random.integers(3, VOCABULARY, (case["batch"], case["inputs"]), dtype=np.int32)
    return (inputs,) if case["how"] == "encode" else (inputs, jax.random.PRNGKey(0))


def compiled(case):
    if case["how"] == "encode":
        def run(p, inputs):
            return t5.encode(p, case["model"], inputs, dtype)
    else:
        def run(p, inputs, key):
            return t5.decode(p, case["model"], inputs, case["targets"], case["how"], key, dtype)
    shapes = jax.eval_shape(functools.partial(t5.random_parameters, case["model"], dtype))
    return jax.jit(run).lower(shapes, *arguments_of(case)).compile()


jobs = common.chosen(args, [common.Job(case, "jax", None) for case in serve_cases(args.tiny, args.set)])
programs = {}
for job in jobs:
    try:
        common.ask_for_time_to_compile(args)
        programs[job.case["name"]] = compiled(job.case)
    except Exception as error:  # noqa: BLE001 - a variant that fails is a result
        job.fail(error)


def measure(job):
    job.note = f"jax {jax.__version__}, {jnp.dtype(dtype).name}, T5X's way of decoding"
    bound = parameters_of(job.case["model"]), *(jax.device_put(x) for x in arguments_of(job.case))
    call = functools.partial(programs[job.case["name"]], *bound)
    jax.block_until_ready(call())
    for round_number in range(1, 2 if args.tiny else 3):
        repeats = 1 if args.tiny or job.case["how"] != "encode" else 20
        job.record("call", round_number, [common.milliseconds(lambda: jax.block_until_ready(call()), lambda: None)
                                          for _ in range(repeats)])


common.each_in_time(args, jobs, measure)
