"""NCCL between real GPUs, one rank a GPU under mpirun: the cases of mesh_collectives_test. Skips where there are fewer
than two. MPI_DRIVER names the program."""

import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: E402


def gpus():
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines()) if listed.returncode == 0 else 0


def test_collectives_between_gpus(folder):
    for ranks in (2, 3, 4, 8):
        if ranks <= gpus():
            result = e2e.mpirun(os.environ["MPI_DRIVER"], ranks, "gpu")
            assert result.code == 0 and "GPUs agree" in result.out, result


if __name__ == "__main__":
    if gpus() < 2:
        print(f"skipped: NCCL wants a GPU for each of 2 ranks, there are {gpus()}")
        sys.exit(77)
    e2e.run(globals())
