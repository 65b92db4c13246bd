"""Per-core kernel threads."""

import os

import pytest
from tests.collect.fake_node import FakeNode, tick

from exhume.collect.sources.threads import ThreadSource
from exhume.model.errors import SourceUnavailable
from exhume.procfs.host import Host


def a_thread(  # noqa: PLR0917
    node: FakeNode, tid: int, comm: str, run: int, wait: int, slices: int = 5
) -> None:
    node.proc(f"{tid}/comm", f"{comm}\n")
    node.proc(f"{tid}/schedstat", f"{run} {wait} {slices}\n")


def rows_of(rows) -> list[tuple]:
    columns = rows.get("threads")
    return list(zip(*columns.values(), strict=True)) if columns else []


@pytest.fixture
def threads(node: FakeNode) -> FakeNode:
    a_thread(node, 10, "ksoftirqd/0", 1000, 50)
    a_thread(node, 20, "ksoftirqd/39", 1000, 50)
    a_thread(node, 21, "migration/39", 0, 0)
    a_thread(node, 22, "kworker/39:1", 0, 0)
    a_thread(node, 23, "rcuc/39", 7, 7)
    a_thread(node, 24, "ksoftirqd/x", 7, 7)
    a_thread(node, 4242, "bash", 7, 7)
    node.proc("2/task/2/children", "10 20 21 22 23 24 ")
    return node


def test_rows_for_those_that_ran_or_waited(threads: FakeNode) -> None:
    source = ThreadSource(threads.host)
    assert source.missing == ()
    assert source.read(tick(0)) == {}
    a_thread(threads, 20, "ksoftirqd/39", 1500, 6_596_000_050, slices=8)
    a_thread(threads, 22, "kworker/39:1", 9, 9)
    a_thread(threads, 23, "rcuc/39", 8, 7)
    assert rows_of(source.read(tick(1))) == [
        (tick(1).start, 20, "ksoftirqd/39", 39, 500, 6_596_000_000, 3),
        (tick(1).start, 23, "rcuc/39", 39, 1, 0, 0),
    ]
    assert source.read(tick(2)) == {}
    source.close()


def test_counters_that_go_backwards(threads: FakeNode) -> None:
    source = ThreadSource(threads.host)
    source.read(tick(0))
    a_thread(threads, 10, "ksoftirqd/0", 500, 20)
    assert source.read(tick(1)) == {}
    a_thread(threads, 10, "ksoftirqd/0", 600, 30)
    assert rows_of(source.read(tick(2)))[0][4:] == (100, 10, 0)


def test_kernels_without_a_list_of_children(threads: FakeNode) -> None:
    (threads.host.proc / "2/task/2/children").unlink()
    source = ThreadSource(threads.host)
    source.read(tick(0))
    a_thread(threads, 10, "ksoftirqd/0", 1001, 50)
    assert rows_of(source.read(tick(1)))[0][1:3] == (10, "ksoftirqd/0")


def test_threads_of_a_new_core_are_found(threads: FakeNode) -> None:
    source = ThreadSource(threads.host)
    source.read(tick(0))
    a_thread(threads, 30, "ksoftirqd/40", 1, 1)
    threads.proc("2/task/2/children", "10 20 21 22 23 24 30 ")
    source.read(tick(61))
    a_thread(threads, 30, "ksoftirqd/40", 5, 1)
    assert rows_of(source.read(tick(62)))[0][1:4] == (30, "ksoftirqd/40", 40)


def test_waits_that_are_not_counted_name_the_sysctl(threads: FakeNode) -> None:
    for tid in (10, 20, 21, 23):
        comm = (threads.host.proc / f"{tid}/comm").read_text().strip()
        a_thread(threads, tid, comm, 0, 0)
    source = ThreadSource(threads.host)
    assert "kernel.task_delayacct=1" in source.missing[0].remedy
    # It was switched on meanwhile.
    a_thread(threads, 10, "ksoftirqd/0", 5, 5)
    source.read(tick(0))
    assert source.missing == ()


def test_none_to_be_seen(node: FakeNode) -> None:
    node.proc("4242/comm", "bash\n")
    with pytest.raises(SourceUnavailable, match="hostPID"):
        ThreadSource(node.host)


@pytest.mark.root
def test_this_machine() -> None:
    source = ThreadSource(Host())
    names = {thread.comm for thread in source._threads.values()}
    assert {f"ksoftirqd/{cpu}" for cpu in os.sched_getaffinity(0)} <= names
    source.close()
    assert not source._threads
