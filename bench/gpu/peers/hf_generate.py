"""S1: Hugging Face's generate, bf16 parameters, every output exactly as long as asked.

    hf_generate.py            # dynamic cache, eager
    hf_generate.py --static   # static cache; on a GPU generate itself then compiles the decoder
"""

import common


def flags(parser):
    parser.add_argument("--static", action="store_true")


args = common.arguments(__doc__, flags)

import torch  # noqa: E402
import transformers  # noqa: E402

from workloads import SIZES, VOCABULARY, serve_cases  # noqa: E402

torch.manual_seed(0)
transformers.logging.set_verbosity_error()
variant = "hf_static_compile" if args.static else "hf_eager"
dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
models = {}


def model_of(name):
    if name not in models:
        with torch.device(args.device):
            models[name] = common.hf_model(transformers, SIZES[name]).eval().to(dtype)
    return models[name]


def prepare(case, tokens=None):
    """A call of generate for the case; tokens: other than it says."""
    tokens = tokens or case["targets"]
    model = model_of(case["model"])
    inputs = torch.randint(3, VOCABULARY, (case["batch"], case["inputs"]), device=args.device)
    options = dict(max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, num_beams=1)
    if case["how"] == "beam4":
        options["num_beams"] = 4
    if case["how"] == "top_p":
        options.update(do_sample=True, top_p=0.9, top_k=0)
    if args.static:
        options["cache_implementation"] = "static"

    def call():
        with torch.no_grad():
            out = model.generate(inputs, attention_mask=torch.ones_like(inputs), **options)
        if out.shape[1] != tokens + 1:
            raise RuntimeError(f"{out.shape[1] - 1} tokens came instead of {tokens}")

    return call


def timed(call):
    return common.milliseconds(call, torch.cuda.synchronize if args.device == "cuda" else lambda: None)


cases = serve_cases(args.tiny, "serve")
if args.static:  # each shape is a compilation
    cases = [case for case in cases if case["how"] == "greedy" and case["batch"] in (1, 2, 128)]
jobs = common.chosen(args, [common.Job(case, variant, None) for case in cases])
calls = {}
for job in jobs:
    try:
        common.ask_for_time_to_compile(args)
        calls[job.case["name"]] = prepare(job.case)
        if args.static:
            for _ in range(2):
                calls[job.case["name"]]()
        model = model_of(job.case["model"])
        job.note = (f"transformers {transformers.__version__}, {dtype}, attention {model.config._attn_implementation}"
                    + (", compiled" if hasattr(model, "_compiled_call") else ", not compiled"))
    except Exception as error:  # noqa: BLE001 - a variant that fails is a result
        job.fail(error)


def measure(job):
    if not args.static:  # the first tokens of a shape take longer
        prepare(job.case, 4)()
    times = [timed(calls[job.case["name"]]) for _ in range(1 if args.tiny else 2)]
    for round_number, ms in enumerate(times, 1):
        job.record("call", round_number, [ms])


common.each_in_time(args, jobs, measure)
