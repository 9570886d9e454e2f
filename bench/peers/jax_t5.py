"""T5 1.1 in flax, with the operations that T5X's example network uses: dense projections to
[batch, length, heads, head], a [1, heads, query, key] relative bias from a one-hot product, float32 softmax
and logits, one-hot cross-entropy with z-loss. Written for this comparison.

With dtype=bfloat16 all but parameters, the norms' statistics and the logits are bfloat16. With fused=True
self-attention is jax.nn.dot_product_attention through cuDNN, for batches without padding."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

BUCKETS, MAX_DISTANCE = 32, 128


def relative_buckets(queries, keys, bidirectional):
    """Bucket of key - query for every pair, as NumPy: constant for XLA. Source: arXiv:1910.10683."""
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    buckets, offset = BUCKETS, 0
    if bidirectional:
        buckets //= 2
        offset = (distance > 0) * buckets
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = buckets // 2
    far = exact + (np.log(np.maximum(distance, 1) / exact) / np.log(MAX_DISTANCE / exact) * (buckets - exact))
    return offset + np.where(distance < exact, distance, np.minimum(far.astype(np.int32), buckets - 1))


class Bias(nn.Module):
    heads: int
    bidirectional: bool
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, queries, keys):
        table = self.param("rel_embedding", nn.initializers.variance_scaling(1.0, "fan_avg", "uniform"),
                           (self.heads, BUCKETS))
        one_hot = jax.nn.one_hot(relative_buckets(queries, keys, self.bidirectional), BUCKETS, dtype=self.dtype)
        return jnp.einsum("hb,qkb->hqk", table.astype(self.dtype), one_hot)[None]


class Attention(nn.Module):
    heads: int
    head: int
    fused: bool = False

    @nn.compact
    def __call__(self, x, memory, bias, causal=False):
        def project(name, source):
            kernel = self.param(name, nn.initializers.normal(source.shape[-1] ** -0.5),
                                (source.shape[-1], self.heads * self.head))
            return (source @ kernel.astype(source.dtype)).reshape(*source.shape[:2], self.heads, self.head)

        q, k, v = project("query", x), project("key", memory), project("value", memory)
        if self.fused:
            y = jax.nn.dot_product_attention(q, k, v, bias=bias, scale=1.0, is_causal=causal, implementation="cudnn")
        else:
            weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) + bias)
            y = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        y = y.reshape(*x.shape[:2], self.heads * self.head)
        out = self.param("out", nn.initializers.normal(y.shape[-1] ** -0.5), (y.shape[-1], x.shape[-1]))
        return y @ out.astype(y.dtype)


class Mlp(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        def dense(name, y, width):
            kernel = self.param(name, nn.initializers.normal(y.shape[-1] ** -0.5), (y.shape[-1], width))
            return y @ kernel.astype(y.dtype)

        hidden = nn.gelu(dense("wi_0", x, self.width), approximate=True) * dense("wi_1", x, self.width)
        return dense("wo", hidden, x.shape[-1])


class Stack(nn.Module):
    layers: int
    heads: int
    head: int
    mlp: int
    decoder: bool
    fused: bool = False

    @nn.compact
    def __call__(self, x, mask_bias, memory=None, memory_bias=None):
        def norm(y, name):
            return nn.RMSNorm(epsilon=1e-6, dtype=y.dtype, name=name)(y)

        bias = Bias(self.heads, not self.decoder, x.dtype, name="relpos_bias")(x.shape[1], x.shape[1])
        if not self.fused:  # there the causal mask is the kernel's own
            bias = bias + mask_bias
        for i in range(self.layers):
            y = norm(x, f"norm_self_{i}")
            x = x + Attention(self.heads, self.head, self.fused, name=f"self_{i}")(y, y, bias, self.decoder)
            if self.decoder:
                y = norm(x, f"norm_cross_{i}")
                x = x + Attention(self.heads, self.head, self.fused, name=f"cross_{i}")(
                    y, memory, None if self.fused else memory_bias)
            x = x + Mlp(self.mlp, name=f"mlp_{i}")(norm(x, f"norm_mlp_{i}"))
        return norm(x, "norm")


class T5(nn.Module):
    vocabulary: int
    emb_dim: int
    num_heads: int
    head_dim: int
    mlp_dim: int
    num_layers: int
    dtype: jnp.dtype = jnp.float32
    fused: bool = False

    @nn.compact
    def __call__(self, inputs, decoder_inputs, targets):
        embed = nn.Embed(self.vocabulary, self.emb_dim, dtype=self.dtype, name="token_embedder")
        shape = (self.num_layers, self.num_heads, self.head_dim, self.mlp_dim)
        forbid = -1e10

        def masked(allowed):
            return jnp.where(allowed, 0.0, forbid).astype(self.dtype)

        memory = Stack(*shape, decoder=False, fused=self.fused, name="encoder")(
            embed(inputs), masked((inputs > 0)[:, None, None, :] & (inputs > 0)[:, None, :, None]))
        length = targets.shape[1]
        causal = jnp.tril(jnp.ones((length, length), bool))[None, None] & (targets > 0)[:, None, None, :]
        y = Stack(*shape, decoder=True, fused=self.fused, name="decoder")(
            embed(decoder_inputs), masked(causal), memory,
            masked((targets > 0)[:, None, :, None] & (inputs > 0)[:, None, None, :]))
        kernel = self.param("logits_dense", nn.initializers.normal(self.emb_dim ** -0.5),
                            (self.emb_dim, self.vocabulary))
        return y.astype(jnp.float32) @ kernel


def loss_of(logits, targets, z_loss=1e-4):
    """Mean over targets of cross-entropy + z_loss * log(Z)^2, against one-hot targets."""
    log_z = jax.nn.logsumexp(logits, axis=-1)
    one_hot = jax.nn.one_hot(targets, logits.shape[-1])
    cross_entropy = log_z - jnp.sum(logits * one_hot, axis=-1)
    return jnp.mean(cross_entropy + z_loss * log_z ** 2)
