"""AdamW and Adafactor in plain JAX, optax's rules: NAME(rate) -> (start(parameters), update(parameters, gradients,
state) -> (parameters, state)). check.py holds them against optax."""

import jax
import jax.numpy as jnp


def unzip(tree, like):
    """A tree of tuples as a tuple of trees."""
    outer = jax.tree.structure(like)
    return tuple(jax.tree.unflatten(outer, part) for part in zip(*outer.flatten_up_to(tree)))


def adamw(rate, b1=0.9, b2=0.999, eps=1e-8, decay=1e-4):
    def start(parameters):
        return jnp.zeros((), jnp.int32), *(jax.tree.map(jnp.zeros_like, parameters) for _ in range(2))

    def update(parameters, gradients, state):
        count, first, second = state[0] + 1, *state[1:]

        def one(p, g, m, v):
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            step = (m / (1 - b1 ** count)) / (jnp.sqrt(v / (1 - b2 ** count)) + eps)
            return p - rate * (step + decay * p), m, v

        parameters, first, second = unzip(jax.tree.map(one, parameters, gradients, first, second), parameters)
        return parameters, (count, first, second)

    return start, update


def adafactor(rate, least=128):
    """Factored second moments where both sizes reach `least`, clipping of updates at 1, steps scaled by parameters."""
    def start(parameters):
        def room(p):
            if p.ndim == 2 and min(p.shape) >= least:
                return jnp.zeros(p.shape[0]), jnp.zeros(p.shape[1])
            return jnp.zeros_like(p), jnp.zeros(1)

        return jnp.zeros((), jnp.int32), *unzip(jax.tree.map(room, parameters), parameters)

    def update(parameters, gradients, state):
        count, rows, columns = state
        beta = 1 - (count + 1.0) ** -0.8

        def one(p, g, row, column):
            square = g * g + 1e-30
            if row.shape == p.shape:
                row = beta * row + (1 - beta) * square
                u = g * jax.lax.rsqrt(row)
            else:
                row = beta * row + (1 - beta) * jnp.mean(square, 1)
                column = beta * column + (1 - beta) * jnp.mean(square, 0)
                u = g * jax.lax.rsqrt(row / jnp.mean(row))[:, None] * jax.lax.rsqrt(column)[None, :]
            u = u / jnp.maximum(1.0, jnp.sqrt(jnp.mean(u * u)))
            scale = jnp.maximum(jnp.sqrt(jnp.mean(p * p)), 1e-3)
            return p - rate * scale * u, row, column

        parameters, rows, columns = unzip(jax.tree.map(one, parameters, gradients, rows, columns), parameters)
        return parameters, (count + 1, rows, columns)

    return start, update
