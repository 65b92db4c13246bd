"""Detect programs that are restarted again and again, from the FORK, COMM and EXIT records of the rings.

A life is a program from its exec (or its fork, if no exec followed) to its exit. Lives of one name under one parent
that follow each other with short pauses are a loop. A program that exits right after its last child and with the same
status is a wrapper (a supervisor's script, a subshell): the child is what fails, and the loop gets its name. Where exit
codes are known, only loops that fail are reported: a script that runs `sleep` once a second is not one. In a fork storm
the busiest parents are filtered out by array operations, so that the rest stays cheap: a program that restarts hundreds
of times a second is a storm, and is detected elsewhere.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.records import TRAILER_BYTES, Records, RecordType, U64Array, isin, runs_of
from exhume.model.clock import NANOS
from exhume.model.tables import RECORDER, RESTART, Events

LEAST_LIVES = 3
LONGEST_LIFE_NS = 60 * NANOS
LONGEST_PAUSE_NS = 60 * NANOS
# A shorter interval between starts means a command in a script.
LEAST_PACE_NS = NANOS // 10
# A failure within this time may be a result, as with grep or test in a script; a service takes longer to start.
HELPER_LIFE_NS = NANOS // 20
# A shell exits with the status of its last command within this time after it.
WRAPPED_NS = NANOS // 2
# One row covers all lives since the last row.
REPORT_EVERY_NS = 5 * NANOS
REPORTS_PER_TICK = 8
# More than this of one parent (or of one name) in a tick are a storm; beyond the total limit, processes are not
# examined one by one.
MOST_ALIKE = 24
MOST_PER_TICK = 256
ALIVE_KEPT = 4096
LOOPS_KEPT = 1024

NameOf = Callable[[int], str | None]


@dataclass(slots=True)
class Life:
    """A program that exited. `status` is its wait status, None when unknown; `program` (name and pid) is what failed,
    when it exited as its last child did."""

    pid: int
    born: int
    ended: int
    status: int | None
    program: tuple[str, int] | None = None


@dataclass(slots=True)
class Loop:
    """The latest lives of one name under one parent."""

    comm: str
    parent: int
    lives: deque[Life] = field(default_factory=lambda: deque(maxlen=8))
    unreported: int = 0
    reported_at: int | None = None
    parent_name: str | None = None


@dataclass(frozen=True, slots=True)
class RestartRows:
    """Rows for the events table, and processes (pid, parent, name) to describe while they live."""

    events: list[Events]
    processes: list[tuple[int, int | None, str]]


class Restarts:
    """Follows lives across ticks."""

    def __init__(self) -> None:
        # Name (None: that of its parent), time of birth and parent (None: unknown until its exit).
        self._alive: dict[int, tuple[str | None, int, int | None]] = {}
        self._loops: dict[tuple[str | None, int], Loop] = {}
        # Of these loops, the ones that may have to be reported, and the ones that were.
        self._pending: dict[tuple[str | None, int], Loop] = {}
        self._looping: set[tuple[str | None, int]] = set()
        self._failed_before: dict[int, int] = {}
        # By parent: the name, pid, status and exit time of the last child that failed.
        self._failed_children: dict[int, tuple[str, int, int, int]] = {}

    def forget(self) -> None:
        """Forget everything: births or exits were missed."""
        self._alive.clear()
        self._loops.clear()
        self._pending.clear()
        self._looping.clear()
        self._failed_children.clear()

    def observe(self, now: int, records: Records, failed: Mapping[int, int] | None, name_of: NameOf) -> RestartRows:
        """Process a tick. `failed` holds the processes that ended with a failure (None: unknown)."""
        changes = [*_births(records), *_programs(records)] if len(records.starts) else []
        begun: dict[int, list[tuple[int, str | None, int | None]]] = {}
        for pid, time, comm, parent in sorted(changes, key=lambda each: each[1]):
            begun.setdefault(pid, []).append((time, comm, parent))
        ends = _ends(records, self._alive.keys(), begun.keys()) if len(records.starts) else []
        for pid, time, parent in ends:
            for born, comm, of in begun.pop(pid, ()):
                # A pid that was reused within the tick is not followed any further.
                if born <= time:
                    self._begin(pid, born, comm, of)
            self._end(pid, time, parent, failed, name_of)
        for pid, starts in begun.items():
            for born, comm, of in starts:
                self._begin(pid, born, comm, of)
        rows = self._report(now, name_of)
        self._bound(now)
        self._failed_before = dict(failed or {})
        return rows

    def _begin(self, pid: int, born: int, comm: str | None, parent: int | None) -> None:
        if comm is not None and pid in self._alive:
            parent = self._alive[pid][2]
        self._alive[pid] = (comm, born, parent)

    def _end(self, pid: int, time: int, parent: int, failed: Mapping[int, int] | None, name_of: NameOf) -> None:
        begun = self._alive.pop(pid, None)
        if begun is None or time - begun[1] > LONGEST_LIFE_NS:
            return
        comm, born, forked_by = begun
        # An orphan exits under another parent, but belongs to the process that started it.
        parent = forked_by or parent
        key = (comm, parent)
        loop = self._loops.get(key)
        if loop is None:
            name = comm or name_of(parent) or f":{parent}"
            loop = self._loops[key] = Loop(name, parent)
        status = None
        if failed is not None:
            status = failed.get(pid, self._failed_before.get(pid, 0))
        last = loop.lives[-1] if loop.lives else None
        if last is not None and (born < last.ended or born - last.ended > LONGEST_PAUSE_NS):
            # Several at once, or a long pause: not a program that is restarted because it exited.
            loop.lives.clear()
            loop.unreported = 0
        program = self._failed_in(pid, time, status)
        if status and (program or comm):
            name, failed_pid = program or (comm or loop.comm, pid)
            self._failed_children[parent] = (name, failed_pid, status, time)
        loop.lives.append(Life(pid, born, time, status, program))
        loop.unreported += 1
        self._pending[key] = loop

    def _failed_in(self, pid: int, time: int, status: int | None) -> tuple[str, int] | None:
        """The child (name, pid) with which a process failed, if the process has that child's status."""
        child = self._failed_children.pop(pid, None)
        if child is None or not status:
            return None
        name, number, failed, ended = child
        # A shell reports a child killed by a signal as a code above 128.
        same = status == failed or status >> 8 == 128 + (failed & 0x7F)
        return (name, number) if same and time - ended <= WRAPPED_NS else None

    def _report(self, now: int, name_of: NameOf) -> RestartRows:
        rows = RestartRows([], [])
        for key, loop in list(self._pending.items()):
            if len(rows.events) >= REPORTS_PER_TICK:
                break
            if loop.reported_at is not None and now - loop.reported_at < REPORT_EVERY_NS:
                continue
            del self._pending[key]
            if not _is_loop(loop):
                # Only another life can make it a loop.
                continue
            # A parent that has exited keeps its last known name.
            loop.parent_name = name_of(loop.parent) or loop.parent_name
            rows.events.append(restart_event(loop))
            rows.processes.append((loop.parent, None, loop.parent_name or ""))
            loop.unreported, loop.reported_at = 0, now
            self._looping.add(key)
        if self._looping:
            looping = self._looping
            for pid, (comm, _, parent) in list(self._alive.items())[-MOST_PER_TICK:]:
                above = self._alive.get(parent or 0)
                wrapped = above is not None and (above[0], above[2]) in looping
                if ((comm, parent) in looping or wrapped) and len(rows.processes) < 2 * REPORTS_PER_TICK:
                    rows.processes.append((pid, parent, comm or ""))
        return rows

    def _bound(self, now: int) -> None:
        if len(self._alive) > ALIVE_KEPT:
            for pid in list(self._alive)[: ALIVE_KEPT // 2]:
                del self._alive[pid]
        if len(self._failed_children) > ALIVE_KEPT:
            for pid in list(self._failed_children)[: ALIVE_KEPT // 2]:
                del self._failed_children[pid]
        if len(self._loops) > LOOPS_KEPT:
            quiet = [key for key, loop in self._loops.items() if now - loop.lives[-1].ended > LONGEST_PAUSE_NS]
            for key in quiet or list(self._loops)[: LOOPS_KEPT // 2]:
                del self._loops[key]
                self._pending.pop(key, None)
                self._looping.discard(key)


def _is_loop(loop: Loop) -> bool:
    """Whether there are enough lives in a row, not too fast, and all failures where the status is known."""
    lives = loop.lives
    if len(lives) < LEAST_LIVES or lives[-1].born - lives[0].born < LEAST_PACE_NS * (len(lives) - 1):
        return False
    return all(life.status != 0 for life in lives)


def restart_event(loop: Loop) -> Events:
    """The row about a loop and its lives since the last row."""
    first, last = loop.lives[0], loop.lives[-1]
    span = (last.ended - first.born) / NANOS
    life = sorted(each.ended - each.born for each in loop.lives)[len(loop.lives) // 2]
    ((usual, _),) = Counter(each.status for each in loop.lives).most_common(1)
    how = "" if usual is None else f", and ended {_ending(usual)}"
    # The program that fails in most of them, in the last life that has it.
    programs = Counter(each.program[0] if each.program else loop.comm for each in loop.lives)
    comm = programs.most_common(1)[0][0]
    pid = next((each.program[1] for each in reversed(loop.lives) if each.program and each.program[0] == comm), last.pid)
    text = (
        f"{comm} was started {len(loop.lives)} times in {span:.1f} s, one after the other{how}, "
        f"after {life / NANOS:.2f} s or so; its parent is {loop.parent_name or 'process'} ({loop.parent})"
    )
    severity = "info" if usual is None or life < HELPER_LIFE_NS else "warning"
    return Events(
        time=last.ended,
        source=RECORDER,
        kind=RESTART,
        severity=severity,
        text=text,
        pid=pid,
        comm=comm,
        value=float(loop.unreported),
        exit_code=None if usual is None else -(usual & 0x7F) or usual >> 8,
    )


def _ending(status: int) -> str:
    signal = status & 0x7F
    return f"by signal {signal}" if signal else f"with code {status >> 8}"


def _births(records: Records) -> list[tuple[int, int, str | None, int | None]]:
    """New processes: pid, time, no name, parent."""
    at = records.of(RecordType.FORK)
    pids, parents = records.low(at), records.high(at)
    kept = _rare(parents) & (pids != parents)
    at, pids, parents = at[kept][:MOST_PER_TICK], pids[kept][:MOST_PER_TICK], parents[kept][:MOST_PER_TICK]
    times = records.times(at)
    return [
        (pid, time, None, parent)
        for pid, time, parent in zip(pids.tolist(), times.tolist(), parents.tolist(), strict=True)
    ]


def _programs(records: Records) -> list[tuple[int, int, str | None, int | None]]:
    """Programs that began with an exec: pid, time, name, no parent."""
    at = records.execs(records.of(RecordType.COMM))
    # The first eight bytes of the name are enough to recognise a storm.
    at = at[_rare(records.words[at + 2])][:MOST_PER_TICK]
    times = records.times(at)
    pids = records.low(at).tolist()
    return [
        (pid, time, _name(records, place), None)
        for pid, time, place in zip(pids, times.tolist(), at.tolist(), strict=True)
    ]


def _ends(records: Records, alive: Set[int], begun: Set[int]) -> list[tuple[int, int, int]]:
    """Exits of processes that live or began in this tick, ordered by time: pid, time, parent."""
    at = records.of(RecordType.EXIT)
    at = at[records.low(at) == records.low(at, 2)]
    # Few of the exits of a storm are wanted. Thousands of processes may be alive, more than exited.
    if len(alive) + len(begun) < len(at):
        at = at[isin(records.low(at), alive | begun)]
    else:
        at = at[[place for place, pid in enumerate(records.low(at).tolist()) if pid in alive or pid in begun]]
    pids, parents, times = records.low(at), records.high(at), records.times(at)
    order = np.argsort(times)
    return list(zip(pids[order].tolist(), times[order].tolist(), parents[order].tolist(), strict=True))


def _rare(values: U64Array) -> npt.NDArray[np.bool_]:
    """Which of some values occur no more often than a loop's would."""
    first, lengths = runs_of(values)
    counts: Counter[int] = Counter()
    members = values[first].tolist()
    for member, length in zip(members, lengths.tolist(), strict=True):
        counts[member] += length
    return np.repeat(np.array([counts[member] <= MOST_ALIKE for member in members], dtype=np.bool_), lengths)


def _name(records: Records, at: int) -> str:
    size = int(records.words[at] >> np.uint64(51)) * 8 - TRAILER_BYTES
    return records.data[at * 8 + 16 : at * 8 + size].split(b"\0", 1)[0].decode("utf-8", "replace")
