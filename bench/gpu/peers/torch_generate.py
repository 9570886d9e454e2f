"""S1 and S2: generation by T5 in plain PyTorch (torch_t5.py), bf16 parameters, exactly as many tokens as asked for.

    torch_generate.py            # growing cache, eager, as Hugging Face's generate by default
    torch_generate.py --static   # fixed cache; on a GPU the decoder's step is compiled, with CUDA graphs

Encoder-only cases are one pass of the encoder, eager or compiled.
"""

import common


def flags(parser):
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--set", default="serve")


args = common.arguments(__doc__, flags)


import torch  # noqa: E402

import torch_t5  # noqa: E402
from workloads import VOCABULARY, serve_cases  # noqa: E402

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
variant = "torch_static_compile" if args.static else "torch_eager"
dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
compiles = args.static and args.device == "cuda"
models, generators = {}, {}


def model_of(name):
    if name not in models:
        models[name] = torch_t5.make(name, args.device, "sdpa" if args.static else "eager", dtype).eval()
    return models[name]


def call_of(case, tokens=None):
    """A call for the case; tokens: other than it says."""
    model = model_of(case["model"])
    inputs = torch.randint(3, VOCABULARY, (case["batch"], case["inputs"]), device=args.device)
    tokens = tokens or case["targets"]
    if case["how"] == "encode":
        encode = generators.get(case["name"])
        if encode is None:
            encode = generators[case["name"]] = torch.compile(model.encode, dynamic=False) if compiles else model.encode

        def call():
            with torch.no_grad():
                encode(inputs)

        return call
    rows = case["batch"] * (4 if case["how"] == "beam4" else 1)
    key = case["model"], rows, case["inputs"], tokens
    if key not in generators:  # with its caches
        generators[key] = torch_t5.Generator(model, *key[1:], fixed=args.static, compile=compiles)
    generate = generators[key]

    def call():
        out = generate(inputs, case["how"])
        if out.shape != (case["batch"], tokens):
            raise RuntimeError(f"{list(out.shape)} tokens came instead of {case['batch']} x {tokens}")

    return call


def timed(call):
    return common.milliseconds(call, torch.cuda.synchronize if args.device == "cuda" else lambda: None)


jobs = common.chosen(args, [common.Job(case, variant, None) for case in serve_cases(args.tiny, args.set)])
for job in jobs if compiles else []:
    try:
        common.ask_for_time_to_compile(args)
        call = call_of(job.case)
        for _ in range(2):  # the second records the graph
            call()
    except Exception as error:  # noqa: BLE001 - a variant that fails is a result
        job.fail(error)


def measure(job):
    call = call_of(job.case)
    if not args.static and job.case["how"] != "encode":  # the first tokens of a shape take longer
        call_of(job.case, 4)()
    else:
        call()
    job.note = f"torch {torch.__version__}, HF's form of T5, {dtype}" + (", compiled" if compiles else "")
    for round_number in range(1, 2 if args.tiny else 3):
        repeats = 1 if args.tiny or job.case["how"] != "encode" else 20
        job.record("call", round_number, [timed(call) for _ in range(repeats)])


common.each_in_time(args, jobs, measure)
