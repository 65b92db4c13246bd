"""Cgroups that live a short life below one of the test's own, so that what the kernel reports it can be compared."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.parts import missing

from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.model.tables import Columns
from exhume.procfs.host import Host


class CgroupLife:
    """Makes and removes a cgroup and one below it, in the memory hierarchy or the unified one."""

    def __enter__(self) -> "CgroupLife":
        layout = hierarchies(Host())
        hierarchy = find_v1(layout, "memory") or find_v2(layout)
        if hierarchy is None:
            missing("a cgroup hierarchy")
        self.name = f"exhume-test-{os.getpid()}-{time.monotonic_ns() % 10**6}"
        self._top = Path(hierarchy.path) / self.name
        self.began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        try:
            self._top.mkdir()
            (self._top / "below").mkdir()
            (self._top / "below").rmdir()
            self._top.rmdir()
        except OSError as error:
            self._clean()
            missing(f"a cgroup hierarchy to make cgroups in ({error.strerror})")
        self.ended = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return self

    def _clean(self) -> None:
        for directory in (self._top / "below", self._top):
            with suppress(OSError):
                directory.rmdir()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._clean()

    def collect(self, read: Callable[[], Columns | None]) -> list[dict[str, Any]]:
        """What is reported these cgroups, until both are released or it takes too long. On a busy machine the kernel
        gets to it late."""
        reported: list[dict[str, Any]] = []
        deadline = time.monotonic() + 60
        while sum(row["op"] == "release" for row in reported) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
            columns = read()
            if columns:
                rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
                reported += [row for row in rows if self.name in (row["path"] or "")]
        return reported

    def check(self, reported: list[dict[str, Any]]) -> None:
        top, below = f"/{self.name}", f"/{self.name}/below"
        made = [(row["op"], row["path"][-len(below) :]) for row in reported if row["op"] != "release"]
        made = [(op, path[path.index(top) :]) for op, path in made]
        assert made == [("mkdir", top), ("mkdir", below), ("rmdir", below), ("rmdir", top)]
        assert sorted(row["path"] for row in reported if row["op"] == "release") == sorted(
            {row["path"] for row in reported if row["op"] == "mkdir"}
        )
        own_name = Path("/proc/self/comm").read_text().strip()
        for row in reported[:4]:
            assert (row["pid"], row["comm"]) == (os.getpid(), own_name)
            assert self.began - 1000 <= row["time"] <= self.ended
        assert [row["time"] for row in reported] == sorted(row["time"] for row in reported)
        assert reported[-1]["time"] <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        levels = {row["path"]: row["level"] for row in reported}
        assert max(levels.values()) == min(levels.values()) + 1
        assert len({row["id"] for row in reported}) == 2
