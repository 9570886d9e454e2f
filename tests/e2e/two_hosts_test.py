"""Two hosts for real: two network namespaces with a cable between them and host names of their own, started by
scripts/launch, whose ssh is `ip netns exec`. Needs root and `ip` (Debian: iproute2), and is skipped without."""

import os
import shutil
import signal
import subprocess
import time

import e2e
from e2e import ROOT, tiny, wait_for
from mpi_train_test import ENVIRONMENT, assert_close_runs, processes_of

NAMES = [f"qt{os.getpid()}a", f"qt{os.getpid()}b"]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], capture_output=True, check=check).returncode == 0


def connect():
    """Makes the hosts; what is missing where they cannot be."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return "network namespaces need root and ip (Debian: iproute2)"
    for name in NAMES:
        tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
        if tried.returncode == 0:
            tried = subprocess.run(["ip", "netns", "exec", name, "true"], capture_output=True, text=True)
        if tried.returncode != 0:
            return f"no network namespaces here: {tried.stderr.strip()}"
    ip("link", "add", NAMES[0], "type", "veth", "peer", "name", NAMES[1])
    for name, address in zip(NAMES, ADDRESSES):
        ip("link", "set", name, "netns", name)
        ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
        ip("-n", name, "link", "set", name, "up")
        ip("-n", name, "link", "set", "lo", "up")
    return ""


def disconnect():
    """Ends what still runs on the hosts, and them."""
    for name in NAMES:
        left = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
        for process in left:
            os.kill(int(process), signal.SIGKILL)
        ip("netns", "del", name, check=False)


def start(folder, ranks, *arguments):
    agent = folder / "agent"
    agent.write_text(f"""#!/bin/sh
case $1 in {ADDRESSES[1]}) name={NAMES[1]} host=hostb ;; *) name={NAMES[0]} host=hosta ;; esac
shift
exec ip netns exec $name unshare --uts sh -c 'hostname '$host'; eval "$*"' sh "$@"
""")
    agent.chmod(0o755)
    hosts = ",".join(f"{address}:{ranks}" for address in ADDRESSES)
    environment = dict(ENVIRONMENT, MPIRUN_FLAGS=f"--mca plm_rsh_agent {agent}", QUINTET=e2e.QUINTET)
    command = [ROOT / "scripts" / "launch", "--hosts", hosts, "--network", "10.77.0.0/24", "--threads", "1",
               "--grace", "1", *map(str, arguments)]
    return subprocess.Popen(["ip", "netns", "exec", NAMES[0], "unshare", "--uts", "sh", "-c", 'hostname hosta; exec "$@"',
                             "sh", *command], stdout=open(folder / "out", "wb"), stderr=open(folder / "err", "wb"),
                            env=environment, stdin=subprocess.DEVNULL)


def finished(process, folder, seconds=240):
    """Not through pipes, which a daemon on a host that is cut off would keep open."""
    code = process.wait(seconds)
    return e2e.Result(code, (folder / "out").read_text(errors="replace"), (folder / "err").read_text(errors="replace"))


def test_two_hosts_train_as_one(folder):
    e2e.quintet(*tiny(folder / "one", 20))
    result = finished(start(folder, 2, *tiny(folder / "two", 20, "--gin.partitioning.PjitPartitioner.num_partitions=2")), folder)
    assert result.code == 0, result
    assert_close_runs(folder / "one", folder / "two")


def test_data_ranks_on_the_second_host(folder):
    e2e.quintet(*tiny(folder / "one", 20))
    result = finished(start(folder, 1, *tiny(folder / "two", 20, "--data_service_ranks=1")), folder)
    assert result.code == 0, result
    assert_close_runs(folder / "one", folder / "two")


def test_groups_of_ranks_that_hold_a_model_share_the_examples_of_two_hosts(folder):
    e2e.quintet(*tiny(folder / "run", 4))
    model = f"--model_dir={folder / 'run'}"
    evaluate = ["eval", model, "--task=number_to_words", "--num_examples=9", "--batch_size=2"]
    infer = ["infer", model, "--task=number_to_words", "--batch_size=64", "--checkpoint_period=1"]
    alone = e2e.quintet(*evaluate).out
    e2e.quintet(*infer, f"--output_dir={folder / 'alone'}")
    for partitions in (1, 2):
        shared = finished(start(folder, 2, *evaluate, f"--num_partitions={partitions}"), folder)
        assert shared.code == 0 and shared.out == alone, (alone, shared)
        out = folder / f"out{partitions}"
        shared = finished(start(folder, 2, *infer, f"--num_partitions={partitions}", f"--output_dir={out}"), folder)
        assert shared.code == 0, shared
        for file in (folder / "alone").glob("*.jsonl-*-of-00001"):
            assert (out / file.name).read_bytes() == file.read_bytes(), file
    apart = finished(start(folder, 1, "generate", model, "words: 7"), folder)
    assert apart.code == 2 and "ranks 0 on hosta and 1 on hostb would hold a model together" in apart.err, apart


def test_a_pulled_cable_ends_the_job(folder):
    process = start(folder, 1, *tiny(folder / "run", 100000, "--gin.EVAL_PERIOD=50000", "--collective_timeout=3"))
    wait_for(lambda: (folder / "run" / "checkpoint_0").exists() or process.poll() is not None, 60)
    ip("-n", NAMES[1], "link", "set", NAMES[1], "down")
    try:
        began = time.time()
        wait_for(lambda: not processes_of(folder / "run"), 30)
        assert time.time() - began < 15, "the ranks took too long to end"
        result = finished(process, folder, 60)
        assert result.code == 6 and "does not answer" in result.err and "rank 1 on hostb" in result.err, result
    finally:
        ip("-n", NAMES[1], "link", "set", NAMES[1], "up")


if __name__ == "__main__":
    try:
        missing = connect()
        if missing:
            print(f"skipped: {missing}")
            raise SystemExit(77)
        e2e.run(globals())
    finally:
        if shutil.which("ip"):
            disconnect()
