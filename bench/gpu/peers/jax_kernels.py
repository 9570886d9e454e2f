"""K1, K3, K4 and M1 in JAX: jax.nn.dot_product_attention through cuDNN, T5X's loss, optax's optimizers and T5X's Adafactor, experts
as flaxformer dispatches them."""

import common

args = common.arguments(__doc__)

import functools  # noqa: E402
import itertools  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402

import plain_jax_optimizers  # noqa: E402

from workloads import kernel_cases, parameter_shapes  # noqa: E402

dtype = jnp.bfloat16 if args.device == "cuda" else jnp.float32
implementation = "cudnn" if args.device == "cuda" else "xla"
seeds = itertools.count()


def random(*shape, scale=1.0, kind=None):
    return jax.random.normal(jax.random.PRNGKey(next(seeds)), shape, kind or dtype) * jnp.asarray(scale, kind or dtype)


@functools.partial(jax.jit, static_argnames=("causal",))
def attend(q, k, v, bias, causal):
    return jax.nn.dot_product_attention(q, k, v, bias=bias, scale=1.0, is_causal=causal,
                                        implementation=implementation)


@functools.partial(jax.jit, static_argnames=("causal", "with_bias"))
def attend_gradients(q, k, v, bias, out_gradient, causal, with_bias):
    """The backward pass alone cannot be called: forward and backward, from which the report takes the forward."""
    if with_bias:
        _, vjp = jax.vjp(lambda q, k, v, b: attend(q, k, v, b, causal), q, k, v, bias)
    else:
        _, vjp = jax.vjp(lambda q, k, v: attend(q, k, v, bias, causal), q, k, v)
    return vjp(out_gradient)


def attention_job(case, with_bias, bias_grad):
    b, h, d, causal = case["batch"], case["heads"], case["head_dim"], case["how"] == "causal"

    def make():
        sets = []
        for _ in range(common.copies_for(b * h * d * (case["queries"] + case["keys"]) * 4, args.tiny)):
            q = random(b, case["queries"], h, d, scale=d ** -0.25)
            k, v = random(b, case["keys"], h, d, scale=d ** -0.25), random(b, case["keys"], h, d)
            bias = random(1, h, case["queries"], case["keys"]) if with_bias else None
            sets.append((q, k, v, bias, random(b, case["queries"], h, d)))
        return {"forward": [lambda o=o: attend(*o[:4], causal=causal) for o in sets],
                "forward_backward": [lambda o=o: attend_gradients(*o, causal=causal, with_bias=bias_grad)
                                     for o in sets]}

    return make


@jax.jit
def loss_gradient(logits, targets):
    """The gradient of mean cross-entropy with z-loss 1e-4 against one-hot targets, in float32."""
    def loss(z):
        z = z.astype(jnp.float32)
        log_z = jax.nn.logsumexp(z, axis=-1)
        return jnp.mean(log_z - jnp.sum(z * jax.nn.one_hot(targets, z.shape[-1]), axis=-1) + 1e-4 * log_z ** 2)

    return jax.value_and_grad(loss)(logits)


def loss_job(case):
    t, v = case["tokens"], case["vocabulary"]

    def make():
        sets = [(random(t, v), jax.random.randint(jax.random.PRNGKey(next(seeds)), (t,), 0, v))
                for _ in range(common.copies_for(2 * t * v, args.tiny))]
        return {"step": [lambda o=o: loss_gradient(*o) for o in sets]}

    return make


@functools.partial(jax.jit, static_argnames=("chosen", "group"))
def moe(x, router, wi, wo, chosen, group):
    """Tokens go to their experts and come back by products with one-hot arrays, a group of them at a time."""
    tokens, experts = x.reshape(-1, group, x.shape[-1]), router.shape[1]
    capacity = max(4, round(1.25 * group * chosen / experts))
    gates = jax.nn.softmax((tokens.astype(jnp.float32) @ router.astype(jnp.float32)))
    weights, index = jax.lax.top_k(gates, chosen)
    choice = jax.nn.one_hot(index.swapaxes(1, 2).reshape(index.shape[0], -1), experts, dtype=jnp.int32)  # all first choices first
    place = (jnp.cumsum(choice, axis=1) * choice - 1).reshape(-1, chosen, group, experts)
    slots = jax.nn.one_hot(place, capacity, dtype=x.dtype)
    combine = jnp.einsum("gtk,gktec->gtec", weights.astype(x.dtype), slots)
    into = jnp.einsum("gtec,gtd->egcd", slots.sum(1), tokens)
    hidden = jax.nn.relu(jnp.einsum("egcd,edf->egcf", into, wi))
    return jnp.einsum("gtec,egcd->gtd", combine, jnp.einsum("egcf,efd->egcd", hidden, wo)).reshape(x.shape)


@functools.partial(jax.jit, static_argnames=("chosen", "group"))
def moe_gradients(x, router, wi, wo, out_gradient, chosen, group):
    return jax.vjp(lambda *o: moe(*o, chosen=chosen, group=group), x, router, wi, wo)[1](out_gradient)


def moe_job(case):
    t, d, f, e = case["tokens"], case["width"], case["mlp"], case["experts"]
    how = dict(chosen=case["chosen"], group=min(t, 4096))

    def make():
        sets = [(random(t, d), random(d, e, scale=d ** -0.5), random(e, d, f, scale=d ** -0.5), random(e, f, d, scale=f ** -0.5))]
        gradient = random(t, d)
        return {"forward": [lambda o=o: moe(*o, **how) for o in sets],
                "forward_backward": [lambda o=o: moe_gradients(*o, gradient, **how) for o in sets]}

    return make


def optax_rule(rule):
    """(start, update) as plain_jax_optimizers has them."""
    optimizer = optax.adamw(1e-3) if rule == "adamw" else optax.adafactor(1e-3)

    def update(parameters, gradients, state):
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    return optimizer.init, update


def optimizer_job(case, start, update_all):
    def make():
        shapes = parameter_shapes(case["model"])
        parameters = [random(*shape, scale=0.02, kind=jnp.float32) for shape in shapes]
        gradients = [random(*shape, scale=1e-3, kind=jnp.float32) for shape in shapes]
        carried = [parameters, jax.jit(start)(parameters)]

        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def update(parameters, state, gradients):
            return update_all(parameters, gradients, state)

        def step():
            carried[0], carried[1] = update(*carried, gradients)
            return carried[0]

        return {"step": [step]}

    return make


def jobs_of(case):
    if case["workload"] == "K1":
        jobs = []
        if case["how"] != "packed4":
            jobs.append(common.Job(case, f"jax_{implementation}", attention_job(case, False, False)))
            if case["how"] != "cross":
                jobs.append(common.Job(case, f"jax_{implementation}_bias", attention_job(case, True, False)))
                jobs.append(common.Job(case, f"jax_{implementation}_bias_grad", attention_job(case, True, True)))
        return jobs
    if case["workload"] == "K3":
        return [common.Job(case, "jax", loss_job(case))]
    if case["workload"] == "M1" and case["tokens"] <= 16384:
        return [common.Job(case, "jax_einsum", moe_job(case))]
    if "rule" in case:
        note = "f32 parameters and gradients"
        jobs = [common.Job(case, "optax", optimizer_job(case, *optax_rule(case["rule"])), note=note)]
        if case["rule"] == "adafactor":
            jobs.append(common.Job(case, "t5x_adafactor", optimizer_job(case, *plain_jax_optimizers.adafactor(1e-3)), note=note))
        return jobs
    return []


# The small head sizes and the longest sequence are left to PyTorch's call of the same cuDNN.
jobs = [job for case in kernel_cases(args.tiny) for job in jobs_of(case)
        if args.tiny or case["workload"] != "K1" or case["queries"] in (512, 2048)]
common.run_jax(args, jobs)
