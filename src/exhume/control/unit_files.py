"""The files of exhume in the node's unit directory: drop-ins that hold a unit back, and links that mask a unit.

Files of others are never touched: obstacles are reported, and files changed since are left in place.
"""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from exhume.control.files import sync_directory, write_new
from exhume.control.managers import ActionFailed, Kept
from exhume.control.systemd import check_unit_name
from exhume.model.audit import OWN_DROP_IN

UNITS = "/etc/systemd/system"
NOWHERE = "/dev/null"
_LONGEST_NAME = 255
_RESET = re.compile(r"^[ \t]*Condition\w+[ \t]*=[ \t]*$", re.MULTILINE)
_TEMPORARY = ".90-exhume.new"


def directory_of(unit: str) -> str:
    """The node's directory for drop-ins of a unit."""
    return f"{UNITS}/{check_unit_name(unit)}.d"


def drop_in_of(unit: str) -> str:
    """The path of exhume's drop-in on the node."""
    return f"{directory_of(unit)}/{OWN_DROP_IN}"


def mask_of(unit: str) -> str:
    """The path of the link that masks a unit."""
    return f"{UNITS}/{check_unit_name(unit)}"


def has_room_for_drop_in(unit: str) -> bool:
    """Whether the name of the drop-in directory fits into the file system's limit."""
    return len(f"{unit}.d".encode()) <= _LONGEST_NAME


def drop_in_text(unit: str, fix: str, when: str) -> str:
    """The drop-in that holds a unit back: a condition that fails as long as this very file exists."""
    return (
        f"# Made by exhume fix, {fix}, at {when}; `exhume fix rollback {fix}` removes it.\n"
        "# It keeps the unit from being started, also at boot, without touching any other file.\n"
        "[Unit]\n"
        f"ConditionPathExists=!{drop_in_of(unit)}\n"
    )


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """exhume's files on the node; `resolve` maps a path on the node to its path as seen from here."""

    resolve: Callable[[str], Path]

    def drop_in_obstacle(self, unit: str) -> str:
        """Why exhume can't have a drop-in, in a sentence; empty if it can."""
        if not has_room_for_drop_in(unit):
            return "its name is too long for a directory of drop-ins"
        directory, file = self._place(unit)
        if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
            return f"{directory_of(unit)} is not a plain directory"
        if os.path.lexists(file):
            return f"{drop_in_of(unit)} is there already"
        return self._read_only(directory)

    def is_held(self, unit: str) -> bool:
        """Whether something exists at the path of exhume's drop-in."""
        return os.path.lexists(self._place(unit)[1])

    def drop_in_now(self, unit: str) -> str:
        """The content of exhume's drop-in, or of whatever is in its place; empty if there is nothing."""
        try:
            return (_content(self._place(unit)[1]) or b"").decode(errors="replace")
        except OSError:
            return ""

    def undone_by(self, fingerprint: Mapping[str, str]) -> str:
        """A drop-in of others that is read later and resets all conditions, including exhume's; empty if none."""
        for name in fingerprint.get("drop_ins", "").split():
            if name.startswith("/") and name.rpartition("/")[2] > OWN_DROP_IN:
                with contextlib.suppress(OSError):
                    if _RESET.search(self.resolve(name).read_text(errors="replace")):
                        return name
        return ""

    def mask_obstacle(self, unit: str) -> str:
        """Why the unit can't be masked by a link; empty if it can."""
        if os.path.lexists(self._link(unit)):
            return f"{mask_of(unit)} is there already"
        return self._read_only(self.resolve(UNITS))

    def look(self, unit: str) -> dict[str, bool]:
        """The state needed to remove a drop-in later: whether its directories existed."""
        directory, _ = self._place(unit)
        return {"directory": directory.is_dir(), "units": directory.parent.is_dir()}

    def write_drop_in(self, unit: str, text: str) -> None:
        """Create the drop-in; does nothing if it already has this content. Raises ActionFailed."""
        directory, file = self._place(unit)
        try:
            for each in (directory.parent, directory):
                with contextlib.suppress(FileExistsError):
                    each.mkdir(mode=0o755)
                    each.chmod(0o755)
                    sync_directory(each.parent)
            if not stat.S_ISDIR(directory.lstat().st_mode):
                raise ActionFailed(f"{directory_of(unit)} is not a plain directory; nothing was written there")
            if os.path.lexists(file):
                if _content(file) == text.encode():
                    return
                raise ActionFailed(f"{drop_in_of(unit)} is there already, and not exhume's; look at it, and remove it")
            write_new(directory / _TEMPORARY, text.encode(), 0o644)
            (directory / _TEMPORARY).rename(file)
            sync_directory(directory)
        except OSError as error:
            raise ActionFailed(f"{drop_in_of(unit)} can't be written: {error.strerror}") from None

    def remove_drop_in(self, unit: str, text: str, before: dict[str, bool]) -> bool:
        """Remove the drop-in and the directories created for it; False if it did not exist. Raises Kept if it is no
        longer what exhume wrote, and ActionFailed."""
        directory, file = self._place(unit)
        try:
            if directory.is_symlink() or (os.path.lexists(file) and _content(file) != text.encode()):
                raise Kept(f"{drop_in_of(unit)} was changed since, so it is left; look at it, and remove it")
            there = os.path.lexists(file)
            # On a read-only file system, unlink fails even for a file that does not exist.
            for each in filter(os.path.lexists, (file, directory / _TEMPORARY)):
                each.unlink(missing_ok=True)
            if directory.is_dir():
                sync_directory(directory)
            for name, path in (("directory", directory), ("units", directory.parent)):
                if path.is_dir() and not before.get(name, True):
                    _remove_if_empty(path)
        except NotADirectoryError:
            return False
        except OSError as error:
            raise ActionFailed(f"{drop_in_of(unit)} can't be removed: {error.strerror}") from None
        return there

    def mask(self, unit: str) -> None:
        """Create the link; does nothing if it exists. Raises ActionFailed."""
        link = self._link(unit)
        try:
            if _is_mask(link):
                return
            link.symlink_to(NOWHERE)
            sync_directory(link.parent)
        except FileExistsError:
            raise ActionFailed(f"{mask_of(unit)} is there already, so {unit} can't be masked") from None
        except OSError as error:
            raise ActionFailed(f"{mask_of(unit)} can't be made: {error.strerror}") from None

    def unmask(self, unit: str) -> bool:
        """Remove the link; False if it did not exist. Raises Kept if something else is in its place."""
        link = self._link(unit)
        if not os.path.lexists(link):
            return False
        if not _is_mask(link):
            raise Kept(f"{mask_of(unit)} is no longer the link that exhume made, so it is left")
        try:
            link.unlink()
            sync_directory(link.parent)
        except OSError as error:
            raise ActionFailed(f"{mask_of(unit)} can't be removed: {error.strerror}") from None
        return True

    def _read_only(self, directory: Path) -> str:
        """Why nothing can be written there, judged by the nearest existing directory; empty if it is writable."""
        there = next((each for each in (directory, *directory.parents) if each.is_dir()), directory)
        return "" if os.access(there, os.W_OK) else f"{UNITS} can't be written to: its file system is read-only"

    def _link(self, unit: str) -> Path:
        return self.resolve(UNITS) / check_unit_name(unit)

    def _place(self, unit: str) -> tuple[Path, Path]:
        directory = self.resolve(UNITS) / f"{check_unit_name(unit)}.d"
        return directory, directory / OWN_DROP_IN


def _content(path: Path) -> bytes | None:
    """Read a regular file; None for anything else."""
    return path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else None


def _is_mask(link: Path) -> bool:
    return link.is_symlink() and os.fspath(link.readlink()) == NOWHERE


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        try:
            directory.rmdir()
            sync_directory(directory.parent)
        except OSError:
            # Another process put something there in the meantime.
            if not directory.is_dir() or not any(directory.iterdir()):
                raise
