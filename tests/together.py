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
        "test_zombies_freed.py",
        "test_zombies_interrupted.py",
        "test_zombies_clean.py",
        "test_zombies.py",
        "test_memcg_pins.py",
    }
)
# They wait for a recorder's next second more than they work.
WAITING = "faults"


class Scheduler(LoadScopeScheduling):
    """Gives a worker all tests of a file, or of those that take turns, at once."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "those that count cgroups" if PurePath(file).name in COUNT_CGROUPS else file


def longest_first(items: list[pytest.Item]) -> None:
    """Those that take turns begin, then those that wait: beside either there is room for those that compute."""
    items.sort(key=lambda item: 0 if item.path.name in COUNT_CGROUPS else 1 if item.path.parent.name == WAITING else 2)
