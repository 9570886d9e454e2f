"""The workloads of bench/gpu: names, sizes, work done, and what is asked of us against each peer.

A case is a dict. Attention: batch, heads, head_dim, queries, keys and how ("", "causal", "cross", "packed4").
`flop` and `bytes` of a case and part give the bounds; demands are (who, variants, at least): our time must be
smaller than the best of those variants' by that factor. share_wanted() is what it must reach of the bound.
"""

import statistics

# T5 1.1: width, heads, head size, mlp width, layers a stack. Vocabulary 32128, gated GELU, untied logits.
SIZES = {
    "t5_1_1_tiny": dict(emb_dim=8, num_heads=4, head_dim=3, mlp_dim=16, num_layers=2),
    "t5_1_1_small": dict(emb_dim=512, num_heads=6, head_dim=64, mlp_dim=1024, num_layers=8),
    "t5_1_1_base": dict(emb_dim=768, num_heads=12, head_dim=64, mlp_dim=2048, num_layers=12),
    "t5_1_1_large": dict(emb_dim=1024, num_heads=16, head_dim=64, mlp_dim=2816, num_layers=24),
    "t5_1_1_xl": dict(emb_dim=2048, num_heads=32, head_dim=64, mlp_dim=5120, num_layers=24),
    "t5_1_1_xxl": dict(emb_dim=4096, num_heads=64, head_dim=64, mlp_dim=10240, num_layers=24),
}
VOCABULARY = 32128
IN_80_GB = 0.92 * 80  # GiB for tensors on a GPU of 80; the rest is CUDA's, as in plans (apps/plan/cluster.h)
BUCKETS, MAX_DISTANCE = 32, 128


def attention_case(batch, heads, head_dim, queries, keys, how=""):
    name = f"b{batch}_h{heads}_d{head_dim}_{queries}x{keys}" + (f"_{how}" if how else "")
    return dict(workload="K1", name=name, batch=batch, heads=heads, head_dim=head_dim, queries=queries, keys=keys,
                how=how)


def mlp_case(tokens, width, mlp):
    return dict(workload="K2", name=f"mlp_{tokens}_{width}_{mlp}", tokens=tokens, width=width, mlp=mlp)


def loss_case(tokens, vocabulary):
    return dict(workload="K3", name=f"cross_entropy_{tokens}_{vocabulary}", tokens=tokens, vocabulary=vocabulary)


def norm_case(tokens, width):
    return dict(workload="K4", name=f"rms_norm_{tokens}_{width}", tokens=tokens, width=width)


def optimizer_case(rule, model):
    return dict(workload="K4", name=f"{rule}_{model}", rule=rule, model=model)


def moe_case(tokens, experts, chosen, width=768, mlp=2048):
    return dict(workload="M1", name=f"moe_{width}_{mlp}_e{experts}_k{chosen}_{tokens}", tokens=tokens, experts=experts, chosen=chosen,
                width=width, mlp=mlp)


def generation_cases(batches, beams, draws, heads, head_dim, length, vocabulary, width, mlp):
    """Kernels of generation, named as decode_bench names them. `beams`: (sequences, of each). `peers`: whether PyTorch is
    measured, too, as every shape is a compilation. `draws`: (rows, vocabulary) of further choices of tokens."""
    def case(kind, rows, name, **sizes):
        return dict(workload="K5", kind=kind, name=name, rows=rows, peers=rows in (batches[1], batches[1] * 16), **sizes)

    def attention(kind, items, decodes=1):
        name = f"decode_paged {items} {length}" if kind == "paged" else f"decode_{kind} {items}x{decodes} {length}"
        return case(kind, items * decodes, name, items=items, decodes=decodes, heads=heads, head_dim=head_dim, length=length)

    for rows in batches:
        yield from (attention(kind, rows) for kind in ("self", "cross", "paged"))
        for kind, most in (("small_batch_bf16", 32), ("small_batch_experts", 8), ("small_batch_int8", 32)):
            if rows <= most:
                yield case(kind, rows, f"{kind} {rows}x{width}x{mlp}", width=width, mlp=mlp)
        draws = [*draws, (rows, vocabulary)]
    yield from (attention(kind, *beams) for kind in ("self", "cross"))
    for rows, vocabulary in draws:
        for kind in ("top_1", "top_8", "sample_all", "sample_topk", "sample_topp"):
            yield case(kind, rows, f"{kind} {rows}x{vocabulary}", vocabulary=vocabulary)


# In the order in which they matter: a run cut short has measured the first ones.
CASES = [
    attention_case(32, 16, 64, 512, 512), attention_case(32, 16, 64, 128, 128, "causal"),
    attention_case(32, 16, 64, 128, 512, "cross"), attention_case(4, 16, 64, 2048, 2048),
    attention_case(32, 16, 64, 512, 512, "packed4"), attention_case(32, 16, 128, 512, 512),
    attention_case(4, 16, 128, 2048, 2048), attention_case(2, 16, 64, 4096, 4096), attention_case(2, 16, 128, 4096, 4096),
    attention_case(1, 16, 64, 8192, 8192),
    mlp_case(16384, 1024, 2816), mlp_case(81920, 512, 1024), mlp_case(10240, 2048, 5120),
    mlp_case(4096, 4096, 10240),
    loss_case(4096, 32128), loss_case(16384, 32128), loss_case(4096, 250112),
    norm_case(20480, 512), norm_case(20480, 1024), norm_case(20480, 2048), norm_case(20480, 4096),
    optimizer_case("adamw", "t5_1_1_large"), optimizer_case("adafactor", "t5_1_1_large"),
    *(moe_case(tokens, experts, chosen) for tokens in (16384, 65536) for experts in (8, 64, 128) for chosen in (1, 2)),
    *generation_cases((1, 8, 32, 128, 256), (32, 4), [(64, 32128), (64, 250112)], 12, 64, 512, 32128, 4096, 10240),
]
TINY_CASES = [
    attention_case(1, 2, 16, 32, 32), attention_case(1, 2, 16, 16, 16, "causal"),
    attention_case(1, 2, 16, 16, 32, "cross"),
    attention_case(1, 2, 16, 32, 32, "packed4"), mlp_case(32, 16, 24), loss_case(16, 96), norm_case(32, 16),
    optimizer_case("adamw", "t5_1_1_tiny"), optimizer_case("adafactor", "t5_1_1_tiny"), moe_case(64, 4, 2, 32, 48),
    *generation_cases((2, 8), (1, 4), [(4, 300), (4, 700)], 2, 16, 40, 300, 64, 96),
]


def train_case(workload, size, batch, inputs, targets, optimizer="adamw", set="train"):
    return dict(workload=workload, name=f"train_{size}_{batch}x({inputs}/{targets})", model=f"t5_1_1_{size}",
                batch=batch, inputs=inputs, targets=targets, optimizer=optimizer, set=set)


def large_case(size, batch, inputs, targets, how, optimizer, flags, steps=5, most_gib=None):
    """A model too large for float32 gradients beside its state: `flags` of `quintet bench train`, few steps, once, without
    peers. `most_gib`: of the device's memory that it may take."""
    return dict(train_case("T5", size, batch, inputs, targets, optimizer, "train_xxl"), flags=flags, steps=steps, most_gib=most_gib,
                name=f"train_{size}_{how}_{batch}x({inputs}/{targets})")


def log_normal_lengths(count, median, spread, most, order):
    """The distribution's quantiles, as whole numbers from 1 to most; `order`: a step that shuffles them."""
    normal = statistics.NormalDist(0, spread)
    quantiles = [median * 2.718281828 ** normal.inv_cdf((i + 0.5) / count) for i in range(count)]
    return [max(1, min(most, round(quantiles[i * order % count]))) for i in range(count)]


def finetune_case(size, batch, inputs, targets, median):
    """Examples as long as SQuAD's are (medians of about 180 and 4 tokens, few long ones): we pack them into rows of
    `inputs` and `targets`, peers pad them. A step is all examples once, with dropout."""
    lengths = zip(log_normal_lengths(batch, median, 0.4, inputs, 5), log_normal_lengths(batch, 4, 0.6, targets, 3))
    return dict(train_case("T4", size, batch, inputs, targets, set="finetune"), examples=list(lengths), dropout=0.1,
                name=f"finetune_{size}_{batch}_examples({inputs}/{targets})")


TRAIN = [train_case("T1", "base", 128, 512, 114), train_case("T2", "large", 32, 512, 128),
         train_case("T3", "small", 256, 512, 128, set="finetune"), finetune_case("large", 16, 956, 256, 180),
         train_case("T3", "xl", 16, 512, 128, "adafactor", "train_xl"),
         large_case("xxl", 16, 512, 128, "rounded", "adafactor", ["--gradient_dtype=bfloat16"]),
         large_case("xxl", 32, 512, 128, "offload", "adafactor", ["--gradient_dtype=bfloat16", "--remat_policy=minimal",
                                                                  "--microbatches=4", "--optimizer_offload"], 2, IN_80_GB),
         large_case("xxl", 8, 512, 128, "lora", "adamw", ["--lora_rank=16", "--lora_base=bfloat16"], 5, IN_80_GB),
         dict(train_case("F1", "large", 32, 512, 128, set="fp8"), flags=["--fp8"], name="train_large_fp8_32x(512/128)")]
TINY_TRAIN = [train_case("T1", "tiny", 2, 16, 8), finetune_case("tiny", 4, 40, 12, 12),
              train_case("T3", "tiny", 2, 8, 4, "adafactor", "train_xl"),
              large_case("tiny", 2, 8, 4, "offload", "adafactor", ["--gradient_dtype=bfloat16", "--remat_policy=minimal",
                                                                   "--microbatches=2", "--optimizer_offload"], 1, IN_80_GB),
              large_case("tiny", 2, 8, 4, "lora", "adamw", ["--lora_rank=2", "--lora_base=bfloat16"], 1, IN_80_GB)]


def serve_case(size, batch, how, inputs=128, targets=128, set="serve"):
    """how: greedy, beam4, top_p, or encode, a pass of the encoder alone."""
    name = f"encode_{size}_{batch}x{inputs}" if how == "encode" else f"generate_{size}_b{batch}_{how}"
    return dict(workload="S1" if set == "serve" else "S2", name=name, model=f"t5_1_1_{size}", batch=batch, how=how,
                inputs=inputs, targets=targets, set=set)


# Compilations are begun in this order, too: what has the shapes of another case comes behind it.
SERVE = [serve_case("base", batch, how) for batch, how in (
    (1, "greedy"), (128, "greedy"), (32, "beam4"), (8, "greedy"), (8, "top_p"), (32, "greedy"), (1, "beam4"),
    (128, "beam4"), (8, "beam4"), (1, "top_p"), (32, "top_p"), (128, "top_p"))]
SERVE += [serve_case(size, batch, how, inputs, set="serve_xl") for size, batch, how, inputs in (
    ("xl", 1, "greedy", 128), ("xxl", 1, "greedy", 128), ("xl", 16, "encode", 512), ("xl", 32, "greedy", 128),
    ("xxl", 8, "greedy", 128), ("xl", 8, "greedy", 128))]
TINY_SERVE = [serve_case("tiny", 2, how, 16, 3) for how in ("greedy", "beam4", "top_p")]
TINY_SERVE += [serve_case("tiny", 1, "greedy", 16, 3, "serve_xl"), serve_case("tiny", 2, "encode", 24, set="serve_xl")]


def checkpoint_case(tiny):
    """Half of what AdamW keeps of T5 1.1 large, in float32."""
    megabytes, tensors = (16, 4) if tiny else (4700, 200)
    return dict(workload="C1", name=f"checkpoint_{megabytes}MB", megabytes=megabytes, tensors=tensors)


def fp8_case(rows, k, n, layers):
    """Products of layers that share their input, as fp8_bench times them, casts made by others."""
    return dict(workload="F1", name=f"fp8_{rows}x{k}x{n}_{layers}", rows=rows, k=k, n=n, layers=layers)


FP8 = [fp8_case(8192, 1024, 1024, 3), fp8_case(8192, 1024, 1024, 1), fp8_case(8192, 1024, 2816, 2), fp8_case(8192, 2816, 1024, 1)]
TINY_FP8 = [fp8_case(128, 64, 64, 3), fp8_case(128, 64, 64, 1), fp8_case(128, 64, 176, 2), fp8_case(128, 176, 64, 1)]


# The kernels of a layer of experts, one by one (pointwise_bench), and dense products of as many rows.
MOE_KERNELS = dict(workload="M1", name="moe_kernels_768_3072_e64_k1_16384")


def all_cases(tiny):
    """Of every set."""
    return (kernel_cases(tiny) + [MOE_KERNELS] * (not tiny) + train_cases(tiny) + serve_cases(tiny) + [checkpoint_case(tiny)]
            + (TINY_FP8 if tiny else FP8))


def is_norm(case):
    return case["name"].startswith("rms_norm")


def trains(case):
    """Whether it is a training step's."""
    return "optimizer" in case


def kernel_cases(tiny):
    return TINY_CASES if tiny else CASES


def train_cases(tiny, set=None):
    """Those of a set of bench/gpu/run, or all."""
    return [case for case in (TINY_TRAIN if tiny else TRAIN) if set in (None, case["set"])]


def serve_cases(tiny, set=None):
    return [case for case in (TINY_SERVE if tiny else SERVE) if set in (None, case["set"])]


def parameter_shapes(model):
    """The shapes of a T5 1.1's parameters, as T5X has them."""
    size = SIZES[model]
    d, a, f = size["emb_dim"], size["num_heads"] * size["head_dim"], size["mlp_dim"]
    attention = [(d, a), (d, a), (d, a), (a, d), (d,)]
    mlp = [(d, f), (d, f), (f, d), (d,)]
    stacks = size["num_layers"] * (attention + mlp) + size["num_layers"] * (2 * attention + mlp)
    return stacks + 2 * [(size["num_heads"], BUCKETS)] + 2 * [(d,)] + [(VOCABULARY, d), (d, VOCABULARY)]


def parameters_of(model):
    total = 0
    for shape in parameter_shapes(model):
        total += shape[0] * (shape[1] if len(shape) == 2 else 1)
    return total


def train_flop(case):
    """Forward and backward of one step: 3 times the forward products, attention uncut by its causal mask, padding not
    counted."""
    size = SIZES[case["model"]]
    d, a, f, layers = size["emb_dim"], size["num_heads"] * size["head_dim"], size["mlp_dim"], size["num_layers"]
    forward = 0
    for te, td in case.get("examples") or [(case["inputs"], case["targets"])] * case["batch"]:
        forward += (encoder_flop(case["model"], te) + layers * 2 * td * (4 * d * a + 3 * d * f)
                    + layers * (4 * td * d * a + 4 * te * d * a) + 2 * td * VOCABULARY * d
                    + 4 * layers * a * (td * td + td * te))
    return 3 * forward


def encoder_flop(model, tokens):
    """Of one sequence, forward."""
    size = SIZES[model]
    d, a, f, layers = size["emb_dim"], size["num_heads"] * size["head_dim"], size["mlp_dim"], size["num_layers"]
    return layers * (2 * tokens * (4 * d * a + 3 * d * f) + 4 * a * tokens * tokens)


def decoding_bytes(case):
    """The decoder's bf16 weights, without those that encoder outputs are multiplied with once, for every token; the
    encoder's and those once. Caches are not counted."""
    size = SIZES[case["model"]]
    d, a, f = size["emb_dim"], size["num_heads"] * size["head_dim"], size["mlp_dim"]
    a_step = size["num_layers"] * (6 * d * a + 3 * d * f) + d * VOCABULARY
    once = size["num_layers"] * (6 * d * a + 3 * d * f)
    return 2 * (case["targets"] * a_step + once)


def generation_bytes(case):
    """Keys and values of the tokens so far, both matrices of a gated MLP's first product (eight experts at most, of which
    each row has one), or float32 logits."""
    if "length" in case:
        sequences = case["items"] if case["kind"] == "cross" else case["rows"]
        return 4 * sequences * case["heads"] * case["head_dim"] * case["length"]
    if "mlp" in case:
        of_a_pair = {"small_batch_bf16": 4, "small_batch_int8": 2, "small_batch_experts": 4 * min(case["rows"], 8)}
        return of_a_pair[case["kind"]] * case["width"] * case["mlp"]
    return 4 * case["rows"] * case["vocabulary"]


def work(case, part):
    """(floating point operations, bytes, exponentials) that the part cannot do without, bf16 activations; None: not counted.

    Attention: 4 B H Sq Sk D forward, 10 backward, half of it where causal. Optimizers: AdamW 30 bytes a parameter
    (f32 gradient, f32 parameter and moments read and written, bf16 copy written), Adafactor 14 (g and p read once,
    p written, bf16 copy written), as pointwise_bench counts them.
    """
    workload = case["workload"]
    if workload == "K1":
        scores = case["batch"] * case["heads"] * case["queries"] * case["keys"]
        share = 0.5 if case["how"] == "causal" else 0.25 if case["how"] == "packed4" else 1.0
        flop = (4 if part == "forward" else 10) * scores * case["head_dim"] * share
        rows = case["batch"] * case["heads"] * case["head_dim"] * 2
        q, k = case["queries"] * rows, case["keys"] * rows
        return flop, 2 * q + 2 * k if part == "forward" else 4 * q + 4 * k, scores * share
    if workload == "K2":
        return 6 * case["tokens"] * case["width"] * case["mlp"] * (1 if part == "forward" else 2), None, None
    if "chosen" in case:  # the products of the chosen experts; their weights once, backward gradients in float32 written, too
        flop = 4 * case["tokens"] * case["chosen"] * case["width"] * case["mlp"] * (1 if part == "forward" else 2)
        weights = 2 * case["experts"] * case["width"] * case["mlp"]
        return flop, weights * (2 if part == "forward" else 6), None
    if workload == "K3":
        return None, 4 * case["tokens"] * case["vocabulary"], None
    if workload == "K5":
        return None, generation_bytes(case), None
    if workload == "K4" and "rule" in case:
        return None, parameters_of(case["model"]) * (30 if case["rule"] == "adamw" else 14), None
    if workload == "K4":
        return None, case["tokens"] * case["width"] * 2 * 4, None  # x, y and what goes out; or x, dy, the sum's gradient and dx
    if trains(case):  # adapters leave out most gradients of weights
        return None if "--lora_rank=16" in case.get("flags", []) else train_flop(case), None, None
    if workload == "F1":
        return 2 * case["rows"] * case["k"] * case["n"] * case["layers"] * (1 if part == "forward" else 2), None, None
    if workload in ("S1", "S2") and case["how"] == "encode":
        return case["batch"] * encoder_flop(case["model"], case["inputs"]), None, None
    if workload in ("S1", "S2"):
        return None, decoding_bytes(case), None
    return None, None, None


# Per workload, or of one part of it: (who, the variants of whom the fastest counts, our time at least this much smaller).
DEMANDS = {
    "K1": [("cuDNN with bias", ["sdpa_cudnn_bias", "jax_cudnn_bias"], 1.15),
           ("cuDNN without bias", ["sdpa_cudnn", "jax_cudnn"], 0.95),
           ("flex, table", ["flex_table"], 1.4), ("eager", ["eager_bias", "eager"], 5.0),
           ("ours without bias", ["quintet_no_bias"], 0.94)],
    "K2": [("cuBLASLt and own activation", ["quintet_unfused"], 1.1), ("torch.compile", ["compile"], 1.15)],
    "K3": [("torch.compile", ["compile"], 1.3), ("eager", ["eager"], 3.0), ("JAX", ["jax"], 3.0)],
    "K4": [("torch fused AdamW", ["torch_fused"], 1.1),
           ("optax", ["optax"], 1.3), ("T5X's Adafactor in JAX", ["t5x_adafactor"], 1.5), ("HF Adafactor", ["hf_adafactor"], 10.0)],
    "K5": [("PyTorch eager", ["eager"], 1.0), ("torch.compile", ["compile"], 1.0)],
    # A whole save and a restore, on the same disk; what the loop waits for is held to a copy to the host.
    "C1": [("torch.save", ["torch_save"], 1.3), ("torch DCP", ["torch_dcp"], 1.3), ("Orbax", ["orbax"], 1.3)],
    ("C1", "blocking"): [("a copy to the host", ["quintet_copy"], 0.83), ("torch DCP", ["torch_dcp"], 1.0), ("Orbax", ["orbax"], 1.0)],
    # Transformer Engine's gain of a whole step (1.4 in Pax) takes as much of the layers.
    "F1": [("bfloat16", ["quintet_bfloat16"], 1.4)],
    # Of the kernels of a layer, which pointwise_bench times one by one: a grouped product beside the dense one of as many rows.
    ("M1", "experts_in"): [("dense product", ["quintet_dense"], 0.85)],
    ("M1", "experts_out"): [("dense product", ["quintet_dense"], 0.85)],
    "M1": [("torch, grouped product", ["grouped"], 1.5), ("torch, index_add", ["eager"], 1.5), ("one-hot einsum", ["jax_einsum"], 5.0),
           ("dense MLP of the same work", ["quintet_dense"], 0.8)],
}
# torch_...: T5 in plain PyTorch where transformers is not installed.
EAGER, COMPILED = ["hf_eager", "torch_eager_eager"], ["hf_compile_sdpa", "hf_compile_eager", "torch_compile_sdpa"]
GENERATED, GENERATED_COMPILED = ["hf_eager", "torch_eager"], ["hf_static_compile", "torch_static_compile"]
DEMANDS["T1"] = DEMANDS["T2"] = [("PyTorch eager", EAGER, 3.0), ("PyTorch compiled", COMPILED, 1.5),
                                 ("JAX", ["jax"], 2.0), ("JAX, cuDNN", ["jax_cudnn"], 1.4)]
# By batch: 256 is small's, 16 xl's.
DEMANDS["T3"] = [("PyTorch eager", EAGER, {256: 4.0}), ("PyTorch compiled", COMPILED, {256: 1.8, 16: 1.25}),
                 ("JAX", ["jax", "jax_cudnn"], {256: 2.5, 16: 1.5})]
DEMANDS["T4"] = [("PyTorch compiled", COMPILED, 1.7), ("JAX", ["jax", "jax_cudnn"], 2.0)]
DEMANDS["S1"] = [("PyTorch eager", GENERATED, {1: 25.0, None: 8.0}), ("PyTorch compiled", GENERATED_COMPILED, 3.0),
                 ("JAX", ["jax"], 1.0)]
DEMANDS["S2"] = [("PyTorch eager", GENERATED, 1.0), ("PyTorch compiled", GENERATED_COMPILED, {16: 1.5, None: 1.0}),
                 ("JAX", ["jax"], 1.0)]
DEMANDS["K1", "backward"] = [
    ("cuDNN with bias and its gradient", ["sdpa_cudnn_bias_grad", "jax_cudnn_bias_grad"], 1.15),
    ("efficient with bias and its gradient", ["sdpa_efficient_bias_grad"], 1.15), ("cuDNN without bias", ["sdpa_cudnn", "jax_cudnn"], 0.95),
    ("flex, table and its gradient", ["flex_table_grad"], 1.4), ("eager", ["eager_bias", "eager"], 5.0),
    ("ours without bias", ["quintet_no_bias"], 0.89)]
# What our time must reach of the bound that this run's ceilings set, so that a demand holds on any GPU: (workload, part, what
# of the case) -> share; of attention by head size and keys. Anchors on an H200 of 788 TFLOP/s and 4.3 TB/s: attention at 512
# keys, heads of 64: 350 and 260 TFLOP/s, at 2,048 backward 380; training: 2,700, 950, 300, 80 and 18 sequences/s (small to xxl);
# 64 draws from 32,128 and from 250,112 tokens: 8 and 40 us. Norms: of a copy of as many bytes, timed beside them.
SHARES = {
    ("K1", "forward"): {(64, 512): 0.44, (64, 4096): 0.55, (128, 512): 0.57, (128, 4096): 0.74},
    ("K1", "backward"): {(64, 512): 0.33, (64, 2048): 0.48},
    ("K3", "step"): 0.80,
    ("K4", "forward"): 0.88, ("K4", "backward"): 0.80, ("K4", "step"): {"adamw": 0.94, "adafactor": 0.71},
    ("T1", "step"): 0.51, ("T2", "step"): 0.57, ("T3", "step"): {"t5_1_1_small": 0.38, "t5_1_1_xl": 0.56},
    ("T5", "step"): {"train_xxl_rounded_16x(512/128)": 0.49},
    ("S1", "call"): {1: 0.17}, ("S2", "call"): {"t5_1_1_xl": 0.60, "t5_1_1_xxl": 0.70},
}
LARGE = 20e6  # bytes, below which a kernel's start is most of its time: of generation's kernels launches in a row count then
MOST_MOE_ROUTING = 0.15  # of a layer of experts: route, dispatch and combine
MOST_OPTIMIZER = 0.06  # of a step of T5 1.1 large with 32 rows
MOST_OFF_PLAN = 0.05  # of a training step's memory, by which the plan may miss it


def share_of_generation(case):
    return (0.25 if case["vocabulary"] < 100_000 else 0.37) if "vocabulary" in case else 0.75


def most_ms_in_a_row(case, copied):
    """Of a small kernel of generation, a launch of several in a row; None: nothing is asked for. Launches take as long on all
    GPUs: 4 us of attention, 8 of a draw; where that is less than its share of a copy allows, the share. `copied`: bytes/s."""
    if case["workload"] != "K5" or "mlp" in case or generation_bytes(case) > LARGE:
        return None
    return max(8e-3 if "vocabulary" in case else 4e-3, generation_bytes(case) / copied / share_of_generation(case) * 1e3)


def share_wanted(case, part):
    """Of the bound, or None where nothing is asked for."""
    if case["workload"] == "K5":
        return None if generation_bytes(case) <= LARGE else share_of_generation(case)
    wanted = SHARES.get((case["workload"], part))
    if not isinstance(wanted, dict):
        return wanted
    if "how" in case and case["how"] not in ("", "greedy"):
        return None
    for key in ((case.get("head_dim"), case.get("keys")), case.get("rule"), (case.get("model"), case.get("batch")),
                case["name"], case.get("model"), case.get("batch")):
        if key in wanted:
            return wanted[key]
    return None


def demands(case, part):
    """[(who, variants, factor)] that hold for this case and part."""
    found = DEMANDS.get((case["workload"], part), DEMANDS.get(case["workload"], []))
    result = []
    for who, variants, factor in found:
        if isinstance(factor, dict):
            factor = factor.get(case.get("batch"), factor.get(None))
        if factor is not None:
            result.append((who, variants, factor))
    return result
