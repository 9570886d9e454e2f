"""K1 in PyTorch: scaled_dot_product_attention's backends, flex_attention and plain operations, with T5's bias.

The bias [1, heads, queries, keys] is materialised once, as a T5 stack does for all its layers; `_grad` variants
also give its gradient. flex_table looks the bias up in the [heads, buckets] table per score, flex_read reads the
materialised one.
"""

import common

args = common.arguments(__doc__)

import math  # noqa: E402

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from workloads import BUCKETS, MAX_DISTANCE, kernel_cases  # noqa: E402

dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)


def allow_flex():
    """The compiled flex_attention, set up so that a saved graph may be run backward many times."""
    import torch._dynamo
    import torch._functorch.config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._functorch.config.donated_buffer = False
    for limit in ("recompile_limit", "cache_size_limit"):
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 256)
    return torch.compile(flex_attention, dynamic=False), create_block_mask


def bucket_of_distance(case):
    """[queries + keys - 1] buckets, entry key - query + queries - 1. Source: arXiv:1910.10683."""
    distance = torch.arange(1 - case["queries"], case["keys"])
    buckets, offset = BUCKETS, torch.zeros_like(distance)
    if case["how"] != "causal":
        buckets //= 2
        offset = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    far = exact + (torch.log(distance.clamp(min=1) / exact) / math.log(MAX_DISTANCE / exact)
                   * (buckets - exact)).long()
    return (offset + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))).to(args.device)


class Operands:
    """q, k, v [b, h, t, d], the gradient of the result, bias table and bias, all random."""

    def __init__(self, case, bias_grad=False):
        b, h, d = case["batch"], case["heads"], case["head_dim"]

        def random(length, grad=True):
            x = torch.randn(b, h, length, d, device=args.device, dtype=dtype) * d ** -0.25
            return x.requires_grad_(grad)

        self.case = case
        self.q, self.k, self.v = random(case["queries"]), random(case["keys"]), random(case["keys"])
        self.grad_out = random(case["queries"], False)
        self.table = torch.randn(h, BUCKETS, device=args.device, dtype=dtype)
        self.bucket = bucket_of_distance(case)
        index = (torch.arange(case["keys"])[None, :] - torch.arange(case["queries"])[:, None]
                 + case["queries"] - 1).to(args.device)
        self.bias = None
        if case["how"] != "cross":
            self.bias = self.table[:, self.bucket[index]][None].contiguous().requires_grad_(bias_grad)

    def allowed(self):
        """[b or 1, 1, q, k] booleans, or None: which keys a query sees."""
        case = self.case
        if case["how"] == "causal":
            return torch.ones(case["queries"], case["keys"], device=args.device, dtype=torch.bool).tril()[None, None]
        if case["how"] == "packed4":
            segment = torch.arange(case["keys"], device=args.device) * 4 // case["keys"]
            return (segment[:, None] == segment[None, :])[None, None].expand(case["batch"], -1, -1, -1)
        return None

    def additive(self):
        """Bias and mask in one, expanded to the batch where that costs nothing."""
        allowed = self.allowed()
        bias = self.bias
        if allowed is not None:
            mask = torch.zeros(allowed.shape, device=args.device, dtype=dtype).masked_fill(~allowed, -1e9)
            bias = mask if bias is None else bias + mask
        return None if bias is None else bias.expand(self.case["batch"], self.case["heads"], -1, -1)


def parts(function, sets, wanted):
    """{part: calls} for function(operands) -> out; the graph of one forward serves every backward."""
    calls = {"forward": [lambda o=o: function(o) for o in sets]}
    backward = []
    for o in sets:
        out = function(o)
        operands = [o.q, o.k, o.v] + ([o.bias] if wanted == "bias" else [o.table] if wanted == "table" else [])

        def run(o=o, out=out, operands=operands):
            gradients = torch.autograd.grad(out, operands, o.grad_out, retain_graph=True, allow_unused=True)
            if gradients[-1] is None:
                raise RuntimeError("no gradient of the bias")

        backward.append(run)
    calls["backward"] = backward
    return calls


def operand_sets(case, bias_grad=False, most=8):
    byte_count = case["batch"] * case["heads"] * case["head_dim"] * (case["queries"] + case["keys"]) * 2 * 2
    return [Operands(case, bias_grad) for _ in range(min(most, common.copies_for(byte_count, args.tiny)))]


def sdpa(case, backend, with_bias, bias_grad=False):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def make():
        sets = operand_sets(case, bias_grad)
        causal = case["how"] == "causal" and not with_bias
        if case["how"] == "packed4" and not with_bias:
            raise RuntimeError("packed segments need a mask")
        if with_bias and not bias_grad:
            for o in sets:
                o.mask = o.additive()

        def call(o):
            mask = None if not with_bias else o.additive() if bias_grad else o.mask
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return F.scaled_dot_product_attention(o.q, o.k, o.v, attn_mask=mask, is_causal=causal, scale=1.0)

        return parts(call, sets, "bias" if bias_grad else None)

    return make


def eager(case):
    def make():
        sets = operand_sets(case, True, most=1)
        masks = [None if o.allowed() is None else
                 torch.zeros(o.allowed().shape, device=args.device, dtype=dtype).masked_fill(~o.allowed(), -1e9)
                 for o in sets]

        def call(o):
            scores = torch.matmul(o.q, o.k.transpose(2, 3))
            if o.bias is not None:
                scores = scores + o.bias
            if masks[0] is not None:
                scores = scores + masks[0]
            return torch.matmul(torch.softmax(scores.float(), dim=-1).type_as(scores), o.v)

        return parts(call, sets, "bias" if case["how"] != "cross" else None)

    return make


compiled = []


def modifier(operands, reads):
    """A score_mod that adds the operands' own bias; made once, so that nothing is compiled again."""
    bias, table, bucket, last = operands.bias, operands.table, operands.bucket, operands.case["queries"] - 1

    def read(score, b, h, i, j):
        return score + bias[0, h, i, j]

    def look_up(score, b, h, i, j):
        return score + table[h, bucket[j - i + last]]

    return read if reads else look_up


def flex(case, reads, table_grad=False):
    def make():
        if not compiled:
            compiled.extend(allow_flex())
        flex_attention, create_block_mask = compiled
        sets = operand_sets(case)
        queries, keys = case["queries"], case["keys"]
        block_mask = None
        if case["how"] in ("causal", "packed4"):
            part = keys // 4

            def seen(b, h, i, j):
                return i >= j if case["how"] == "causal" else i // part == j // part

            block_mask = create_block_mask(seen, None, None, queries, keys, device=args.device)
        for o in sets:
            o.table.requires_grad_(table_grad)
            o.score_mod = modifier(o, reads)

        def call(o):
            # Reading the table takes shared memory of its own: the default stages would not fit beside it.
            return flex_attention(o.q, o.k, o.v, score_mod=o.score_mod, block_mask=block_mask, scale=1.0,
                                  kernel_options=None if reads else {"num_stages": 1})

        return parts(call, sets, "table" if table_grad else None)

    return make


def jobs_of(case):
    jobs = []
    bias = case["how"] != "cross"
    if case["how"] != "packed4":
        jobs += [common.Job(case, "sdpa_cudnn", sdpa(case, "CUDNN_ATTENTION", False)),
                 common.Job(case, "sdpa_flash", sdpa(case, "FLASH_ATTENTION", False))]
    if bias:
        for name, backend in (("cudnn", "CUDNN_ATTENTION"), ("efficient", "EFFICIENT_ATTENTION")):
            jobs += [common.Job(case, f"sdpa_{name}_bias", sdpa(case, backend, True)),
                     common.Job(case, f"sdpa_{name}_bias_grad", sdpa(case, backend, True, True))]
    jobs.append(common.Job(case, "eager_bias" if bias else "eager", eager(case)))
    if args.device == "cpu":
        jobs.append(common.Job(case, "sdpa_math", sdpa(case, "MATH", bias)))
    if bias and case["name"] in flex_cases:
        jobs += [common.Job(case, "flex_table", flex(case, False), compiles=True),
                 common.Job(case, "flex_read", flex(case, True), compiles=True),
                 common.Job(case, "flex_table_grad", flex(case, False, True), compiles=True)]
    return jobs


cases = [case for case in kernel_cases(args.tiny) if case["workload"] == "K1"]
# A compilation takes several seconds: the shapes that matter most. The CPU build has no backward.
flex_cases = [] if args.device == "cpu" else [
    "b32_h16_d64_512x512", "b4_h16_d64_2048x2048", "b32_h16_d64_512x512_packed4"]
# What must be compiled comes last: should it take all the time, the others have been measured.
common.run_torch(args, sorted((job for case in cases for job in jobs_of(case)), key=lambda job: job.compiles))
