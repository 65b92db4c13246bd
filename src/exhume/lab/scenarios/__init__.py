"""The scenarios, one file each. A scenario makes one pathology for real on a stage, and ends with it."""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.lab.scenarios import compaction_thp, page_fault_storm, user_hog, writeback_storm
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
        Scenario("page-fault-storm", "page-fault-storm", page_fault_storm.SUMMARY, page_fault_storm.play),
        Scenario(
            "writeback-storm",
            "writeback-storm",
            writeback_storm.SUMMARY,
            writeback_storm.play,
            writeback_storm.prepare,
        ),
        Scenario("compaction-thp", "compaction-thp", compaction_thp.SUMMARY, compaction_thp.play),
    )
}
