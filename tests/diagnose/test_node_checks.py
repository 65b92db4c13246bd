"""What counters mean: from where on a check says look or bad, and that nothing healthy is called ill."""

import re
from dataclasses import replace
from typing import Any

import pytest

from exhume.diagnose.node_checks import check_log, check_restarts, check_state
from exhume.diagnose.zombie_report import judge
from exhume.model.clock import NANOS
from exhume.model.finding import Check, Level, QuotaCount, Restarted, Vitals
from exhume.model.zombies import Census, HierarchyCensus
from exhume.store.read.events import EventView

HEALTHY = Vitals(
    uptime_s=86_400 * 30,
    memory_bytes=768 << 30,
    dentries_negative=400_000,
    mounts=900,
    conntrack=20_000,
    conntrack_max=262_144,
    steal=0.001,
    oom_kills=3,
    tx_timeouts={"eth0": 0},
    pressure={"cpu": (0.97, 0.95), "memory": (0.0, 0.01), "io": (0.2, 0.1)},
    quotas=[QuotaCount("/kubepods/a", 50_000, 400)],
    failed_units=[],
    load=1.2,
    niced=0.0,
)
NOW = 1_780_000_000 * NANOS


def census(visible: int | None = 240, dying: int | None = 20) -> Census:
    return Census([HierarchyCensus("memory", 1, "/sys/fs/cgroup/memory", "memory", 260, visible, dying)])


def checks(vitals: Vitals = HEALTHY, counted: Census | None = None) -> dict[str, Check]:
    counted = counted or census()
    return {check.id: check for check in check_state(vitals, counted, judge(counted, {}))}


def line(seconds_ago: float) -> EventView:
    reported = ("kernel-log", "soft-lockup", "critical", "soft lockup")
    return EventView(NOW - round(seconds_ago * NANOS), 0, *reported, *([None] * (len(EventView.__slots__) - 6)))


def test_a_busy_healthy_node_is_well():
    assert {check.level for check in checks().values()} == {Level.WELL}


@pytest.mark.parametrize(
    ("name", "change", "level"),
    [
        ("dentries", {"dentries_negative": 25_000_000}, Level.LOOK),
        ("dentries", {"dentries_negative": 1_000_000, "memory_bytes": 1 << 30}, Level.LOOK),
        ("dentries", {"dentries_negative": 90_000_000}, Level.BAD),
        ("mounts", {"mounts": 6_000}, Level.LOOK),
        ("mounts", {"mounts": 40_000}, Level.BAD),
        ("conntrack", {"conntrack": 220_000}, Level.LOOK),
        ("conntrack", {"conntrack": 262_000}, Level.BAD),
        ("throttling", {"quotas": [QuotaCount("/a", 5_000, 2_000), QuotaCount("/b", 90_000, 10)]}, Level.LOOK),
        ("throttling", {"quotas": [QuotaCount("/a", 5_000, 4_500)]}, Level.BAD),
        # A limit of its own is that workload's trouble.
        ("throttling", {"quotas": [QuotaCount("/docker/" + "ab" * 32, 5_000, 4_500)]}, Level.LOOK),
        ("throttling", {"quotas": [QuotaCount("/system.slice/a.service", 5_000, 4_500)]}, Level.LOOK),
        ("throttling", {"quotas": [QuotaCount("/young", 40, 40)]}, Level.WELL),
        ("pressure-memory", {"pressure": {"memory": (0.5, 0.2)}}, Level.LOOK),
        ("pressure-memory", {"pressure": {"memory": (0.5, 0.5)}}, Level.BAD),
        ("pressure-io", {"pressure": {"io": (0.9, 0.6)}}, Level.LOOK),
        ("pressure-cpu", {"load": 2.5}, Level.LOOK),
        ("pressure-cpu", {"load": 5.0}, Level.BAD),
        ("pressure-cpu", {"load": 5.0, "niced": 0.1, "pressure": {"cpu": (0.98, 0.98)}}, Level.BAD),
        ("pressure-cpu", {"load": 5.0, "niced": 0.9}, Level.WELL),
        ("pressure-cpu", {"load": 5.0, "pressure": {"cpu": (0.1, 0.1)}}, Level.WELL),
        ("pressure-cpu", {"load": 1.1}, Level.WELL),
        ("oom", {"oom_kills": 400}, Level.LOOK),
        ("oom", {"oom_kills": 40, "uptime_s": 3600}, Level.LOOK),
        ("oom", {"oom_kills": 2, "uptime_s": 3600}, Level.LOOK),
        # One kill is no rate, however young the node.
        ("oom", {"oom_kills": 1, "uptime_s": 3600}, Level.WELL),
        ("steal", {"steal": 0.08}, Level.LOOK),
        ("steal", {"steal": 0.3}, Level.BAD),
        ("nic-timeouts", {"tx_timeouts": {"eth0": 0, "eth1": 2}}, Level.LOOK),
        ("failed-units", {"failed_units": ["bootstrap.service"]}, Level.LOOK),
    ],
)
def test_from_where_on_it_matters(name: str, change: dict[str, Any], level: Level):
    assert checks(replace(HEALTHY, **change))[name].level is level


@pytest.mark.parametrize(
    ("name", "counted", "level"),
    [
        ("zombies", census(dying=5_000), Level.BAD),
        ("cgroups", census(visible=6_000), Level.LOOK),
        ("cgroups", census(visible=60_000), Level.BAD),
        ("cgroups", census(visible=None, dying=None), Level.UNSEEN),
        ("zombies", census(visible=None, dying=None), Level.UNSEEN),
    ],
)
def test_counted_cgroups(name: str, counted: Census, level: Level):
    assert checks(counted=counted)[name].level is level


def test_what_cannot_be_read_says_why():
    found = checks(Vitals(uptime_s=9, unseen={"mounts": "/proc/1/mountinfo can't be read"}))
    unseen = {name for name, check in found.items() if check.level is Level.UNSEEN}
    assert unseen == found.keys() - {"zombies", "cgroups"}
    assert found["mounts"].text == "/proc/1/mountinfo can't be read"
    assert all(found[name].text for name in unseen)


@pytest.mark.parametrize(("ago", "level"), [(30, Level.BAD), (3600, Level.LOOK), (86_400 * 3, Level.WELL)])
def test_a_line_of_the_log_grows_old(ago: float, level: Level):
    check = check_log([line(ago), line(86_400 * 9)], NOW, "")
    assert (check.level, check.number) == (level, 2)


def test_a_log_that_cannot_be_read():
    assert check_log([], NOW, "/dev/kmsg can't be opened").level is Level.UNSEEN
    assert check_log([], NOW, "").level is Level.WELL


def test_restarts_are_named():
    check = check_restarts([Restarted("ecs.service", "agent", 2.4)], 6)
    assert (check.level, check.value) == (Level.LOOK, "ecs.service (agent, 2 s old)")
    assert check_restarts([], 6).level is Level.WELL


@pytest.mark.parametrize(
    ("kills", "uptime_s", "extrapolated"),
    [
        pytest.param(3, 3600, True, id="an-hour"),
        pytest.param(3, 86_400 * 2, False, id="two-days"),
        pytest.param(0, 3600, False, id="none"),
    ],
)
def test_a_days_kills_from_a_part_of_a_day_are_a_range(kills: int, uptime_s: float, extrapolated: bool) -> None:
    value = checks(replace(HEALTHY, oom_kills=kills, uptime_s=uptime_s))["oom"].value
    assert bool(re.search(r": 3 to 168 a day", value)) is extrapolated
    assert (", 1.5 a day" in value) is (uptime_s > 86_400)
