"""Restarts as a manager's records tell of them: what a stop is proved by within a minute, and that it is never proved
where nothing was stopped, however the restarts are spread."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.parts import sampled

from exhume.model.audit import History
from exhume.model.clock import NANOS
from exhume.model.remedy import Change, Effect, Measure
from exhume.remedy.verify.judge import judge
from exhume.remedy.verify.measures import Series
from exhume.remedy.verify.restarts import history_series

STOP = Effect(Measure.RESTARTS, "stop", "zarf.service")
NOW = 1_790_000_000 * NANOS


def loop(rng, every_s, jitter=0.1):
    """As systemd does it: a pause that is set, and a run that takes about as long each time."""
    while True:
        yield every_s * (1 + jitter * rng.normal())


def by_chance(rng, every_s):
    while True:
        yield rng.exponential(every_s)


def growing(rng, first_s, most_s):
    """As Docker and the kubelet do it: twice as long each time, up to a limit."""
    pause = first_s
    while True:
        yield pause * (1 + 0.05 * rng.random())
        pause = min(most_s, 2 * pause)


def in_bursts(rng, every_s):
    while True:
        yield from rng.exponential(0.5, 20)
        yield rng.exponential(every_s)


def moments(pauses, until_s):
    """When it was started again, in seconds since the first start."""
    found, at = [], 0.0
    while at < until_s:
        at += max(1e-3, next(pauses))
        found.append(at)
    return found


def reported(at_s, age_s, hours=1.0):
    """What the records tell `age_s` after the first start."""
    past = tuple(NOW - round((age_s - moment) * NANOS) for moment in at_s if moment <= age_s)
    within = tuple(moment for moment in past if moment > NOW - round(hours * 3600 * NANOS))
    return history_series(STOP, History("journal", hours, restarts_per_hour=1.0, restarted_at=within), NOW)


def since(at_s, age_s, seconds):
    counts, _ = np.histogram([each - age_s for each in at_s], bins=np.arange(0, seconds + 1))
    return Series(STOP, "live", NOW, NOW, tuple(map(float, counts)), (1.0,) * seconds)


PROCESSES = {
    "every 2 s": lambda rng: loop(rng, 2.0),
    "every 7 s": lambda rng: loop(rng, 7.0),
    "every 90 s": lambda rng: loop(rng, 90.0),
    "by chance": lambda rng: by_chance(rng, 6.0),
    "rarely, by chance": lambda rng: by_chance(rng, 60.0),
    "as Docker": lambda rng: growing(rng, 0.1, 60.0),
    "as the kubelet": lambda rng: growing(rng, 10.0, 300.0),
    "in bursts": lambda rng: in_bursts(rng, 120.0),
}


@pytest.mark.parametrize("name", sampled(PROCESSES))
def test_what_goes_on_is_hardly_ever_taken_for_better(name):
    rng = np.random.default_rng(11)
    tries, wrong = 150, 0
    for _ in range(tries):
        age, seconds = float(rng.uniform(20, 2000)), int(rng.choice([15, 60, 300]))
        at_s = moments(PROCESSES[name](rng), age + seconds)
        before = reported(at_s, age)
        wrong += before is not None and judge(before, since(at_s, age, seconds)).change is Change.IMPROVED
    assert wrong <= math.ceil(0.01 * tries)


@pytest.mark.parametrize("quiet_s", [60, 300])
def test_one_that_had_ended_by_itself_is_no_success(quiet_s):
    rng = np.random.default_rng(12)
    wrong = 0
    for _ in range(100):
        age = float(rng.uniform(100, 1000))
        at_s = [each for each in moments(loop(rng, 3.0), age) if each < age - quiet_s * rng.uniform(0.7, 1.3)]
        before = reported(at_s, age)
        wrong += before is not None and judge(before, since(at_s, age, 60)).change is Change.IMPROVED
    assert wrong <= 1


@pytest.mark.parametrize("every_s", [1.0, 2.5, 5.0, 8.0])
@pytest.mark.parametrize("age_s", [120, 300, 4000])
def test_a_loop_of_seconds_that_was_stopped_is_proved_within_a_minute(every_s, age_s):
    """The journal is older than the loop, and a short look would see few turns of it."""
    rng = np.random.default_rng(13)
    proved = 0
    for _ in range(20):
        at_s = [each for each in moments(loop(rng, every_s), age_s) if each <= age_s]
        found = judge(reported(at_s, age_s), since([], age_s, 60))
        proved += (found.change, found.as_expected) == (Change.IMPROVED, True)
    assert proved >= 19


def test_restart_times_set_the_span_of_the_baseline():
    before = reported([float(second) for second in range(0, 3600, 5)], 3600)
    assert (round(before.seconds), round(before.amount)) == (600, 119) and len(before.values) == 600
    # What began a minute ago is not spread over the hour that the journal reaches back.
    young = reported([3540 + 5.0 * turn for turn in range(12)], 3600)
    assert young.amount == 11 and 55 < young.seconds <= 60
    # Rare ones are counted over all that is known.
    rare = reported([100.0, 1300.0, 2500.0], 3600)
    assert rare.amount == 2 and rare.seconds == pytest.approx(3500)
    assert history_series(STOP, History("journal", 1.0), NOW) is None


@pytest.mark.parametrize("age_s", [90, 400, 1500])
def test_the_word_of_the_engine_proves_a_stop_as_soon_as_no_pause_was_as_long(age_s):
    """Docker waits for up to a minute between two starts: to wait for twice the longest pause takes minutes."""
    at = moments(growing(np.random.default_rng(3), 0.1, 60.0), 3600)
    before = reported(at, age_s)
    word = "docker has it exited, with restart policy no"
    after = [replace(since([], age_s, seconds), settled=said) for seconds in (20, 80) for said in ("", word)]
    short, short_settled, quiet, settled = (judge(before, each) for each in after)
    assert [each.change for each in (short, short_settled, quiet)] == [Change.UNPROVEN] * 3
    assert settled.change is Change.IMPROVED and settled.as_expected and word in settled.why
    # Its word alone is not enough: it was started once more, or there was no loop that could have ended.
    again = replace(since([age_s + 5.0], age_s, 80), settled=word)
    assert judge(before, again).change is not Change.IMPROVED or not judge(before, again).as_expected
    never = Series(STOP, "runtime", 0, 0, (1.0, *[0.0] * 59), (1.0,) * 60)
    assert judge(never, replace(since([], 0, 80), settled=word)).change is Change.UNPROVEN
