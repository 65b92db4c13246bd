"""What a lab of zombies leaves on a machine, recorded before it is made, so that it can be removed even after kill -9.

Each lab is a directory below the work directory: its files, its mount points, and the list of what lies elsewhere (a
cgroup, processes). The directory is locked while a process works on the lab; the kernel takes the lock back when that
process dies.
"""

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from exhume.control.files import lock_directory, write_atomic
from exhume.control.journal import JournalError, read_document
from exhume.lab.processes import Process
from exhume.model.clock import read_boot_id
from exhume.model.errors import LabError

DEFAULT_WORK = Path("/var/lib/exhume-lab")
_LIST = "traces.json"
ASIDE = ".exhume-lab-"
_VERSION = 1


@dataclass
class Traces:
    """One lab. `cgroup_inode` is None until the cgroup is known to be made by this lab, `finished` False until all its
    zombies are made and counted."""

    directory: Path
    boot: str
    pin: str
    cgroup: Path
    cgroup_version: int
    cgroup_inode: int | None = None
    zombies: int = 0
    finished: bool = False
    processes: list[Process] = field(default_factory=list)
    _lock: int = field(default=-1, repr=False)

    @classmethod
    def begin(cls, directory: Path, pin: str, cgroup: Path, cgroup_version: int) -> Self:
        """Claim a directory. Raises FileExistsError when there is one already."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        if directory.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(directory))
        # Made aside and renamed: however early it is killed, what it leaves is known as the lab's.
        aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=directory.parent))
        aside.chmod(0o755)
        traces = cls(aside, read_boot_id(), pin, cgroup, cgroup_version)
        if not traces.lock():
            raise LabError(f"{directory.parent} is being cleaned; try again")
        traces.save()
        aside.rename(directory)
        traces.directory = directory
        return traces

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The lab of a directory; None when it holds none."""
        try:
            content = read_document(directory / _LIST, _VERSION)
        except FileNotFoundError:
            return None
        except JournalError as error:
            raise LabError(str(error)) from None
        processes = [Process(**each) for each in content.pop("processes")]
        return cls(directory=directory, cgroup=Path(content.pop("cgroup")), processes=processes, **content)

    def save(self) -> None:
        """Write the list, whole or not at all."""
        content = asdict(self) | {"version": _VERSION, "cgroup": os.fspath(self.cgroup)}
        del content["directory"], content["_lock"]
        write_atomic(self.path, json.dumps(content).encode(), 0o644)

    def lock(self) -> bool:
        """Take the lab for this process; False when another one has it."""
        self._lock = lock_directory(self.directory)
        return self._lock >= 0

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def path(self) -> Path:
        """Where the list is."""
        return self.directory / _LIST

    @property
    def of_this_boot(self) -> bool:
        """A reboot takes everything but the files."""
        return self.boot == read_boot_id()


def labs_in(work: Path) -> Iterator[Path]:
    """The directories of the labs below a work directory, oldest first."""
    try:
        found = [entry for entry in work.iterdir() if entry.name.startswith(ASIDE) or (entry / _LIST).is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return
    yield from sorted(found, key=lambda directory: directory.stat().st_mtime_ns)
