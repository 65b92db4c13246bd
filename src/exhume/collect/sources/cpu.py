"""Every core, every second: time shares from /proc/stat, run-queue wait from /proc/schedstat, network softirqs from
/proc/softirqs.

A core that was offline at either end of the tick has no row. `user` and `nice` exclude the guest time that the kernel
adds to them (kernel/sched/cputime.c, account_guest_time), so the nine shares add up to 1000.
"""

import os

import numpy as np
from numpy.typing import NDArray

from exhume.collect.source import NOTHING, StatFile, TickRows
from exhume.model.clock import MILLIS, Tick
from exhume.model.facts import MissingSource
from exhume.procfs.counters import steps_of_u32
from exhume.procfs.host import Host, ProcFile
from exhume.procfs.interrupts import parse_header, parse_softirq
from exhume.procfs.schedstat import RunQueue, parse_schedstat
from exhume.procfs.stat import CPU_STATES, parse_cpu_times

Counts = NDArray[np.int64]

# Niced guest time is added to guest time.
_STATES = CPU_STATES[:-1]
_USER, _NICE, _IDLE, _IOWAIT, _GUEST, _GUEST_NICE = (
    CPU_STATES.index(state) for state in ("user", "nice", "idle", "iowait", "guest", "guest_nice")
)


class CpuSource:
    """Rows of the cpu table."""

    name = "cpu"

    def __init__(self, host: Host, stat: StatFile | None = None) -> None:
        self._stat = stat or StatFile(host)
        self._stat.require(self.name)
        self._hertz = os.sysconf("SC_CLK_TCK")
        self._before: tuple[Counts, Counts] | None = None
        self._softirqs = SoftirqCounts(host)
        self._run_queues = RunQueueCounts(host)
        self.missing = self._run_queues.missing

    def read(self, tick: Tick) -> TickRows:
        cpus, counts = parse_cpu_times(self._stat.read(tick))
        received, sent = self._softirqs.read(cpus)
        waited, switched = self._run_queues.read(cpus)
        before, self._before = self._before, (cpus, counts)
        if before is None:
            return NOTHING
        deltas, present = _since(before, cpus, counts)
        shares, accounted = core_shares(deltas, round(tick.seconds * self._hertz))
        # No time was accounted: the core was offline, so it gets no row.
        present &= accounted
        if not present.any():
            return NOTHING
        rows: dict[str, object] = {
            "time": np.full(int(present.sum()), tick.start, np.int64),
            "cpu": cpus[present].astype(np.uint16),
            "span_ms": np.full(int(present.sum()), tick.nanos // MILLIS, np.uint32),
            **{state: shares[present, index] for index, state in enumerate(_STATES)},
        }
        for column, values in (("wait_ns", waited), ("switches", switched), ("net_rx", received), ("net_tx", sent)):
            if values is not None:
                there = values[present]
                # A negative count is unknown.
                rows[column] = there if (there >= 0).all() else [n if n >= 0 else None for n in there.tolist()]
        return {"cpu": rows}

    def close(self) -> None:
        self._stat.close()
        self._softirqs.close()
        self._run_queues.close()


def core_shares(deltas: Counts, elapsed: int) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
    """Shares in permille (a column for each state), and which cores had any time accounted.

    `iowait` and `idle` can go backwards, and jump when a core comes back, since they have another source while it is
    online (fs/proc/stat.c, get_idle_time and get_iowait_time): neither may turn into a share. `elapsed` is the length
    of the tick in clock ticks.
    """
    deltas = np.maximum(deltas, 0)
    deltas[:, _USER] = np.maximum(deltas[:, _USER] - deltas[:, _GUEST], 0)
    deltas[:, _NICE] = np.maximum(deltas[:, _NICE] - deltas[:, _GUEST_NICE], 0)
    deltas[:, _GUEST] += deltas[:, _GUEST_NICE]
    states = deltas[:, : len(_STATES)]
    total = states.sum(axis=1)
    jumped = total > 2 * elapsed + 10
    if jumped.any():
        busy = total - states[:, _IDLE] - states[:, _IOWAIT]
        states[jumped, _IOWAIT] = 0
        states[jumped, _IDLE] = np.maximum(elapsed - busy[jumped], 0)
        total = states.sum(axis=1)
    divisor = np.maximum(total, 1)[:, None]
    return ((states * 1000 + divisor // 2) // divisor).astype(np.uint16), total > 0


def _since(before: tuple[Counts, Counts], cpus: Counts, counts: Counts) -> tuple[Counts, NDArray[np.bool_]]:
    """How much each core's counters advanced, and which of the cores were present before."""
    old_cpus, old_counts = before
    if np.array_equal(old_cpus, cpus):
        return counts - old_counts, np.ones(len(cpus), np.bool_)
    row = {int(cpu): index for index, cpu in enumerate(old_cpus)}
    rows = np.array([row.get(int(cpu), -1) for cpu in cpus], np.int64)
    present = rows >= 0
    deltas = np.zeros_like(counts)
    deltas[present] = counts[present] - old_counts[rows[present]]
    return deltas, present


class SoftirqCounts:
    """Network softirqs of each core since the last read; -1 where unknown."""

    def __init__(self, host: Host) -> None:
        self._file = ProcFile(host.proc / "softirqs")
        self._header = b""
        self._column: dict[int, int] = {}
        self._before: list[Counts | None] = [None, None]

    def read(self, cpus: Counts) -> tuple[Counts | None, Counts | None]:
        content = self._file.read_or_none()
        if content is None:
            self._before = [None, None]
            return None, None
        header = content[: content.find(b"\n")]
        if header != self._header:
            self._header, self._before = header, [None, None]
            self._column = {cpu: index for index, cpu in enumerate(parse_header(header))}
        columns = np.array([self._column.get(cpu, -1) for cpu in cpus.tolist()], np.int64)
        return self._delta(content, b"NET_RX", 0, columns), self._delta(content, b"NET_TX", 1, columns)

    def _delta(self, content: bytes, name: bytes, slot: int, columns: Counts) -> Counts | None:
        now = parse_softirq(content, name)
        before, self._before[slot] = self._before[slot], now
        if now is None or before is None or len(before) != len(now):
            return None
        delta = steps_of_u32(now, before)
        return np.where((columns >= 0) & (columns < len(delta)), delta[columns], -1)

    def close(self) -> None:
        self._file.close()


class RunQueueCounts:
    """How long tasks waited on each core's run queue in nanoseconds, and task switches, since the last read."""

    def __init__(self, host: Host) -> None:
        self._file = ProcFile(host.proc / "schedstat")
        self._before: dict[int, RunQueue] = {}
        self._there = self._file.read_or_none() is not None
        reason = "there is no /proc/schedstat, which counts it for each core"
        missing = MissingSource("run-queue wait", reason, "run a kernel built with CONFIG_SCHEDSTATS")
        self.missing = () if self._there else (missing,)

    def read(self, cpus: Counts) -> tuple[Counts | None, Counts | None]:
        content = self._file.read_or_none() if self._there else None
        if content is None:
            return None, None
        before, now = self._before, parse_schedstat(content)
        self._before = now
        if not before:
            return None, None
        waited = np.full(len(cpus), -1, np.int64)
        switched = np.full(len(cpus), -1, np.int64)
        for index, cpu in enumerate(cpus.tolist()):
            if cpu in now and cpu in before:
                # Negative after a core came back with reset counters; then unknown.
                waited[index] = now[cpu].waited_ns - before[cpu].waited_ns
                switched[index] = now[cpu].slices - before[cpu].slices
        return waited, switched

    def close(self) -> None:
        self._file.close()
