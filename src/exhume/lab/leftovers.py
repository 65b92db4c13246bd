"""What a scenario leaves on the machine, written down before it is made: `lab clean` removes it even after kill -9.

Entries are undone in the reverse of their order. Each names something of the lab's own: a process by number and start,
a cgroup, mount point or network namespace that the scenario made, a setting with the value that it had.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from exhume.collect.host import Host
from exhume.lab.memory_hierarchy import remove_below
from exhume.lab.processes import Process
from exhume.lab.traces import boot_id, lock_directory
from exhume.model.errors import LabError

_LIST = "leftovers.json"


@dataclass
class Leftovers:
    """The list of one scenario's run, kept in its directory, which is locked while the run lasts."""

    directory: Path
    boot: str
    entries: list[dict[str, str | int]] = field(default_factory=list)
    _lock: int = -1

    @classmethod
    def begin(cls, directory: Path) -> "Leftovers":
        directory.mkdir(parents=True, mode=0o755)
        leftovers = cls(directory, boot_id(Host()))
        leftovers._lock = lock_directory(directory)
        leftovers._save()
        return leftovers

    @classmethod
    def read(cls, directory: Path) -> "Leftovers | None":
        """The list of a directory; None where it holds none."""
        try:
            content = json.loads((directory / _LIST).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError:
            raise LabError(f"{directory / _LIST} is damaged; remove what it names by hand") from None
        return cls(directory, content["boot"], content["entries"])

    def take(self) -> bool:
        """Lock a list that was read; False while its run is still going on."""
        self._lock = lock_directory(self.directory)
        return self._lock >= 0

    def note(self, kind: str, **what: str | int) -> None:
        """Write down what is about to be made. Kinds: process (pid, started), cgroup (path), mount (path),
        netns (name), setting (path, value)."""
        self.entries.append({"kind": kind, **what})
        self._save()

    def undo(self) -> list[str]:
        """Remove everything; returns what could not be, in words. The list goes last."""
        failed = []
        if self.boot == boot_id(Host()):
            for entry in reversed(self.entries):
                try:
                    _UNDO[str(entry["kind"])](entry)
                except OSError as error:
                    failed.append(f"{entry}: {error.strerror}")
        if not failed:
            shutil.rmtree(self.directory, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        return failed

    def _save(self) -> None:
        beside = self.directory / f".{_LIST}"
        beside.write_text(json.dumps({"boot": self.boot, "entries": self.entries}))
        beside.rename(self.directory / _LIST)


def _end_process(entry: dict[str, str | int]) -> None:
    Process(int(entry["pid"]), int(entry["started"])).kill()


def _remove_cgroup(entry: dict[str, str | int]) -> None:
    path = Path(str(entry["path"]))
    if path.is_dir():
        remove_below(path, path.stat().st_ino)


def _unmount(entry: dict[str, str | int]) -> None:
    # There is no unmount in the standard library, and umount(8) is on every machine.
    subprocess.run(["umount", "-l", str(entry["path"])], check=False, capture_output=True)


def _remove_netns(entry: dict[str, str | int]) -> None:
    subprocess.run(["ip", "netns", "del", str(entry["name"])], check=False, capture_output=True)


def _restore_setting(entry: dict[str, str | int]) -> None:
    with contextlib.suppress(FileNotFoundError):
        Path(str(entry["path"])).write_text(str(entry["value"]))


_UNDO: dict[str, Callable[[dict[str, str | int]], None]] = {
    "process": _end_process,
    "cgroup": _remove_cgroup,
    "mount": _unmount,
    "netns": _remove_netns,
    "setting": _restore_setting,
}


def left_in(work: Path) -> list[Leftovers]:
    """The lists of all runs below a work directory, the oldest first."""
    try:
        found = sorted(entry for entry in work.iterdir() if (entry / _LIST).is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [each for each in map(Leftovers.read, found) if each is not None]
