"""C1 in PyTorch: a state saved and read again, by torch.save and by torch.distributed.checkpoint in the background.

A save's time ends when its bytes are on the disk; a restore's when they are in the host's memory. The least of two.
"""

import os
import pathlib
import shutil
import time

import common


def flags(parser):
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="new folder to write to; removed at the end")


args = common.arguments(__doc__, flags)

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

from workloads import checkpoint_case  # noqa: E402

COLUMNS = 512
case = checkpoint_case(args.tiny)


def fresh():
    rows = case["megabytes"] * 1_000_000 // (4 * COLUMNS * case["tensors"])
    return {f"layer_{i}": torch.empty(rows, COLUMNS) for i in range(case["tensors"])}


def synchronize():
    if args.device == "cuda":
        torch.cuda.synchronize()


def to_disk(path):
    """What was written there is on the disk."""
    for file in [path] if path.is_file() else path.iterdir():
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())


class Save:
    def __init__(self, path):
        self.path = path / "state.pt"

    def begin(self, state):
        torch.save(state, self.path)
        to_disk(self.path)

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
        to_disk(self.path)

    def restore(self):
        dcp.load(fresh(), checkpoint_id=self.path, no_dist=True)


def measure(job):
    state = {name: tensor.fill_(0.5).to(args.device) for name, tensor in fresh().items()}
    synchronize()
    best = {}
    for attempt in range(2):
        path = args.dir / f"{job.variant}_{attempt}"
        path.mkdir(parents=True)
        way = job.make(path)
        times = [time.perf_counter()]
        for step in (lambda: way.begin(state), way.end, way.restore):
            step()
            times.append(time.perf_counter())
        shutil.rmtree(path)
        for part, seconds in (("blocking", times[1] - times[0]), ("save", times[2] - times[0]), ("restore", times[3] - times[2])):
            best[part] = min(best.get(part, seconds), seconds)
    for part, seconds in best.items():
        job.record(part, 1, [1e3 * seconds])


try:
    common.each_in_time(args, [common.Job(case, "torch_save", Save), common.Job(case, "torch_dcp", Distributed)], measure)
finally:
    shutil.rmtree(args.dir, ignore_errors=True)
