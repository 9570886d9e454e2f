"""A Switch layer in JAX as flaxformer computes it (one-hot masks of [groups, tokens, experts, capacity], experts by batched
products), and a dense MLP: milliseconds of processor time, forward and with gradients. For bench/moe_compare.py."""

import common

arguments = common.moe_arguments()

import jax  # noqa: E402  (after the threads are limited)
import jax.numpy as jnp  # noqa: E402


def dense(params, x):
    return jax.nn.relu(x @ params["wi"]) @ params["wo"]


def switch(params, x):
    """x: [tokens, embed]; groups as flaxformer makes them: at least one an expert, at most 4,096 tokens."""
    experts = params["router"].shape[1]
    groups = max(x.shape[0] // 4096, experts)
    tokens = x.shape[0] // groups
    capacity = max(round(1.25 * tokens / experts), 4)
    x = x.reshape(groups, tokens, -1)
    p = jax.nn.softmax(x @ params["router"])
    chosen = jax.nn.one_hot(jnp.argmax(p, -1), experts, dtype=jnp.int32)
    place = jnp.max(jnp.cumsum(chosen, 1) * chosen - 1, -1)
    dispatch = chosen[..., None] * jax.nn.one_hot(place, capacity)[..., None, :]
    combine = p[..., None] * dispatch
    rows = jnp.einsum("gte,gtxc->xgce", x, dispatch).reshape(experts, groups * capacity, -1)
    y = jnp.einsum("xrf,xfe->xre", jax.nn.relu(jnp.einsum("xre,xef->xrf", rows, params["wi"])), params["wo"])
    y = y.reshape(experts, groups, capacity, -1)
    return jnp.einsum("xgce,gtxc->gte", y, combine).reshape(groups * tokens, -1)


def measure(name, layer, params, x, dy, experts):
    forward = jax.jit(layer)
    both = jax.jit(jax.grad(lambda p, v: jnp.sum(layer(p, v) * dy), argnums=(0, 1)))
    common.print_layer(f"JAX {jax.__version__}", name, experts, x.shape[0], lambda: jax.block_until_ready(forward(params, x)),
                       lambda: jax.block_until_ready(both(params, x)))


def main():
    keys = iter(jax.random.split(jax.random.PRNGKey(0), 99))
    e, f = arguments.embed, arguments.mlp
    x, dy = (jax.random.normal(next(keys), (arguments.tokens, e)) for _ in range(2))
    normal = lambda *shape: jax.random.normal(next(keys), shape) * 0.04  # noqa: E731
    measure("dense", dense, {"wi": normal(e, f), "wo": normal(f, e)}, x, dy, 1)
    for experts in map(int, arguments.experts.split(",")):
        params = {"router": normal(e, experts), "wi": normal(experts, e, f), "wo": normal(experts, f, e)}
        measure("switch", switch, params, x, dy, experts)


main()
