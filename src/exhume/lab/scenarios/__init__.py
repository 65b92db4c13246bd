"""The scenarios, one file each. A scenario makes one pathology for real on a stage, and ends with it."""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.lab.scenarios import cfs_throttling, quiet, rt_hog, spinlock_contention, user_hog
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
        Scenario(
            "cfs-throttling", "cfs-throttling", cfs_throttling.SUMMARY, cfs_throttling.play, cfs_throttling.prepare
        ),
        Scenario("rt-hog", "rt-hog", rt_hog.SUMMARY, rt_hog.play, rt_hog.prepare),
        Scenario(
            "spinlock-contention",
            "spinlock-contention",
            spinlock_contention.SUMMARY,
            spinlock_contention.play,
            spinlock_contention.prepare,
        ),
        Scenario("user-hog", "user-hog", user_hog.SUMMARY, user_hog.play, user_hog.prepare),
        Scenario("quiet", "", quiet.SUMMARY, quiet.play),
    )
}
