"""The processes that were sampled: each told once per segment, and again after an exec."""

from collections.abc import Iterable, Set
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
        """These are new, or run another program now."""
        for pid in pids:
            self._known.pop(pid, None)
            self._told.discard(pid)

    def forget(self) -> None:
        """A number may by now belong to another process."""
        self._known.clear()
        self._told.clear()

    def begin_segment(self) -> None:
        self._told.clear()

    def rows(self, time: int, seen: Iterable[tuple[int, int | None, str]], gone: Set[int]) -> Columns | None:
        """Rows for those of `seen` (pid, parent if known, name) that the segment doesn't have; `gone` have ended."""
        if len(self._known) > KNOWN:
            self._known.clear()
        rows: list[Processes] = []
        described = 0
        for pid, parent, name in seen:
            if pid in self._told:
                continue
            row = self._known.get(pid)
            if row is None:
                if pid in gone:
                    row = Processes(time, pid)
                elif described >= DESCRIBED_PER_TICK:
                    continue
                else:
                    described += 1
                    row = Processes(time=time, **self._reader.describe(pid))
                if row.start is None:
                    row = self._inherited(row, parent, name)
                self._known[pid] = row
            self._told.add(pid)
            rows.append(row)
        return to_columns("processes", rows) if rows else None

    def _inherited(self, row: Processes, parent: int | None, name: str) -> Processes:
        """What the task records told about a process that is gone, and where its parent belongs."""
        relative = self._known.get(parent) if parent is not None else None
        if relative is None:
            return replace(row, comm=name, ppid=parent)
        return replace(
            row,
            comm=name,
            ppid=parent,
            cgroup=relative.cgroup,
            container=relative.container,
            pod=relative.pod,
            runtime=relative.runtime,
        )
