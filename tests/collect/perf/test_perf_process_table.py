"""The processes that were sampled: reported once a segment, again after an exec, and never under another's name."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exhume.collect.containers.names import PodNames
from exhume.collect.perf import process_table as processbook
from exhume.collect.perf.process_table import ProcessRows, Scheduling, keepers, scheduling_of
from exhume.collect.symbols.owners import Owners
from exhume.procfs.host import Host

POD, CONTAINER = "0f1e2d3c-0000-4000-8000-0123456789ab", "c0" * 32


class Reader:
    """In place of /proc."""

    def __init__(self) -> None:
        self.known: dict[int, dict[str, Any]] = {}
        self.asked: list[int] = []

    def lives(self, pid: int, comm: str, **more: Any) -> None:
        self.known[pid] = {"pid": pid, "comm": comm, "start": 5, "cmdline": f"/bin/{comm}", **more}

    def describe(self, pid: int) -> dict[str, Any]:
        self.asked.append(pid)
        return dict(self.known.get(pid, {"pid": pid}))


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def logs(tmp_path) -> Path:
    """In place of /var/log, on a node with one pod."""
    (tmp_path / f"var/log/pods/shop_cart-0_{POD}").mkdir(parents=True)
    (tmp_path / "var/log/containers").mkdir()
    return tmp_path / "var/log"


@pytest.fixture
def book(reader, logs, tmp_path) -> ProcessRows:
    host = Host(proc=tmp_path / "proc", logs=logs)
    return ProcessRows(reader, PodNames(host), Owners(host))


def lives_in(proc: Path, pid: int, cgroup: str, uid: int = 1000) -> None:
    """A process of a fake /proc, as far as its owner goes."""
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (proc / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")


def test_many_new_processes_of_one_cgroup_leave_room_for_those_of_another(book, reader, tmp_path) -> None:
    lives_in(tmp_path / "proc", 1, "/attack.service")
    lives_in(tmp_path / "proc", 2, "/victim.service")
    crowd = [(pid, 1, "bomb") for pid in range(1000, 2000)]
    few = [(pid, 2, "web") for pid in range(3000, 3010)]
    for pid, _, comm in [*crowd, *few]:
        reader.lives(pid, comm)
    rows = reported(book, *crowd, *few)
    assert sum(row["comm"] == "web" for row in rows) == len(few), "also those that come last"
    assert len(rows) == processbook.DESCRIBED_PER_TICK
    ((owner, count),) = book.take_deferred()
    assert (owner.cgroup, owner.uid, count) == ("/attack.service", 1000, 1000 - len(rows) + len(few))
    assert book.take_deferred() == []


def reported(
    book: ProcessRows, *seen: tuple[int, int | None, str], gone: set[int] | None = None
) -> list[dict[str, Any]]:
    columns = book.rows(1000, seen, gone or set())
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] if columns else []


def test_each_is_reported_once_a_segment(book, reader) -> None:
    reader.lives(10, "nginx")
    (row,) = reported(book, (10, 1, "nginx"))
    assert (row["comm"], row["cmdline"], row["time"]) == ("nginx", "/bin/nginx", 1000)
    assert reported(book, (10, 1, "nginx")) == []
    book.begin_segment()
    assert [row["comm"] for row in reported(book, (10, 1, "nginx"))] == ["nginx"]
    assert reader.asked == [10], "what is known is not asked again"


def test_another_program_is_reported_again(book, reader) -> None:
    reader.lives(10, "sh")
    reported(book, (10, 1, "sh"))
    reader.lives(10, "server")
    book.changed([10, 99])
    assert [row["comm"] for row in reported(book, (10, 1, "server"))] == ["server"]


def test_a_number_that_was_given_again_is_not_the_old_process(book, reader) -> None:
    """A fork without an exec: only the fork itself reports that it is another."""
    reader.lives(10, "old", cgroup="/old")
    reported(book, (10, 1, "old"))
    book.changed([10])
    book.begin_segment()
    (row,) = reported(book, (10, 7, "young"), gone={10})
    assert (row["comm"], row["cmdline"], row["cgroup"], row["ppid"]) == ("young", None, None, 7)


def test_what_is_gone_inherits_the_place_of_its_parent(book, reader) -> None:
    reader.lives(7, "kubelet", cgroup="/kubelet", container="c", pod="p", runtime="docker")
    reported(book, (7, 1, "kubelet"))
    (row,) = reported(book, (10, 7, "true"), gone={10})
    assert (row["comm"], row["ppid"], row["cgroup"], row["start"]) == ("true", 7, "/kubelet", None)
    assert (row["container"], row["pod"], row["runtime"]) == ("c", "p", "docker")
    assert reader.asked == [7], "nothing is read about what has ended"


def test_a_process_that_ends_during_a_read_keeps_its_recorded_name(book) -> None:
    (row,) = reported(book, (10, None, "true"))
    assert (row["comm"], row["ppid"], row["cmdline"]) == ("true", None, None)


def test_after_a_loss_every_process_is_read_again(book, reader) -> None:
    reader.lives(10, "old")
    reported(book, (10, 1, "old"))
    reader.lives(10, "new")
    book.forget()
    assert [row["comm"] for row in reported(book, (10, 1, "new"))] == ["new"]


def test_a_storm_is_described_a_tick_at_a_time(book, reader, monkeypatch) -> None:
    monkeypatch.setattr(processbook, "DESCRIBED_PER_TICK", 3)
    for pid in range(10, 15):
        reader.lives(pid, f"p{pid}")
    seen = [(pid, 1, f"p{pid}") for pid in range(10, 15)]
    assert [row["pid"] for row in reported(book, *seen)] == [10, 11, 12]
    assert [row["pid"] for row in reported(book, *seen)] == [13, 14]


def test_what_is_kept_is_bounded(book, reader, monkeypatch) -> None:
    monkeypatch.setattr(processbook, "KNOWN", 5)
    for pid in range(1, 30):
        reader.lives(pid, "p")
        reported(book, (pid, 1, "p"))
        assert len(book._known) <= 6


def test_a_process_that_turned_real_time_is_reported_again(book, reader) -> None:
    reader.lives(10, "mixer", policy=0, rt_priority=0)
    seen = [(10, 1, "mixer")]
    book.rows(1000, seen, set())
    ordinary, urgent = Scheduling(0, 0), Scheduling(1, 50)
    assert book.rows(2000, seen, set(), {10: ordinary}) is None
    columns = book.rows(3000, seen, set(), {10: urgent})
    assert columns is not None
    assert (columns["time"], columns["policy"], columns["rt_priority"]) == ([3000], [1], [50])
    assert book.rows(4000, seen, set(), {10: urgent}) is None


def test_policies_are_read_only_for_threads_that_hold_a_core() -> None:
    asked = []

    def ask(tid: int) -> Scheduling:
        asked.append(tid)
        return Scheduling(2, 7) if tid == 12 else Scheduling(0, 0)

    tids = np.array([11] * 90 + [12] * 60 + [13] * 80 + [30] * 20, np.int32)
    pids = np.array([10] * 230 + [30] * 20, np.int32)
    assert keepers(pids, tids, 97, ask) == {10: Scheduling(2, 7)}
    assert asked == [11, 12, 13]


def test_how_this_thread_is_scheduled() -> None:
    assert scheduling_of(os.getpid()) == Scheduling(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority)
    assert scheduling_of(2**30) is None


def test_a_pod_is_reported_by_its_name_and_a_name_that_comes_late_with_the_next_segment(book, reader, logs) -> None:
    reader.lives(10, "cart", container=CONTAINER, pod=POD)
    seen = [(10, 1, "cart")]
    first = book.rows(1000, seen, set())
    assert first is not None
    assert (first["pod"], first["pod_name"], first["container_name"]) == ([POD], ["shop/cart-0"], [None])
    (logs / f"containers/cart-0_shop_web-{CONTAINER}.log").touch()
    assert book.rows(2000, seen, set()) is None, "it is reported once a segment, with or without all of its names"
    book.begin_segment()
    second = book.rows(3000, seen, set())
    assert second is not None
    assert (second["time"], second["container_name"]) == ([3000], ["shop/cart-0/web"]), "a name of now is a row of now"
    assert (second["container"], second["pod_name"]) == ([CONTAINER], ["shop/cart-0"])
    book.begin_segment()
    third = book.rows(4000, seen, set())
    assert third is not None and third["time"] == [3000]
    inherited = book.rows(4000, [(11, 10, "true")], {11})
    assert inherited is not None
    assert (inherited["pod_name"], inherited["container_name"]) == (["shop/cart-0"], ["shop/cart-0/web"])
