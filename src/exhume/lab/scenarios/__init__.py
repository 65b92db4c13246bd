"""The scenarios, one file each. A scenario makes one pathology for real on a stage, and ends with it."""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.lab.scenarios import (
    cgroup_excess,
    memory_reclaim,
    oom_thrash,
    user_hog,
    zombie_memcgs,
)
from exhume.lab.stage import Stage


@dataclass(frozen=True, slots=True)
class Scenario:
    """`cause` is what a diagnosis has to find (nothing, for a healthy machine). `prepare` is what has to be there
    before the trouble begins, `play` the trouble itself."""

    name: str
    cause: str
    summary: str
    play: Callable[[Stage], None]
    prepare: Callable[[Stage], None] | None = None
    seconds: float = 10.0


SCENARIOS: dict[str, Scenario] = {
    each.name: each
    for each in (
        Scenario("user-hog", "user-hog", user_hog.SUMMARY, user_hog.play),
        Scenario("zombie-memcgs", "zombie-memcgs", zombie_memcgs.SUMMARY, zombie_memcgs.play, zombie_memcgs.prepare),
        Scenario("cgroup-excess", "cgroup-excess", cgroup_excess.SUMMARY, cgroup_excess.play, cgroup_excess.prepare),
        Scenario("memory-reclaim", "memory-reclaim", memory_reclaim.SUMMARY, memory_reclaim.play),
        Scenario("oom-thrash", "oom-thrash", oom_thrash.SUMMARY, oom_thrash.play),
    )
}
