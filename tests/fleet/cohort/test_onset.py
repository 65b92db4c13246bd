"""Hazard by uptime, when it began, changes before it, nodes at risk, and jobs next to incidents: on made-up nodes."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from exhume.fleet.cohort.census import DAY_US, Census, Course, Episodes, Values
from exhume.fleet.cohort.clusters import Clustering
from exhume.fleet.cohort.forecast import forecast_of
from exhume.fleet.cohort.jobs import WITHIN_S, _view, jobs_of
from exhume.fleet.cohort.onset import changes_before, hazard_of, onset_of
from exhume.fleet.cohort.separators import Condition
from exhume.model.clock import Window

HOUR_US = 3_600_000_000
SINCE, UNTIL = 1000 * DAY_US, 1007 * DAY_US
WINDOW = Window(SINCE * 1000, UNTIL * 1000)
NAMES = ("cause", "severity", "leaker", "culprit", "function", "process", "id")


def episodes(rows: list[tuple[int, float]], seconds: int = 10) -> Episodes:
    """Incidents of nodes, at so many days of the window."""
    rows = sorted(rows, key=lambda each: each[1])
    node = np.array([each[0] for each in rows], np.int64)
    moment = np.array([SINCE + each[1] * DAY_US for each in rows], np.float64).astype(np.int64)
    none = np.zeros(len(rows))
    codes = {name: np.zeros(len(rows), np.int64) for name in NAMES}
    return Episodes(node, moment, moment + seconds * 1_000_000, none, none, codes, {name: ["x"] for name in NAMES})


def census(
    uptimes: np.ndarray,
    sick: list[tuple[int, float]],
    *,
    values: Values | None = None,
    dying: np.ndarray | None = None,
    cost: float = float("nan"),
    earlier: list[tuple[int, float]] | None = None,
) -> Census:
    """Nodes with an uptime (days) when the window begins, in steps of four hours."""
    nodes, steps = len(uptimes), 42
    node = np.repeat(np.arange(nodes), steps)
    first = np.tile(SINCE + np.arange(steps) * 4 * HOUR_US, nodes)
    last = first + 4 * HOUR_US - 60_000_000
    uptime = uptimes[node] * 86_400 + (first - SINCE) / 1e6
    counts = np.full(len(node), np.nan) if dying is None else dying.ravel()
    course = Course(
        node,
        node.copy(),
        np.full(len(node), 240),
        first,
        last,
        uptime,
        uptime + 4 * 3600,
        counts,
        counts + 240,
        np.full(len(node), cost),
    )
    empty = Values(*(np.empty(0, np.int64) for _ in range(4)), [], [])
    names = [f"node-{number}" for number in range(nodes)]
    return Census(WINDOW, names, course, values or empty, episodes(sick), episodes(earlier or []), {}, (), pa.table({}))


def test_the_hazard_rises_where_it_does():
    rng = np.random.default_rng(1)
    uptimes, onset = rng.uniform(0, 9, 400), rng.uniform(6, 8, 400)
    sick = [(node, onset[node] - uptimes[node]) for node in range(400) if 0 < onset[node] - uptimes[node] < 7]
    earlier = [(node, onset[node] - uptimes[node]) for node in range(400) if onset[node] < uptimes[node]]
    found = hazard_of(census(uptimes, sick, earlier=earlier), None)
    assert found is not None
    assert found.rises_at == 6
    assert found.from_days == pytest.approx(6.2, abs=0.25) and found.to_days == pytest.approx(7.8, abs=0.25)
    assert found.first_incidents == len(sick)
    assert [each.first_incidents for each in found.days[:6]] == [0] * 6
    # Nodes that were sick before are not observed any more.
    assert sum(each.node_days for each in found.days) < 400 * 7 - len(earlier) * 6


def test_a_constant_hazard_does_not_rise():
    rng = np.random.default_rng(2)
    sick = [(node, float(rng.uniform(0, 7))) for node in range(60)]
    found = hazard_of(census(rng.uniform(0, 12, 400), sick), None)
    assert found is not None and found.rises_at is None
    rates = [each.per_node_day.value for each in found.days if each.node_days > 100]
    assert max(rates) < 5 * min(rates) + 0.05


def test_only_first_incidents_of_a_boot_count():
    found = hazard_of(census(np.zeros(3), [(0, 1.5), (0, 2.5), (0, 3.5), (1, 2.2)]), None)
    assert found is not None and found.first_incidents == 2
    assert [each.first_incidents for each in found.days] == [0, 1, 1, 0, 0, 0, 0]
    assert found.days[1].node_days == pytest.approx(2.5, abs=0.1)
    assert hazard_of(census(np.zeros(3), []), None) is None
    members = np.array([False, True, True])
    own = hazard_of(census(np.zeros(3), [(0, 1.5), (1, 2.2)]), members)
    assert own is not None and own.first_incidents == 1


def test_the_onset_is_where_incidents_begin():
    rng = np.random.default_rng(3)
    sick = [(node, float(rng.uniform(4, 7))) for node in range(60)] + [(60, 0.5), (61, 2.0)]
    found = onset_of(census(np.zeros(300), sick), np.ones(300, bool))
    assert found is not None
    assert (found.at / 1000 - SINCE) / DAY_US == pytest.approx(4.0, abs=0.2)
    assert found.earliest <= found.at <= found.latest
    assert found.per_day_before < 2 and found.per_day_after > 15


def test_what_was_there_before_has_no_onset():
    rng = np.random.default_rng(4)
    steady = [(node, float(rng.uniform(0, 7))) for node in range(80)]
    assert onset_of(census(np.zeros(300), steady), np.ones(300, bool)) is None
    again = [(node, float(rng.uniform(4, 7))) for node in range(60)]
    known = census(np.zeros(300), again, earlier=[(node, -2.0) for node in range(60)])
    assert onset_of(known, np.ones(300, bool)) is None, "they were sick before"


def test_a_change_before_is_found_with_its_lead():
    nodes, rng = 200, np.random.default_rng(5)
    sick = [(node, 5.0 + node / 1000) for node in range(40)]
    rows = []
    for node in range(nodes):
        rows.append((node, 0, 0, SINCE - 5 * DAY_US))
        if node < 38 or node in (100, 101):
            rows.append((node, 0, 1, SINCE + DAY_US))
        rows.append((node, 1, 0, SINCE - 5 * DAY_US))
        if rng.random() < 0.3:
            rows.append((node, 1, 2, SINCE + 2 * DAY_US))
    made = np.array(rows, np.int64)
    values = Values(made[:, 0], made[:, 1], made[:, 2], made[:, 3], ["image", "package"], ["old", "new", "other"])
    found = changes_before(census(np.zeros(nodes), sick, values=values), np.arange(nodes) < 40)
    assert [each.to for each in found] == [Condition("image", "new")]
    change = found[0]
    assert (change.before, change.sick, change.of_sick, change.healthy, change.of_healthy) == ("old", 38, 40, 2, 160)
    assert change.lead_s == pytest.approx(4 * 86_400, rel=0.02)
    assert change.risk_ratio.low > 10 and change.p < 1e-6


def test_a_change_of_whole_waves_is_not_taken_for_what_made_some_of_them_sick():
    """Twenty waves, each of which got its own packages; two of them are sick."""
    nodes, waves = 400, 20
    wave = np.arange(nodes) % waves
    clustering = Clustering("label.wave", tuple(f"wave-{number}" for number in range(waves)), wave)
    sick = np.isin(wave, (3, 11))
    rows = []
    for node in range(nodes):
        for key in range(8):
            rows.append((node, key, 0, SINCE - 5 * DAY_US))
            if (wave[node] * 7 + key) % 6 == 0 or (key == 0 and wave[node] in (3, 11, 12)):
                rows.append((node, key, 1, SINCE + DAY_US))
    made = np.array(rows, np.int64)
    values = Values(*made.T, [f"package.p{number}" for number in range(8)], ["old", "new"])
    taken = census(np.zeros(nodes), [(node, 5.0) for node in np.flatnonzero(sick).tolist()], values=values)
    assert changes_before(taken, sick)[0].to == Condition("package.p0", "new"), "by nodes it seems clear"
    assert changes_before(taken, sick, [clustering]) == ()
    # What changed on the sick nodes of all waves alike is found still.
    sick = np.arange(nodes) < 80
    rows = [(node, 0, value, SINCE - 5 * DAY_US + value * 6 * DAY_US) for node in range(nodes) for value in (0, 1)]
    made = np.array([row for row in rows if row[2] == 0 or row[0] < 76], np.int64)
    values = Values(*made.T, ["package.p0"], ["old", "new"])
    taken = census(np.zeros(nodes), [(node, 5.0) for node in range(80)], values=values)
    [change] = changes_before(taken, sick, [clustering])
    assert (change.sick, change.healthy) == (76, 0) and change.p <= 0.001


def test_nodes_at_risk_have_the_time_of_the_formula():
    nodes = 12
    steps = np.arange(42)
    dying = np.zeros((nodes, 42))
    # 400 an hour; the count at the end of each step of four hours.
    dying[:8] = 1000 + 400 * 4 * steps
    dying[0] += 40_000
    dying[8:] = 30
    sick = np.arange(nodes) < 1
    found = forecast_of(census(np.zeros(nodes), [(0, 6.5)], dying=dying, cost=50.0), sick)
    assert found is not None
    assert found.leaking == 8
    assert [each.node for each in found.nodes] == [f"node-{number}" for number in range(1, 8)]
    first = found.nodes[0]
    assert first.per_hour.value == pytest.approx(400, rel=0.01)
    # 5 s at 50 us each are 100,000, of which 240 were no zombies.
    needed = (100_000 - 240 - dying[1, -1]) / 400
    last = UNTIL - 60_000_000
    assert (first.at / 1000 - last) / HOUR_US == pytest.approx(needed, rel=0.02)
    assert first.earliest < first.at and (first.latest is None or first.latest > first.at)


def test_what_does_not_grow_is_not_at_risk():
    assert forecast_of(census(np.zeros(4), [], dying=np.full((4, 42), 30.0), cost=50.0), np.zeros(4, bool)) is None
    unknown = np.tile(1000.0 + 1600 * np.arange(42), (4, 1))
    found = forecast_of(census(np.zeros(4), [], dying=unknown), np.zeros(4, bool))
    assert found is not None and found.leaking == 4 and found.nodes == (), "what a walk costs is not known"


def test_jobs_next_to_incidents_and_by_chance():
    known = census(np.zeros(50), [(node, 3.0) for node in range(10)])
    at = np.array([SINCE + 3 * DAY_US + 30_000_000, SINCE + 3 * DAY_US + 30_000_000, SINCE + DAY_US], np.int64)
    found = _view(known, np.array([4, 20, 4]), at, np.array([0, 1, 2]), ["a", "b", "c"])
    assert (found.failed, found.explained) == (3, 1)
    # One incident of 10 s and the 60 s after it, of seven days.
    assert found.expected == pytest.approx(2 * (10 + WITHIN_S) / (7 * 86_400), rel=0.01)
    assert [each.job for each in found.examples] == ["a"]
    assert found.examples[0].before_s == pytest.approx(30)


def test_failures_without_the_id_of_a_job_are_a_job_each():
    at = SINCE + 3 * DAY_US + 30_000_000
    rows = [("node-4", "", at), ("node-4", "", at + 1), ("node-20", "", at), ("node-4", "a", at), ("node-20", "a", at)]
    columns = {
        name: list(values) for name, values in zip(("node", "job", "moment"), zip(*rows, strict=True), strict=True)
    }
    failures = pa.table({**columns, "kind": ["job-failed"] * len(rows)})
    known = replace(census(np.zeros(50), [(node, 3.0) for node in range(10)]), failures=failures)
    found = jobs_of(known)
    assert found is not None and (found.failed, found.explained) == (4, 3)
    assert {each.job for each in found.examples} == {f"node-4@{at}", f"node-4@{at + 1}", "a"}


def test_incidents_that_follow_each_other_count_their_time_once():
    rows = [(0, 3.0 + minute / 1440 / 2) for minute in range(20)]
    known = census(np.zeros(2), rows)
    found = _view(known, np.array([0]), np.array([SINCE]), np.array([0]), ["a"])
    assert found.explained == 0
    assert found.expected == pytest.approx((19 * 30 + 70) / (7 * 86_400), rel=0.01)


def test_chance_is_not_evidence():
    rng, nodes = np.random.default_rng(8), 100
    known = census(np.zeros(nodes), [(int(rng.integers(nodes)), float(rng.uniform(0, 7))) for _ in range(4000)])
    job = np.repeat(np.arange(300), 4)
    node = rng.integers(0, nodes, len(job))
    at = np.repeat(rng.integers(SINCE, UNTIL, 300), 4)
    found = _view(known, node, at, job, [str(number) for number in range(300)])
    assert found.explained > 0
    assert found.expected == pytest.approx(found.explained, abs=4 * np.sqrt(found.expected) + 1)
    assert found.p > 0.001
