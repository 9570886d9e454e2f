"""scripts/lib/rank gives every rank of a node its own GPU, whoever started it; nvidia-smi is a stub."""

import os
import subprocess

import e2e
from e2e import ROOT

SMI = """#!/bin/sh
case "$*" in
  *query-gpu=index*) seq 0 7 ;;
  *pci.bus_id*) echo 00000000:FF:00.0 ;;
esac
"""


def gpus_of(folder, count, node_has_gpus=True, **environment):
    """What each of `count` ranks of a node sees; the environment's values are formatted with its number."""
    stubs = folder / "stubs"
    stubs.mkdir(exist_ok=True)
    (stubs / "nvidia-smi").write_text(SMI if node_has_gpus else "#!/bin/sh\nexit 9\n")
    (stubs / "nvidia-smi").chmod(0o755)
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("CUDA_", "SLURM_", "OMPI_"))} | {"PATH": f"{stubs}:{os.environ['PATH']}"}
    seen = []
    for rank in range(count):
        own = {name: value.format(rank) for name, value in environment.items()}
        done = subprocess.run([ROOT / "scripts/lib/rank", "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-none}"], env=clean | own,
                              capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
        seen.append(done.stdout.strip())
    return seen


def test_slurm_names_all_gpus_of_a_node_to_each_task(folder):
    task = {"SLURM_LOCALID": "{}", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
    assert gpus_of(folder, 4, CUDA_VISIBLE_DEVICES="2,3,5,7", **task) == ["2", "3", "5", "7"]
    assert gpus_of(folder, 4, CUDA_VISIBLE_DEVICES="GPU-a,GPU-b", **task) == ["GPU-a", "GPU-b", "GPU-a", "GPU-b"]
    assert gpus_of(folder, 2, CUDA_VISIBLE_DEVICES="3", **task) == ["3", "3"]  # --gpus-per-task=1 named it


def test_mpirun_names_none(folder):
    assert gpus_of(folder, 3, OMPI_COMM_WORLD_LOCAL_RANK="{}", OMPI_COMM_WORLD_LOCAL_SIZE="3") == ["0", "1", "2"]
    assert gpus_of(folder, 2, node_has_gpus=False, OMPI_COMM_WORLD_LOCAL_RANK="{}", OMPI_COMM_WORLD_LOCAL_SIZE="2") == ["none"] * 2
    assert gpus_of(folder, 2, node_has_gpus=False, CUDA_VISIBLE_DEVICES="-1", SLURM_LOCALID="{}") == ["-1"] * 2


if __name__ == "__main__":
    e2e.run(globals())
