"""Forecasts of a growth, checked against what really came: in counts drawn at random, and in whole recordings."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene, at

from exhume.diagnose.growth import RECORDING, growth_between, held_by_each, mean_of, milestone, slope_of
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Estimate, Forecast

SINGLE = Estimate(1.0, 1.0, 1.0)
SYSCALL = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64"]
WALK = [*SYSCALL, "vfs_read", "seq_read", "memcg_numa_stat_show", "mem_cgroup_nr_lru_pages", "mem_cgroup_iter"]


def steady(rng: random.Random) -> Iterator[int]:
    """A leak of one every few seconds, at random moments."""
    due = rng.expovariate(0.5)
    second = 0
    while True:
        second += 10
        new = 0
        while due < second:
            due += rng.expovariate(0.5)
            new += 1
        yield new


def in_bursts(rng: random.Random) -> Iterator[int]:
    """A job that leaks some dozen, every minute or so."""
    while True:
        yield from [0] * rng.randint(3, 9)
        yield rng.randint(20, 60)


@pytest.mark.parametrize("leak", [steady, in_bursts])
def test_what_is_forecast_from_the_first_part_really_comes(leak: Callable[[random.Random], Iterator[int]]) -> None:
    """Of a hundred runs nine in ten reach the limit within the range, and the estimates are right in the middle."""
    within, errors = 0, []
    for seed in range(100):
        steps, total, points = leak(random.Random(seed)), 500, []
        while total < 4000:
            points.append((len(points) * 10 * NANOS, total))
            total += next(steps)
        seen = next(place for place, (_, count) in enumerate(points) if count >= 1500)
        growth = growth_between(points[:seen], RECORDING)
        assert growth is not None and growth.pace is not None and growth.ended is None
        ahead = milestone("many", 4000, "", count=growth.last, cost=SINGLE, pace=growth.pace)
        assert ahead is not None and ahead.latest_s is not None
        really = (points[-1][0] - points[seen - 1][0]) / NANOS
        within += ahead.earliest_s <= really <= ahead.latest_s
        errors.append(ahead.in_s / really - 1)
    assert within >= 90
    assert abs(sum(errors) / len(errors)) < 0.05


def test_a_growth_that_slows_down_has_both_paces_in_its_range() -> None:
    points = [(second * NANOS, round(1000 + 40 * second**0.5)) for second in range(0, 1200, 10)]
    growth = growth_between(points, RECORDING)
    assert growth is not None and growth.pace is not None
    last_pace = (points[-1][1] - points[-20][1]) / (points[-1][0] - points[-20][0]) * 3600 * NANOS
    assert growth.pace.low <= last_pace * 1.2
    assert growth.pace.high > growth.pace.value > growth.pace.low


def test_what_is_reached_already_or_never_is_no_milestone() -> None:
    pace = Estimate(480.0, 400.0, 560.0)
    assert milestone("many", 1000, "", count=1500, cost=SINGLE, pace=pace) is None
    assert milestone("many", 1000, "", count=500, cost=SINGLE, pace=Estimate(0.0, 0.0, 0.0)) is None
    unsure = milestone("many", 1000, "", count=500, cost=SINGLE, pace=Estimate(10.0, 0.0, 30.0))
    assert unsure is not None and unsure.latest_s is None


def test_the_figures_of_the_incident() -> None:
    """8 zombies a minute, 96 us for each: a stall of 1 s after 22 hours, the 5 s timeout after 4.5 days."""
    pace, cost = Estimate(480.0, 460.0, 500.0), Estimate(96.0, 94.0, 98.0)
    stall, timeout = (milestone("stall", s * 1e6, "us", count=0, cost=cost, pace=pace) for s in (1, 5))
    assert stall is not None and stall.in_s / 3600 == pytest.approx(21.7, abs=0.1)
    assert timeout is not None and timeout.in_s / 86400 == pytest.approx(4.52, abs=0.01)


def test_a_slope_is_known_where_it_is_clear() -> None:
    rng = random.Random(3)
    clear = slope_of([(n, 5e8 + 112_000 * n + rng.gauss(0, 2e6)) for n in range(0, 4000, 80)])
    assert clear is not None and clear.low <= 112_000 <= clear.high
    assert clear.value == pytest.approx(112_000, rel=0.02)
    assert slope_of([(n, rng.gauss(0, 1e7)) for n in range(0, 4000, 80)]) is None
    assert slope_of([(5.0, 1.0)] * 9) is None


def test_a_mean_of_few_values_is_less_sure() -> None:
    few, many = mean_of([10.0], 1.0), mean_of([10.0] * 25, 1.0)
    assert few.high - few.low == pytest.approx(4.0) and many.high - many.low == pytest.approx(0.8)


# ---- whole recordings: a leak, and a walker whose rounds get longer with it


COST_US, FIRST, PER_S, EVERY_S = 96.0, 4_000, 10, 6
HELD = 112 * 1024


def growing(seconds: int) -> Scene:
    """Zombies grow by ten a second; every six seconds one walk over all of them holds a core."""
    scene, rng = Scene(cores=2, seconds=seconds), random.Random(1)
    for second in range(0, seconds, 10):
        dying = FIRST + PER_S * second
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=dying + 200, visible=200, dying=dying)
    for second in range(seconds):
        slab = 400_000 + (FIRST + PER_S * second) * HELD // 1024
        scene.node(
            second, second + 1, slab_unreclaimable=slab + rng.randint(-4000, 4000), percpu=9_000, mem_total=16 << 20
        )
    for second in range(3, seconds - 4, EVERY_S):
        left = round_s(second)
        for part in range(second, second + 4):
            share = min(1.0, left - (part - second))
            if share > 0:
                scene.core(1, part, part + 1, system=round(share * 990))
                walk(scene, part, share)
    return scene


def round_s(second: float) -> float:
    """How long a walk takes that begins then."""
    return (FIRST + 200 + PER_S * second) * COST_US / 1e6


def walk(scene: Scene, second: int, share: float) -> None:
    """Samples of one walk: without a pause from the begin of its second on."""
    number = 97
    for place in range(round(share * number)):
        values = {"cpu": 1, "pid": 77, "tid": 77, "comm": "kubelet", "weight_us": round(1e6 / number)}
        scene.row("samples", second + place / number, stack=scene.stack_of(WALK), **values)


def forecast_at(scene: Scene, directory: Path, second: int) -> Forecast:
    window = Window(at(max(0, second - 60)), at(second))
    answer = judged_recording(scene.write(directory), window)
    finding = next(each for each in answer.findings if each.cause == "zombie-memcgs")
    assert finding.forecast is not None
    return finding.forecast


def test_a_stall_is_forecast_from_the_first_minutes_of_a_recording(tmp_path: Path) -> None:
    """A walk takes 0.4 s at its begin. It takes 1 s when 10,417 are tracked, after 622 s; forecast after 180 s."""
    forecast = forecast_at(growing(180), tmp_path, 180)
    assert forecast.per_hour.value == pytest.approx(PER_S * 3600, rel=0.02)
    assert forecast.cost_us is not None and forecast.cost_us.low <= COST_US <= forecast.cost_us.high
    assert forecast.cost_us.value == pytest.approx(COST_US, rel=0.06)
    assert forecast.cost_bytes is not None and forecast.cost_bytes.value == pytest.approx(HELD, rel=0.05)
    stall = next(each for each in forecast.milestones if each.code == "stall")
    # When the counts of the recording really get there.
    really = next(second for second in range(180, 2000) if round_s(second) >= 1.0) - 180
    assert stall.latest_s is not None and stall.earliest_s <= really <= stall.latest_s
    assert stall.in_s == pytest.approx(really, rel=0.1)
    assert [each.code for each in forecast.milestones] == ["stall", "memory", "nic-timeout", "soft-lockup"]


def test_zombies_that_stay_as_they_are_have_no_forecast(tmp_path: Path) -> None:
    scene = Scene(seconds=120)
    for second in range(0, 120, 10):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=5_200, visible=200, dying=5_000)
    answer = judged_recording(scene.write(tmp_path), scene.window)
    finding = next(each for each in answer.findings if each.cause == "zombie-memcgs")
    assert finding.forecast is None


def test_the_memory_that_each_holds_is_measured_where_they_come_or_go() -> None:
    rng = random.Random(5)
    counts = [(second * NANOS, 70 + min(4000, 20 * second)) for second in range(0, 600, 10)]
    memory = [
        (second * NANOS, (1 << 29) + HELD * (70 + min(4000, 20 * second)) + rng.randint(-(1 << 22), 1 << 22))
        for second in range(600)
    ]
    cost = held_by_each(counts, memory)
    assert cost is not None and cost.low <= HELD <= cost.high and cost.value == pytest.approx(HELD, rel=0.03)
    # What is freed again shows it as well; what stays as it is doesn't.
    back = [(wall, 4_140 - number) for wall, number in counts]
    down = [(wall, (1 << 30) - held) for wall, held in memory]
    freed = held_by_each(back, down)
    assert freed is not None and freed.value == pytest.approx(HELD, rel=0.03)
    assert held_by_each(counts[30:], memory) is None
    assert held_by_each([], memory) is None
