"""The scenarios, one file each. A scenario makes one pathology for real on a stage, and ends with it."""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.lab.scenarios import crash_loop, fork_storm, mount_storm, negative_dentries, user_hog
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
        Scenario("negative-dentries", "negative-dentries", negative_dentries.SUMMARY, negative_dentries.play),
        Scenario("mount-storm", "mount-storm", mount_storm.SUMMARY, mount_storm.play, mount_storm.prepare),
        Scenario("fork-storm", "fork-storm", fork_storm.SUMMARY, fork_storm.play),
        Scenario("crash-loop", "crash-loop", crash_loop.SUMMARY, crash_loop.play, seconds=15.0),
        Scenario("user-hog", "user-hog", user_hog.SUMMARY, user_hog.play),
    )
}
