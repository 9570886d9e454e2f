"""scripts/launch --retries and scripts/slurm.sbatch start a job again when a rank has died or hangs, without the host that
is to blame. mpirun, srun, scontrol, nvidia-smi and quintet are stubs."""

import os
import signal
import subprocess

import e2e
from e2e import ROOT, wait_for

DIED = "error: rank 3 on hostb has died (process 812); rank 0 on hosta waits in all_reduce over data, step 120"
SILENT = "error: rank 0 on hosta has waited 600.0 s in all_reduce for rank 2 on hostb, rank 3 on hostb, which does not answer: dead"
LOOPS = "error: rank 0 on hosta has waited 600.0 s in all_reduce:\\n  rank 3 on hostb is in no collective since 600.0 s\\n  rank 1 on hosta waits"
REPLICAS = "error: x [0]: rank 0 on hosta and rank 3 on hostb hold copies that differ (--check_replicas)"


class Stubs:
    """Programs before all others in PATH. Those that start ranks write down what they were asked and end as `ends` says, one
    (status, message) a start, the last for ever."""

    def __init__(self, folder, ends):
        self.folder, self.calls = folder, folder / "calls"
        cases = "".join(f'{i}) printf "{text}\\n" >&2; exit {code} ;;\n' for i, (code, text) in enumerate(ends[:-1]))
        self.start = f"""#!/bin/bash
[ "$1" != --version ] || {{ echo "mpirun (Open MPI) ${{STUB_VERSION:-4.1.4}}"; exit; }}
n=$(grep -cs ^start {self.calls} || true); echo "start $*" >> {self.calls}
case ${{n:-0}} in
{cases}*) printf "{ends[-1][1]}\\n" >&2; exit {ends[-1][0]} ;;
esac
"""
        self.write("mpirun", self.start)
        self.write("srun", self.start)
        self.write("quintet", "#!/bin/sh\n")

    def write(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def environment(self, **more):
        return dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}", QUINTET=str(self.folder / "quintet"), **more)

    def run(self, *words, **more):
        return subprocess.run(words, env=self.environment(**more), capture_output=True, text=True, timeout=60)

    def starts(self):
        return [line for line in self.calls.read_text().splitlines() if line.startswith("start")]


def launch(stubs, *flags):
    return stubs.run(ROOT / "scripts/launch", *flags, "train", "--gin_file=run.gin")


def test_the_host_that_is_to_blame_is_left_out(folder):
    for i, message in enumerate((DIED, SILENT, LOOPS)):
        (folder / str(i)).mkdir()
        stubs = Stubs(folder / str(i), [(6, message), (0, "trained")])
        done = launch(stubs, "--retries", "2", "--hosts", "hosta:2,hostb.cluster:2,hostc:2")
        assert done.returncode == 0 and "trained" in done.stderr and "without hostb" in done.stderr, done
        first, second = stubs.starts()
        assert "-n 6 --host hosta:2,hostb.cluster:2,hostc:2" in first, first
        assert "-n 4 --host hosta:2,hostc:2" in second and "train --gin_file=run.gin" in second, second


def test_a_grace_that_mpirun_does_not_know_is_warned_of(folder):
    for version, known in (("4.1.4", True), ("5.0.11", False)):
        stubs = Stubs(folder, [(0, "trained")])
        done = stubs.run(ROOT / "scripts/launch", "-n", "2", "--grace", "8", "train", STUB_VERSION=version)
        assert done.returncode == 0, done
        assert ("odls_base_sigkill_timeout 8" in stubs.starts()[-1]) == known, stubs.starts()
        assert ("--grace has no effect" in done.stderr) != known, done


def test_without_one_to_blame_all_hosts_start_again_as_often_as_asked(folder):
    stubs = Stubs(folder, [(6, REPLICAS)])
    done = launch(stubs, "--retries", "2", "--hosts", "hosta:2,hostb:2")
    assert done.returncode == 6 and len(stubs.starts()) == 3, done
    assert all("hosta:2,hostb:2" in start for start in stubs.starts()), stubs.starts()


def test_a_rank_that_was_killed_and_the_only_host(folder):
    stubs = Stubs(folder, [(137, DIED.replace("hostb", "hosta")), (75, "saved")])
    done = launch(stubs, "--retries", "1", "-n", "2")
    assert done.returncode == 75 and len(stubs.starts()) == 2, done


def test_other_ends_are_ends(folder):
    for code in (0, 2, 3, 75):
        (folder / str(code)).mkdir()
        stubs = Stubs(folder / str(code), [(code, "")])
        done = launch(stubs, "--retries", "3", "-n", "2")
        assert done.returncode == code and len(stubs.starts()) == 1, done
    assert launch(Stubs(folder, [(0, "")]), "--retries", "often", "-n", "2").returncode == 2


def test_a_signal_reaches_the_job_and_ends_the_tries(folder):
    stubs = Stubs(folder, [(6, "")])
    stubs.write("mpirun", f"#!/bin/bash\ntrap 'exit 6' USR1\necho start >> {stubs.calls}\nwhile :; do sleep 0.1; done\n")
    with subprocess.Popen([ROOT / "scripts/launch", "--retries", "3", "-n", "2", "train"], env=stubs.environment()) as job:
        wait_for(stubs.calls.exists, 20)
        job.send_signal(signal.SIGUSR1)
        assert job.wait(30) == 6
    assert len(stubs.starts()) == 1


def sbatch(stubs, **more):
    """The script as Slurm runs it: a copy elsewhere, on two nodes of two tasks."""
    stubs.write("scontrol", f"""#!/bin/sh
echo "scontrol $*" >> {stubs.calls}
[ "$1" = requeue ] || echo "   Command={ROOT}/scripts/slurm.sbatch train"
""")
    copy = stubs.folder / "slurm_script"
    copy.write_text((ROOT / "scripts/slurm.sbatch").read_text())
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_TASKS_PER_NODE": "2(x2)"} | more
    return stubs.run("bash", copy, "train", **environment)


def requeued(stubs):
    return "scontrol requeue 7" in stubs.calls.read_text()


def test_slurm_goes_on_with_the_nodes_that_are_left_and_then_queues_again(folder):
    stubs = Stubs(folder, [(6, DIED), (0, "trained")])
    done = sbatch(stubs)
    first, second = stubs.starts()
    assert done.returncode == 0 and "--exclude" not in first and not requeued(stubs), done
    assert "--exclude=hostb --nodes=1 --ntasks=2" in second, second
    for count, code, again in ((0, 6, True), (3, 6, False), (9, 75, True), (0, 3, False)):
        inner = folder / f"{count}_{code}"
        inner.mkdir()
        stubs = Stubs(inner, [(code, "")])
        done = sbatch(stubs, SLURM_RESTART_COUNT=str(count))
        assert done.returncode == code and requeued(stubs) == again, (count, code, done)
        assert len(stubs.starts()) == (4 if code == 6 else 1), stubs.starts()


def test_ranks_that_srun_could_not_launch_are_no_success(folder):
    stubs = Stubs(folder, [(0, "srun: error: task 0 launch failed: Unspecified error"), (0, "trained")])
    done = sbatch(stubs)
    assert done.returncode == 0 and len(stubs.starts()) == 2, done
    (folder / "always").mkdir()
    stubs = Stubs(folder / "always", [(0, "srun: error: task 0 launch failed: Unspecified error")])
    done = sbatch(stubs, QUINTET_RETRIES="1")
    assert done.returncode == 6 and len(stubs.starts()) == 2 and requeued(stubs), done


def test_slurms_tasks_get_a_gpu_each(folder):
    stubs = Stubs(folder, [(0, "")])
    stubs.write("nvidia-smi", "#!/bin/sh\ncase \"$*\" in *index*) seq 0 3 ;; *bus_id*) echo 00000000:FF:00.0 ;; esac\n")
    stubs.write("quintet", f"#!/bin/sh\necho \"gpu $SLURM_PROCID $CUDA_VISIBLE_DEVICES\" >> {stubs.calls}\n")
    # As srun --gpus-per-node=4 does: every task sees all of its node's.
    stubs.write("srun", """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for task in 0 1 2 3; do
  SLURM_PROCID=$task SLURM_LOCALID=$((task % 2)) SLURM_STEP_TASKS_PER_NODE="2(x2)" CUDA_VISIBLE_DEVICES=0,1,2,3 "$@" || exit
done
""")
    done = sbatch(stubs)
    assert done.returncode == 0, done
    lines = sorted(line for line in stubs.calls.read_text().splitlines() if line.startswith("gpu"))
    assert lines == ["gpu 0 0", "gpu 1 1", "gpu 2 0", "gpu 3 1"], lines


if __name__ == "__main__":
    e2e.run(globals())
