"""The form in which every importer returns its results: samples with named stacks, core metrics, log lines, and what
was left out.

Times are wall nanoseconds since 1970: the recording made from them has no other clock.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.idle import is_idle
from exhume.collect.symbols.frame import KERNEL, USER, Frame, make_frame, stack_id

I64Array = npt.NDArray[np.int64]
U64Array = npt.NDArray[np.uint64]

# Kinds of content.
SAMPLES, CORES, LOG = "samples", "cores", "log"

UNKNOWN_FRAME = make_frame(USER, "[unknown]", "[unknown]")
# The mode in which the time of a sample was spent, by its stack.
USER_MODE, SYSTEM_MODE, SOFTIRQ_MODE, IDLE_MODE = range(4)
MODES = ("user", "system", "softirq", "idle")
# kernel/softirq.c: __do_softirq until 6.8, then handle_softirqs; run_ksoftirqd calls either.
_SOFTIRQ = frozenset(("__do_softirq", "handle_softirqs", "__softirqentry_text_start", "do_softirq"))


class Unreadable(Exception):
    """A file that can't be imported, or not beyond some place: the reason, and the place in the file."""

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason)
        self.offset = offset


class NoWallTime(Unreadable):
    """A file whose clock starts at boot, and nothing says when the boot was."""


@dataclass(slots=True)
class LeftOut:
    """Something in a file that was not imported: where it was first seen, and how often."""

    reason: str
    offset: int | None = None
    count: int = 1


class LeftOutLog:
    """What was left out of one file, by reason, with the first place of each."""

    def __init__(self) -> None:
        self._found: dict[str, LeftOut] = {}

    def add(self, reason: str, offset: int | None = None, count: int = 1) -> None:
        known = self._found.get(reason)
        if known is None:
            self._found[reason] = LeftOut(reason, offset, count)
        else:
            known.count += count

    def __iter__(self) -> Iterator[LeftOut]:
        return iter(self._found.values())

    def __bool__(self) -> bool:
        return bool(self._found)


@dataclass(slots=True)
class Origin:
    """What a file says about the node that it comes from; empty or 0 if it says nothing."""

    node: str = ""
    kernel: str = ""
    arch: str = ""
    cores: int = 0
    event: str = ""
    rate_hz: int = 0
    timezone: str = ""

    def merge(self, other: "Origin") -> None:
        """Take over values that are not known yet."""
        for name in ("node", "kernel", "arch", "event", "rate_hz", "timezone"):
            setattr(self, name, getattr(self, name) or getattr(other, name))
        self.cores = max(self.cores, other.cores)


@dataclass(slots=True)
class FileSummary:
    """The summary of one imported file. `spans` is the first and last moment of each kind of content; `missing` has
    source, reason and remedy of what the file can't contain; `others` counts samples of events that were not imported,
    by name."""

    path: str
    digest: str = ""
    format: str = ""
    origin: Origin = field(default_factory=Origin)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    cpus: set[int] = field(default_factory=set)
    left_out: list[LeftOut] = field(default_factory=list)
    missing: list[tuple[str, str, str]] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    error: LeftOut | None = None
    needs_start: bool = False
    known: bool = False

    def merge(self, other: "FileSummary") -> None:
        """Merge the summary of another part of the same file."""
        self.origin.merge(other.origin)
        for family, (since, until) in other.spans.items():
            known = self.spans.get(family, (since, until))
            self.spans[family] = (min(since, known[0]), max(until, known[1]))
        for counts, more in ((self.rows, other.rows), (self.others, other.others)):
            for name, count in more.items():
                counts[name] = counts.get(name, 0) + count
        self.cpus |= other.cpus
        left_out = LeftOutLog()
        for each in (*self.left_out, *other.left_out):
            left_out.add(each.reason, each.offset, each.count)
        self.left_out = list(left_out)
        self.missing += [each for each in other.missing if each not in self.missing]
        self.error = self.error or other.error
        self.needs_start |= other.needs_start


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read files. `offset` is wall time minus time since boot, for files with only the latter; `start` is the
    beginning of files without any time; `zone` is the time zone of wall times without one (None: that of this machine);
    `event` is the event to import from files with several; `kallsyms` is a list of kernel symbols; `cache` is perf's
    build-id directory (tools/perf/util/config.c, set_buildid_dir)."""

    offset: int | None = None
    start: int | None = None
    zone: tzinfo | None = UTC
    event: str | None = None
    kallsyms: Path | None = None
    cache: Path = field(default_factory=lambda: Path.home() / ".debug")


class StackBook:
    """The distinct stacks of one file, identified by their index."""

    def __init__(self) -> None:
        self._places: dict[tuple[bool, int], int] = {}
        self._frames: dict[tuple[str, str, str], Frame] = {}
        self.stacks: list[tuple[Frame, ...]] = []
        self._ids = array("Q")
        self._modes = array("B")

    def frame(self, kind: str, module: str, name: str) -> Frame:
        """Return the frame with that name."""
        key = (kind, module, name)
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = make_frame(kind, module, name)
        return found

    def add(self, frames: Sequence[Frame], *, idle_task: bool) -> int:
        """Return the index of a stack, which is given leaf first."""
        chain = tuple(reversed(frames)) or (UNKNOWN_FRAME,)
        number = stack_id(chain)
        place = self._places.get((idle_task, number))
        if place is None:
            place = self._places[idle_task, number] = len(self.stacks)
            self.stacks.append(chain)
            self._ids.append(number)
            self._modes.append(IDLE_MODE if idle_task and is_idle(frames) else _mode(chain))
        return place

    def ids(self, places: I64Array) -> U64Array:
        """The 64-bit ids of some stacks."""
        return np.frombuffer(self._ids, np.uint64)[places]

    def modes(self, places: I64Array) -> npt.NDArray[np.int64]:
        """The modes in which the time of some stacks was spent."""
        return np.frombuffer(self._modes, np.uint8)[places].astype(np.int64)


def _mode(chain: tuple[Frame, ...]) -> int:
    if chain[-1].kind != KERNEL:
        return USER_MODE
    return SYSTEM_MODE if _SOFTIRQ.isdisjoint([frame.name for frame in chain]) else SOFTIRQ_MODE


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Samples in columns; `comm` and `stack` are indices into a list of names and into a StackBook."""

    time: I64Array
    cpu: I64Array
    pid: I64Array
    tid: I64Array
    comm: I64Array
    stack: I64Array
    weight_us: I64Array

    def __len__(self) -> int:
        return len(self.time)
