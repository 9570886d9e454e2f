"""K2, K3, K4 and M1 in PyTorch: gated MLP, cross-entropy with z-loss, RMS norm with residual, optimizers, experts.

Each eager and through torch.compile; AdamW is PyTorch's fused one, Adafactor Hugging Face's.
"""

import common

args = common.arguments(__doc__, lambda parser: parser.add_argument("--max_autotune", action="store_true"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from workloads import kernel_cases, parameter_shapes  # noqa: E402

dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)


def setup_compile():
    import torch._dynamo
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # the graph of one forward serves every backward
    for limit in ("recompile_limit", "cache_size_limit"):
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 64)


def random(*shape, grad=True, scale=1.0):
    return (torch.randn(*shape, device=args.device, dtype=dtype) * scale).requires_grad_(grad)


def mlp(x, wi_0, wi_1, wo):
    return (F.gelu(x @ wi_0, approximate="tanh") * (x @ wi_1)) @ wo


def loss(logits, targets):
    """Mean cross-entropy with z-loss 1e-4, in float32 as T5X has it."""
    z = logits.float()
    log_z = torch.logsumexp(z, dim=-1)
    return (log_z - z.gather(-1, targets[:, None])[:, 0] + 1e-4 * log_z * log_z).mean()


def norm(x, y, gain):
    """(rms_norm(x + y) * gain, x + y)."""
    total = x + y
    wide = total.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * gain, total


def compile_of(function):
    mode = "max-autotune-no-cudagraphs" if args.max_autotune else "default"
    return torch.compile(function, dynamic=False, mode=mode)


compiled = {}


def version(function, variant):
    if variant == "eager":
        return function
    if function.__name__ not in compiled:
        setup_compile()
        compiled[function.__name__] = compile_of(function)
    return compiled[function.__name__]


def forward_and_backward(function, sets, gradients):
    """Calls for both parts; sets: [(operands)], gradients: those of the outputs."""
    backward = []
    for operands in sets:
        out = function(*operands)
        wanted = [x for x in operands if x.requires_grad]
        backward.append(lambda out=out, wanted=wanted: torch.autograd.grad(out, wanted, gradients, retain_graph=True))
    return {"forward": [lambda o=o: function(*o) for o in sets], "backward": backward}


def mlp_jobs(case, variant):
    t, d, f = case["tokens"], case["width"], case["mlp"]

    def make():
        byte_count = 2 * (2 * t * d + 3 * t * f)
        sets = [(random(t, d), random(d, f, scale=d ** -0.5), random(d, f, scale=d ** -0.5),
                 random(f, d, scale=f ** -0.5)) for _ in range(common.copies_for(byte_count, args.tiny))]
        return forward_and_backward(version(mlp, variant), sets, random(t, d, grad=False))

    return make


def experts_of(x, router, chosen):
    """Of each token's choices, in the experts' order: (token, weight), and how many each expert has."""
    weights, experts = torch.softmax((x.float() @ router.float()), dim=-1).topk(chosen, dim=-1)
    order = experts.flatten().argsort(stable=True)
    counts = torch.bincount(experts.flatten(), minlength=router.shape[1])
    return order // chosen, weights.flatten()[order, None].type_as(x), counts


def moe_eager(x, router, wi, wo, chosen):
    """A product an expert; no token is dropped."""
    token, weight, counts = experts_of(x, router, chosen)
    out = torch.zeros_like(x)
    for expert, (rows, scale) in enumerate(zip(token.split(counts.tolist()), weight.split(counts.tolist()))):
        out = out.index_add(0, rows, (F.relu(x[rows] @ wi[expert]) @ wo[expert]) * scale)
    return out


def moe_grouped(x, router, wi, wo, chosen):
    """One grouped product for all experts, in bfloat16."""
    token, weight, counts = experts_of(x, router, chosen)
    ends = counts.cumsum(0).to(torch.int32)
    hidden = F.relu(torch._grouped_mm(x[token], wi, offs=ends))
    return torch.zeros_like(x).index_add(0, token, torch._grouped_mm(hidden, wo, offs=ends) * weight)


def moe_jobs(case, function):
    t, d, f, e = case["tokens"], case["width"], case["mlp"], case["experts"]

    def make():
        sets = [(random(t, d), random(d, e, scale=d ** -0.5), random(e, d, f, scale=d ** -0.5), random(e, f, d, scale=f ** -0.5))
                for _ in range(common.copies_for(4 * e * d * f, args.tiny))]
        return forward_and_backward(lambda *o: function(*o, case["chosen"]), sets, random(t, d, grad=False))

    return make


def loss_jobs(case, variant):
    t, v = case["tokens"], case["vocabulary"]

    def make():
        sets = [(random(t, v), torch.randint(0, v, (t,), device=args.device))
                for _ in range(common.copies_for(2 * t * v, args.tiny))]
        function = version(loss, variant)

        def step(logits, targets):
            return torch.autograd.grad(function(logits, targets), logits)

        return {"step": [lambda o=o: step(*o) for o in sets]}

    return make


def norm_jobs(case, variant):
    t, d = case["tokens"], case["width"]

    def make():
        sets = [(random(t, d), random(t, d), random(d)) for _ in range(common.copies_for(8 * t * d, args.tiny))]
        gradients = (random(t, d, grad=False), random(t, d, grad=False))
        return forward_and_backward(version(norm, variant), sets, gradients)

    return make


def optimizer_jobs(case, variant):
    def make():
        parameters = []
        for shape in parameter_shapes(case["model"]):
            p = torch.nn.Parameter(torch.randn(shape, device=args.device) * 0.02)
            p.grad = torch.randn(shape, device=args.device) * 1e-3
            parameters.append(p)
        if variant == "torch_fused":
            optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
        elif variant == "torch_foreach":
            optimizer = torch.optim.AdamW(parameters, lr=1e-3, foreach=True)
        else:
            from transformers.optimization import Adafactor
            optimizer = Adafactor(parameters, lr=1e-3, relative_step=False, scale_parameter=True, warmup_init=False)
        return {"step": [optimizer.step]}

    return make


def jobs_of(case):
    if "rule" in case:
        variants = ["torch_fused", "torch_foreach"] if case["rule"] == "adamw" else ["hf_adafactor"]
        return [common.Job(case, variant, optimizer_jobs(case, variant), note="f32 parameters and gradients")
                for variant in variants]
    if case["workload"] == "M1":
        grouped = [common.Job(case, "grouped", moe_jobs(case, moe_grouped))] if args.device == "cuda" else []
        return [common.Job(case, "eager", moe_jobs(case, moe_eager)), *grouped]
    make = {"K2": mlp_jobs, "K3": loss_jobs, "K4": norm_jobs}[case["workload"]]
    return [common.Job(case, "eager", make(case, "eager")),
            common.Job(case, "compile", make(case, "compile"), compiles=True)]


cases = [case for case in kernel_cases(args.tiny) if case["workload"] in ("K2", "K3", "K4", "M1")]
jobs = [job for case in cases for job in jobs_of(case)]
if args.device == "cpu":  # Inductor's C++ takes a minute on a small machine
    jobs = [job for job in jobs if not job.compiles]
common.run_torch(args, jobs)
