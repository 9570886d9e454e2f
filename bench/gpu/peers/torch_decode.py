"""K5 in PyTorch: attention of new tokens to caches, in place and paged, products of few rows, the likeliest tokens, draws.

Each eager, with scaled_dot_product_attention as PyTorch chooses it, and through torch.compile.
"""

import functools

import common

args = common.arguments(__doc__)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from torch_t5 import top_p_sample  # noqa: E402
from workloads import generation_bytes, kernel_cases  # noqa: E402

dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
torch.manual_seed(0)


def random(*shape):
    return torch.randn(*shape, device=args.device, dtype=dtype)


def attend_self(query, key, value, keys, values, at, bias):
    """The new token's key and value go to the cache first."""
    keys.index_copy_(2, at, key)
    values.index_copy_(2, at, value)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=bias, scale=1.0)


def attend_cross(query, keys, values):
    return F.scaled_dot_product_attention(query, keys, values, scale=1.0)


def attend_paged(query, key, value, keys, values, slots, bias):
    """Keys and values [slots of all, heads, head size], a row's at its slots."""
    keys.index_copy_(0, slots[:, -1], key)
    values.index_copy_(0, slots[:, -1], value)
    return F.scaled_dot_product_attention(query, keys[slots].transpose(1, 2), values[slots].transpose(1, 2), attn_mask=bias, scale=1.0)


def gated(x, wi_0, wi_1):
    return F.gelu(x @ wi_0, approximate="tanh") * (x @ wi_1)


def gated_experts(x, wi_0, wi_1, chosen):
    """Each row's expert, whose weights PyTorch copies first."""
    return gated(x, wi_0[chosen], wi_1[chosen])


def gated_bytes(x, wi_0, wi_1, scale_0, scale_1):
    """Weights in int8 with a scale a column."""
    first, second = x @ wi_0.to(x.dtype) * scale_0, x @ wi_1.to(x.dtype) * scale_1
    return F.gelu(first, approximate="tanh") * second


def top(logits, count):
    return (*logits.topk(count), logits.logsumexp(-1))


def draw(logits):
    """Token and its log probability."""
    logs = F.log_softmax(logits / 0.8, -1)
    token = torch.multinomial(logs.exp(), 1)
    return token, logs.gather(-1, token)


def draw_topk(logits):
    values, at = logits.topk(40)
    token, log = draw(values)
    return at.gather(-1, token), log


def draw_topp(logits):
    return top_p_sample(logits / 0.8, 0.9)


def operands_of(case):
    """Makes (function, operands) of a case."""
    kind, rows = case["kind"], case["rows"]
    if "length" in case:
        heads, size, length = case["heads"], case["head_dim"], case["length"]
        bias = random(1, heads, 1, length)
        if kind == "cross":
            cache = (case["items"], heads, length, size)
            return attend_cross, (random(case["items"], heads, case["decodes"], size), random(*cache), random(*cache))
        if kind == "paged":
            slots = torch.randperm(rows * length, device=args.device).view(rows, length)
            pool = (rows * length, heads, size)
            return attend_paged, (random(rows, heads, 1, size), random(rows, heads, size), random(rows, heads, size), random(*pool),
                                  random(*pool), slots, bias)
        new, cache = (rows, heads, 1, size), (rows, heads, length, size)
        last = torch.tensor([length - 1], device=args.device)
        return attend_self, (random(*new), random(*new), random(*new), random(*cache), random(*cache), last, bias)
    if "mlp" in case:
        d, f = case["width"], case["mlp"]
        if kind == "small_batch_experts":
            return gated_experts, (random(rows, 1, d), random(8, d, f), random(8, d, f), torch.arange(rows, device=args.device) % 8)
        if kind == "small_batch_bf16":
            return gated, (random(rows, d), random(d, f), random(d, f))
        weights = [torch.randint(-127, 128, (d, f), device=args.device, dtype=torch.int8) for _ in range(2)]
        return gated_bytes, (random(rows, d), *weights, random(f), random(f))
    logits = torch.randn(rows, case["vocabulary"], device=args.device)
    if kind.startswith("top_"):
        return top, (logits, int(kind.removeprefix("top_")))
    return {"sample_all": draw, "sample_topk": draw_topk, "sample_topp": draw_topp}[kind], (logits,)


@functools.cache
def compile_of(function):
    return torch.compile(function, dynamic=False)


@torch.no_grad()
def ready(function, operands):
    return function(*operands)


def jobs_of(case):
    def make(compiled):
        def calls():
            sets = [operands_of(case) for _ in range(common.copies_for(generation_bytes(case), args.tiny))]
            function = compile_of(sets[0][0]) if compiled else sets[0][0]
            return {"step": [lambda o=o: ready(function, o) for _, o in sets]}
        return calls

    yield common.Job(case, "eager", make(False))
    if args.device == "cuda":  # Inductor's C++ takes a minute on a small machine
        yield common.Job(case, "compile", make(True), compiles=True)


common.run_torch(args, [job for case in kernel_cases(args.tiny) if case.get("peers") for job in jobs_of(case)])
