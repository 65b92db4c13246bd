"""The directories of a cgroup hierarchy, kept current without listing them again and again.

A directory's link count is two more than its subdirectories (fs/kernfs/inode.c, kernfs_refresh_inode). So a directory
with the expected count whose known children all still exist needs no listing: one `stat` per cgroup instead of reading
some forty file names. A walk is done in slices, so 100,000 cgroups do not hold up a tick. Where tracepoints report each
mkdir and rmdir, the tree follows them between walks.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

_STATS_BETWEEN_LOOKS_AT_THE_CLOCK = 32
_NAMES_BETWEEN_LOOKS_AT_THE_CLOCK = 256
_LISTINGS_AT_MOST = 3


class Directory:
    """A cgroup directory and those below it, by name."""

    __slots__ = ("children",)

    def __init__(self) -> None:
        # None until there is a child: most cgroups are leaves, and there may be very many.
        self.children: dict[str, Directory] | None = None


class CgroupTree:
    """The visible directories of one hierarchy."""

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._root = Directory()
        self._walk: Iterator[None] | None = None
        self._newest = (0, "")
        self.visible = 1
        # Directories that may not be listed; `visible` does not include what is below them.
        self.unreadable: set[str] = set()

    def begin(self) -> None:
        """Start a walk over the whole tree, unless one is in progress."""
        if self._walk is None:
            self._newest = (0, "")
            self.unreadable.clear()
            self._walk = self._steps()

    @property
    def walking(self) -> bool:
        return self._walk is not None

    @property
    def newest(self) -> tuple[int, str]:
        """Inode and path of the newest directory seen by a complete walk; (0, "") if none."""
        return self._newest

    def advance(self, budget_ns: int) -> bool:
        """Continue the walk for about this much CPU time; True when it is complete."""
        if self._walk is None:
            return True
        deadline = time.thread_time_ns() + budget_ns
        for _ in self._walk:
            if time.thread_time_ns() >= deadline:
                return False
        self._walk = None
        return True

    def walk(self) -> None:
        """Walk the whole tree at once."""
        self.begin()
        for _ in self._walk or ():
            pass
        self._walk = None

    def cgroups(self) -> Iterator[tuple[str, list[str]]]:
        """Every known directory by its path in the hierarchy ("" is the root), with the names of its children; parents
        come before their children."""
        pending = [("", self._root)]
        while pending:
            path, directory = pending.pop()
            children = directory.children or {}
            yield path, list(children)
            pending += [(f"{path}/{name}", child) for name, child in children.items()]

    def made(self, path: str) -> None:
        """Add a cgroup whose creation a tracepoint reported; no effect if it is known."""
        parent, name = self._locate(path)
        if parent is not None and name:
            if parent.children is None:
                parent.children = {}
            if name not in parent.children:
                parent.children[name] = Directory()
                self.visible += 1

    def removed(self, path: str) -> None:
        """Remove a cgroup whose removal a tracepoint reported; no effect if it is unknown."""
        parent, name = self._locate(path)
        if parent is not None:
            self._forget(parent, name)

    def _locate(self, path: str) -> tuple[Directory | None, str]:
        parts = [part for part in path.split("/") if part]
        if not parts:
            return None, ""
        directory: Directory | None = self._root
        for part in parts[:-1]:
            if directory is None or directory.children is None:
                return None, ""
            directory = directory.children.get(part)
        return directory, parts[-1]

    def _forget(self, parent: Directory, name: str) -> None:
        gone = parent.children.pop(name, None) if parent.children else None
        if gone is not None:
            self.visible -= _size(gone)
        if not parent.children:
            parent.children = None

    def _steps(self) -> Iterator[None]:
        """Walk the tree, pausing now and then."""
        pending = [(self._path, self._root, _links(self._path))]
        while pending:
            path, directory, links = pending.pop()
            if len(directory.children or ()) != links - 2:
                yield from self._list(path, directory)
            yield from self._check(path, directory, pending)

    def _check(self, path: str, directory: Directory, pending: list[tuple[str, Directory, int]]) -> Iterator[None]:
        """Check every child once, and queue those with children of their own."""
        checked: set[str] = set()
        try:
            # Look up names relative to this directory: a third cheaper than by full path.
            here = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            self.unreadable.add(path)
            return
        except OSError:
            return
        try:
            for _ in range(_LISTINGS_AT_MOST):
                vanished = False
                for count, name in enumerate([name for name in directory.children or () if name not in checked]):
                    child = directory.children.get(name) if directory.children else None
                    if child is None:
                        continue
                    try:
                        stat = os.stat(name, dir_fd=here)
                    except OSError:
                        # Another directory may have replaced it.
                        vanished = True
                        continue
                    checked.add(name)
                    if stat.st_ino > self._newest[0]:
                        self._newest = (stat.st_ino, f"{path}/{name}")
                    # Filesystems that do not count links (never cgroups) report 1: then only a listing helps.
                    if stat.st_nlink != 2 or child.children:
                        pending.append((f"{path}/{name}", child, stat.st_nlink))
                    if count % _STATS_BETWEEN_LOOKS_AT_THE_CLOCK == _STATS_BETWEEN_LOOKS_AT_THE_CLOCK - 1:
                        yield
                if not vanished:
                    return
                yield from self._list(path, directory)
        finally:
            os.close(here)

    def _list(self, path: str, directory: Directory) -> Iterator[None]:
        """Update a directory's children from a listing."""
        names: set[str] = set()
        try:
            with os.scandir(path) as entries:
                for count, entry in enumerate(entries):
                    if entry.is_dir(follow_symlinks=False):
                        names.add(entry.name)
                    if count % _NAMES_BETWEEN_LOOKS_AT_THE_CLOCK == _NAMES_BETWEEN_LOOKS_AT_THE_CLOCK - 1:
                        yield
        except OSError as error:
            names.clear()
            if isinstance(error, PermissionError):
                self.unreadable.add(path)
        for name in set(directory.children or ()) - names:
            # A child that a tracepoint reported after the listing had passed its position still exists.
            if _links(f"{path}/{name}") == 0:
                self._forget(directory, name)
        for name in names:
            if directory.children is None:
                directory.children = {}
            if name not in directory.children:
                directory.children[name] = Directory()
                self.visible += 1


def _links(path: str) -> int:
    """The link count of a directory; 0 when it is gone."""
    try:
        return Path(path).stat().st_nlink
    except OSError:
        return 0


def _size(directory: Directory) -> int:
    """The number of directories in a subtree, including its root."""
    count, pending = 0, [directory]
    while pending:
        each = pending.pop()
        count += 1
        if each.children:
            pending.extend(each.children.values())
    return count
