"""T5 1.1 in plain PyTorch, in the form of Hugging Face's modeling_t5.py and its generate: for machines on which
transformers is not installed. Written for this comparison; check.py holds it against theirs.

Pre-norm residual blocks; RMS norm with float32 statistics; attention without a scale, its relative bias from the first
layer's table for all layers; gated GELU (tanh form); output layer of its own. attention="eager" is matmul, sum,
float32 softmax, matmul; "sdpa" is scaled_dot_product_attention with bias and mask as its attn_mask.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from workloads import BUCKETS, MAX_DISTANCE, SIZES, VOCABULARY


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * (x * scale).to(x.dtype if torch.is_autocast_enabled() else self.weight.dtype)


class Attention(nn.Module):
    def __init__(self, width, heads, head, how, dropout):
        super().__init__()
        self.heads, self.how, self.dropout = heads, how, dropout
        self.q, self.k, self.v = (nn.Linear(width, heads * head, bias=False) for _ in range(3))
        self.o = nn.Linear(heads * head, width, bias=False)

    def split(self, x):  # [b, t, heads * d] -> [b, heads, t, d]
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys(self, memory):
        return self.split(self.k(memory)), self.split(self.v(memory))

    def forward(self, x, keys, bias):
        """bias: [1 or b, 1 or heads, q, k], mask included; None: every key counts alike."""
        q, (k, v) = self.split(self.q(x)), keys
        dropout = self.dropout if self.training else 0.0
        if self.how == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None if bias is None else bias.to(q.dtype),
                                               dropout_p=dropout, scale=1.0)
        else:
            scores = q @ k.transpose(2, 3)
            if bias is not None:
                scores = scores + bias
            y = F.dropout(F.softmax(scores.float(), dim=-1).type_as(scores), dropout, self.training) @ v
        return self.o(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width, mlp, dropout):
        super().__init__()
        self.wi_0, self.wi_1 = nn.Linear(width, mlp, bias=False), nn.Linear(width, mlp, bias=False)
        self.wo = nn.Linear(mlp, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.wo(self.dropout(F.gelu(self.wi_0(x), approximate="tanh") * self.wi_1(x)))


class Block(nn.Module):
    def __init__(self, size, decoder, how, dropout):
        super().__init__()
        width = size["emb_dim"]
        attention = (width, size["num_heads"], size["head_dim"], how, dropout)
        self.norm_self, self.self_attention = Norm(width), Attention(*attention)
        if decoder:
            self.norm_cross, self.cross_attention = Norm(width), Attention(*attention)
        self.norm_mlp, self.mlp = Norm(width), Mlp(width, size["mlp_dim"], dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, bias, cross=None, cross_bias=None, cache=None):
        """cross: keys and values of the encoder's output. cache: (keys, values) -> all there are so far."""
        y = self.norm_self(x)
        keys = self.self_attention.keys(y)
        x = x + self.dropout(self.self_attention(y, cache(*keys) if cache else keys, bias))
        if cross is not None:
            x = x + self.dropout(self.cross_attention(self.norm_cross(x), cross, cross_bias))
        return x + self.dropout(self.mlp(self.norm_mlp(x)))


def relative_bias(table, queries, keys, bidirectional):
    """[1, heads, queries, keys] for positions queries and keys. Source: arXiv:1910.10683."""
    distance = keys[None, :] - queries[:, None]
    buckets, offset = BUCKETS, torch.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        offset = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    far = exact + (torch.log(distance.clamp(min=1).float() / exact) / math.log(MAX_DISTANCE / exact)
                   * (buckets - exact)).long()
    bucket = offset + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))
    return F.embedding(bucket, table).permute(2, 0, 1)[None]


class Stack(nn.Module):
    def __init__(self, size, decoder, how, dropout):
        super().__init__()
        self.decoder = decoder
        self.bias = nn.Parameter(torch.randn(BUCKETS, size["num_heads"]) * size["emb_dim"] ** -0.5)
        self.blocks = nn.ModuleList(Block(size, decoder, how, dropout) for _ in range(size["num_layers"]))
        self.norm, self.dropout = Norm(size["emb_dim"]), nn.Dropout(dropout)

    def forward(self, x, mask=None, memory=None, cross_mask=None):
        """mask, cross_mask: [b, 1, 1 or q, k], added to scores."""
        positions = torch.arange(x.shape[1], device=x.device)
        bias = relative_bias(self.bias, positions, positions, not self.decoder)
        if self.decoder:
            bias = bias.masked_fill(positions[None, :] > positions[:, None], torch.finfo(bias.dtype).min)
        bias = bias if mask is None else bias + mask
        x = self.dropout(x)
        for block in self.blocks:
            cross = block.cross_attention.keys(memory) if self.decoder else None
            x = block(x, bias, cross, cross_mask)
        return self.dropout(self.norm(x))


class T5(nn.Module):
    def __init__(self, size, attention="sdpa", dropout=0.0, vocabulary=VOCABULARY):
        super().__init__()
        self.vocabulary = vocabulary
        self.shared = nn.Embedding(vocabulary, size["emb_dim"])
        self.encoder = Stack(size, False, attention, dropout)
        self.decoder = Stack(size, True, attention, dropout)
        self.lm_head = nn.Linear(size["emb_dim"], vocabulary, bias=False)

    def encode(self, inputs, mask=None):
        return self.encoder(self.shared(inputs), mask)

    def forward(self, inputs, labels, padded=False):
        """Mean cross-entropy of labels; padded: 0 in inputs is padding, -100 in labels."""
        mask = None
        if padded:
            mask = (inputs == 0)[:, None, None, :] * torch.finfo(torch.float32).min
        shifted = F.pad(labels, (1, 0))[:, :-1].clamp(min=0)
        x = self.decoder(self.shared(shifted), None, self.encode(inputs, mask), mask)
        return F.cross_entropy(self.lm_head(x).flatten(0, 1).float(), labels.flatten())


def make(model, device, attention="sdpa", dtype=torch.float32, dropout=0.0):
    """The size of that name with random parameters."""
    torch.set_default_dtype(dtype)  # the largest fit in no other
    with torch.device(device):
        made = T5(SIZES[model], attention, dropout)
    torch.set_default_dtype(torch.float32)
    for parameter in made.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return made


# --- generation ----------------------------------------------------------------------------------


class GrowingCache:
    """Keys and values that every step makes longer, as DynamicCache does."""

    def __init__(self):
        self.held = None

    def __call__(self, keys, values):
        if self.held is not None:
            keys, values = torch.cat([self.held[0], keys], 2), torch.cat([self.held[1], values], 2)
        self.held = keys, values
        return self.held

    def reorder(self, rows):
        self.held = tuple(x.index_select(0, rows) for x in self.held)


class FixedCache:
    """Room for all steps from the first on, as StaticCache has it: a step's shapes and addresses are the last one's."""

    def __init__(self, like, rows, length, attention):
        shape = (rows, attention.heads, length, attention.k.out_features // attention.heads)
        self.held = [torch.zeros(shape, dtype=like.dtype, device=like.device) for _ in range(2)]
        for x in self.held:
            torch._dynamo.mark_static_address(x)
        self.position = None

    def __call__(self, keys, values):
        for held, new in zip(self.held, (keys, values)):
            held.index_copy_(2, self.position, new)
        return self.held

    def reorder(self, rows):
        for x in self.held:
            x.copy_(x.index_select(0, rows))


class Generator:
    """generate(): as many tokens as asked for, the end token forbidden. fixed: a fixed cache, and the decoder's step is
    compiled if `compile`."""

    def __init__(self, model, rows, inputs, tokens, fixed=False, compile=False):
        self.model, self.rows, self.tokens, self.fixed = model, rows, tokens, fixed
        device, like = model.lm_head.weight.device, model.lm_head.weight
        attention = [block.self_attention for block in model.decoder.blocks]
        self.bias = relative_bias(model.decoder.bias, *2 * [torch.arange(tokens, device=device)], False)
        if fixed:
            ahead = torch.ones(tokens, tokens, dtype=torch.bool, device=device).triu(1)
            self.bias = self.bias.masked_fill(ahead, torch.finfo(self.bias.dtype).min).contiguous()
            self.caches = [FixedCache(like, rows, tokens, a) for a in attention]
            shape = (rows, attention[0].heads, inputs, attention[0].k.out_features // attention[0].heads)
            self.cross = [tuple(torch.zeros(shape, dtype=like.dtype, device=device) for _ in range(2)) for _ in attention]
            for x in [self.bias] + [x for pair in self.cross for x in pair]:
                torch._dynamo.mark_static_address(x)
        self.step = torch.compile(self.step_of, mode="reduce-overhead", dynamic=False) if compile else self.step_of

    def step_of(self, token, position):
        """Logits [rows, vocabulary] after a token [rows] at a position [1]."""
        model = self.model
        if self.fixed:
            bias = self.bias.index_select(2, position)
        else:
            length = self.length + 1
            bias = self.bias[:, :, length - 1:length, :length]
        x = model.shared(token[:, None])
        for block, cache, cross in zip(model.decoder.blocks, self.caches, self.cross):
            if self.fixed:
                cache.position = position
            x = block(x, bias, cross, None, cache)
        return model.lm_head(model.decoder.norm(x))[:, 0]

    @torch.no_grad()
    def __call__(self, inputs, how="greedy"):
        """[batch, tokens]. how: greedy, beam4, top_p."""
        model, batch = self.model, inputs.shape[0]
        beams = self.rows // batch
        memory = model.encode(inputs).repeat_interleave(beams, 0)
        cross = [block.cross_attention.keys(memory) for block in model.decoder.blocks]
        if self.fixed:
            for held, new in zip(self.cross, cross):
                for a, b in zip(held, new):
                    a.copy_(b)
        else:
            self.cross, self.caches, self.length = cross, [GrowingCache() for _ in cross], 0
        token = torch.zeros(self.rows, dtype=torch.long, device=inputs.device)
        ids = token[:, None]
        positions = torch.arange(self.tokens, device=inputs.device)
        scores = torch.full((batch, beams), -1e9, device=inputs.device)
        scores[:, 0] = 0
        for t in range(self.tokens):
            if self.fixed and self.step is not self.step_of:
                torch.compiler.cudagraph_mark_step_begin()
            logits = self.step(token, positions[t:t + 1]).float()
            self.length = t + 1
            if how == "beam4":
                ids, token, scores = self.beam_step(ids, logits, scores)
                continue
            logits[:, 1] = -math.inf
            token = top_p_sample(logits, 0.9) if how == "top_p" else logits.argmax(-1)
            ids = torch.cat([ids, token[:, None]], 1)
        return ids.unflatten(0, (batch, beams))[:, 0, 1:]

    def beam_step(self, ids, logits, scores):
        """The best beams of all continuations of the best beams; caches follow."""
        batch, beams = scores.shape
        vocabulary = logits.shape[-1]
        total = F.log_softmax(logits, -1).unflatten(0, (batch, beams)) + scores[:, :, None]
        total[:, :, 1] = -math.inf
        best, at = total.flatten(1).topk(2 * beams)  # none of them ends: the first half goes on
        scores, at = best[:, :beams], at[:, :beams]
        rows = (at // vocabulary + beams * torch.arange(batch, device=at.device)[:, None]).flatten()
        token = (at % vocabulary).flatten()
        for cache in self.caches:
            cache.reorder(rows)
        return torch.cat([ids.index_select(0, rows), token[:, None]], 1), token, scores


def top_p_sample(logits, p):
    """A draw from the smallest set of tokens whose probabilities reach p."""
    ordered, at = logits.sort(descending=False)
    drop = F.softmax(ordered, -1).cumsum(-1) <= 1 - p
    drop[:, -1] = False
    logits = logits.masked_fill(drop.scatter(1, at, drop), -math.inf)
    return torch.multinomial(F.softmax(logits, -1), 1)[:, 0]
