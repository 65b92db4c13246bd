"""What the recorder marks by itself: once for an episode, at its first second."""

import numpy as np
import pytest
from tests.collect.fake_node import tick

from exhume.collect.incidents import IncidentMarks
from exhume.model.clock import NANOS


def cpu(second: int, shares: dict[int, int], *, state: str = "system", stolen: int = 0):
    columns = {"time": np.full(len(shares), tick(second).start), "cpu": np.array(list(shares), np.uint16)}
    for name in ("system", "irq", "softirq"):
        values = list(shares.values()) if name == state else [0] * len(shares)
        columns[name] = np.array(values, np.uint16)
    columns["steal"] = np.full(len(shares), stolen, np.uint16)
    return {"cpu": columns}


def run_of(shares: list[int], *, core: int = 39, marks: IncidentMarks | None = None, first: int = 0, stolen: int = 0):
    """Incidents of one core with these kernel shares, second by second, next to a quiet one."""
    marks = marks or IncidentMarks()
    found = []
    for second, share in enumerate(shares, start=first):
        rows = marks.observe(tick(second), [{}, cpu(second, {0: 10, core: share}, stolen=stolen)])
        if rows:
            events = rows["events"]
            found += [dict(zip(events, values, strict=True)) for values in zip(*events.values(), strict=True)]
    return found


def test_a_core_in_the_kernel_for_two_seconds() -> None:
    (incident,) = run_of([0, 0, 1000, 960, 0, 0])
    assert incident["kind"] == "incident"
    assert incident["cpu"] == 39
    assert incident["time"] == tick(2).start
    assert "core 39 has spent " in incident["text"]
    assert " in the kernel so far" in incident["text"]


def test_one_second_is_not_enough() -> None:
    assert run_of([0, 0, 1000, 0, 0]) == []
    assert run_of([0, 940, 940, 940, 940]) == []
    assert run_of([0, 1000, 0, 1000, 0, 1000, 0]) == []


def test_two_seconds_are_found_wherever_they_lie_in_the_ticks() -> None:
    for lead in range(0, 1001, 100):
        (incident,) = run_of([0, 0, lead, 1000, 1000 - lead, 0]) if 0 < lead < 1000 else run_of([0, 1000, 1000, 0])
        start = tick(3).start - lead * NANOS // 1000 if 0 < lead < 1000 else tick(1).start
        assert incident["time"] == start


def test_a_steadily_busy_core_is_not_a_burst() -> None:
    assert run_of([600] * 5 + [1000] + [600] * 5) == []


def test_of_a_guest_what_the_hypervisor_leaves_counts() -> None:
    (incident,) = run_of([0, 0, 900, 860, 880, 0], stolen=100)
    assert incident["time"] == tick(2).start
    assert incident["text"].endswith("95% of what the hypervisor left of it or more")
    (whole,) = run_of([0, 0, 960, 970, 980, 0], stolen=20)
    assert whole["text"].endswith("95% of it or more")
    assert run_of([0, 0, 800, 800, 800, 0], stolen=100) == []
    # The hypervisor holds this one.
    assert run_of([0, 0, 300, 300, 300, 0], stolen=700) == []


def test_a_long_episode_is_one_mark() -> None:
    assert len(run_of([0] + [1000] * 300)) == 1
    assert len(run_of([0] + ([1000] * 3 + [0] * 20) * 10)) == 1


def test_quiet_for_thirty_seconds_and_again() -> None:
    found = run_of([0, 1000, 1000, 1000] + [0] * 40 + [1000] * 5)
    assert [incident["time"] for incident in found] == [tick(1).start, tick(44).start]


@pytest.mark.parametrize("state", ["irq", "softirq"])
def test_interrupts_count_as_kernel_time(state: str) -> None:
    marks = IncidentMarks()
    assert not marks.observe(tick(0), [cpu(0, {5: 0}, state=state)])
    assert not marks.observe(tick(1), [cpu(1, {5: 990}, state=state)])
    assert marks.observe(tick(2), [cpu(2, {5: 990}, state=state)])


def test_each_core_by_itself() -> None:
    marks = IncidentMarks()
    for second in range(2):
        marks.observe(tick(second), [cpu(second, {1: 0, 2: 0})])
    marks.observe(tick(2), [cpu(2, {1: 1000, 2: 1000})])
    rows = marks.observe(tick(3), [cpu(3, {1: 1000, 2: 1000})])
    assert rows["events"]["cpu"] == [1, 2]


def test_a_core_that_went_offline_starts_afresh() -> None:
    marks = IncidentMarks()
    marks.observe(tick(0), [cpu(0, {1: 1000})])
    marks.observe(tick(1), [cpu(1, {0: 0})])
    assert not marks.observe(tick(2), [cpu(2, {1: 1000})])


def threads(second: int, wait_s: float, comm: str = "ksoftirqd/39", slices: int | None = 1):
    wait = int(wait_s * NANOS)
    return {
        "threads": {
            "time": [tick(second).start],
            "tid": [20],
            "comm": (comm,),
            "cpu": (39,),
            "run_ns": (5,),
            "wait_ns": (wait,),
            "slices": (slices,),
        }
    }


def test_a_ksoftirqd_that_waited() -> None:
    marks = IncidentMarks()
    assert not marks.observe(tick(1), [threads(1, 0.5)])
    assert not marks.observe(tick(2), [threads(2, 3, comm="migration/39")])
    events = marks.observe(tick(10), [threads(10, 6.596)])["events"]
    assert (events["cpu"], events["value"]) == ([39], [6.596])
    # The wait is reported when it ends; the episode is where it began.
    assert events["time"] == [tick(10).end - 6_596_000_000]
    assert not marks.observe(tick(11), [threads(11, 0.9)])
    assert marks.observe(tick(42), [threads(42, 0.7)])["events"]["time"] == [tick(42).start]


@pytest.mark.parametrize(
    ("wait_s", "slices", "queue", "marked"),
    [
        pytest.param(0.8, 60, None, False, id="turns"),
        pytest.param(0.8, 2, None, True, id="two-long-waits"),
        pytest.param(0.8, 6, None, True, id="a-long-wait-then-turns"),
        pytest.param(3.0, 60, 9.0, True, id="longer-than-the-tick"),
        pytest.param(0.8, None, 9.0, True, id="not-counted"),
        pytest.param(0.8, 60, 9.0, False, id="turns-of-many"),
        pytest.param(0.8, 60, 1.0, True, id="a-long-wait-then-many-turns-with-one-other"),
        pytest.param(0.8, 200, 1.0, False, id="turns-with-one-other"),
    ],
)
def test_short_waits_that_add_up_are_turns(
    wait_s: float, slices: int | None, queue: float | None, marked: bool
) -> None:
    rows = threads(1, wait_s, slices=slices)
    core = cpu(1, {39: 0})["cpu"]
    if queue is not None:
        core["wait_ns"] = [int(queue * NANOS)]
    assert bool(IncidentMarks().observe(tick(1), [{"cpu": core}, rows])) is marked


def line(second: float, kind: str, **fields):
    return {
        "events": {
            "time": [tick(0).end + int(second * NANOS)],
            "source": ["kernel-log"],
            "kind": [kind],
            "severity": ["critical"],
            "text": ["what the kernel said"],
            **{name: [value] for name, value in fields.items()},
        }
    }


def test_a_starvation_line_in_the_log() -> None:
    marks = IncidentMarks()
    assert not marks.observe(tick(1), [line(0.5, "kernel-line")])
    assert not marks.observe(tick(2), [line(1.5, "oom")])
    events = marks.observe(tick(3), [line(2.25, "nic-tx-paused", device="eth0", queue=5)])["events"]
    assert events["time"] == [tick(0).end + 2_250_000_000]
    assert events["device"] == ["eth0"]
    assert events["text"] == ["kernel-log: what the kernel said"]
    assert not marks.observe(tick(9), [line(8, "nic-tx-paused", device="eth0")])
    assert marks.observe(tick(10), [line(9, "nic-tx-paused", device="eth1")])
    assert marks.observe(tick(11), [line(10, "soft-lockup", cpu=3)])


def test_lines_from_before_the_recording_are_no_incident() -> None:
    assert not IncidentMarks().observe(tick(100), [line(2, "soft-lockup", cpu=3)])


def dying(second: int, count: int | None, parent: str = ""):
    return {"cgroups": {"time": [tick(second).start], "hierarchy": ["memory"], "parent": [parent], "dying": [count]}}


def dying_run(counts: list[int | None]) -> list:
    marks = IncidentMarks()
    found = []
    for index, count in enumerate(counts):
        rows = marks.observe(tick(index * 10), [dying(index * 10, count)])
        found += [index] * len(rows["events"]["time"]) if rows else []
    return found


def test_a_jump_in_dying_cgroups_has_to_last() -> None:
    assert dying_run([20, 20, 300, 310]) == [3]
    assert dying_run([20, 20, 300, 20, 20, 20]) == []
    assert dying_run([20, 120, 180, 215, 219, 219]) == []
    assert dying_run([20, None, 300, None, 320]) == [4]


def test_many_dying_cgroups_that_stay_as_they_are_are_no_jump() -> None:
    assert dying_run([68_000] * 10) == []


def test_a_slow_growth_is_not_one() -> None:
    assert dying_run([n * 10 for n in range(30)]) == []


def test_a_leak_that_goes_on_is_one_mark() -> None:
    assert len(dying_run([n * 500 for n in range(60)])) == 1


def test_subtrees_are_not_counted_again() -> None:
    marks = IncidentMarks()
    for second, count in ((0, 0), (10, 500), (20, 500)):
        assert not marks.observe(tick(second), [dying(second, count, parent="/kubepods.slice")])


def dying_marks(counts: list[tuple[int, int]]) -> list[tuple[int, float, str, str]]:
    """Time (s), value, text and trigger of the marks for counts at some seconds."""
    marks = IncidentMarks()
    found = []
    for second, count in counts:
        rows = marks.observe(tick(second), [dying(second, count)])
        if rows:
            events = rows["events"]
            columns = (events[name] for name in ("time", "value", "text", "trigger"))
            found += [(time - tick(0).start, *rest) for time, *rest in zip(*columns, strict=True)]
    return [((time // NANOS), *rest) for time, *rest in found]


def test_a_growth_begins_at_the_jump_and_counts_all_that_came() -> None:
    # The lowest count is 40 s before the jump; 80 a second are made from 40 s on.
    ((at, value, text, trigger),) = dying_marks(
        [(0, 68), (10, 72), (20, 70), (30, 72), (40, 72), (50, 872), (60, 1672)]
    )
    assert (at, value, trigger) == (40, 1600.0, "dying-cgroups")
    assert text == "1600 more dying cgroups within 20 s (1672 in all)"


def test_counts_that_follow_closely_do_not_shrink_the_jump() -> None:
    # A walk that ends between two counts adds one: 80 a second, the second count after 4 s, the third after 24 s.
    ((at, value, _, _),) = dying_marks([(0, 30_000), (4, 30_320), (24, 31_920)])
    assert (at, value) == (0, 1920.0)
