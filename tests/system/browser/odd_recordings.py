"""Recordings of nodes that are not as one thinks: clocks that jump, cores with holes, files cut short, odd names."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exhume.model.clock import MILLIS, NANOS, Tick
from exhume.model.facts import RecordingFacts
from exhume.store.write.writer import SegmentWriter

# Four minutes before Berlin's clocks go back from 03:00 to 02:00.
START = int(datetime(2026, 10, 25, 0, 56, tzinfo=UTC).timestamp()) * NANOS
FACTS = RecordingFacts("odd-1", "a" * 32, 5, "6.8.0", "x86_64", "cpu-clock", 97)
CPUS = (0, 2, 64, 66, 130)
BITE = "<img src=x onerror=alert(1)>\"'&;\u202egnp"
_STATES = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest")
_KERNEL, _BITE = 11, 12


@dataclass(frozen=True)
class Boot:
    """What a recorder saw from one start of the node to its end. Seconds count from START."""

    first: int
    seconds: int
    cpus: Callable[[int], Iterable[int]] = lambda _: CPUS
    #: The core that a kernel function keeps for itself, and when.
    bad: tuple[int, int, int] = (0, 0, 0)
    #: From which second on the clock is off, and by how much.
    step: tuple[int, int] = (1 << 30, 0)
    facts: RecordingFacts = FACTS
    events: tuple[tuple[int, str, str], ...] = ()
    samples: bool = True

    def write(self, directory: Path) -> None:
        writer = SegmentWriter(directory, self.facts, max_bytes=None, max_age_s=None, segment_s=60)
        # Every boot counts its own time.
        mono = (100 + 7 * self.first) * NANOS
        sealed = True
        for second in range(self.first, self.first + self.seconds):
            start = mono + (second - self.first) * NANOS
            if sealed and self.samples:
                _tell_stacks(writer)
            writer.append("cpu", _columns([self._core(cpu, second, start) for cpu in self.cpus(second)]))
            if self.samples:
                writer.append("samples", _columns([self._sample(cpu, second, start) for cpu in self.cpus(second)]))
            for at, kind, text in self.events:
                if at == second:
                    row = {"time": start, "source": "kernel-log", "kind": kind, "severity": "info", "text": text}
                    writer.append("events", _columns([row]))
            off = self.step[1] * NANOS if second >= self.step[0] else 0
            sealed = writer.commit(Tick(second, start, start + NANOS, START + (second + 1) * NANOS + off))
        writer.close()

    def _is_bad(self, cpu: int, second: int) -> bool:
        core, since, until = self.bad
        return cpu == core and since <= second < until

    def _core(self, cpu: int, second: int, start: int) -> dict[str, Any]:
        shares = dict.fromkeys(_STATES, 0) | ({"system": 980} if self._is_bad(cpu, second) else {"user": 300})
        idle = 1000 - sum(shares.values())
        return {"time": start, "cpu": cpu, "span_ms": 1000, "wait_ns": 0, **shares, "idle": idle}

    def _sample(self, cpu: int, second: int, start: int) -> dict[str, Any]:
        bad = self._is_bad(cpu, second)
        who = {"pid": 7, "tid": 7, "comm": "spinner"} if bad else {"pid": 8, "tid": 8, "comm": BITE[:15]}
        when = {"time_ms": start // MILLIS + 400, "cpu": cpu}
        return {**when, **who, "stack": _KERNEL if bad else _BITE, "weight_us": 980_000 if bad else 300_000}


def odd_node(directory: Path) -> None:
    """Two boots with a gap between, numbers of cores with holes, one core offline for a minute, a clock that is set
    back, a segment cut short; and in the middle of it all Berlin's clocks are changed."""
    bitten = ((10, BITE, BITE), (30, "oom", "x" * 1_000_000))
    first = Boot(
        0,
        240,
        lambda second: CPUS[:3] + CPUS[4:] if 60 <= second < 120 else CPUS,
        bad=(130, 200, 210),
        step=(180, -30),
        events=bitten,
    )
    first.write(directory)
    Boot(420, 120, bad=(130, 500, 510), facts=replace(FACTS, boot_id="b" * 32)).write(directory)
    cut = sorted(path for path in directory.glob("*_aaaaaaaa_*") if path.is_dir())[0] / "cpu.parquet"
    cut.write_bytes(cut.read_bytes()[:-100])


def one_second(directory: Path) -> None:
    """The least there can be: one core, one second, no stacks, no cgroups."""
    missing = ["stacks: perf_event_open is not allowed; run as root, or grant CAP_PERFMON"]
    facts = replace(FACTS, cores=1, sources_missing=missing)
    Boot(0, 1, lambda _: [0], bad=(0, 0, 1), facts=facts, samples=False).write(directory)


def few_seconds_of_long(directory: Path, seconds: int) -> None:
    """Five seconds, and five more as late as that: between them the node was off."""
    Boot(0, 5, lambda _: [0]).write(directory)
    Boot(seconds - 5, 5, lambda _: [0], facts=replace(FACTS, boot_id="b" * 32)).write(directory)


def _tell_stacks(writer: SegmentWriter) -> None:
    writer.append(
        "frames",
        {
            "frame": [1, 2, 3],
            "kind": ["kernel", "kernel", "user"],
            "module": ["", "", BITE],
            "name": ["do_syscall_64", "keeps_the_core", BITE],
        },
    )
    writer.append("stacks", {"stack": [_KERNEL, _BITE], "frames": [[1, 2], [3]]})


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
