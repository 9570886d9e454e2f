"""C1 with Orbax: a state of JAX arrays, as in checkpoint.py."""

import contextlib

import checkpoint
import common

args = common.arguments(__doc__, checkpoint.flags)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402

from workloads import checkpoint_case  # noqa: E402

case = checkpoint_case(args.tiny)
to_numpy = {f"layer_{i}": ocp.RestoreArgs(restore_type=np.ndarray) for i in range(case["tensors"])}


def fresh():
    shape = checkpoint.rows(case), checkpoint.COLUMNS
    return jax.block_until_ready({f"layer_{i}": jnp.full(shape, 0.5, jnp.float32) for i in range(case["tensors"])})


class Orbax:
    def __init__(self, path, checkpointer):
        self.path, self.checkpointer = path, checkpointer

    def begin(self, state):
        self.checkpointer.save(self.path, args=ocp.args.PyTreeSave(state))

    def end(self):
        self.checkpointer.wait_until_finished()
        checkpoint.to_disk(self.path)

    def restore(self):
        self.checkpointer.restore(self.path, args=ocp.args.PyTreeRestore(restore_args=to_numpy))


@contextlib.contextmanager
def orbax(path):
    with ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        yield Orbax(path, checkpointer)


checkpoint.measure(args, [common.Job(case, "orbax", orbax)], fresh)
