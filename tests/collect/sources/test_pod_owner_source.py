"""Owners of pods that the cluster's API named become rows, once each."""

from tests.collect.fake_node import tick

from exhume.collect.sources.pod_owners import MOST_PER_TICK, MOST_PODS, PodOwner, PodOwners, PodOwnerSource
from exhume.procfs.host import Host

DB = PodOwner("uid-db", "prod/db-0", "statefulset/db")


def test_an_owner_is_recorded_when_it_is_learned_and_again_each_hour() -> None:
    owners = PodOwners()
    source = PodOwnerSource(Host(), owners)
    assert source.read(tick(1)) == {}
    owners.learn([DB])
    rows = source.read(tick(2))["events"]
    assert [rows[name] for name in ("source", "kind", "pod", "pod_name", "owner")] == [
        ["kubernetes"],
        ["pod-owner"],
        *([each] for each in DB),
    ]
    owners.learn([DB])
    assert source.read(tick(3)) == {}
    moved = DB._replace(owner="cluster.example.dev/db")
    owners.learn([moved])
    assert source.read(tick(4))["events"]["owner"] == [moved.owner]
    assert source.read(tick(3500)) == {}
    assert source.read(tick(3601))["events"]["owner"] == [moved.owner]
    assert source.read(tick(3602)) == {}


def test_many_pods_come_over_several_ticks_and_the_oldest_are_forgotten() -> None:
    owners = PodOwners()
    source = PodOwnerSource(Host(), owners)
    owners.learn(PodOwner(f"uid-{number}", f"prod/{number}", "job/j") for number in range(MOST_PODS + 10))
    assert "uid-9" not in owners and "uid-10" in owners
    counts = [len(source.read(tick(second)).get("events", {}).get("pod", ())) for second in range(1, 19)]
    assert counts == [MOST_PER_TICK] * (MOST_PODS // MOST_PER_TICK) + [0, 0]
