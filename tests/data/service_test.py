"""The data service under a real mpirun: the batches of every number of data ranks, shards and model ranks are those of one
process, bit for bit; and what happens when a data rank is slow, stopped or dead. SERVICE_DRIVER names the program."""

import functools
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: E402

DRIVER = os.environ["SERVICE_DRIVER"]
mpirun = functools.partial(e2e.mpirun, DRIVER)


# Ranks, of which data ranks, and ranks of a model group.
SHAPES = [(2, 1, 1), (3, 2, 1), (4, 2, 1), (4, 2, 2), (4, 3, 1), (9, 1, 1)]


def test_batches_are_those_of_one_process(folder):
    for shape in SHAPES:
        ranks, data, model = shape
        result = mpirun(ranks, "same", data, model)
        assert result.code == 0, (shape, result)


def test_virtual_shards_give_the_same_batches_to_any_number_of_data_ranks(folder):
    for mode in "virtual", "virtual_resumed":
        for ranks, data, model in [(2, 1, 1), (3, 2, 1), (4, 3, 1), (4, 2, 2)]:
            result = mpirun(ranks, mode, data, model)
            assert result.code == 0, (mode, ranks, data, model, result)
    result = mpirun(2, "virtual_peers", 0, 1)
    assert result.code == 0, result


def test_a_host_gets_a_chunk_once_and_its_ranks_all(folder):
    for ranks, mode, data in [(4, "hosts_peers", 0), (8, "hosts_peers", 0), (6, "hosts_same", 4)]:
        result = mpirun(ranks, mode, data, 1, 15)
        assert result.code == 0, (ranks, mode, result)


def test_ranks_leave_while_a_chunk_for_a_neighbour_is_on_its_way(folder):
    result = mpirun(4, "hosts_leave", 0, 1)
    assert result.code == 0, result


def test_data_ranks_divide_virtual_shards(folder):
    result = mpirun(5, "virtual", 4, 1)
    assert result.code == 2 and "virtual_shards is 6, which 4 data ranks do not divide" in result.err, result


def test_a_shard_gets_its_part_of_every_microbatch(folder):
    for ranks, data, model in [(3, 1, 1), (6, 2, 2)]:
        result = mpirun(ranks, "microbatches", data, model)
        assert result.code == 0, result


def test_floats_of_two_dimensions_are_those_of_one_process(folder):
    for ranks, data, model in [(2, 1, 1), (4, 2, 2)]:
        result = mpirun(ranks, "floats", data, model)
        assert result.code == 0, result


def test_going_on_from_a_position_of_one_process(folder):
    for ranks, data, model in [(2, 1, 1), (4, 2, 2)]:
        result = mpirun(ranks, "resumed", data, model)
        assert result.code == 0, result


def test_data_ranks_do_not_run_away(folder):
    """After one batch, ranks hold four batches each, room for a few more, and some chunks: hundreds of examples."""
    result = mpirun(3, "pressure", 2, 1)
    assert result.code == 0, result
    read = [int(n) for n in re.findall(r"read (\d+)", result.out)]
    assert len(read) == 2 and sum(read) < 6000, result.out


def test_a_step_does_not_wait_for_data_ranks_that_keep_up(folder):
    result = mpirun(2, "keep_up", 1, 1)
    assert result.code == 0, result
    waited = float(re.search(r"waited ([\d.]+) s", result.out).group(1))
    assert waited < 0.25, f"{waited} s in 50 steps of 20 ms"


def test_an_error_in_the_data_ends_the_run_with_its_message(folder):
    result = mpirun(4, "bad", 2, 1)
    assert result.code == 3 and "numbers.tsv:701" in result.err, result


def test_a_slow_or_stopped_data_rank_is_named(folder):
    for mode in ("slow", "stopped"):
        result = mpirun(3, mode, 2, 1, 4)
        assert result.code == 6, result
        assert re.search(r"waiting for data from rank 2 \(\S+\): 1 s", result.err), result.err
        assert re.search(r"data rank 2 on \S+ has sent nothing for 4 s", result.err), result.err
        assert result.seconds < 30, result.seconds


def test_training_ranks_share_the_work_without_data_ranks(folder):
    for ranks in (2, 4):
        result = mpirun(ranks, "peers", 0, 1)
        assert result.code == 0, result
        read = [int(n) for n in re.findall(r"read (\d+)", result.out)]
        assert len(read) == ranks and max(read) < 1.5 * sum(read) / ranks, read
    result = mpirun(4, "stopped", 0, 1, 4)
    assert result.code == 6 and re.search(r"rank 3 \(\S+\) has sent nothing of its share", result.err), result
    assert result.seconds < 30, result.seconds


def test_ranks_that_share_the_work_hold_no_more_than_a_number_of_bytes(folder):
    """An example of 40 KB, 2 ranks of 32 threads, which would be busy with 128 chunks of 128 examples: 64 MB are 13."""
    result = mpirun(2, "ahead", 0, 1)
    assert result.code == 0, result
    read = [int(n) for n in re.findall(r"read (\d+)", result.out)]
    assert len(read) == 2 and sum(read) < 6000, read


def test_a_dead_data_rank_ends_the_run(folder):
    result = mpirun(3, "dead", 2, 1, 4)
    assert result.code not in (0, 75) and "rank 2" in result.err, result
    assert result.seconds < 30, result.seconds


e2e.run(globals())
