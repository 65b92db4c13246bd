"""How many cgroups the kernel has, how many are visible and how many are dying, every ten seconds; and, where no
tracepoint counts them, how many were made meanwhile (churn)."""

import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from exhume.collect.cgroup.dying import MEMORY, UNIFIED, LegacyCounter, count_below
from exhume.collect.cgroup.layout import WHOLE_HIERARCHY, Hierarchy, find_v1, find_v2, hierarchies
from exhume.collect.source import NOTHING, Pace, TickRows, table_rows
from exhume.collect.symbols.owners import accounted_cgroup, fair_level
from exhume.model.clock import MILLIS, NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.facts import MissingSource
from exhume.model.tables import Losses
from exhume.procfs.host import Host, subdirectories

_EVERY_S = 10.0
_FIRST_SLICE_NS = 8 * MILLIS
_SLICE_NS = 4 * MILLIS
# Until there is a first count, it may cost more: without it the number of live ones is unknown.
_EARLY_SLICE_NS = 12 * MILLIS
# A tree that is too large for one slice and that tracepoints keep current is checked against the files this often.
_RECONCILE_S = 60.0
_PARENT_LEVELS = 3
_PARENTS_AT_MOST = 512

# Losses of a source that traces cgroups by which a mkdir or rmdir may have been missed.
LOST_EVENTS = "lost-cgroup-events"
MISSED_EVENTS = frozenset(("lost-task-records", "damaged-task-bytes", LOST_EVENTS, "source-failed"))

# Rows of cgroup_events that are kept of a tick. A container start of runc takes 40 to 60 (v1: of every hierarchy).
MOST_EVENTS = 4096
# mkdir, rmdir and release: a cgroup is kept with all of them or not at all, as far as they are in one tick.
_EVENTS_OF_CGROUP = 3
# Places beyond their share that are named in one tick.
_PLACES_NAMED = 16

CountRow = tuple[str, str, int | None, int | None, int | None]


class CgroupSource:
    """Rows of the cgroups table, every ten seconds."""

    name = "cgroups"

    def __init__(self, host: Host) -> None:
        layout = hierarchies(host)
        memory, unified = find_v1(layout, MEMORY), find_v2(layout)
        if memory is None and unified is None:
            remedy = "mount cgroup2 at /sys/fs/cgroup, or make the node's /sys/fs/cgroup visible here"
            raise SourceUnavailable(self.name, "no hierarchy with the memory controller is mounted", remedy)
        self.v1 = MemoryHierarchy(LegacyCounter(host, memory, [MEMORY])) if memory else None
        self._v2 = UnifiedHierarchy(unified) if unified else None
        self.missing = tuple(
            MissingSource(
                self.name,
                f"{each.path} shows only a part of its hierarchy, so dying cgroups of the node can't be counted",
                WHOLE_HIERARCHY,
            )
            for each in (memory, unified)
            if each is not None and not each.whole
        )

    def read(self, tick: Tick) -> TickRows:
        if tick.nanos <= 0:
            # The tick that only sets counters: there are none here, so the first count goes into a real one.
            return NOTHING
        rows = [*(self.v1.read(tick) if self.v1 else ()), *(self._v2.read(tick) if self._v2 else ())]
        names = ("time", "hierarchy", "parent", "kernel", "visible", "dying")
        return table_rows("cgroups", names, [(tick.start, *row) for row in rows])

    def close(self) -> None:
        if self.v1:
            self.v1.close()


class MemoryHierarchy:
    """The memory hierarchy of v1: the kernel's count, and the directories that can be seen.

    The two have to be of the same moment. A tree that is walked within one tick gives that; a larger one does when
    tracepoints report its mkdirs and rmdirs (`follow`), or when the kernel's count stood still meanwhile. Else the
    visible ones are unknown.
    """

    def __init__(self, counter: LegacyCounter) -> None:
        self._counter = counter
        self._pace = Pace(_EVERY_S)
        self._next_walk = 0
        self._kernel_at_begin: int | None = None
        self._followed_since_begin = False
        self._following = False
        self._current = False
        self._large = False
        self.tree = counter.tree
        self.walks = 0

    @property
    def hierarchy_id(self) -> int | None:
        """The number that tracepoints name the hierarchy by."""
        return self._counter.number

    def follow(self, op: str, path: str) -> None:
        """A tracepoint's mkdir or rmdir in this hierarchy. All of them have to come, in their order."""
        self._following = True
        if op == "mkdir":
            self.tree.made(path)
        elif op == "rmdir":
            self.tree.removed(path)

    def follow_from_now(self) -> None:
        """Tracepoints are on: from here `follow` is called for every mkdir and rmdir."""
        self._following = True

    def lost_track(self) -> None:
        """Events were lost: only another walk can find what is there."""
        self._following = self._followed_since_begin = self._current = False

    def read(self, tick: Tick) -> list[CountRow]:
        due = self._pace.due(tick.end)
        if due and not self.tree.walking and (tick.end >= self._next_walk or not self._current):
            self._kernel_at_begin = self._counter.kernel()
            self._followed_since_begin = self._following
            self.tree.begin()
            self._large = not self.tree.advance(_FIRST_SLICE_NS)
            complete = not self._large
        else:
            complete = self.tree.walking and self.tree.advance(_SLICE_NS if self.walks else _EARLY_SLICE_NS)
        rows = []
        if complete:
            self.walks += 1
            # Whether the visible count of the walk that just ended is of one moment.
            stood_still = not self._large or self._kernel_at_begin == self._counter.kernel()
            rows = [self._row(stood_still or self._followed_since_begin)]
        elif due:
            rows = [self._row(self._current)]
        if complete and self._large and self._followed_since_begin:
            self._current = True
            self._next_walk = tick.end + int(_RECONCILE_S * NANOS)
        if due:
            self._pace.done(tick.end)
        return rows

    def _row(self, visible_known: bool) -> CountRow:
        count = self._counter.difference(visible_known=visible_known)
        return MEMORY, "", count.kernel, count.visible, count.dying

    def close(self) -> None:
        self._counter.close()


class CgroupFollower:
    """Feeds the mkdirs and rmdirs that a source traces to the memory hierarchy of v1, whose count stays current without
    walking it."""

    def __init__(self, memory: MemoryHierarchy) -> None:
        self._memory = memory
        self._hierarchy: int | None = None
        memory.follow_from_now()

    def observe(self, rows: TickRows, losses: Sequence[Losses]) -> None:
        """Take in a tick of the tracing source."""
        if self._hierarchy is None:
            self._hierarchy = self._memory.hierarchy_id
        if any(loss.kind in MISSED_EVENTS for loss in losses):
            self._memory.lost_track()
            self._memory.follow_from_now()
        if "cgroup_events" in rows:
            events = rows["cgroup_events"]
            for hierarchy, op, path in zip(events["hierarchy"], events["op"], events["path"], strict=True):
                if hierarchy == self._hierarchy:
                    self._memory.follow(op, path)


def keep_shares(rows: TickRows, tick: Tick, source: str, most: int = MOST_EVENTS) -> tuple[TickRows, list[Losses]]:
    """The rows of a tracing source, of cgroup_events no more than `most`, and what is lost by that. Where a tick has
    more, each place (a container, a service, or what is made by hand) has an equal share, and loses what is beyond."""
    events = rows.get("cgroup_events")
    if events is None or len(events["time"]) <= most:
        return rows, []
    places = [_place(path or "") for path in events["path"]]
    counts = Counter(places)
    share = fair_level(counts.values(), most)
    chosen: dict[str, set[tuple[int, int | None]]] = {place: set() for place, count in counts.items() if count > share}
    kept: list[int] = []
    beyond: Counter[str] = Counter()
    makers: dict[str, Counter[tuple[int | None, str | None]]] = {place: Counter() for place in chosen}
    columns = (events[name] for name in ("hierarchy", "id", "pid", "comm"))
    for index, (place, hierarchy, number, pid, comm) in enumerate(zip(places, *columns, strict=True)):
        cgroups = chosen.get(place)
        if cgroups is None:
            kept.append(index)
            continue
        if (hierarchy, number) in cgroups or len(cgroups) < share // _EVENTS_OF_CGROUP:
            cgroups.add((hierarchy, number))
            kept.append(index)
        else:
            beyond[place] += 1
            makers[place][pid, comm] += 1
    losses = []
    for place, count in beyond.most_common(_PLACES_NAMED):
        pid, comm = makers[place].most_common(1)[0][0]
        text = f"{count} cgroup events below {place} in a tick are beyond its share, most by process {pid} ({comm})"
        losses.append(Losses(tick.start, source, LOST_EVENTS, count, text))
    thinned = {name: [values[index] for index in kept] for name, values in events.items()}
    return {**rows, "cgroup_events": thinned}, losses


def _place(path: str) -> str:
    """What the cgroups at a path are accounted to: the container, service or scope above them, else the second level
    of the hierarchy. A process that may make cgroups in one place has one share, however deep they are."""
    parent = path.rpartition("/")[0]
    place = accounted_cgroup(parent)
    return place if place != parent else "/".join(parent.split("/")[:3]) or "/"


class UnifiedHierarchy:
    """v2: the kernel counts the dying itself, below every cgroup."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._path = hierarchy.path
        # A part of the hierarchy is named by the path it has here.
        self._root_name = "" if hierarchy.whole else "/"
        self._pace = Pace(_EVERY_S)

    def read(self, tick: Tick) -> list[CountRow]:
        if not self._pace.due(tick.end):
            return []
        rows: list[CountRow] = []
        budget = _PARENTS_AT_MOST
        pending: list[tuple[Path, str, int]] = [(self._path, self._root_name, 0)]
        while pending and budget:
            path, name, level = pending.pop(0)
            budget -= 1
            counts = count_below(path)
            if counts is None:
                continue
            visible, dying = counts
            if dying or level == 0:
                rows.append((UNIFIED, name, visible + dying, visible, dying))
            if dying and level < _PARENT_LEVELS:
                base = name.rstrip("/")
                pending += [(path / child, f"{base}/{child}", level + 1) for child in subdirectories(path)]
        self._pace.done(tick.end)
        return rows


class ChurnSource:
    """Rows of cgroup_events with op `churn`; goes by the walks of the cgroups source, which must be read first."""

    name = "cgroup-churn"

    def __init__(self, memory: MemoryHierarchy | None) -> None:
        if memory is None:
            remedy = "mount tracefs at /sys/kernel/tracing, with CAP_PERFMON or root"
            raise SourceUnavailable(self.name, "cgroups of v2 can't be counted by their numbers", remedy)
        self._memory = memory
        self._walks = memory.walks
        self._newest = 0

    def read(self, tick: Tick) -> TickRows:
        if self._memory.walks == self._walks:
            return NOTHING
        self._walks = self._memory.walks
        inode, path = self._memory.tree.newest
        before, self._newest = self._newest, max(inode, self._newest)
        hierarchy = self._memory.hierarchy_id
        made = None
        if before and hierarchy is not None:
            with contextlib.suppress(OSError), os.scandir(path) as entries:
                files = sum(1 for entry in entries if not entry.is_dir(follow_symlinks=False))
                made = cgroups_between(before, inode, files)
        rows = [(tick.start, hierarchy, "churn", made)] if made else []
        return table_rows("cgroup_events", ("time", "hierarchy", "op", "created"), rows)

    def close(self) -> None:
        """Nothing is held open."""


def cgroups_between(before: int, now: int, files: int) -> int | None:
    """Cgroups made while the newest directory's number went from one to the other, with so many files in each.

    kernfs numbers directories and files in the order in which they are made (fs/kernfs/dir.c, __kernfs_new_node).
    None when the numbers began again (above 32 bits is the round that they are in), or when nothing can be known.
    """
    if files <= 0 or now <= before or now >> 32 != before >> 32:
        return None
    return round((now - before) / (files + 1))
