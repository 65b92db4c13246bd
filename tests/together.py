"""Which tests run at the same time: `tools/run-tests` runs most of them together, on several workers.

A test that is marked `alone` runs in a part of its own, beside no other. Of the rest a worker takes file by file, so
that what the tests of a file share is prepared once; and files that use one thing of the machine's take turns.
"""

import fcntl
import os
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling

ALONE, TOGETHER = "alone", "together"
# They make memory cgroups and count those of the whole machine, or are real container runtimes, which make some and of
# which one is at the usual place. Whatever else makes some is one of them, or alone, or a machine.
COUNT_CGROUPS = frozenset(
    {
        "test_zombies_interrupted.py",
        "test_zombies_clean.py",
        "test_zombies.py",
        "test_memcg_pins.py",
        "test_zombies_as_step.py",
        "test_fix_docker.py",
    }
)
RUNTIMES = "runtimes"
# Machines with a systemd of their own make memory cgroups, too. They get along with each other.
MACHINES = "machines"
# What is done meanwhile: it makes no memory cgroups, and takes about as long on the other workers. Some of these wait
# for a recorder's next second or for a browser, others compute.
MEANWHILE = frozenset({"faults", "browser", "web", "diagnose"})
# What takes longest comes first of its folder.
LONGEST = ("test_machine_kills.py", "test_machine_fix.py")


class Scheduler(LoadScopeScheduling):
    """Gives a worker all tests of a file, or of those that take turns, at once."""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePath(nodeid.partition("::")[0])
        return "those that count cgroups" if counts_cgroups(file) else str(file)


def counts_cgroups(file: PurePath) -> bool:
    return file.name in COUNT_CGROUPS or file.parent.name == RUNTIMES


def makes_cgroups(file: PurePath) -> bool:
    return file.parent.name == MACHINES


def in_order(items: list[pytest.Item]) -> None:
    """Those that count cgroups begin on one worker; the others meanwhile do what makes none, a file of each folder in
    turn. Then come the machines, and beside them the rest: it fills whatever room there is."""
    number: dict[PurePath, int] = {}
    for item in items:
        number.setdefault(item.path, sum(path.parent == item.path.parent for path in number))

    def place(item: pytest.Item) -> tuple[int, int]:
        file = item.path
        if counts_cgroups(file):
            return 0, 0
        if file.parent.name in MEANWHILE:
            return 1, number[file]
        if makes_cgroups(file):
            return 2, LONGEST.index(file.name) if file.name in LONGEST else len(LONGEST)
        return 3, 0

    items.sort(key=place)


class Turns:
    """The cgroups of the machine: whoever counts them has them alone, those that only make some share them. What a
    worker has it keeps until its next test is of another kind: machines live as long as the tests of their file."""

    def __init__(self) -> None:
        self._held: int | None = None
        self._how = fcntl.LOCK_UN

    def take(self, file: PurePath) -> None:
        """Wait until a test of this file may run."""
        how = _how(file)
        if how != self._how:
            self.give_back()
        if how != fcntl.LOCK_UN and self._held is None:
            # Any file that all workers have: nothing is written to it.
            self._held = os.open(__file__, os.O_RDONLY | os.O_CLOEXEC)
            self._how = how
            fcntl.flock(self._held, how)

    def pass_on(self, following: PurePath | None) -> None:
        """What the next test, if there is one, doesn't need is for others."""
        if following is None or _how(following) != self._how:
            self.give_back()

    def give_back(self) -> None:
        if self._held is not None:
            # Closing would not be enough where a child has it open, too.
            fcntl.flock(self._held, fcntl.LOCK_UN)
            os.close(self._held)
        self._held, self._how = None, fcntl.LOCK_UN


def _how(file: PurePath) -> int:
    return fcntl.LOCK_EX if counts_cgroups(file) else fcntl.LOCK_SH if makes_cgroups(file) else fcntl.LOCK_UN
