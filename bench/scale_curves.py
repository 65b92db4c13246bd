"""How the recorder's cost grows: with cores, processes, cgroups, zombies, forks and samples.

What this machine can have is measured on it: forks, samples, processes. What it can't (192 cores, 20,000 threads, 5,000
cgroups) is put in front of the sources as trees of files in place of /proc and /sys; the time that a real kernel takes
to print them is then missing, and the section says so.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.high_rate import UNBOUNDED
from bench.load import crowd, load
from bench.processes import start_exhume, watch
from bench.report import QUIET, Row, Section
from exhume.collect.source import Source
from exhume.collect.sources.cgroups import CgroupSource
from exhume.collect.sources.cpu import CpuSource
from exhume.collect.sources.interrupts import InterruptSource
from exhume.collect.sources.node import NodeSource
from exhume.collect.sources.softnet import SoftnetSource
from exhume.collect.sources.threads import ThreadSource
from exhume.collect.sources.throttling import ThrottlingSource
from exhume.lab.score.plan import others_busy
from exhume.model.clock import NANOS, Tick
from exhume.procfs.host import Host

TITLE = "How the cost grows"
WARM_UP_S, WATCHED_S, QUICK_S = 8, 30, 10
# As many as have what is looked for once a minute.
TICKS, WARM_UP_TICKS = 120, 12
CORES = (2, 16, 48, 96, 192)
CGROUPS = (100, 500, 1000, 5000)
THREADS = (1000, 5000, 20_000)
ZOMBIES = (0, 1000, 20_000)
FORKS = (0.0, 100.0, 300.0, 900.0)
RATES = (97, 400, 1600, 4656)
PROCESSES = (0, 1000, 3000)
# A cost that grows by less than this part over the whole range does not grow.
_FLAT = 0.2


@dataclass(frozen=True, slots=True)
class Curve:
    """The cost in percent of one core at some sizes of one thing."""

    thing: str
    sizes: Sequence[float]
    percents: Sequence[float]
    how: str

    @property
    def fixed_and_slope(self) -> tuple[float, float]:
        """The straight line that fits best: at 0, and for one more."""
        slope, fixed = np.polyfit(self.sizes, self.percents, 1)
        return float(fixed), float(slope)

    @property
    def growth(self) -> str:
        """The name of the growth, by the exponent between the middle and the largest size."""
        first, last = self.percents[0], self.percents[-1]
        if last - first < _FLAT * max(first, 0.01):
            return f"does not grow with {self.thing}"
        middle = len(self.sizes) // 2
        rise = np.array([self.percents[middle] - first, last - first])
        reach = np.array([self.sizes[middle] - self.sizes[0], self.sizes[-1] - self.sizes[0]])
        if rise[0] <= 0:
            return f"grows with {self.thing} from {self.sizes[middle]:,.0f} on"
        exponent = float(np.diff(np.log(rise))[0] / np.diff(np.log(reach))[0])
        name = "linear" if 0.75 <= exponent <= 1.25 else "less than linear" if exponent < 0.75 else "more than linear"
        return f"{name} in {self.thing}: {1000 * self.fixed_and_slope[1]:.3f}% of a core for 1,000 more"

    def rows(self) -> Iterator[Row]:
        for size, percent in zip(self.sizes, self.percents, strict=True):
            last = size == self.sizes[-1]
            note = f"{self.growth} ({self.how})" if last else ""
            yield Row(f"{size:,.0f} {self.thing}", percent, "% of one core", note=note, digits=3)


def measure(work: Path, quick: bool) -> Section:
    seconds = QUICK_S if quick else WATCHED_S
    busy = others_busy()
    curves = _simulated(work)
    if busy <= QUIET:
        curves += _measured(work, seconds)
        missing = ""
    else:
        # The recorder samples the other work too: what it costs is then about that.
        missing = f"Processes, forks and samples were not measured: other work took {busy:.0%} of the machine."
    return Section(
        TITLE,
        f"""
        Steady cost against the size of one thing at a time. Simulated: the sources of counters (cpu, node, softnet,
        interrupts, threads, throttling, cgroups) read trees of files in place of /proc and /sys, {TICKS} ticks of
        which the mean counts, after {WARM_UP_TICKS} that open everything; what a kernel takes to print the files is not
        part of it. Measured, where the machine is quiet: a whole recorder for {seconds} s, with so many sleeping
        processes (ten in a cgroup with a quota), so many forks a second while every core compresses, or at so many
        samples a second while every core compresses. The growth is that of the part above the smallest size. {missing}
        """,
        [row for curve in curves for row in curve.rows()],
    )


def _simulated(work: Path) -> list[Curve]:
    return [
        Curve("cores", CORES, [_injected(work, _cores, size) for size in CORES], _SIMULATED),
        Curve("cgroups with quotas", CGROUPS, [_injected(work, _cgroups, size) for size in CGROUPS], _SIMULATED),
        Curve("threads", THREADS, [_injected(work, _threads, size) for size in THREADS], _SIMULATED),
        Curve("zombies", ZOMBIES, [_injected(work, _zombies, size) for size in ZOMBIES], _SIMULATED),
    ]


def _measured(work: Path, seconds: int) -> list[Curve]:
    return [
        Curve("sleeping processes", PROCESSES, [_with_processes(work, size, seconds) for size in PROCESSES], _REAL),
        Curve("forks a second", FORKS, [_with_forks(work, size, seconds) for size in FORKS], _REAL),
        Curve(
            "samples a second",
            [rate * len(os.sched_getaffinity(0)) for rate in RATES],
            [_at_rate(work, rate, seconds) for rate in RATES],
            _REAL,
        ),
    ]


_SIMULATED = "simulated"
_REAL = "measured"


def _injected(work: Path, build: Callable[[Path, int], Host], size: int) -> float:
    """The CPU time of the counter sources for a tick on a tree of files, in percent of a core."""
    root = work / "tree"
    shutil.rmtree(root, ignore_errors=True)
    host = build(root, size)
    sources = list(_sources(host))
    spent: list[int] = []
    for second in range(WARM_UP_TICKS + TICKS):
        end = (1000 + second) * NANOS
        tick = Tick(second, end - NANOS, end, end)
        if (host.proc / "stat").exists():
            _count_on(host, size, second)
        began = time.thread_time_ns()
        for source in sources:
            source.read(tick)
        spent.append(time.thread_time_ns() - began)
    for source in sources:
        source.close()
    shutil.rmtree(root)
    return 100 * float(np.mean(spent[WARM_UP_TICKS:])) / NANOS


def _sources(host: Host) -> Iterator[Source]:
    """The sources that have their files in the tree."""
    if (host.proc / "stat").exists():
        yield from (CpuSource(host), NodeSource(host), SoftnetSource(host), InterruptSource(host))
    if (host.proc / "2").exists() or (host.proc / "100").exists():
        yield ThreadSource(host)
    if (host.proc / "self/mountinfo").exists():
        yield from (ThrottlingSource(host), CgroupSource(host))


def _host(root: Path) -> Host:
    return Host(root / "proc", root / "sys", root / "dev", root / "log")


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _cores(root: Path, cores: int) -> Host:
    """A node with so many cores: three kernel threads and two interrupts for each."""
    host = _host(root)
    _count_on(host, cores, 0)
    names = ("ksoftirqd", "migration", "rcuc")
    tids = [(100 + place, f"{names[place % 3]}/{place // 3}\n") for place in range(3 * cores)]
    for tid, name in tids:
        _write(host.proc / f"{tid}/comm", name)
        _write(host.proc / f"{tid}/schedstat", "10 10 1\n")
    _write(host.proc / "2/task/2/children", " ".join(str(tid) for tid, _ in tids))
    return host


def _count_on(host: Host, cores: int, second: int) -> None:
    """Let the counters of every core advance by one second."""
    times = "".join(f"cpu{core} {50 * second} 0 {30 * second} {20 * second} 0 0 0 0 0 0\n" for core in range(cores))
    interrupts = " ".join(str(7 * second) for _ in range(2 * cores))
    totals = f"ctxt {second}\nbtime 1\nprocesses {second}\nprocs_running 5\nprocs_blocked 0\n"
    _write(host.proc / "stat", f"cpu  0 0 0 0 0 0 0 0 0 0\n{times}intr {interrupts}\n{totals}")
    header = " " * 10 + "".join(f"{f'CPU{core}':>11}" for core in range(cores)) + "\n"
    counts = "".join(f"{7 * second:>11}" for _ in range(cores))
    softirqs = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
    _write(host.proc / "softirqs", header + "".join(f"{name:>10}:{counts}\n" for name in softirqs))
    domain = " ".join(["0"] * 45)
    queues = "".join(
        f"cpu{core} 0 0 0 0 0 0 {second} {1000 * second} {second}\ndomain0 MC ff {domain}\n" for core in range(cores)
    )
    _write(host.proc / "schedstat", f"version 17\ntimestamp 1\n{queues}")
    _write(
        host.proc / "net/softnet_stat", "".join(f"{second:08x} " * 12 + f"{core:08x} 0 0\n" for core in range(cores))
    )
    lines = "".join(f"{irq:>4}:{counts}  PCI-MSI {irq}-edge      eth0-Tx-Rx-{irq}\n" for irq in range(2 * cores))
    _write(host.proc / "interrupts", header + lines)


def _threads(root: Path, threads: int) -> Host:
    """A node with so many threads on a kernel that keeps no list of children: each is looked at once a minute."""
    host = _host(root)
    for tid in range(100, 100 + threads):
        _write(host.proc / f"{tid}/comm", "ksoftirqd/0\n" if tid == 100 else "worker\n")
        if tid == 100:
            _write(host.proc / f"{tid}/schedstat", "10 10 1\n")
    return host


def _mounted(host: Host, dying: int, cgroups: int) -> None:
    """The hierarchies of v1 with cpu and memory, as the kernel lists them."""
    options = "rw - cgroup cgroup rw"
    lines = [f"{40 + place} 30 0:{30 + place} / /sys/fs/cgroup/{name} {options},{name}\n" for place, name in _PLACES]
    _write(host.proc / "self/mountinfo", "".join(lines))
    counts = "".join(f"{name}\t{place + 1}\t{cgroups + 1 + dying}\t1\n" for place, name in _PLACES)
    _write(host.proc / "cgroups", f"#subsys_name\thierarchy\tnum_cgroups\tenabled\n{counts}")
    for _, name in _PLACES:
        (host.sys / "fs/cgroup" / name).mkdir(parents=True)


_PLACES = ((0, "cpu"), (1, "memory"))


def _cgroups(root: Path, cgroups: int) -> Host:
    """A node with so many cgroups, each with a quota and a child."""
    host = _host(root)
    _mounted(host, 0, cgroups)
    for number in range(cgroups):
        path = host.sys / f"fs/cgroup/cpu/{number}"
        _write(path / "cpu.cfs_quota_us", "50000\n")
        _write(path / "cpu.cfs_period_us", "100000\n")
        _write(path / "cpu.stat", "nr_periods 10\nnr_throttled 0\nthrottled_time 0\n")
        (host.sys / f"fs/cgroup/memory/{number}").mkdir()
    return host


def _zombies(root: Path, zombies: int) -> Host:
    """A node with a hundred cgroups, and so many that are dying."""
    host = _host(root)
    _mounted(host, zombies, 100)
    for number in range(100):
        (host.sys / f"fs/cgroup/memory/{number}").mkdir()
    return host


def _with_processes(work: Path, processes: int, seconds: int) -> float:
    with crowd(processes, processes // 10) if processes else nullcontext():
        return _steady(work, 97, seconds)


def _with_forks(work: Path, forks: float, seconds: int) -> float:
    with load(forks):
        return _steady(work, 97, seconds)


def _at_rate(work: Path, rate: int, seconds: int) -> float:
    with load(0.0):
        return _steady(work, rate, seconds)


def _steady(work: Path, rate: int, seconds: int) -> float:
    directory = work / "curve"
    shutil.rmtree(directory, ignore_errors=True)
    exhume = start_exhume(directory, rate, *UNBOUNDED)
    time.sleep(WARM_UP_S)
    (cpu,) = watch(seconds, exhume)
    exhume.finish()
    return 100 * cpu / seconds
