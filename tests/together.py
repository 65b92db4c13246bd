"""Which tests run at the same time: `tools/run-tests` runs most of them together, on several workers.

A test that is marked `alone` runs in a part of its own, beside no other. Of the rest a worker takes file by file, so
that what the tests of a file share is prepared once; and files that use one thing of the machine's take turns.
"""

from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling

ALONE, TOGETHER = "alone", "together"
# They make memory cgroups and count those of the whole machine. Whatever else makes some is one of them, or alone.
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
# Machines with a systemd of their own, and real container runtimes: each makes memory cgroups, too.
MAKE_CGROUPS = frozenset({"machines", "runtimes"})
# They wait for a recorder's next second more than they work.
WAITING = "faults"


class Scheduler(LoadScopeScheduling):
    """Gives a worker all tests of a file, or of those that take turns, at once."""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePath(nodeid.partition("::")[0])
        return "those that count cgroups" if takes_turns(file) else str(file)


def takes_turns(file: PurePath) -> bool:
    return file.name in COUNT_CGROUPS or file.parent.name in MAKE_CGROUPS


def longest_first(items: list[pytest.Item]) -> None:
    """Those that take turns begin, then those that wait: beside either there is room for those that compute."""
    items.sort(key=lambda item: 0 if takes_turns(item.path) else 1 if item.path.parent.name == WAITING else 2)
