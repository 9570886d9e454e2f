"""T5 1.1 in plain JAX with the operations of T5X's example network: what flax would trace, without flax. Written for
this comparison; check.py holds it against torch_t5.py.

Activations in bfloat16 (or `dtype`) over float32 parameters, float32 norms' statistics, softmax and logits. The relative
bias is a one-hot product with its table. fused: attention through cuDNN.
"""

import jax
import jax.numpy as jnp
import numpy as np

from workloads import BUCKETS, MAX_DISTANCE, SIZES, VOCABULARY

FORBIDDEN = -1e10


def shapes_of(model):
    """A tree of parameters' shapes. [in, out] for products; norms' gains and tables apart."""
    size = SIZES[model]
    d, a, f = size["emb_dim"], size["num_heads"] * size["head_dim"], size["mlp_dim"]
    attention = dict(norm=(d,), q=(d, a), k=(d, a), v=(d, a), o=(a, d))
    mlp = dict(norm=(d,), wi_0=(d, f), wi_1=(d, f), wo=(f, d))
    table = (size["num_heads"], BUCKETS)
    layers = range(size["num_layers"])
    return dict(embed=(VOCABULARY, d), logits=(d, VOCABULARY),
                encoder=dict(bias=table, norm=(d,), layers=[{"self": attention, "mlp": mlp} for _ in layers]),
                decoder=dict(bias=table, norm=(d,),
                             layers=[{"self": attention, "cross": attention, "mlp": mlp} for _ in layers]))


def is_shape(x):
    return isinstance(x, tuple)


def random_parameters(model, dtype=jnp.float32):
    """Noise for products and tables, ones for gains."""
    seeds = iter(range(1 << 20))

    def fill(shape):
        if len(shape) == 1:
            return jnp.ones(shape, dtype)
        return (0.02 * jax.random.normal(jax.random.PRNGKey(next(seeds)), shape, jnp.float32)).astype(dtype)

    return jax.tree.map(fill, shapes_of(model), is_leaf=is_shape)


def buckets(distance, bidirectional):
    """Bucket of key - query, for NumPy: constant for XLA. Source: arXiv:1910.10683."""
    count, offset = BUCKETS, 0
    if bidirectional:
        count //= 2
        offset = (distance > 0) * count
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = count // 2
    far = exact + (np.log(np.maximum(distance, 1) / exact) / np.log(MAX_DISTANCE / exact) * (count - exact))
    return offset + np.where(distance < exact, distance, np.minimum(far.astype(np.int32), count - 1))


def relative_bias(table, queries, keys, bidirectional, dtype):
    """[1, heads, queries, keys]"""
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    one_hot = jax.nn.one_hot(buckets(distance, bidirectional), BUCKETS, dtype=dtype)
    return jnp.einsum("hb,qkb->hqk", table.astype(dtype), one_hot)[None]


def norm(x, gain):
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), -1, keepdims=True) + 1e-6)
    return y.astype(x.dtype) * gain.astype(x.dtype)


def split(x, size):  # [b, t, heads * d] -> [b, t, heads, d]
    return x.reshape(*x.shape[:2], size["num_heads"], size["head_dim"])


def product(x, kernel):
    return x @ kernel.astype(x.dtype)


class Dropout:
    """T5X's: one mask for all positions of a sequence. Rate 0: nothing."""

    def __init__(self, rate=0.0, key=None):
        self.rate, self.key = rate, key

    def __call__(self, x, shape=None):
        if self.rate == 0:
            return x
        self.key, key = jax.random.split(self.key)
        shape = shape or (x.shape[0], 1, x.shape[2])
        keep = jax.random.bernoulli(key, 1 - self.rate, shape)
        return jnp.where(keep, x / (1 - self.rate), 0).astype(x.dtype)


def attend(p, x, keys, values, bias, size, dropout, fused=None):
    """bias: [1 or b, 1 or heads, q, k], masks included. fused: what cuDNN's call wants instead of masks, or None."""
    q = split(product(x, p["q"]), size)
    if fused is not None:
        y = jax.nn.dot_product_attention(q, keys, values, bias=bias, scale=1.0, implementation="cudnn", **fused)
    else:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, keys)
        weights = jax.nn.softmax(scores if bias is None else scores + bias).astype(x.dtype)
        weights = dropout(weights, (x.shape[0], size["num_heads"], 1, keys.shape[1]))
        y = jnp.einsum("bhqk,bkhd->bqhd", weights, values)
    return product(y.reshape(*x.shape[:2], -1), p["o"])


def keys_of(p, x, size):
    return split(product(x, p["k"]), size), split(product(x, p["v"]), size)


def feed(p, x, dropout):
    y = norm(x, p["norm"])
    hidden = jax.nn.gelu(product(y, p["wi_0"]), approximate=True) * product(y, p["wi_1"])
    return product(dropout(hidden), p["wo"])


def run_stack(p, x, size, decoder, mask=None, memory=None, memory_mask=None, dropout=Dropout(), fused=False,
              lengths=(None, None)):
    """mask, memory_mask: added to scores. With `fused` masks are lengths [b] of x and of memory instead."""
    bias = relative_bias(p["bias"], x.shape[1], x.shape[1], not decoder, x.dtype)
    if not fused and mask is not None:
        bias = bias + mask
    seen = [None if not fused else dict(query_seq_lengths=lengths[0], key_value_seq_lengths=length)
            for length in lengths]
    here = dict(seen[0], is_causal=decoder) if fused else None
    x = dropout(x)
    for layer in p["layers"]:
        y = norm(x, layer["self"]["norm"])
        x = x + dropout(attend(layer["self"], y, *keys_of(layer["self"], y, size), bias, size, dropout, here))
        if decoder:
            y = norm(x, layer["cross"]["norm"])
            x = x + dropout(attend(layer["cross"], y, *keys_of(layer["cross"], memory, size),
                                   None if fused else memory_mask, size, dropout, seen[1]))
        x = x + dropout(feed(layer["mlp"], x, dropout))
    return dropout(norm(x, p["norm"]))


def logits_of(p, model, inputs, targets, dtype=jnp.bfloat16, fused=False, padded=False, rate=0.0, key=None):
    """[b, t, vocabulary] in float32, of targets shifted to the right. padded: 0 is padding."""
    size, dropout = SIZES[model], Dropout(rate, key)
    embed = p["embed"].astype(dtype)
    there, wanted = inputs > 0, targets > 0
    lengths = (jnp.sum(there, 1), jnp.sum(wanted, 1)) if fused and padded else (None, None)

    def masked(allowed):
        return jnp.where(allowed, 0.0, FORBIDDEN).astype(dtype)

    memory = run_stack(p["encoder"], embed[inputs], size, False, masked(there[:, None, None, :] & there[:, None, :, None]),
                       dropout=dropout, fused=fused, lengths=(lengths[0], lengths[0]))
    causal = np.tril(np.ones((targets.shape[1],) * 2, bool))[None, None]
    shifted = jnp.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    y = run_stack(p["decoder"], embed[shifted], size, True, masked(causal & wanted[:, None, None, :]), memory,
                  masked(wanted[:, None, :, None] & there[:, None, None, :]), dropout, fused, (lengths[1], lengths[0]))
    return y.astype(jnp.float32) @ p["logits"].astype(jnp.float32)


def loss_of(logits, targets, z_loss=1e-4):
    """T5X's: the mean over targets of cross-entropy + z_loss * log(Z)^2, against one-hot targets."""
    log_z = jax.nn.logsumexp(logits, axis=-1)
    one_hot = jax.nn.one_hot(targets, logits.shape[-1])
    losses = log_z - jnp.sum(logits * one_hot, axis=-1) + z_loss * log_z ** 2
    counted = targets > 0
    return jnp.sum(losses * counted) / jnp.sum(counted)


# --- generation ----------------------------------------------------------------------------------


def decode(p, model, inputs, tokens, how, key, dtype=jnp.bfloat16):
    """[b, tokens]: greedy, beam4 or top_p (0.9) in one loop on the device, as T5X decodes: caches of fixed length that
    beams gather, the end token forbidden."""
    size = SIZES[model]
    beams = 4 if how == "beam4" else 1
    batch = inputs.shape[0]
    rows = batch * beams
    embed, decoder = p["embed"].astype(dtype), p["decoder"]
    memory = run_stack(p["encoder"], embed[inputs], size, False)
    memory = jnp.repeat(memory, beams, 0)
    cross = [keys_of(layer["cross"], memory, size) for layer in decoder["layers"]]
    bias = relative_bias(decoder["bias"], tokens, tokens, False, dtype)
    bias = bias + jnp.asarray(np.where(np.tril(np.ones((tokens, tokens), bool)), 0.0, FORBIDDEN), dtype)
    room = (rows, tokens, size["num_heads"], size["head_dim"])
    caches = [(jnp.zeros(room, dtype), jnp.zeros(room, dtype)) for _ in decoder["layers"]]
    scores = jnp.tile(jnp.asarray([0.0] + [-1e9] * (beams - 1), jnp.float32), (batch, 1))

    def step(t, state):
        token, ids, caches, scores, key = state
        x = embed[token][:, None]
        row = jax.lax.dynamic_slice_in_dim(bias, t, 1, 2)
        written = []
        for layer, (keys, values), memory_keys in zip(decoder["layers"], caches, cross):
            y = norm(x, layer["self"]["norm"])
            k, v = keys_of(layer["self"], y, size)
            keys = jax.lax.dynamic_update_slice_in_dim(keys, k, t, 1)
            values = jax.lax.dynamic_update_slice_in_dim(values, v, t, 1)
            written.append((keys, values))
            x = x + attend(layer["self"], y, keys, values, row, size, Dropout())
            y = norm(x, layer["cross"]["norm"])
            x = x + attend(layer["cross"], y, *memory_keys, None, size, Dropout())
            x = x + feed(layer["mlp"], x, Dropout())
        x = norm(x[:, 0], decoder["norm"])
        logits = (x @ p["logits"].astype(dtype)).astype(jnp.float32)
        if how == "beam4":
            total = jax.nn.log_softmax(logits).at[:, 1].set(-jnp.inf)
            total = total.reshape(batch, beams, -1) + scores[:, :, None]
            scores, at = jax.lax.top_k(total.reshape(batch, -1), beams)
            source = (at // VOCABULARY + beams * jnp.arange(batch)[:, None]).reshape(-1)
            token = (at % VOCABULARY).reshape(-1)
            ids = ids[source]
            written = jax.tree.map(lambda cache: cache[source], written)
        elif how == "top_p":
            logits = logits.at[:, 1].set(-jnp.inf)
            ordered = jnp.sort(logits, axis=-1)[:, ::-1]
            before = jnp.cumsum(jax.nn.softmax(ordered), -1) - jax.nn.softmax(ordered)
            least = jnp.min(jnp.where(before < 0.9, ordered, jnp.inf), -1, keepdims=True)
            key, draw = jax.random.split(key)
            token = jax.random.categorical(draw, jnp.where(logits < least, -jnp.inf, logits))
        else:
            token = jnp.argmax(logits.at[:, 1].set(-jnp.inf), -1)
        token = token.astype(jnp.int32)
        return token, ids.at[:, t].set(token), written, scores, key

    start = (jnp.zeros(rows, jnp.int32), jnp.zeros((rows, tokens), jnp.int32), caches, scores, key)
    ids = jax.lax.fori_loop(0, tokens, step, start)[1]
    return ids.reshape(batch, beams, tokens)[:, 0]


def encode(p, model, inputs, dtype=jnp.bfloat16):
    return run_stack(p["encoder"], p["embed"].astype(dtype)[inputs], SIZES[model], False)
