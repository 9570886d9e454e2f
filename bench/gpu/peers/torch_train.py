"""T1 to T4: a training step of T5 in plain PyTorch (torch_t5.py), bf16 autocast over float32 parameters.

    torch_train.py --case "train_base_128x(512/114)" --attention sdpa --compile

With examples of given lengths the batch is padded to its longest, in steps of 64, as data collators pad.
"""

import common

args = common.arguments(__doc__, common.training_flags)

import torch  # noqa: E402

import torch_t5  # noqa: E402
from workloads import VOCABULARY, train_cases  # noqa: E402

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
case = next(case for case in train_cases(args.tiny) if case["name"] == args.case)
variant = f"torch_{'compile' if args.compile else 'eager'}_{args.attention}"
examples = case.get("examples")


def padded(which, step=64):
    """Random tokens; behind an example's length, 0. Lengths of inputs (0) or targets (1)."""
    if not examples:
        return torch.randint(3, VOCABULARY, (case["batch"], case[("inputs", "targets")[which]]))
    lengths = torch.tensor([example[which] for example in examples])
    width = -(-int(lengths.max()) // step) * step
    tokens = torch.randint(3, VOCABULARY, (len(examples), width))
    return tokens.masked_fill(torch.arange(width)[None, :] >= lengths[:, None], 0)


def make_optimizer(model):
    if case["optimizer"] == "adafactor":
        return torch.optim.Adafactor(model.parameters(), lr=1e-3)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


carried = {}


def make():
    if not carried:
        model = torch_t5.make(case["model"], args.device, args.attention, dropout=case.get("dropout", 0.0)).train()
        job.note = f"torch {torch.__version__}, HF's form of T5, attention {args.attention}, parameters float32"
        mode = "max-autotune-no-cudagraphs" if args.max_autotune else "default"
        carried.update(model=torch.compile(model, dynamic=False, mode=mode) if args.compile else model,
                       optimizer=make_optimizer(model))
    inputs, labels = padded(0).to(args.device), padded(1).to(args.device)
    labels = labels.masked_fill(labels == 0, -100)

    def step():
        carried["optimizer"].zero_grad(set_to_none=True)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = carried["model"](inputs, labels, padded=bool(examples))
        loss.backward()
        carried["optimizer"].step()

    return {"step": [step]}


job = common.Job(case, variant, make, compiles=args.compile)
common.run_torch(args, [job])
if args.device == "cuda" and not job.error:
    common.print_line(workload=case["workload"], case=case["name"], part="memory", variant=variant,
                      peak_bytes=torch.cuda.max_memory_allocated())
