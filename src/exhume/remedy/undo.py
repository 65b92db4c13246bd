"""Undoing what a remedy changed for a while: at its end, and for one that was killed."""

import os
import stat
from pathlib import Path

from exhume.procfs.host import Host
from exhume.remedy.journal import Change, Journal
from exhume.remedy.swaps import is_on
from exhume.remedy.worker import Crew, JobFailed


def undo(journal: Journal, changes: list[Change], crew: Crew, host: Host) -> None:
    """Undo these changes, the last one first, and strike them from the journal. All are tried; then the first that
    could not be undone is raised, and stays in the journal."""
    failed: list[JobFailed] = []
    settings = [change for change in changes if change.what == "setting"]
    undone = []
    for change in reversed([change for change in changes if change.what != "setting"]):
        try:
            if change.what == "swapfile":
                _remove_swapfile(journal, change, crew, host)
            elif not journal.earlier_boot and not is_on(host, change.path):
                crew.must(
                    {"job": "swapon", "path": change.path, "priority": change.priority},
                    f"the swap {change.path} could not be put on again",
                )
        except JobFailed as error:
            failed.append(error)
        else:
            undone.append(change)
    if settings:
        try:
            if not journal.earlier_boot:
                values = [(change.path, change.was) for change in reversed(settings)] + inherited(settings)
                crew.must({"job": "settings", "values": values}, "settings of cgroups could not be put back")
        except JobFailed as error:
            failed.append(error)
        else:
            undone += settings
    journal.forget(*undone)
    if failed:
        raise failed[0]


def inherited(settings: list[Change]) -> list[tuple[str, str]]:
    """Cgroups that came meanwhile took over the setting of their parent: they get what that one had before."""
    was = {change.path: change.was for change in settings}
    found = []
    for change in settings:
        file = Path(change.path)
        for child in _children(file.parent):
            path = os.fspath(child / file.name)
            if path not in was and _reads(path) == "0" and change.was != "0" and file.name == "memory.swappiness":
                found.append((path, change.was))
    return found


def _remove_swapfile(journal: Journal, change: Change, crew: Crew, host: Host) -> None:
    path = Path(change.path)
    if is_on(host, change.path):
        crew.must({"job": "swapoff", "path": change.path}, f"the temporary swapfile {path} could not be taken off")
    # Only what lies in the remedy's own directory, and is a plain file, is ever removed.
    if path.parent == journal.place and path.exists() and stat.S_ISREG(path.lstat().st_mode):
        path.unlink()


def _children(directory: Path) -> list[Path]:
    try:
        return [entry for entry in directory.iterdir() if entry.is_dir()]
    except OSError:
        return []


def _reads(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
