"""The scenarios, one file each. A scenario makes one pathology for real on a stage, and ends with it."""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.lab.scenarios import (
    cfs_throttling,
    cgroup_excess,
    compaction_thp,
    conntrack_pressure,
    crash_loop,
    fork_storm,
    incident,
    iptables_churn,
    memory_reclaim,
    mount_storm,
    negative_dentries,
    netns_cleanup,
    oom_thrash,
    page_fault_storm,
    quiet,
    rt_hog,
    softirq_storm,
    spinlock_contention,
    user_hog,
    writeback_storm,
    zombie_memcgs,
)
from exhume.lab.stage import Stage


@dataclass(frozen=True, slots=True)
class Scenario:
    """`cause` is what a diagnosis has to find (nothing, for a healthy machine). `prepare` is what has to be there
    before the trouble begins, `play` the trouble itself. `on_core`: the trouble is on the stage's core and no other;
    `memory`: what it takes at most, in bytes; `prepared_early`: the preparing is no part of the story, so that it is
    over before a recording begins (else it is done in the recording's calm part)."""

    name: str
    cause: str
    summary: str
    play: Callable[[Stage], None]
    prepare: Callable[[Stage], None] | None = None
    seconds: float = 10.0
    on_core: bool = False
    memory: int = 0
    prepared_early: bool = True


SCENARIOS: dict[str, Scenario] = {
    each.name: each
    for each in (
        Scenario("quiet", "", quiet.SUMMARY, quiet.play),
        Scenario("netns-cleanup", "netns-cleanup", netns_cleanup.SUMMARY, netns_cleanup.play, memory=400 << 20),
        Scenario("softirq-storm", "softirq-storm", softirq_storm.SUMMARY, softirq_storm.play, on_core=True),
        Scenario(
            "conntrack-pressure",
            "conntrack-pressure",
            conntrack_pressure.SUMMARY,
            conntrack_pressure.play,
            on_core=True,
            memory=160 << 20,
        ),
        Scenario("iptables-churn", "iptables-churn", iptables_churn.SUMMARY, iptables_churn.play, on_core=True),
        Scenario(
            "page-fault-storm",
            "page-fault-storm",
            page_fault_storm.SUMMARY,
            page_fault_storm.play,
            on_core=True,
            memory=256 << 20,
        ),
        Scenario(
            "writeback-storm",
            "writeback-storm",
            writeback_storm.SUMMARY,
            writeback_storm.play,
            writeback_storm.prepare,
            memory=256 << 20,
        ),
        Scenario(
            "compaction-thp",
            "compaction-thp",
            compaction_thp.SUMMARY,
            compaction_thp.play,
            on_core=True,
            memory=256 << 20,
        ),
        Scenario(
            "cfs-throttling", "cfs-throttling", cfs_throttling.SUMMARY, cfs_throttling.play, cfs_throttling.prepare
        ),
        Scenario("rt-hog", "rt-hog", rt_hog.SUMMARY, rt_hog.play, rt_hog.prepare, on_core=True),
        Scenario(
            "spinlock-contention",
            "spinlock-contention",
            spinlock_contention.SUMMARY,
            spinlock_contention.play,
            spinlock_contention.prepare,
        ),
        Scenario("user-hog", "user-hog", user_hog.SUMMARY, user_hog.play, user_hog.prepare, on_core=True),
        Scenario(
            "zombie-memcgs",
            "zombie-memcgs",
            zombie_memcgs.SUMMARY,
            zombie_memcgs.play,
            zombie_memcgs.prepare,
            on_core=True,
            memory=400 << 20,
        ),
        Scenario(
            "cgroup-excess",
            "cgroup-excess",
            cgroup_excess.SUMMARY,
            cgroup_excess.play,
            cgroup_excess.prepare,
            on_core=True,
            memory=400 << 20,
        ),
        Scenario("memory-reclaim", "memory-reclaim", memory_reclaim.SUMMARY, memory_reclaim.play, on_core=True),
        Scenario(
            "incident",
            "zombie-memcgs",
            incident.SUMMARY,
            incident.play,
            incident.prepare,
            on_core=True,
            memory=600 << 20,
            prepared_early=False,
        ),
        Scenario("oom-thrash", "oom-thrash", oom_thrash.SUMMARY, oom_thrash.play, memory=64 << 20),
        Scenario(
            "negative-dentries",
            "negative-dentries",
            negative_dentries.SUMMARY,
            negative_dentries.play,
            on_core=True,
            memory=1 << 30,
        ),
        Scenario(
            "mount-storm", "mount-storm", mount_storm.SUMMARY, mount_storm.play, mount_storm.prepare, on_core=True
        ),
        Scenario("fork-storm", "fork-storm", fork_storm.SUMMARY, fork_storm.play, on_core=True),
        Scenario("crash-loop", "crash-loop", crash_loop.SUMMARY, crash_loop.play, seconds=15.0),
    )
}
