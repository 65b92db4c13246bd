"""The scenarios, one file each. A scenario makes one pathology for real on a stage, and ends with it."""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.lab.scenarios import conntrack_pressure, iptables_churn, netns_cleanup, softirq_storm, user_hog
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
        Scenario("netns-cleanup", "netns-cleanup", netns_cleanup.SUMMARY, netns_cleanup.play),
        Scenario("softirq-storm", "softirq-storm", softirq_storm.SUMMARY, softirq_storm.play),
        Scenario("conntrack-pressure", "conntrack-pressure", conntrack_pressure.SUMMARY, conntrack_pressure.play),
        Scenario("iptables-churn", "iptables-churn", iptables_churn.SUMMARY, iptables_churn.play),
    )
}
