"""How many cgroups the kernel has, and how many are visible and dying, every ten seconds; and, without a tracepoint to
count them, how many were created in between (churn)."""

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
# Until the first count a slice may cost more: without it the number of live cgroups is unknown.
_EARLY_SLICE_NS = 12 * MILLIS
# How often to check a tree against the files if it is too large for one slice and is kept current by tracepoints.
_RECONCILE_S = 60.0
_PARENT_LEVELS = 3
_PARENTS_AT_MOST = 512

# Losses of a source that traces cgroups, which may include a mkdir or rmdir.
LOST_EVENTS = "lost-cgroup-events"
MISSED_EVENTS = frozenset(("lost-task-records", "damaged-task-bytes", LOST_EVENTS, "source-failed"))

# How many rows of cgroup_events are kept per tick. A container start of runc makes 40 to 60 (v1: in every hierarchy).
MOST_EVENTS = 4096
# mkdir, rmdir and release: all of a cgroup's events in a tick are kept, or none.
_EVENTS_OF_CGROUP = 3
# How many places that exceed their share are named in one tick.
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
            # The first tick only sets the base of counters, of which there are none here; the first count goes into a
            # real tick.
            return NOTHING
        rows = [*(self.v1.read(tick) if self.v1 else ()), *(self._v2.read(tick) if self._v2 else ())]
        names = ("time", "hierarchy", "parent", "kernel", "visible", "dying")
        return table_rows("cgroups", names, [(tick.start, *row) for row in rows])

    def close(self) -> None:
        if self.v1:
            self.v1.close()


class MemoryHierarchy:
    """The v1 memory hierarchy: the kernel's count, and the directories that can be seen.

    Both must be from the same moment. That holds for a tree that is walked within one tick. For a larger tree it holds
    when tracepoints report its mkdirs and rmdirs (`follow`), or when the kernel's count did not change during the walk.
    Otherwise the number of visible cgroups is unknown.
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
        """The hierarchy number in tracepoints."""
        return self._counter.number

    def follow(self, op: str, path: str) -> None:
        """Apply a mkdir or rmdir in this hierarchy. The tracepoints must report all of them, in order."""
        self._following = True
        if op == "mkdir":
            self.tree.made(path)
        elif op == "rmdir":
            self.tree.removed(path)

    def follow_from_now(self) -> None:
        """Tracepoints are on: from now on `follow` is called for every mkdir and rmdir."""
        self._following = True

    def lost_track(self) -> None:
        """Events were lost: only another walk can find the current directories."""
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
            # Whether the visible count of the walk that just ended matches one moment.
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
    """Feeds the mkdirs and rmdirs that a source traces to the v1 memory hierarchy, so its count stays current without a
    walk."""

    def __init__(self, memory: MemoryHierarchy) -> None:
        self._memory = memory
        self._hierarchy: int | None = None
        memory.follow_from_now()

    def observe(self, rows: TickRows, losses: Sequence[Losses]) -> None:
        """Process a tick of the tracing source."""
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
    """The rows of a tracing source with at most `most` cgroup_events, and the resulting losses. If a tick has more,
    each place (a container, a service, or a directory made by hand) has an equal share, and loses what exceeds it."""
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
    """What the cgroups at a path are charged to: the container, service or scope above them, else the second level of
    the hierarchy. A process that may make cgroups in one place has one share, however deep they are."""
    parent = path.rpartition("/")[0]
    place = accounted_cgroup(parent)
    return place if place != parent else "/".join(parent.split("/")[:3]) or "/"


class UnifiedHierarchy:
    """The v2 hierarchy: the kernel itself counts the dying cgroups below every cgroup."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._path = hierarchy.path
        # A partial hierarchy gets the path that it has here as its name.
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
    """Rows of cgroup_events with op `churn`; relies on the walks of the cgroups source, which must be read first."""

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
        """No resources to release."""


def cgroups_between(before: int, now: int, files: int) -> int | None:
    """How many cgroups were created while the newest directory's number rose from `before` to `now`, with `files` files
    in each.

    kernfs numbers directories and files in creation order (fs/kernfs/dir.c, __kernfs_new_node). None when the numbers
    wrapped around (the generation is above bit 32), or when nothing can be known.
    """
    if files <= 0 or now <= before or now >> 32 != before >> 32:
        return None
    return round((now - before) / (files + 1))
