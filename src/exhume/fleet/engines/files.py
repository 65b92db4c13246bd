"""The files of a lake that hold the rows of a window, found by partition names."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow.fs as pafs

from exhume.fleet.lake import SUFFIX, Lake
from exhume.fleet.schema import LakeTable
from exhume.model.clock import NANOS, Window

# Nodes whose clock is off may have rows in partitions next to those of the window.
_CLOCKS_OFF_NS = 2 * 3600 * NANOS
_DATE = re.compile(r"(?:^|/)date=(\d{4}-\d{2}-\d{2})(?:/hour=(\d{2}))?/")


@dataclass(frozen=True, slots=True)
class LakeFiles:
    """Parquet files of one table: their paths in the lake's file system, and their sizes."""

    lake: Lake
    paths: tuple[str, ...]
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def part(self, begin: int, end: int) -> "LakeFiles":
        return LakeFiles(self.lake, self.paths[begin:end], self.sizes[begin:end])


def list_files(lake: Lake, table: LakeTable, window: Window) -> LakeFiles:
    """The files of a table, oldest first, whose partition may hold rows of the window, including rows of nodes whose
    clock is off by up to two hours. Raises LakeError."""
    window = Window(max(0, window.since - _CLOCKS_OFF_NS), window.until + _CLOCKS_OFF_NS)
    first, last = _day(window.since), _day(window.until)
    kept = []
    for each in lake.listed(table.name, recursive=True):
        if each.type is not pafs.FileType.File or not _is_data(each.base_name):
            continue
        day = _DATE.search(each.path, each.path.rfind("/date="))
        if day is not None and first <= day[1] <= last and _in_hours(day, window):
            kept.append((each.path, each.size or 0))
    kept.sort()
    return LakeFiles(lake, tuple(path for path, _ in kept), tuple(size for _, size in kept))


def newest_date(lake: Lake, table: LakeTable) -> str | None:
    """The newest date for which a table has a partition. Raises LakeError."""
    days = [
        day[1] for each in lake.listed(table.name) if (day := _DATE.search(each.path + "/", each.path.rfind("/date=")))
    ]
    return max(days, default=None)


def _is_data(name: str) -> bool:
    # A file that is still being written has another name.
    return name.endswith(SUFFIX) and not name.startswith((".", "_"))


def _day(wall: int) -> str:
    return f"{datetime.fromtimestamp(wall / NANOS, UTC):%Y-%m-%d}"


def _in_hours(day: re.Match[str], window: Window) -> bool:
    if day[2] is None:
        return True
    try:
        begin = datetime.strptime(f"{day[1]} {day[2]}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    except ValueError:
        return False
    end = begin + timedelta(hours=1)
    return begin.timestamp() * NANOS < window.until and end.timestamp() * NANOS > window.since
