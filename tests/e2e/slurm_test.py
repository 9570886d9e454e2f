"""scripts/slurm.sbatch under a Slurm of one node, started here and ended with the test. Needs root, slurmctld, slurmd and
munged (Debian: slurm-wlm), and is skipped without."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile

import e2e
from e2e import ROOT, steps_of, tiny, wait_for
from mpi_train_test import mpirun

DAEMONS = ["munged", "mungekey", "slurmctld", "slurmd"]

# cred_expire: so long a job waits that is queued again; Slurm's own is two minutes.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES
"""


def command(name):
    return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextlib.contextmanager
def slurm(folder):
    """The environment of commands for a Slurm of this machine; its daemons end with the block."""
    for name in ("munge", "state"):
        (folder / name).mkdir()
    spool = tempfile.mkdtemp(prefix="slurm-")  # PMIx's socket is in it: a path of at most 107 characters
    (folder / "munge").chmod(0o755)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(host=socket.gethostname().split(".")[0], ports=free_ports(2), folder=folder, spool=spool))
    environment = dict(os.environ, SLURM_CONF=str(folder / "slurm.conf"), QUINTET=e2e.QUINTET)
    munge = folder / "munge"
    subprocess.run([command("mungekey"), f"--keyfile={munge}/key"], check=True)
    with open(folder / "daemons.log", "w") as log:
        def daemon(*words):
            return subprocess.Popen(words, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

        daemons = [daemon(command("munged"), "--foreground", "--force", f"--key-file={munge}/key", f"--socket={munge}/socket",
                          f"--pid-file={munge}/pid", f"--seed-file={munge}/seed", f"--log-file={munge}/log")]
        try:
            wait_for((munge / "socket").exists, 20)
            daemons += [daemon(command("slurmctld"), "-D", "-i"), daemon(command("slurmd"), "-D")]
            wait_for(lambda: "idle" in said(environment, "sinfo", "-h", "-o", "%T", check=False), 30)
            yield environment
        finally:
            for process in reversed(daemons):
                process.send_signal(signal.SIGTERM)
                process.wait(60)
            shutil.rmtree(spool)


def said(environment, *words, check=True):
    return subprocess.run(words, env=environment, check=check, capture_output=True, text=True, timeout=60).stdout.strip()


def test_a_job_that_is_requested_to_end_saves_and_is_queued_again(folder):
    missing = [name for name in DAEMONS if command(name) is None]
    if os.geteuid() != 0 or missing:
        e2e.skip(f"a Slurm of our own needs root and {', '.join(DAEMONS)} (Debian: slurm-wlm); missing here: "
                 f"{', '.join(missing) or 'root'}")
    arguments = ["--gin.EVAL_PERIOD=500", "--gin.utils.SaveCheckpointConfig.period=5000"]
    steps = 600  # more than are done before the request arrives
    with slurm(folder) as environment:
        output = folder / "output"
        job = said(environment, "sbatch", "--parsable", "--ntasks=2", f"--output={output}", ROOT / "scripts" / "slurm.sbatch",
                   *tiny(folder / "run", steps, *arguments))

        def state():
            return said(environment, "scontrol", "show", "--oneliner", "job", job)

        try:
            wait_for(lambda: steps_of(folder / "run") or "JobState=FAILED" in state() or "JobState=COMPLETED" in state(), 60)
            said(environment, "scancel", "--signal=USR1", job)  # what Slurm itself sends before a time limit
            wait_for(lambda: "Restarts=1" in state() or "JobState=COMPLETED" in state(), 60)
            text = output.read_text()
            # The signal reaches one of the job's ranks first, and the leader may hear of it from that one.
            assert re.search(r"stopped by (SIGUSR1|a signal to another rank) and saved", text) and "Exited with exit code 75" in text, text
            wait_for(lambda: "JobState=COMPLETED" in state() or "JobState=FAILED" in state(), 200)
            assert "JobState=COMPLETED" in state(), output.read_text()
        except (AssertionError, subprocess.CalledProcessError):
            print(output.read_text() if output.exists() else "no output", (folder / "daemons.log").read_text()[-2000:])
            raise
    assert (folder / "run" / f"checkpoint_{steps}" / "data-00001-of-00002.h5").exists(), "two tasks were not two ranks"
    mpirun(2, *tiny(folder / "whole", steps, *arguments))
    e2e.assert_same_run(folder / "whole", folder / "run", steps)


if __name__ == "__main__":
    e2e.run(globals())
