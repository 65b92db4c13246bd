"""What a scenario leaves on the machine, written down before it is made: `lab clean` removes it even after kill -9.

The list is a file of lines in the run's directory: the first says which boot it is of, each of the others names one
thing of the lab's own (undo.py has the kinds). They are undone in the reverse of their order. The directory is locked
while the run lasts; the kernel takes the lock back when its process dies.
"""

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from exhume.lab.programs.keeper import end_marked
from exhume.lab.traces import ASIDE, DEFAULT_WORK, boot_id, lock_directory
from exhume.lab.undo import UNDO, Entry, unmount_below
from exhume.model.errors import LabError
from exhume.procfs.host import Host

_LIST = "leftovers.jsonl"
_VERSION = 1


@dataclass
class Leftovers:
    """The list of one scenario's run."""

    directory: Path
    boot: str
    entries: list[Entry] = field(default_factory=list)
    _lock: int = -1

    @classmethod
    def begin(cls, directory: Path) -> "Leftovers":
        """Claim a directory. Made aside and renamed: however early it is killed, what it leaves is known as ours."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=directory.parent))
        aside.chmod(0o755)
        leftovers = cls(aside, boot_id(Host()))
        if not leftovers.take():
            raise LabError(f"{directory.parent} is being cleaned; try again")
        leftovers._append({"version": _VERSION, "boot": leftovers.boot})
        aside.rename(directory)
        leftovers.directory = directory
        return leftovers

    @classmethod
    def read(cls, directory: Path) -> "Leftovers | None":
        """The list of a directory; None where it holds none."""
        path = directory / _LIST
        try:
            lines = path.read_bytes().split(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            return None
        # What comes after the last line's end was being written when its writer died: it was not made yet.
        try:
            head, *entries = [json.loads(line) for line in lines[:-1]]
            found = cls(directory, str(head["boot"]), entries)
            version = head["version"]
            known = all(isinstance(entry["kind"], str) for entry in entries)
        except (ValueError, KeyError, TypeError):
            known = False
        if not known:
            raise LabError(f"{path} is damaged; remove what it names by hand, then {directory}")
        if version != _VERSION or any(entry["kind"] not in UNDO for entry in entries):
            raise LabError(f"{directory} was made by another version of exhume; clean it with that one")
        return found

    def take(self) -> bool:
        """Lock the list; False while its run is still going on."""
        self._lock = lock_directory(self.directory)
        return self._lock >= 0

    def note(self, kind: str, **what: str | int) -> None:
        """Write down what is about to be made; undo.py has the kinds and what each needs."""
        if kind not in UNDO:
            raise ValueError(f"nothing undoes {kind!r}")
        entry: Entry = {"kind": kind, **what}
        self._append(entry)
        self.entries.append(entry)

    def undo(self) -> list[str]:
        """Remove everything; returns what could not be, in words. The list goes last."""
        failed = []
        if self.boot == boot_id(Host()):
            stuck = end_marked(self.directory.name)
            failed += [f"process {pid} doesn't end: it is stuck in the kernel" for pid in stuck]
            for entry in reversed(self.entries):
                try:
                    UNDO[str(entry["kind"])](entry)
                except OSError as error:
                    failed.append(f"{_told(entry)}: {(error.strerror or str(error)).lower()}")
                except LabError as error:
                    failed.append(str(error))
            # A file system that is still mounted in it would lose its files with it.
            failed += unmount_below(self.directory)
        if not failed:
            self._remove_directory(failed)
        self.release()
        return failed

    def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _remove_directory(self, failed: list[str]) -> None:
        for path in self.directory.iterdir():
            if path.name == _LIST:
                continue
            try:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            except OSError as error:
                failed.append(f"{error.filename}: {(error.strerror or '').lower()}")
        if not failed:
            shutil.rmtree(self.directory)
            if self.directory.parent == DEFAULT_WORK:
                # Another run may still be in it.
                with contextlib.suppress(OSError):
                    DEFAULT_WORK.rmdir()

    def _append(self, content: Entry) -> None:
        with (self.directory / _LIST).open("ab") as file:
            file.write(json.dumps(content).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def left_in(work: Path) -> list[Path]:
    """The directories of all runs below a work directory, the oldest first."""
    try:
        found = [entry for entry in work.iterdir() if (entry / _LIST).is_file() and not entry.name.startswith(ASIDE)]
        return sorted(found, key=lambda directory: directory.stat().st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _told(entry: Entry) -> str:
    what = ", ".join(str(value) for key, value in entry.items() if key != "kind")
    return f"{entry['kind']} {what}"
