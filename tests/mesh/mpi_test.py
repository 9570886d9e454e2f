"""Collectives under a real mpirun, and what happens when a rank dies, stops, hangs or does something else: the job
ends in time, the message names rank, host, collective and step, and no rank is left. MPI_DRIVER names the program."""

import functools
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: E402

DRIVER = os.environ["MPI_DRIVER"]
mpirun = functools.partial(e2e.mpirun, DRIVER)


def nobody_left(mode):
    """Nobody runs the driver in this mode any more."""
    def running():
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if words[0] == DRIVER.encode() and mode.encode() in words:
                    return True
        return False
    e2e.wait_for(lambda: not running(), 5)


def faulty(mode, ranks, bad, seconds, timeout_seconds, *parts):
    result = mpirun(ranks, mode, timeout_seconds, bad)
    # mpirun may see a dead rank at the same time and gives its status then.
    assert result.code in ((6, 137) if mode == "dies" else (6,)), result
    for part in parts:
        assert re.search(part, result.err), f"'{part}' is not in: {result.err}"
    assert result.seconds < seconds, f"took {result.seconds:.1f} s, expected {seconds}"
    nobody_left(mode)


def test_ranks_agree_with_threads(folder):
    for ranks in (2, 4, 9):  # nine gather in rounds
        result = mpirun(ranks, "collectives")
        assert result.code == 0 and "bits agree" in result.out, result


def test_a_dead_rank_is_named_at_once(folder):
    for ranks, bad in ((2, 0), (4, 2)):
        # The rank that sees it first may not have begun the step in which the other died.
        faulty("dies", ranks, bad, 10, 60, f"rank {bad} on ", "has died", "all_reduce", "step [45]")


def test_a_stopped_rank_is_named_after_the_timeout(folder):
    for ranks, bad in ((2, 1), (4, 0)):
        faulty("stops", ranks, bad, 15, 3, f"for rank {bad} on ", "does not answer", "all_reduce", "step 5")


def test_a_rank_that_computes_for_ever_is_named_and_shows_where(folder):
    faulty("loops", 4, 3, 15, 3, "rank 3 on ", "is in no collective", "all_reduce", "step 5",
           r"stack of thread \d+ \(mpi_driver\) of rank 3 on (?s:.{0,2000})\(pause\+0x")


def test_a_rank_that_does_not_come_to_the_start_ends_the_others(folder):
    result = mpirun(3, "late", 3, 1)
    assert result.code == 4 and "not all ranks came to compare how they were started" in result.err, result
    assert "--init_timeout" in result.err and re.search(r"rank [02] on \S+ has waited 3 s", result.err), result
    assert result.seconds < 15, result.seconds
    nobody_left("late")


def test_ranks_in_different_collectives_are_found(folder):
    faulty("order", 4, 1, 15, 3, "collectives out of order", "step 5")


def test_a_rank_that_throws_ends_the_others(folder):
    result = mpirun(4, "throws", 60, 1)
    assert result.code == 3 and "rank 1: a broken record" in result.err, result
    assert result.seconds < 10, result.seconds
    nobody_left("throws")


if __name__ == "__main__":
    e2e.run(globals())
