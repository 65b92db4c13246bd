"""A tracing instance of our own: cgroups are followed, nothing else is disturbed, nothing stays behind."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from tests.collect.perf.cgroup_life import CgroupLife
from tests.parts import missing

from exhume.collect import source_set
from exhume.collect.perf import tracepoints as tracefs_instance
from exhume.collect.perf.tracepoints import find_tracefs
from exhume.collect.sources.cgroup_trace import CgroupTraceSource, parse_trace, remove_leftovers
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.facts import MissingSource
from exhume.procfs.host import Host

TRACE = b"""\
          python-15705   [000] d..1.  5699.585302: cgroup_mkdir: root=4 id=1016835 level=1 path=/a
 my - odd-name-1-77      [095] .....     0.000007: cgroup_rmdir: root=4 id=18446744073709551615 level=2 path=/a b/=c
           <...>-32097   [000] d..1.  5699.620054: cgroup_release: root=4 id=1016835 level=1 path=/a
CPU:3 [LOST 123 EVENTS]
           runc-9      (   8) [001] d..1.  12.000001: cgroup_mkdir: root=0 id=1 level=1 path=/grouped
           runc-9     [001]  13.000001: cgroup_mkdir: root=0 id=1 level=1 path=/without-flags
           runc-9     [001] d..1.  14.0: cgroup_rename: root=4 id=1 level=1 path=/a
           runc-9     [001] d..1.  14.000000: sched_switch: prev_comm=cgroup_mkdir: root=4
cgroup_mkdir: root=4 id=1 level=1 path=/half
"""


def test_the_text_of_a_trace() -> None:
    events, losses = parse_trace(TRACE)
    assert losses == [(3, 123)]
    assert [(event.op, event.path) for event in events] == [
        ("mkdir", "/a"),
        ("rmdir", "/a b/=c"),
        ("release", "/a"),
        ("mkdir", "/grouped"),
        ("mkdir", "/without-flags"),
    ]
    first, odd, nameless, grouped, _ = events
    assert (first.time, first.hierarchy, first.id, first.level) == (5699_585_302_000, 4, 1016835, 1)
    assert (first.comm, first.pid) == ("python", 15705)
    assert (odd.comm, odd.pid, odd.time, odd.id) == ("my - odd-name-1", 77, 7000, 2**64 - 1)
    assert (nameless.comm, nameless.pid) == (None, 32097)
    assert (grouped.comm, grouped.pid) == ("runc", 9)


class FakeTracefs:
    """A directory that looks like tracefs; the trace pipe is a pipe."""

    def __init__(self, root: Path) -> None:
        self.root = root / "tracing"
        self.instances = self.root / "instances"
        self.instances.mkdir(parents=True)

    def instance(self, number: int) -> Path:
        path = self.instances / f"exhume-{number}"
        path.mkdir()
        return path


@pytest.fixture
def tracefs(tmp_path) -> FakeTracefs:
    return FakeTracefs(tmp_path)


def test_instances_of_recorders_that_are_gone_are_removed_and_no_others(tracefs, tmp_path) -> None:
    host = Host(proc=tmp_path / "proc")
    (host.proc / "20").mkdir(parents=True)
    for number in (10, 20, os.getpid()):
        tracefs.instance(number)
    for name in ("trace-cmd", "exhume-", "exhume-old", "exhume-10-b", "exhume-²"):
        (tracefs.instances / name).mkdir()
    busy = tracefs.instance(30)
    (busy / "in-use").touch()
    remove_leftovers(tracefs.instances, host)
    left = {path.name for path in tracefs.instances.iterdir()}
    assert left == {"exhume-20", "exhume-30", "trace-cmd", "exhume-", "exhume-old", "exhume-10-b", "exhume-²"}
    remove_leftovers(tracefs.root / "nowhere", host)


def test_without_tracefs_it_is_unavailable(tmp_path) -> None:
    with pytest.raises(SourceUnavailable, match="tracefs can't be reached"):
        CgroupTraceSource(Host(proc=tmp_path, sys=tmp_path))


def test_where_no_instance_can_be_made_it_is_unavailable(tmp_path) -> None:
    with pytest.raises(SourceUnavailable, match="no tracing instance can be made"):
        CgroupTraceSource(Host(proc=tmp_path), tmp_path)


def test_an_instance_that_cannot_be_used_is_removed(tracefs, tmp_path, monkeypatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tracefs_instance.Path, "write_text", refused)
    with pytest.raises(SourceUnavailable, match="can't be used"):
        CgroupTraceSource(Host(proc=tmp_path), tracefs.root)
    assert list(tracefs.instances.iterdir()) == []


def test_the_recorder_takes_the_instance_where_perf_has_no_tracepoints(monkeypatch) -> None:
    class Instance:
        name = "cgroup-trace"
        missing = ()

        def __init__(self, host: Host) -> None:
            """As if it could be made."""

    def refused(*_: object, **__: object):
        raise SourceUnavailable("stacks", "perf_event_open was refused", "run as root")

    monkeypatch.setattr(source_set, "PerfSource", refused)
    monkeypatch.setattr(source_set, "CgroupTraceSource", Instance)
    sources = source_set.open_sources(Host(), 97, None)
    sources.others = [source for source in sources.others if source.close() is None]
    assert isinstance(sources.traced, Instance)
    assert sources.in_order()[0] is sources.traced
    assert "cgroup-churn" not in [source.name for source in sources.others]
    assert [missing.source for missing in sources.missing if missing.source.startswith("cgroup-")] == []


def test_without_either_the_numbers_of_directories_have_to_do(monkeypatch) -> None:
    def refused(*_: object, **__: object):
        raise SourceUnavailable("any", "refused", "run as root")

    monkeypatch.setattr(source_set, "PerfSource", refused)
    monkeypatch.setattr(source_set, "CgroupTraceSource", refused)
    sources = source_set.open_sources(Host(), 97, None)
    sources.close()
    assert sources.traced is None
    reported = [missing for missing in sources.missing if missing.source == "cgroup-events"]
    assert len(reported) == 1 and isinstance(reported[0], MissingSource)


@pytest.fixture
def source():
    if find_tracefs(Host()) is None:
        missing("tracefs")
    try:
        made = CgroupTraceSource(Host())
    except SourceUnavailable as error:
        missing(f"an instance of tracefs ({error})")
    yield made
    made.close()


def instance_names() -> list[str]:
    return [path.name for path in (find_tracefs(Host()) / "instances").iterdir()]


@pytest.mark.root
@pytest.mark.alone
def test_the_life_of_a_real_cgroup(source) -> None:
    assert source.read(Tick(-1, 5, 5, 0)) == {}
    with CgroupLife() as life:
        events = life.collect(lambda: source.read(Tick(0, 0, NANOS, 0)).get("cgroup_events"))
    life.check(events)


@pytest.mark.root
def test_nothing_stays_behind(source) -> None:
    name = f"exhume-{os.getpid()}"
    tracefs = find_tracefs(Host())
    assert name in instance_names()
    instance = tracefs / "instances" / name
    assert "[mono]" in (instance / "trace_clock").read_text()
    assert int((instance / "buffer_size_kb").read_text()) <= 512
    assert (tracefs / "events/cgroup/cgroup_mkdir/enable").read_text().strip() == "0", "only in the instance"
    remove_leftovers(tracefs / "instances", Host())
    assert name in instance_names(), "one that is in use refuses to be removed"
    source.close()
    assert name not in instance_names()


@pytest.mark.root
def test_what_a_killed_recorder_left_is_removed(source) -> None:
    source.close()
    leftover = find_tracefs(Host()) / "instances" / f"exhume-{2**22 + 7}"
    leftover.mkdir()
    (leftover / "events/cgroup/cgroup_mkdir/enable").write_text("1")
    try:
        again = CgroupTraceSource(Host())
        assert leftover.name not in instance_names()
        again.close()
    finally:
        with suppress(OSError):
            leftover.rmdir()
