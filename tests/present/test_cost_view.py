"""The recorder's cost by source, as it is shown."""

import pytest

from exhume.collect.source_set import open_sources
from exhume.collect.sources import cgroup_trace, cgroups, container_events, job_events, pod_owners
from exhume.collect.systemd.notify import SystemdNotifier
from exhume.kubernetes.reporter import KubernetesReporter
from exhume.notify.incidents import Notifier
from exhume.present.cost_view import EXPLAINED_PERCENT, cost_lines, reason_of
from exhume.present.metrics.observer import MetricsObserver
from exhume.procfs.host import Host
from exhume.store.read.recording import CostOfSource
from exhume.store.write.health import HealthFile

# Those that not every node has, and what is measured besides sources.
OTHERS = (
    *("store", "loop", "background", "children", "symbols"),
    cgroup_trace.CgroupTraceSource.name,
    cgroups.ChurnSource.name,
    container_events.DockerEventSource.name,
    container_events.CriEventSource.name,
    job_events.JobEventSource.name,
    job_events.InboxEventSource.name,
    pod_owners.PodOwnerSource.name,
    SystemdNotifier.name,
    HealthFile.name,
    MetricsObserver.name,
    Notifier.name,
    KubernetesReporter.name,
)


def test_what_costs_little_needs_no_reason() -> None:
    assert reason_of(CostOfSource("stacks", EXPLAINED_PERCENT, 1.0)) is None
    assert reason_of(CostOfSource("stacks", EXPLAINED_PERCENT * 1.01, 1.0)) is not None


@pytest.mark.parametrize("name", OTHERS)
def test_every_part_of_the_cost_has_a_reason(name: str) -> None:
    assert reason_of(CostOfSource(name, 1.0, 1.0))


@pytest.mark.root
def test_every_source_of_this_node_has_a_reason() -> None:
    sources = open_sources(Host(), 97, None)
    try:
        for source in sources.in_order():
            assert reason_of(CostOfSource(source.name, 1.0, 1.0)), source.name
    finally:
        sources.close()


def test_the_table_has_each_source_and_the_reason_of_the_expensive() -> None:
    costs = [CostOfSource("stacks", 0.3, 0.75), CostOfSource("cpu", 0.1, 0.25)]
    lines = [line.plain for line in cost_lines(costs, 400)]
    assert [line.split() for line in lines[1:3]] == [["stacks", "0.30%", "75%"], ["cpu", "0.10%", "25%"]]
    assert lines[3:] == [f"  stacks: {reason_of(costs[0])}"]


def test_a_recording_without_costs_says_so() -> None:
    (line,) = cost_lines([], 100)
    assert "ten seconds" in line.plain
