"""The sampler on the real kernel: a busy process is seen where it is, under its name, through its execs."""

import gc
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.collect.perf.cgroup_life import CgroupLife
from tests.parts import missing

from exhume.collect.perf.source import PerfSource
from exhume.collect.perf.tracepoints import find_tracefs, load_tracepoint
from exhume.collect.sources.kmsg import KernelLogClock
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.procfs.host import Host

pytestmark = [pytest.mark.root, pytest.mark.alone]

PATIENCE_S = 120.0
BUSY = "while True: pass"
# Busy, then another program of the same process, begun by a thread that is not the first.
THREAD_EXECS = """
import os, sys, threading, time
def run():
    while time.thread_time() < 0.4: pass
    os.execv(sys.argv[1], [sys.argv[1], "-c", "while True: pass"])
threading.Thread(target=run).start()
time.sleep(60)
"""


@contextmanager
def pinned(cpu: int, *command: str):
    """A process on one core."""
    with subprocess.Popen(command, preexec_fn=lambda: os.sched_setaffinity(0, {cpu})) as process:  # noqa: PLW1509
        try:
            yield process
        finally:
            process.kill()


class RunningSampler:
    """A sampler and everything that it gave."""

    def __init__(self, rate_hz: int) -> None:
        try:
            self.sampler = PerfSource(Host(), rate_hz)
        except SourceUnavailable as error:
            missing(f"perf events ({error})")
        self.tables: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self.sampler.read(Tick(-1, self._start, self._start, 0))

    def read(self) -> None:
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        for table, columns in self.sampler.read(Tick(0, self._start, now, 0)).items():
            rows = zip(*(columns[name] for name in columns), strict=True)
            self.tables[table] += [dict(zip(columns, row, strict=True)) for row in rows]
        self._start = now

    def read_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(0.5)
            self.read()

    def read_until(self, what: str, happened: Callable[[], object]) -> None:
        """On a machine that is busy otherwise it takes longer to happen."""
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < deadline, f"did not happen within {PATIENCE_S:.0f} s: {what}"
            time.sleep(0.25)
            self.read()

    def of(self, pid: int, table: str = "samples") -> list[dict[str, Any]]:
        return [row for row in self.tables[table] if row["pid"] == pid]

    def restarts(self) -> dict[str, dict[str, Any]]:
        return {row["comm"]: row for row in self.tables["events"] if row["kind"] == "restart"}

    def function_names(self, stack: int) -> list[str]:
        names = {row["frame"]: row["name"] for row in self.tables["frames"]}
        return next([names[frame] for frame in row["frames"]] for row in self.tables["stacks"] if row["stack"] == stack)


def wait_for_its_program(pid: int, comm: str, word: str) -> None:
    """The process that started it is reported its exec before it has its name and its words."""
    deadline = time.monotonic() + PATIENCE_S
    home = Path(f"/proc/{pid}")
    while (home / "comm").read_text().strip() != comm or word not in (home / "cmdline").read_text():
        assert time.monotonic() < deadline, (home / "comm").read_text()
        time.sleep(0.01)


def since(moment: int, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["time_ms"] * 1_000_000 >= moment]


@pytest.fixture
def running():
    made = RunningSampler(497)
    yield made
    made.sampler.close()


def test_a_busy_process_is_seen_on_its_core_under_its_name(running) -> None:
    cpu = max(os.sched_getaffinity(0))
    began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    with pinned(cpu, sys.executable, "-c", BUSY) as process:
        comm = Path(sys.executable).name[:15]
        wait_for_its_program(process.pid, comm, BUSY)
        settled = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        running.read_until("it is seen", lambda: len(since(settled, running.of(process.pid))) > 200)
    ended = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    samples = running.of(process.pid)
    assert {(row["cpu"], row["tid"], row["comm"]) for row in since(settled, samples)} == {(cpu, process.pid, comm)}
    assert all(began <= (row["time_ms"] + 1) * 1_000_000 and row["time_ms"] * 1_000_000 <= ended for row in samples)
    assert {row["weight_us"] for row in samples} == {1_000_000 // 497}
    described = running.of(process.pid, "processes")[-1]
    assert described["comm"] == comm
    assert described["cmdline"] == f"{sys.executable} -c {BUSY}"
    assert described["ppid"] == os.getpid()
    assert described["cgroup"]
    deepest = max((running.function_names(row["stack"]) for row in samples), key=len)
    assert len(deepest) > 2
    reported = {row["stack"] for row in running.tables["stacks"]}
    assert {row["stack"] for row in running.tables["samples"]} <= reported
    running.sampler.end()  # what waits for names is written by the last read
    running.read()
    counted = sum(row["busy"] for row in running.tables["sampling"])
    assert counted == len(running.tables["samples"])
    assert {row["cpu"] for row in running.tables["sampling"]} == os.sched_getaffinity(0)


def test_an_exec_by_a_thread_changes_name_program_and_command_line(running, tmp_path) -> None:
    renamed = tmp_path / "another-name"
    renamed.symlink_to(sys.executable)
    cpu = max(os.sched_getaffinity(0))
    with pinned(cpu, sys.executable, "-c", THREAD_EXECS, str(renamed)) as process:
        before = Path(sys.executable).name[:15]
        running.read_until(
            "it is seen under its other name",
            lambda: sum(row["comm"] == "another-name" for row in running.of(process.pid)) > 100,
        )
        assert Path(f"/proc/{process.pid}/comm").read_text().strip() == "another-name"
    names = [row["comm"] for row in sorted(running.of(process.pid), key=lambda row: row["time_ms"])]
    changes = [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]
    assert changes[-1] == "another-name"
    assert before in changes[:-1]
    assert changes.count("another-name") == 1
    rows = running.of(process.pid, "processes")
    assert rows[-1]["cmdline"] == f"{renamed} -c {BUSY}"
    assert rows[-1]["start"] is not None


def test_the_life_of_a_cgroup_through_perf(running) -> None:
    if not running.sampler.traces_cgroups:
        missing("tracepoints of cgroups")
    with CgroupLife() as life:

        def read():
            running.tables.pop("cgroup_events", None)
            running.read()
            rows = running.tables["cgroup_events"]
            return {name: [row[name] for row in rows] for name in rows[0]} if rows else None

        life.check(life.collect(read))


def test_this_kernels_tracepoints_have_the_fields_that_are_read() -> None:
    tracefs = find_tracefs(Host())
    if tracefs is None:
        missing("tracefs")
    for name in ("cgroup_mkdir", "cgroup_rmdir", "cgroup_release"):
        tracepoint = load_tracepoint(tracefs, name)
        assert tracepoint is not None
        assert tracepoint.id > 0
        assert {"root", "id", "level", "path"} <= tracepoint.fields.keys()
        assert tracepoint.fields["path"].text


def test_the_kernel_logs_clock_is_measured_to_the_millisecond() -> None:
    clock = KernelLogClock()
    assert clock.measure()
    assert clock.measured
    text = f"exhume test of the clock {os.getpid()}"
    try:
        log = os.open("/dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
    except OSError as error:
        missing(f"/dev/kmsg to write to ({error.strerror})")
    try:
        os.lseek(log, 0, os.SEEK_END)
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        os.write(log, f"{text}\n".encode())
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        stamp_us = None
        while stamp_us is None:
            line = os.read(log, 8192).decode()
            if text in line:
                stamp_us = int(re.match(r"\d+,\d+,(\d+),", line)[1])
    finally:
        os.close(log)
    stamp = stamp_us * 1000 - clock.offset_ns()
    assert before - 1_000_000 <= stamp <= after + 1_000_000


def test_measuring_the_clock_leaves_nothing_open() -> None:
    clock = KernelLogClock()
    clock.measure()
    # What tests before left to be tidied up is not to go meanwhile.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    name = Path("/proc/thread-self/comm").read_text()
    offsets = []
    for _ in range(5):
        assert clock.measure()
        offsets.append(clock.offset_ns())
    assert max(offsets) - min(offsets) < NANOS // 1000
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert Path("/proc/thread-self/comm").read_text() == name


def test_a_closed_sampler_leaves_nothing_open() -> None:
    find_tracefs(Host())
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    made = RunningSampler(97)
    made.read()
    made.sampler.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_program_that_fails_again_and_again_is_reported_and_one_that_ends_well_is_not(
    running, tmp_path: Path
) -> None:
    for name, code in (("fails-often", 3), ("ends-well", 0)):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\nexit {code}\n")
        script.chmod(0o755)
    loop = f"while :; do {tmp_path}/fails-often; {tmp_path}/ends-well; sleep 0.15; done"
    with pinned(min(os.sched_getaffinity(0)), "sh", "-c", loop) as process:
        running.read_until("it is reported", lambda: "fails-often" in running.restarts())
        # Time in which the other one would be reported, too.
        running.read_for(1.0)
    reported = running.restarts()
    row = reported["fails-often"]
    assert row["value"] >= 3
    assert f"({process.pid})" in row["text"]
    if "code" in row["text"]:
        # Where the kernel reports exit codes.
        assert "with code 3" in row["text"]
        assert "ends-well" not in reported
    # The process that starts it is described, though it did next to nothing.
    assert running.of(process.pid, "processes")


def test_another_rate_is_taken_at_once(running) -> None:
    running.read_for(0.5)
    # The first read loads symbols, which takes a while in which samples are taken.
    running.read()
    running.sampler.set_rate(97)
    began = time.monotonic()
    running.read()
    changed = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    running.tables.clear()
    running.read_for(1.0)
    taken = sum(row["busy"] + row["idle"] for row in running.tables["sampling"]) / len(os.sched_getaffinity(0))
    assert taken < 200 * (time.monotonic() - began)
    # Samples that waited for their names keep the weight of the rate at which they were taken.
    assert {row["weight_us"] for row in since(changed, running.tables["samples"])} <= {1_000_000 // 97}
