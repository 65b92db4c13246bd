"""The files of exhume in the node's unit directory: drop-ins that hold a unit back, and links that mask one.

Files of others are never touched: what is in the way is reported, what was changed since is left.
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
    """Where the node looks for drop-ins of a unit."""
    return f"{UNITS}/{check_unit_name(unit)}.d"


def drop_in_of(unit: str) -> str:
    """The path of exhume's drop-in on the node."""
    return f"{directory_of(unit)}/{OWN_DROP_IN}"


def mask_of(unit: str) -> str:
    """The link that would mask a unit."""
    return f"{UNITS}/{check_unit_name(unit)}"


def has_room_for_drop_in(unit: str) -> bool:
    """Whether the directory's name isn't too long for a file system."""
    return len(f"{unit}.d".encode()) <= _LONGEST_NAME


def drop_in_text(unit: str, fix: str, when: str) -> str:
    """What holds a unit back: a condition that fails as long as this very file is there."""
    return (
        f"# Made by exhume fix, {fix}, at {when}; `exhume fix rollback {fix}` removes it.\n"
        "# It keeps the unit from being started, also at boot, without touching any other file.\n"
        "[Unit]\n"
        f"ConditionPathExists=!{drop_in_of(unit)}\n"
    )


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Files on the node; `resolve` leads from the node's name of a file to where it is from here."""

    resolve: Callable[[str], Path]

    def drop_in_obstacle(self, unit: str) -> str:
        """Why there can be no drop-in of exhume, in a sentence; empty where there can."""
        if not has_room_for_drop_in(unit):
            return "its name is too long for a directory of drop-ins"
        directory, file = self._place(unit)
        if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
            return f"{directory_of(unit)} is not a plain directory"
        if os.path.lexists(file):
            return f"{drop_in_of(unit)} is there already"
        return self._read_only(directory)

    def is_held(self, unit: str) -> bool:
        """Whether something is at the path of exhume's drop-in."""
        return os.path.lexists(self._place(unit)[1])

    def drop_in_now(self, unit: str) -> str:
        """The content of exhume's drop-in, or of what lies in its place; empty where there is none."""
        try:
            return (_content(self._place(unit)[1]) or b"").decode(errors="replace")
        except OSError:
            return ""

    def undone_by(self, fingerprint: Mapping[str, str]) -> str:
        """A drop-in of others that is read later and resets all conditions, exhume's with them; empty: none."""
        for name in fingerprint.get("drop_ins", "").split():
            if name.startswith("/") and name.rpartition("/")[2] > OWN_DROP_IN:
                with contextlib.suppress(OSError):
                    if _RESET.search(self.resolve(name).read_text(errors="replace")):
                        return name
        return ""

    def mask_obstacle(self, unit: str) -> str:
        """Why it can't be masked by a link."""
        if os.path.lexists(self._link(unit)):
            return f"{mask_of(unit)} is there already"
        return self._read_only(self.resolve(UNITS))

    def look(self, unit: str) -> dict[str, bool]:
        """What has to be known to take a drop-in away again: whether its directories were there."""
        directory, _ = self._place(unit)
        return {"directory": directory.is_dir(), "units": directory.parent.is_dir()}

    def write_drop_in(self, unit: str, text: str) -> None:
        """Make it; nothing happens where it is there as it should be. Raises ActionFailed."""
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
        """Take it away, with directories that were made for it; False where it was not there. Raises Kept where it is
        no longer what exhume wrote, and ActionFailed."""
        directory, file = self._place(unit)
        try:
            if directory.is_symlink() or (os.path.lexists(file) and _content(file) != text.encode()):
                raise Kept(f"{drop_in_of(unit)} was changed since, so it is left; look at it, and remove it")
            there = os.path.lexists(file)
            # On a file system that is read-only, even what is not there can't be removed.
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
        """Make the link; nothing happens where it is there. Raises ActionFailed."""
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
        """Take the link away; False where it was not there. Raises Kept where something else is there."""
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
        """Why nothing can be written there, by the directory that is there already; empty where it can."""
        there = next((each for each in (directory, *directory.parents) if each.is_dir()), directory)
        return "" if os.access(there, os.W_OK) else f"{UNITS} can't be written to: its file system is read-only"

    def _link(self, unit: str) -> Path:
        return self.resolve(UNITS) / check_unit_name(unit)

    def _place(self, unit: str) -> tuple[Path, Path]:
        directory = self.resolve(UNITS) / f"{check_unit_name(unit)}.d"
        return directory, directory / OWN_DROP_IN


def _content(path: Path) -> bytes | None:
    """What a plain file holds; None for anything else."""
    return path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else None


def _is_mask(link: Path) -> bool:
    return link.is_symlink() and os.fspath(link.readlink()) == NOWHERE


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        try:
            directory.rmdir()
            sync_directory(directory.parent)
        except OSError:
            # Another process put something there meanwhile.
            if not directory.is_dir() or not any(directory.iterdir()):
                raise
