"""The processes that were sampled: each told once per segment, and again after an exec."""

from collections.abc import Iterable
from dataclasses import replace

from exhume.collect.processes import ProcessReader
from exhume.model.tables import Columns, Processes, to_columns

# Reading a process costs about 50 us; in a fork storm the rest waits for the next tick, if it lives that long.
DESCRIBED_PER_TICK = 64
KNOWN = 4096


class ProcessBook:
    """Describes sampled processes from /proc; what is already gone inherits its parent's cgroup."""

    def __init__(self, reader: ProcessReader) -> None:
        self._reader = reader
        self._known: dict[int, Processes] = {}
        self._told: set[int] = set()

    def changed(self, pids: Iterable[int]) -> None:
        """These run another program now."""
        for pid in pids:
            self._known.pop(pid, None)
            self._told.discard(pid)

    def begin_segment(self) -> None:
        self._told.clear()

    def rows(self, time: int, seen: Iterable[tuple[int, int | None, str]]) -> Columns | None:
        """Rows for those of `seen` (pid, parent if known, name) that the segment doesn't have yet."""
        if len(self._known) > KNOWN:
            self._known.clear()
        rows: list[Processes] = []
        described = 0
        for pid, parent, name in seen:
            if pid in self._told:
                continue
            row = self._known.get(pid)
            if row is None:
                if described >= DESCRIBED_PER_TICK:
                    continue
                described += 1
                row = self._describe(pid, parent, name, time)
                self._known[pid] = row
            self._told.add(pid)
            rows.append(row)
        return to_columns("processes", rows) if rows else None

    def _describe(self, pid: int, parent: int | None, name: str, time: int) -> Processes:
        row = Processes(time=time, **self._reader.describe(pid))
        if row.start is not None:
            return row
        row = replace(row, comm=name, ppid=parent)
        relative = self._known.get(parent) if parent is not None else None
        if relative is not None:
            row = replace(
                row,
                cgroup=relative.cgroup,
                container=relative.container,
                pod=relative.pod,
                runtime=relative.runtime,
            )
        return row
