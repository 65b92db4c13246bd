"""How many cgroups the kernel tracks, how many are visible and how many are dying, as counted up to a focus."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.zombies import RECORDING, Growth, growth_between
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence

# Counts come every ten seconds; growth is looked for over up to an hour.
LOOKED_BACK_S = 3600.0
# What the recorder calls the hierarchy of v1 that has the memory controller.
MEMORY_V1 = "memory"
# A parent stands out when so much of all the dying is below it.
MOST_OF = 0.5


@dataclass(frozen=True, slots=True)
class CgroupCounts:
    """The last counts of one hierarchy at or before the end of a focus. `dying` is unknown where the directories could
    not be counted at the moment of the kernel's own count."""

    hierarchy: str
    at: int
    kernel: int | None
    visible: int | None
    dying: int | None
    growth: Growth | None

    def evidence(self, column: str) -> Evidence:
        """The last count, as it is in the store."""
        value = {"kernel": self.kernel, "visible": self.visible, "dying": self.dying}[column]
        match = (("hierarchy", self.hierarchy), ("parent", ""))
        return Evidence("cgroups", column, "last", value or 0, self.at, self.at + 1, match=match)

    def evidence_of_growth(self) -> tuple[Evidence, ...]:
        """The count that growth is reckoned from."""
        if self.growth is None:
            return ()
        match = (("hierarchy", self.hierarchy), ("parent", ""))
        since = self.growth.since
        return (Evidence("cgroups", "dying", "first", self.growth.first, since, since + 1, match=match),)


def cgroup_counts(case: Case) -> list[CgroupCounts]:
    """The counts of every hierarchy, the one with the most dying first; none where nothing was counted."""
    rows = case.recorded("cgroups", LOOKED_BACK_S + case.focus.seconds)
    if not len(rows):
        return []
    whole = rows.matching("parent", "")
    found = [_of_hierarchy(whole.matching("hierarchy", name), name) for name in sorted(set(whole.texts("hierarchy")))]
    return sorted(found, key=lambda each: (-(each.dying or 0), -(each.kernel or 0)))


def memory_counts(case: Case) -> CgroupCounts | None:
    """The counts of the hierarchy that has the memory controller: where v1 has it, v2 counts other cgroups, however
    many of those are dying."""
    found = cgroup_counts(case)
    return next((each for each in found if each.hierarchy == MEMORY_V1), found[0] if found else None)


def heaviest_parent(case: Case, counts: CgroupCounts) -> tuple[str, int, Evidence] | None:
    """The innermost cgroup with most of a hierarchy's dying below it, how many, and where that is recorded. Only v2
    counts them apart; None where no parent stands out."""
    rows = case.recorded("cgroups", LOOKED_BACK_S + case.focus.seconds).matching("hierarchy", counts.hierarchy)
    found: list[tuple[str, int]] = [
        (parent, dying)
        for wall, parent, dying in rows.listed("wall", "parent", "dying")
        if wall == counts.at
        and parent not in ("", "/")
        and dying is not None
        and dying >= MOST_OF * (counts.dying or 0)
    ]
    if not found:
        return None
    parent, dying = max(found, key=lambda each: each[0].count("/"))
    match = (("hierarchy", counts.hierarchy), ("parent", parent))
    return parent, dying, Evidence("cgroups", "dying", "last", dying, counts.at, counts.at + 1, match=match)


def _of_hierarchy(rows: Rows, name: str) -> CgroupCounts:
    order = np.argsort(rows.wall, kind="stable")
    walls = rows.wall[order]
    kernel, visible, dying = (rows.numbers(column)[order] for column in ("kernel", "visible", "dying"))
    known = np.flatnonzero(~np.isnan(dying))
    # A count that has all three says most; one of the kernel's alone is better than nothing.
    last = int(known[-1]) if len(known) else len(walls) - 1
    points = [(int(walls[i]), int(dying[i])) for i in known.tolist()]
    return CgroupCounts(
        name,
        int(walls[last]),
        _whole(kernel[last]),
        _whole(visible[last]),
        _whole(dying[last]),
        growth_between(points, RECORDING),
    )


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def seconds_before(case: Case, counts: CgroupCounts) -> float:
    """How old a count is at the end of the focus."""
    return (case.focus.until - counts.at) / NANOS
