"""False verdicts on simulated data in which nothing changed: no more than stated, whatever the autocorrelation."""

from collections import Counter

import numpy as np
import pytest
from tests.remedy.verify.test_verify_judge import verdict
from tests.remedy.verify.test_verify_statistics import waves

from exhume.model.remedy import Change, Measure
from exhume.remedy.verify.judge import ALPHA
from exhume.remedy.verify.measures import MEASURES

pytestmark = pytest.mark.slow

# Before and after, in seconds: the shortest that `fix apply` samples, and what a recording has.
LENGTHS = ((15, 60), (60, 60), (15, 300))
RUNS = 130

# Stationary series with a given lag-1 autocorrelation: bounded and skewed levels, and counts.
QUIET = {
    "level": (Measure.KERNEL_CORE, lambda rng, wave: np.clip(0.4 + 0.15 * wave, 0, 1)),
    "flow": (Measure.FORKS, lambda rng, wave: 50 * np.exp(0.7 * wave)),
    "events": (Measure.RESTARTS, lambda rng, wave: rng.poisson(0.1, len(wave))),
}


@pytest.mark.parametrize("expected", ["fall", "stop", "stay"])
@pytest.mark.parametrize("name", QUIET)
def test_no_more_false_verdicts_than_alpha(name, expected):
    measure, make = QUIET[name]
    rng = np.random.default_rng(2028)
    found: Counter[Change] = Counter()
    runs = 0
    for correlation in (0.0, 0.5, 0.8, 0.9):
        for before, after in LENGTHS:
            for _ in range(RUNS // 3):
                values = make(rng, waves(rng, before + after, correlation))
                found[verdict(measure, values[:before], values[before:], expected).change] += 1
                runs += 1
    assert runs >= 500
    assert found[Change.IMPROVED] <= ALPHA * runs
    assert found[Change.WORSE] <= ALPHA * runs


@pytest.mark.parametrize("expected", ["fall", "stay"])
@pytest.mark.parametrize("measure", [Measure.BUSIEST_CORE, Measure.KERNEL_CORE, Measure.FORKS, Measure.RECLAIM])
def test_unchanged_never_contradicts_the_figures_that_are_printed(measure, expected):
    definition = MEASURES[measure]
    scale = 1.0 if definition.kind.value == "level" else 20 * definition.matters
    rng = np.random.default_rng(2029)
    seen: Counter[Change] = Counter()
    for _ in range(150):
        old, new = rng.random(2) * scale
        lengths = rng.integers(4, 90, 2)
        series = [
            np.clip(level + 0.2 * scale * rng.random() * waves(rng, int(length), 0.7), 0, None)
            for level, length in zip((old, new), lengths, strict=True)
        ]
        found = verdict(measure, *series, expected)
        seen[found.change] += 1
        if found.change is Change.UNCHANGED:
            matters = max(definition.matters, definition.share * found.before.value)
            assert abs(found.after.value - found.before.value) < matters, found
    assert seen[Change.UNCHANGED], "there was nothing to check"


def test_a_busy_core_that_fell_is_not_unchanged():
    """From a median of 99% to one of 18%, in too few blocks to prove a fall: no rise, but not `unchanged` either."""
    before = np.where(np.arange(15) % 5 < 3, 0.99, 0.1)
    after = np.where(np.arange(30) % 7 < 1, 0.9, 0.18)
    found = verdict(Measure.BUSIEST_CORE, before, after, "stay")
    assert (found.change, found.as_expected) == (Change.UNPROVEN, True)
    assert "from 99% to 18%" in found.why
    promised = verdict(Measure.BUSIEST_CORE, before, after, "fall")
    assert (promised.change, promised.as_expected) == (Change.UNPROVEN, False)
    assert "from 99% to 18%" in promised.why and "not proven; " in promised.why
