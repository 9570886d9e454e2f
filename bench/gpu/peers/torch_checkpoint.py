"""C1 in PyTorch: a state saved by torch.save and by torch.distributed.checkpoint in the background, as in checkpoint.py."""

import contextlib

import checkpoint
import common

args = common.arguments(__doc__, checkpoint.flags)

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

from workloads import checkpoint_case  # noqa: E402

case = checkpoint_case(args.tiny)


def fresh():
    return {f"layer_{i}": torch.empty(checkpoint.rows(case), checkpoint.COLUMNS) for i in range(case["tensors"])}


def filled():
    state = {name: tensor.fill_(0.5).to(args.device) for name, tensor in fresh().items()}
    if args.device == "cuda":
        torch.cuda.synchronize()
    return state


class Save:
    def __init__(self, path):
        self.path = path / "state.pt"

    def begin(self, state):
        torch.save(state, self.path)
        checkpoint.to_disk(self.path)

    def end(self):
        pass

    def restore(self):
        torch.load(self.path, map_location="cpu", weights_only=True)


class Distributed:
    def __init__(self, path):
        self.path, self.future = path, None

    def begin(self, state):
        self.future = dcp.async_save(state, checkpoint_id=self.path, no_dist=True)

    def end(self):
        self.future.result()
        checkpoint.to_disk(self.path)

    def restore(self):
        dcp.load(fresh(), checkpoint_id=self.path, no_dist=True)


@contextlib.contextmanager
def in_folder(way, path):
    path.mkdir(parents=True)
    yield way(path)


jobs = [common.Job(case, name, lambda path, way=way: in_folder(way, path)) for name, way in (("torch_save", Save), ("torch_dcp", Distributed))]
checkpoint.measure(args, jobs, filled)
