"""Programs that are started again and again: recognised from the births and ends that the rings tell of anyway.

A life is a program from its exec (or its fork, where none followed) to its end. Lives of one name under one parent that
follow each other with short pauses are a loop. Where the kernel tells exit codes, only those that fail are told of: a
script that runs `sleep` once a second is none. In a storm of forks the busiest parents are left out by the array, so
that the rest stays cheap: what loops by the hundred a second is a storm, and seen elsewhere.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.records import TRAILER_BYTES, I64Array, Records, RecordType, U64Array
from exhume.collect.perf.unique import is_among
from exhume.model.clock import NANOS
from exhume.model.events import RECORDER, RESTART
from exhume.model.tables import Events

LEAST_LIVES = 3
LONGEST_LIFE_NS = 60 * NANOS
LONGEST_PAUSE_NS = 60 * NANOS
# What follows faster is a command in a script.
LEAST_PACE_NS = NANOS // 10
# A failure within this time may be an answer, as that of grep or test in a script; a service takes longer to start.
HELPER_LIFE_NS = NANOS // 20
# One row tells of all lives since the last.
TOLD_EVERY_NS = 5 * NANOS
TOLD_PER_TICK = 8
# More of one parent (or of one name) in a tick are a storm; more in all are not looked at one by one.
MOST_ALIKE = 24
MOST_PER_TICK = 256
ALIVE_KEPT = 4096
LOOPS_KEPT = 1024

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_EXEC = np.uint64((1 << 13) << 32)

NameOf = Callable[[int], str | None]


@dataclass(slots=True)
class Life:
    """A program that ended. `status` is its wait status, None where the kernel doesn't tell."""

    pid: int
    born: int
    ended: int
    status: int | None


@dataclass(slots=True)
class Loop:
    """The last lives of one name under one parent."""

    comm: str
    parent: int
    lives: deque[Life] = field(default_factory=lambda: deque(maxlen=8))
    untold: int = 0
    told_at: int | None = None
    parent_name: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """Rows for the events table, and processes (pid, parent, name) that should be described while they live."""

    events: list[Events]
    asked: list[tuple[int, int | None, str]]


class Restarts:
    """Follows lives through the ticks."""

    def __init__(self) -> None:
        # Name (None: that of its parent), birth and parent (None: not known before its end).
        self._alive: dict[int, tuple[str | None, int, int | None]] = {}
        self._loops: dict[tuple[str | None, int], Loop] = {}
        self._failed_before: dict[int, int] = {}

    def forget(self) -> None:
        """Births or ends were missed."""
        self._alive.clear()
        self._loops.clear()

    def observe(self, now: int, records: Records, failed: Mapping[int, int] | None, name_of: NameOf) -> Told:
        """Take in a tick. `failed` are the processes that ended with a failure (None: not known)."""
        changes = [*_births(records), *_programs(records)]
        ends = _ends(records, self._alive.keys() | {pid for pid, *_ in changes})
        begun: dict[int, list[tuple[int, str | None, int | None]]] = {}
        for pid, time, comm, parent in sorted(changes, key=lambda each: each[1]):
            begun.setdefault(pid, []).append((time, comm, parent))
        for pid, time, parent in ends:
            for born, comm, of in begun.pop(pid, ()):
                # A number that was given away again within the tick is followed no further.
                if born <= time:
                    self._begin(pid, born, comm, of)
            self._end(pid, time, parent, failed, name_of)
        for pid, starts in begun.items():
            for born, comm, of in starts:
                self._begin(pid, born, comm, of)
        told = self._tell(now, name_of)
        self._bound(now)
        self._failed_before = dict(failed or {})
        return told

    def _begin(self, pid: int, born: int, comm: str | None, parent: int | None) -> None:
        if comm is not None and pid in self._alive:
            parent = self._alive[pid][2]
        self._alive[pid] = (comm, born, parent)

    def _end(self, pid: int, time: int, parent: int, failed: Mapping[int, int] | None, name_of: NameOf) -> None:
        begun = self._alive.pop(pid, None)
        if begun is None or time - begun[1] > LONGEST_LIFE_NS:
            return
        comm, born, forked_by = begun
        # One whose parent died first ends under another: it belongs to whoever started it.
        parent = forked_by or parent
        loop = self._loops.get((comm, parent))
        if loop is None:
            name = comm or name_of(parent) or f":{parent}"
            loop = self._loops[comm, parent] = Loop(name, parent)
        status = None
        if failed is not None:
            status = failed.get(pid, self._failed_before.get(pid, 0))
        last = loop.lives[-1] if loop.lives else None
        if last is not None and (born < last.ended or born - last.ended > LONGEST_PAUSE_NS):
            # Several at once, or long after: not one that is started again because it ended.
            loop.lives.clear()
            loop.untold = 0
        loop.lives.append(Life(pid, born, time, status))
        loop.untold += 1

    def _tell(self, now: int, name_of: NameOf) -> Told:
        told = Told([], [])
        for loop in self._loops.values():
            if len(told.events) >= TOLD_PER_TICK:
                break
            due = loop.told_at is None or now - loop.told_at >= TOLD_EVERY_NS
            if not loop.untold or not due or not _is_loop(loop):
                continue
            # Whoever is gone by now had a name before.
            loop.parent_name = name_of(loop.parent) or loop.parent_name
            told.events.append(_event(loop))
            told.asked.append((loop.parent, None, loop.parent_name or ""))
            loop.untold, loop.told_at = 0, now
        looping = {key for key, loop in self._loops.items() if loop.told_at is not None}
        if looping:
            for pid, (comm, _, parent) in list(self._alive.items())[-MOST_PER_TICK:]:
                if (comm, parent) in looping and len(told.asked) < 2 * TOLD_PER_TICK:
                    told.asked.append((pid, parent, comm or ""))
        return told

    def _bound(self, now: int) -> None:
        if len(self._alive) > ALIVE_KEPT:
            for pid in list(self._alive)[: ALIVE_KEPT // 2]:
                del self._alive[pid]
        if len(self._loops) > LOOPS_KEPT:
            quiet = [key for key, loop in self._loops.items() if now - loop.lives[-1].ended > LONGEST_PAUSE_NS]
            for key in quiet or list(self._loops)[: LOOPS_KEPT // 2]:
                del self._loops[key]


def _is_loop(loop: Loop) -> bool:
    """Enough lives in a row, not too fast; all of them failures, where that is known."""
    lives = loop.lives
    if len(lives) < LEAST_LIVES or lives[-1].born - lives[0].born < LEAST_PACE_NS * (len(lives) - 1):
        return False
    return all(life.status != 0 for life in lives)


def _event(loop: Loop) -> Events:
    first, last = loop.lives[0], loop.lives[-1]
    span = (last.ended - first.born) / NANOS
    life = sorted(each.ended - each.born for each in loop.lives)[len(loop.lives) // 2]
    ((usual, _),) = Counter(each.status for each in loop.lives).most_common(1)
    how = "" if usual is None else f", and ended {_ending(usual)}"
    text = (
        f"{loop.comm} was started {len(loop.lives)} times in {span:.1f} s, one after the other{how}, "
        f"after {life / NANOS:.2f} s or so; its parent is {loop.parent_name or 'process'} ({loop.parent})"
    )
    severity = "info" if usual is None or life < HELPER_LIFE_NS else "warning"
    return Events(
        time=last.ended,
        source=RECORDER,
        kind=RESTART,
        severity=severity,
        text=text,
        pid=last.pid,
        comm=loop.comm,
        value=float(loop.untold),
    )


def _ending(status: int) -> str:
    signal = status & 0x7F
    return f"by signal {signal}" if signal else f"with code {status >> 8}"


def _births(records: Records) -> list[tuple[int, int, str | None, int | None]]:
    """New processes: pid, time, no name, parent."""
    at = records.of(RecordType.FORK)
    ids = records.words[at + 1]
    pids, parents = ids & _LOW, ids >> _HALF
    kept = _rare(parents) & (pids != parents)
    at, pids, parents = at[kept][:MOST_PER_TICK], pids[kept][:MOST_PER_TICK], parents[kept][:MOST_PER_TICK]
    times = _times(records, at)
    return [
        (pid, time, None, parent)
        for pid, time, parent in zip(pids.tolist(), times.tolist(), parents.tolist(), strict=True)
    ]


def _programs(records: Records) -> list[tuple[int, int, str | None, int | None]]:
    """Programs that were begun by exec: pid, time, name, no parent."""
    at = records.of(RecordType.COMM)
    at = at[(records.words[at] & _EXEC) != 0]
    # The first eight bytes of the name are enough to tell a storm.
    at = at[_rare(records.words[at + 2])][:MOST_PER_TICK]
    times = _times(records, at)
    pids = (records.words[at + 1] & _LOW).tolist()
    return [
        (pid, time, _name(records, place), None)
        for pid, time, place in zip(pids, times.tolist(), at.tolist(), strict=True)
    ]


def _ends(records: Records, wanted: set[int]) -> list[tuple[int, int, int]]:
    """Ends of wanted processes, in the order of time: pid, time, parent."""
    at = records.of(RecordType.EXIT)
    ids, tids = records.words[at + 1], records.words[at + 2] & _LOW
    pids = ids & _LOW
    leaders = pids == tids
    at, pids, parents = at[leaders], pids[leaders], (ids >> _HALF)[leaders]
    known = is_among(pids, wanted)
    at, pids, parents = at[known], pids[known], parents[known]
    times = _times(records, at)
    order = np.argsort(times)
    return list(zip(pids[order].tolist(), times[order].tolist(), parents[order].tolist(), strict=True))


def _rare(values: U64Array) -> npt.NDArray[np.bool_]:
    """Which of some values come no more often than a loop's would."""
    _, members, counts = np.unique(values, return_inverse=True, return_counts=True)
    few: npt.NDArray[np.bool_] = counts[members] <= MOST_ALIKE
    return few


def _times(records: Records, at: I64Array) -> U64Array:
    """The time in each record's trailer."""
    times: U64Array = records.words[at + (records.words[at] >> np.uint64(51)).astype(np.int64) - 2]
    return times


def _name(records: Records, at: int) -> str:
    size = int(records.words[at] >> np.uint64(51)) * 8 - TRAILER_BYTES
    return records.data[at * 8 + 16 : at * 8 + size].split(b"\0", 1)[0].decode("utf-8", "replace")
