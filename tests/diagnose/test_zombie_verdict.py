"""The verdict on counts, and the thresholds it goes by."""

from itertools import pairwise

import pytest

from exhume.diagnose.growth import RECORDING, SAMPLING, Growth, Thresholds, growth_between
from exhume.diagnose.zombie_report import GROWING, MANY, UNKNOWN, WELL, judge
from exhume.model.clock import NANOS
from exhume.model.zombies import Census, HierarchyCensus

HOUR = 3600 * NANOS


def census(dying: int | None, controller: str = "memory", note: str = "") -> Census:
    return Census([HierarchyCensus("memory", 1, "/cg", controller, None, None, dying, note=note)])


def grown(first: int, last: int, seconds: float = 3600.0, source: str = RECORDING) -> dict[tuple[str, str], Growth]:
    return {("memory", "memory"): Growth((last - first) / seconds * 3600, seconds, first, last, 0, source)}


@pytest.mark.parametrize(
    ("dying", "growth", "level"),
    [
        (0, {}, WELL),
        (20, {}, WELL),  # a fresh boot
        (500, {}, WELL),
        (999, {}, WELL),
        (1000, {}, MANY),
        (68_680, grown(68_271, 68_680), MANY),
        (50, grown(0, 50), GROWING),  # 1,000 after 19 hours
        (50, grown(20, 50), WELL),  # after 32 hours
        (50, grown(46, 50, seconds=60), WELL),  # four may be the ordinary coming and going
        (50, grown(45, 50, seconds=60), GROWING),
        (500, grown(900, 500), WELL),
        (30, grown(20, 30, seconds=0.4, source=SAMPLING), GROWING),
        (None, {}, UNKNOWN),
    ],
)
def test_levels(dying: int | None, growth: dict[tuple[str, str], Growth], level: str) -> None:
    verdict = judge(census(dying), growth)
    assert verdict.level == level
    assert verdict.is_finding == (level in (MANY, GROWING))
    assert verdict.thresholds == Thresholds()


def test_the_summary_of_the_incident() -> None:
    verdict = judge(census(68_680), grown(68_271, 68_680))
    assert verdict.summary == "68,680 zombie memory cgroups, and growing by 409 an hour"
    assert "1,000" in verdict.reasons[0]
    assert verdict.reasons[1].startswith("409 more zombies in 1.0 h")


def test_growth_says_when_there_will_be_many() -> None:
    assert "would be reached in 19 h" in judge(census(50), grown(0, 50)).reasons[0]


def test_other_hierarchies_count_too() -> None:
    both = Census([*census(3).hierarchies, HierarchyCensus("pids", 1, "/p", "pids", 2000, 1, 1999)])
    assert judge(both, {}).level == MANY
    assert "pids" in judge(both, {}).summary


def test_unknown_says_why() -> None:
    verdict = judge(census(None, note="a cgroup namespace"), {})
    assert verdict.reasons == ["a cgroup namespace"]


def test_other_thresholds() -> None:
    assert judge(census(60), {}, Thresholds(many=50)).level == MANY


def test_growth_over_counts() -> None:
    points = [(0, 100), (10 * NANOS, 100), (HOUR - 10 * NANOS, 200), (HOUR, 200)]
    growth = growth_between(points, RECORDING)
    assert growth is not None
    assert (growth.first, growth.last, growth.source) == (100, 200, RECORDING)
    assert growth.per_hour == pytest.approx(100, rel=0.01)


def test_growth_starts_again_once_most_were_freed() -> None:
    points = [
        (0, 500),
        (HOUR, 32_917),
        (HOUR + NANOS, 6),
        (HOUR + 2 * NANOS, 6),
        (2 * HOUR, 106),
        (2 * HOUR + NANOS, 106),
    ]
    growth = growth_between(points, RECORDING)
    assert growth is not None and (growth.first, growth.last) == (6, 106)


def test_a_zombie_of_an_instant_is_no_growth() -> None:
    points = [(0, 7), (10 * NANOS, 5), (HOUR - 10 * NANOS, 5), (HOUR, 9)]
    growth = growth_between(points, RECORDING)
    assert growth is not None and growth.per_hour == 0


@pytest.mark.parametrize("points", [[], [(0, 1)], [(0, 1), (NANOS, 9)], [(HOUR, 1), (0, 2)]])
def test_too_short_to_tell(points: list[tuple[int, int]]) -> None:
    assert growth_between(points, RECORDING) is None


def course(*parts: tuple[float, int], every: int = 10) -> list[tuple[int, int]]:
    """Counts every ten seconds, that go straight from each (second, count) to the next."""
    found = []
    for second in range(int(parts[0][0]), int(parts[-1][0]) + 1, every):
        (t0, n0), (t1, n1) = next(pair for pair in pairwise(parts) if pair[0][0] <= second <= pair[1][0])
        found.append((second * NANOS, round(n0 + (n1 - n0) * (second - t0) / (t1 - t0))))
    return found


def test_a_growth_that_ended_has_its_rate_and_the_rate_now() -> None:
    # 40,000 in 171 s, and a minute later.
    growth = growth_between(course((0, 72), (600, 75), (771, 40_072), (840, 40_073)), RECORDING)
    assert growth is not None and growth.ended is not None
    assert growth.per_hour < 100
    assert growth.ended.per_second == pytest.approx(235, rel=0.1)
    assert growth.ended.gained == pytest.approx(40_000, rel=0.03)
    verdict = judge(census(40_073), {("memory", "memory"): growth})
    assert "growing" not in verdict.summary
    assert any("ended" in reason for reason in verdict.reasons)


def test_a_growth_that_goes_on_is_measured_from_its_begin() -> None:
    growth = growth_between(course((0, 20), (1800, 21), (1920, 9_621)), RECORDING)
    assert growth is not None and growth.ended is None
    assert growth.per_hour == pytest.approx(80 * 3600, rel=0.1)
    assert growth.since == pytest.approx(1800 * NANOS, abs=20 * NANOS)


def test_a_job_that_leaks_now_and_then_goes_on() -> None:
    parts = [(0.0, 0)]
    for burst in range(1, 6):
        parts += [(burst * 600 - 10.0, (burst - 1) * 100), (burst * 600.0, burst * 100)]
    growth = growth_between(course(*parts, (3500.0, 500)), RECORDING)
    assert growth is not None and growth.ended is None
    assert growth.per_hour == pytest.approx(550, rel=0.1)


def test_a_slow_steady_growth_goes_on() -> None:
    growth = growth_between(course((0, 1000), (3600, 1480)), RECORDING)
    assert growth is not None and growth.ended is None
    assert growth.per_hour == pytest.approx(480, rel=0.02)
