"""Keeping live cgroups out of swap while what lies beside them is reclaimed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exhume.procfs.host import Host
from exhume.remedy.journal import Change, Journal
from exhume.remedy.undo import undo
from exhume.remedy.worker import Crew


@contextmanager
def shelter(targets: tuple[str, ...], journal: Journal, crew: Crew, host: Host) -> Iterator[None]:
    """While this lasts, no live cgroup at or below the targets is swapped out; the removed ones are.

    v1 has a swappiness for each cgroup; removed ones keep what they had. v2 has a limit of swap, which counts for
    everything below: the targets themselves stay without one, as what is charged to removed cgroups is swapped in
    their name.
    """
    changes = [change for target in targets for change in _settings(Path(target))]
    journal.add(*changes)
    try:
        values = [(change.path, "0") for change in changes]
        crew.must({"job": "settings", "values": values}, "live cgroups could not be kept out of swap")
        yield
    finally:
        undo(journal, changes, crew, host)


def _settings(target: Path) -> Iterator[Change]:
    legacy = (target / "memory.swappiness").exists()
    name = "memory.swappiness" if legacy else "memory.swap.max"
    for directory, _, files in os.walk(target):
        if name not in files or (not legacy and Path(directory) == target):
            continue
        path = Path(directory) / name
        try:
            was = path.read_text().strip()
        except OSError:
            continue
        yield Change("setting", os.fspath(path), was=was)
