"""A process that comes and goes between two ticks, never sampled: it is named when it made or removed a cgroup."""

import pytest
from tests.collect.perf.fake_processes import FakeProcesses
from tests.collect.perf.record_builder import cgroup_raw, comm, exits, fork, mmap2, tracepoint

MKDIR = cgroup_raw(500, 3, 2, 4711, "/docker/leak")


@pytest.fixture
def node(tmp_path) -> FakeProcesses:
    made = FakeProcesses(tmp_path)
    made.lives(10, "containerd-shim", "/bin/containerd-shim")
    return made


def runc(pid: int, time: int) -> bytes:
    """Forked, another program, and gone, within a tick."""
    begins = fork(pid, 10, time) + comm(pid, "runc", time + 10, execs=True)
    return begins + mmap2(pid, 0x1000, 0x1000, "/bin/runc", time + 11) + exits(pid, time + 50)


def test_a_maker_of_cgroups_is_named_when_nothing_sampled_it(node) -> None:
    # Tasks and tracepoints come in rings of their own.
    node.tick(runc(20, 100), tracepoint(MKDIR, 20, 130))
    assert node.name(20, 130) == "runc"
    assert node.tasks.parent(20) == 10


def test_it_has_the_name_of_the_moment(node) -> None:
    hit = tracepoint(MKDIR, 20, 105) + tracepoint(MKDIR, 20, 130)
    node.tick(runc(20, 100), hit)
    # Before its exec it still was a copy of its parent.
    assert [node.name(20, time) for time in (105, 130)] == ["containerd-shim", "runc"]


def test_a_pid_of_another_is_not_taken_for_it(node) -> None:
    hit = tracepoint(MKDIR, 20, 130)
    node.tick(runc(20, 100) + runc(21, 200), hit)
    assert node.name(20, 130) == "runc"
    # Nothing was recorded of the other, so nothing of it is kept.
    assert node.tasks.parent(21) is None


def test_it_is_forgotten_when_the_tick_is_over(node) -> None:
    node.tick(runc(20, 100), tracepoint(MKDIR, 20, 130))
    node.over()
    assert node.name(20, 1000) != "runc"
