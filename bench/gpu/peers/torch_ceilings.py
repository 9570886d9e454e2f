"""The two ceilings: the rate of an 8192^3 bf16 product and of a copy of 4.3 GB to another place, in PyTorch."""

import common

args = common.arguments(__doc__)

import torch  # noqa: E402

size, copied = (256, 1 << 20) if args.tiny else (8192, 4_294_967_296)
torch.manual_seed(0)


def product():
    a = torch.randn(size, size, device=args.device, dtype=torch.bfloat16)
    b = torch.randn(size, size, device=args.device, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    return {"forward": [lambda: torch.matmul(a, b, out=out)]}


def copy():
    source = torch.randint(0, 255, (copied,), device=args.device, dtype=torch.uint8)
    target = torch.empty_like(source)
    return {"forward": [lambda: target.copy_(source)]}


def device_name():
    return torch.cuda.get_device_name() if args.device == "cuda" else "cpu"


about = f"torch {torch.__version__}, {device_name()}"
common.run_torch(args, [
    common.Job(dict(workload="ceilings", name=f"gemm_{size}"), "torch", product, note=about),
    common.Job(dict(workload="ceilings", name=f"copy_{copied}"), "torch", copy, note=about)])
