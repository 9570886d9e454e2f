"""C1 with Orbax: a state of JAX arrays saved in the background and read again, with fsync as ours. The least of two.

A save's time ends when its bytes are on the disk; a restore's when they are in the host's memory.
"""

import os
import pathlib
import shutil
import time

import common


def flags(parser):
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="new folder to write to; removed at the end")


args = common.arguments(__doc__, flags)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402

from workloads import checkpoint_case  # noqa: E402

COLUMNS = 512
case = checkpoint_case(args.tiny)


def to_disk(folder):
    """What was written there is on the disk."""
    for file in folder.rglob("*"):
        if file.is_file():
            with open(file, "rb") as opened:
                os.fsync(opened.fileno())


def measure(job):
    rows = case["megabytes"] * 1_000_000 // (4 * COLUMNS * case["tensors"])
    state = jax.block_until_ready({f"layer_{i}": jnp.full((rows, COLUMNS), 0.5, jnp.float32) for i in range(case["tensors"])})
    to_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), state)
    best = {}
    for attempt in range(2):
        path = args.dir.absolute() / f"{job.variant}_{attempt}"
        with ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            times = [time.perf_counter()]
            checkpointer.save(path, args=ocp.args.PyTreeSave(state))
            times.append(time.perf_counter())
            checkpointer.wait_until_finished()
            to_disk(path)
            times.append(time.perf_counter())
            checkpointer.restore(path, args=ocp.args.PyTreeRestore(restore_args=to_numpy))
            times.append(time.perf_counter())
        shutil.rmtree(path)
        for part, seconds in (("blocking", times[1] - times[0]), ("save", times[2] - times[0]), ("restore", times[3] - times[2])):
            best[part] = min(best.get(part, seconds), seconds)
    for part, seconds in best.items():
        job.record(part, 1, [1e3 * seconds])


try:
    args.dir.mkdir(parents=True, exist_ok=True)
    common.each_in_time(args, [common.Job(case, "orbax", None)], measure)
finally:
    shutil.rmtree(args.dir, ignore_errors=True)
