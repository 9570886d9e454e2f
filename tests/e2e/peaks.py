"""Memory that the evaluation inside a run takes."""

import os
import subprocess
import sys

import e2e
from e2e import QUINTET
from judged import TASK as JUDGED

MPIRUN = ("mpirun", "--oversubscribe", "--allow-run-as-root", "-n")
PEAKS = """
import os, resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
open(sys.argv[1] + os.environ["OMPI_COMM_WORLD_RANK"], "w").write(str(peak))
sys.exit(done.returncode)
"""


def evaluation_peak(folder, count, train, *device):
    """KiB that evaluation, by predictions and by scores, adds to the peak of a rank of folder/run, which hold the model together; the
    command line of train(folder, steps, flags..) trains on the CPU, and evaluates on the device."""
    (folder / "pairs.tsv").write_text("a\tyes\nb\tno\n")
    (folder / "judged.gin").write_text(JUDGED.format(file=folder / "pairs.tsv", results="None"))
    run, peaks = folder / "run", {}
    # After training nothing is left to do but to restore, and to evaluate where that is asked for.
    for what, task in (("train", None), ("restore", None), ("evaluate", "judged")):
        cfg = "@infer_eval/utils.DatasetConfig()" if task else "None"
        command = train(run, 3, f"--gin_file={folder}/judged.gin", f"--gin.train_script.train.infer_eval_dataset_cfg={cfg}")
        if task:
            command += [f"--gin.infer_eval/utils.DatasetConfig.mixture_or_task_name='{task}'", "--gin.train_script.train.run_eval_before_training=True",
                        "--gin.infer_eval/utils.DatasetConfig.batch_size=2", "--gin.seqio.Evaluator.num_examples=2"]
        if what != "train":
            command += device
        done = subprocess.run([*MPIRUN, str(count), sys.executable, "-c", PEAKS, str(folder / f"{what}-peak"), QUINTET, *map(str, command)],
                              capture_output=True, timeout=240 * e2e.PATIENCE, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive"))
        assert done.returncode == 0, done
        peaks[what] = max(int((folder / f"{what}-peak{rank}").read_text()) for rank in range(count))
    print(f"peaks of a rank, KiB: {peaks}")
    return peaks["evaluate"] - peaks["restore"]
