"""What is kept of processes that come and go by the thousand: little, and not for long."""

import time as clock

import pytest
from tests.collect.perf.fake_processes import FakeProcesses
from tests.collect.perf.record_builder import comm, exits, fork, mmap2

from exhume.collect.perf.tasks import NAMES_KEPT, SAMPLED_KEPT, UNSAMPLED_KEPT


@pytest.fixture
def node(tmp_path) -> FakeProcesses:
    return FakeProcesses(tmp_path)


def storm(first: int, count: int, *, ends: bool = True) -> bytes:
    """Processes that fork from 10, load a program and end, one after the other."""
    records = []
    for pid in range(first, first + count):
        time = pid * 1000
        records += [fork(pid, 10, time), comm(pid, "true", time + 100, execs=True)]
        records += [mmap2(pid, 0x1000 * n, 0x1000, f"/lib/{n}.so", time + 100 + n) for n in range(1, 6)]
        if ends:
            records.append(exits(pid, time + 200))
    return b"".join(records)


@pytest.mark.alone
def test_five_thousand_forks_in_a_tick_are_quick(node) -> None:
    node.lives(10, "make", "/bin/make")
    records = storm(1000, 5000)
    sampled = tuple(range(1000, 6000, 50))
    spent = [float("inf")]
    # About 15 ms here; ten times that would still be a bad sign.
    while len(spent) <= 10 and spent[-1] >= 0.15:
        began = clock.thread_time()
        node.tick(records, sampled=(10, *sampled))
        programs = {node.program(pid, pid * 1000 + 150) for pid in sampled}
        node.over()
        spent.append(clock.thread_time() - began)
        assert programs == {"/lib/1.so"}
    assert spent[-1] < 0.15, spent


def test_nothing_of_ended_processes_stays(node) -> None:
    """Also of those that were never sampled and ended in another tick than the one that they began in."""
    node.lives(10, "make", "/bin/make")
    for first in range(1000, 3000, 200):
        node.tick(storm(first, 200, ends=False))
        node.over()
        node.tick(b"".join(exits(pid, 10**9 + pid) for pid in range(first, first + 200)))
        node.over()
    assert set(node.tasks._names) == {10}
    assert set(node.tasks._images) <= {10}
    assert not node.tasks._parents


def test_what_is_kept_of_the_living_is_bounded(node) -> None:
    node.lives(10, "make", "/bin/make")
    for first in range(1000, 1000 + 3 * UNSAMPLED_KEPT, 128):
        node.tick(storm(first, 128, ends=False))
        node.over()
        assert len(node.tasks._images) <= SAMPLED_KEPT + UNSAMPLED_KEPT + 1
    node.tick(b"".join(fork(10, 10, n, tid=100_000 + n) for n in range(1, NAMES_KEPT + 2)))
    node.over()
    assert len(node.tasks._names) <= NAMES_KEPT


def test_records_are_only_looked_at_where_they_matter(node) -> None:
    """A storm of processes that were never sampled leaves nothing to be read one by one."""
    node.lives(10, "make", "/bin/make")
    taken = []
    node.tasks._take = lambda *record: taken.append(record)
    node.tick(storm(1000, 500))
    assert taken == []
