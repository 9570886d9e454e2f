"""T1 to T3: a training step of Hugging Face's T5 in PyTorch, bf16 autocast over float32 parameters, dropout 0.

    hf_train.py --case "train_base_128x(512/114)" --attention sdpa --compile
"""

import common

args = common.arguments(__doc__, common.training_flags)

import torch  # noqa: E402
import transformers  # noqa: E402

from workloads import SIZES, VOCABULARY, train_cases  # noqa: E402

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
transformers.logging.set_verbosity_error()
case = next(case for case in train_cases(args.tiny) if case["name"] == args.case)
size = SIZES[case["model"]]
variant = ("hf_compile_" + args.attention) if args.compile else (
    "hf_eager" if args.attention == "eager" else "hf_eager_sdpa")


def make_model():
    with torch.device(args.device):
        return common.hf_model(transformers, size, attn_implementation=args.attention).train()


def make_optimizer(model):
    if case["optimizer"] == "adafactor":
        from transformers.optimization import Adafactor
        return Adafactor(model.parameters(), lr=1e-3, relative_step=False, scale_parameter=True, warmup_init=False)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


carried = {}


def make():
    if not carried:
        model = make_model()
        kinds = sorted({str(p.dtype) for p in model.parameters()})
        job.note = (f"transformers {transformers.__version__}, torch {torch.__version__}, attention "
                    f"{model.config._attn_implementation}, parameters {' '.join(kinds)}")
        mode = "max-autotune-no-cudagraphs" if args.max_autotune else "default"
        carried.update(model=torch.compile(model, dynamic=False, mode=mode) if args.compile else model,
                       optimizer=make_optimizer(model))
    inputs = torch.randint(3, VOCABULARY, (case["batch"], case["inputs"]), device=args.device)
    labels = torch.randint(3, VOCABULARY, (case["batch"], case["targets"]), device=args.device)

    def step():
        carried["optimizer"].zero_grad(set_to_none=True)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = carried["model"](input_ids=inputs, labels=labels, use_cache=False).loss
        loss.backward()
        carried["optimizer"].step()

    return {"step": [step]}


job = common.Job(case, variant, make, compiles=args.compile)
common.run_torch(args, [job])
if args.device == "cuda" and not job.error:
    common.print_line(workload=case["workload"], case=case["name"], part="memory", variant=variant,
                      peak_bytes=torch.cuda.max_memory_allocated())
