"""What is measured before a fix, from a recording and live, and that it survives the ledger."""

import itertools
import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.diagnose.scenes import Scene, at

from exhume.model.audit import History
from exhume.model.clock import NANOS
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Effect, Measure
from exhume.procfs.host import Host
from exhume.remedy.verify import observe
from exhume.remedy.verify.measures import MEASURES, promised
from exhume.remedy.verify.observe import LiveSampler, Recorded, belongs
from exhume.remedy.verify.proof import Baseline, take_baseline


class ClockAt:
    """A clock that stands still."""

    def __init__(self, wall: int) -> None:
        self.wall = wall

    def wall_ns(self) -> int:
        return self.wall

    def monotonic_ns(self) -> int:
        return self.wall


def all_effects(subject: str = "") -> list[Effect]:
    return [Effect(measure, "fall", subject if measure is Measure.RESTARTS else "") for measure in Measure]


def busy_scene() -> Scene:
    scene = Scene(cores=4, seconds=40).core(2, 0, 40, system=700, user=100, wait_ns=250_000_000)
    scene.core(1, 0, 40, user=500, idle=0).node(0, 40, forks=300, pgscan_kswapd=40, pgscan_direct=60)
    for second in range(0, 40, 10):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=900, visible=100, dying=200 + 5 * second)
        scene.row("cgroups", second, hierarchy="unified", parent="", kernel=9, visible=9, dying=7)
    for second in (5, 15, 25, 35):
        scene.row("throttling", second, cgroup="/a.slice/a.service", periods=10, throttled=5, throttled_ns=500_000_000)
        scene.row("throttling", second, cgroup="/b.service", periods=10, throttled=1, throttled_ns=100_000_000)
        scene.event(second, "unit-restarted", "a", source="systemd", comm="a.service")
        scene.event(second, "unit-restarted", "b", source="systemd", comm="b.service")
        scene.event(second, "container-start", "c", source="docker", container_name="c")
    scene.event(20, "nic-tx-timeout", "eth0", value=3.0)
    return scene


@pytest.fixture
def recording(tmp_path):
    return busy_scene().write(tmp_path / "recording")


@pytest.mark.parametrize(
    ("measure", "subject", "value"),
    [
        (Measure.BUSIEST_CORE, "", 0.8),
        (Measure.KERNEL_CORE, "", 0.7),
        (Measure.RUN_QUEUE_WAIT, "", 0.25),
        (Measure.FORKS, "", 300.0),
        (Measure.RECLAIM, "", 100.0),
        (Measure.THROTTLING, "", 4 * 0.6 / 40),
        (Measure.THROTTLING, "a.service", 4 * 0.5 / 40),
        (Measure.ZOMBIES, "", 300.0),  # the middle of the newest three counts
        (Measure.ZOMBIE_GROWTH, "", 5 * 3600.0),
        (Measure.RESTARTS, "a.service", 4 * 3600 / 40),
        (Measure.RESTARTS, "docker:c", 4 * 3600 / 40),
        (Measure.RESTARTS, "d.service", 0.0),
        (Measure.NIC_TIMEOUTS, "", 3 * 3600 / 40),
    ],
)
def test_a_recording_has_a_value_of_each_measure(recording, measure, subject, value):
    observed = Recorded(recording, recording.span()).observe(Effect(measure, "fall", subject))
    assert observed.stretch.value == pytest.approx(value, rel=1e-6)
    assert observed.stretch.source == "recording"
    assert observed.seconds == pytest.approx(30 if "zombie" in measure else 40)


def test_a_recording_without_a_table_says_so(tmp_path):
    recording = Scene(seconds=20).write(tmp_path)
    recorded = Recorded(recording, recording.span())
    for measure in (Measure.ZOMBIES, Measure.RESTARTS, Measure.FORKS):
        observed = recorded.observe(Effect(measure, "fall"))
        assert observed.stretch.value is None
        assert observed.missing


def test_no_recorded_start_proves_nothing_without_a_source(tmp_path):
    scene = Scene(seconds=20, sources_missing=["systemd: there is no D-Bus; run it"]).event(3, "oom", "x")
    scene = scene.event(5, "container-start", "c", source="docker", container_name="c")
    recording = scene.event(6, "container-start", "c", source="cri", container_name="ns/pod/c").write(tmp_path)
    recorded = Recorded(recording, recording.span())
    assert "systemd" in recorded.observe(Effect(Measure.RESTARTS, "stop", "a.service")).missing
    for subject in ("docker:c", "cri:ns/pod/c"):
        assert recorded.observe(Effect(Measure.RESTARTS, "stop", subject)).amount == 1
    deaf = recorded.observe(Effect(Measure.RESTARTS, "stop", "podman:c"))
    assert not deaf.values and "no events of" in deaf.missing


def test_a_recording_that_goes_on_needs_no_look(recording):
    """The clock stands still: a look of our own would take no second."""
    baseline = take_baseline(Host(), all_effects("a.service"), 15.0, recording, clock=ClockAt(at(41)))
    assert baseline.source == "recording"
    assert {each.effect.measure for each in baseline.observed} == set(Measure)
    assert baseline.taken_until <= at(40)
    (forks,) = (each for each in baseline.observed if each.effect.measure is Measure.FORKS)
    assert forks.stretch.value == pytest.approx(300)


def test_an_old_recording_is_no_baseline(recording):
    baseline = take_baseline(Host(), [Effect(Measure.FORKS, "fall")], 1.0, recording)
    assert baseline.source == "live"
    assert 0 < baseline.observed[0].seconds < 30, "what was recorded is 40 s long"


def test_a_baseline_survives_its_file(recording):
    baseline = take_baseline(Host(), all_effects("a.service"), 15.0, recording, clock=ClockAt(at(41)))
    again = Baseline.from_dict(json.loads(json.dumps(baseline.to_dict())))
    for one, other in zip(baseline.observed, again.observed, strict=True):
        assert other.values == pytest.approx(one.values, rel=1e-5)
        assert (other.effect, other.since, other.until) == (one.effect, one.since, one.until)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda reported: reported.pop("observed"),
        lambda reported: reported.update(version=99),
        lambda reported: reported["observed"][0].update(measure="luck"),
        lambda reported: reported["observed"][0].update(spans=[0] * len(reported["observed"][0]["spans"])),
        lambda reported: reported["observed"][0]["values"].append(1),
        lambda reported: reported.update(observed="x"),
    ],
)
def test_a_spoiled_baseline_is_one_sentence(recording, spoil):
    reported = take_baseline(Host(), all_effects("a.service"), 15.0, recording, clock=ClockAt(at(41))).to_dict()
    spoil(reported)
    with pytest.raises(ExhumeError):
        Baseline.from_dict(reported)


def test_rare_restarts_come_from_the_managers_history():
    effect = Effect(Measure.RESTARTS, "stop", "agent.service")
    history = History("journal", 3.0, starts=37, failures=36, restarts_per_hour=12.0)
    baseline = take_baseline(Host(), [effect], 1.0, records=lambda: {"agent.service": history})
    (observed,) = baseline.observed
    assert (observed.amount, observed.seconds, observed.source) == (36, 3 * 3600, "journal")


def test_a_fast_loop_is_measured_live():
    effect = Effect(Measure.RESTARTS, "stop", "agent.service")
    history = History("journal", 24.0, starts=37, failures=36, restarts_per_hour=1.5)
    baseline = take_baseline(Host(), [effect], 1.0, restarts=Counts(3, 9), records=lambda: {"agent.service": history})
    assert (baseline.observed[0].amount, baseline.observed[0].source) == (6, "live")


def test_promises_of_several_steps_are_one():
    merged = promised(
        (
            Effect(Measure.ZOMBIES, "stay"),
            Effect(Measure.FORKS, "fall"),
            Effect(Measure.ZOMBIES, "fall"),
            Effect(Measure.RESTARTS, "stop", "a"),
            Effect(Measure.RESTARTS, "stay", "b"),
        )
    )
    assert merged == (
        Effect(Measure.ZOMBIES, "fall"),
        Effect(Measure.FORKS, "fall"),
        Effect(Measure.RESTARTS, "stop", "a"),
        Effect(Measure.RESTARTS, "stay", "b"),
    )


def test_every_measure_has_a_meaning():
    assert set(MEASURES) == set(Measure)


def test_a_cgroup_belongs_to_its_unit_or_container():
    number = "4c8f" * 16
    assert belongs("/system.slice/a.service/x", "a.service")
    assert belongs(f"/kubepods/pod1/cri-containerd-{number}.scope", f"docker:{number}")
    assert belongs("/anything", "")
    assert not belongs("/system.slice/aa.service", "a.service")
    assert not belongs("/docker/x-agent-y", "docker:agent")


@pytest.mark.slow
def test_the_live_sampler_sees_what_happens_here():
    """A core kept busy, and processes that are started: measured on this very machine."""
    effects = [Effect(measure, "fall") for measure in (Measure.BUSIEST_CORE, Measure.FORKS, Measure.ZOMBIES)]
    # All on one core: on two they would wait for each other.
    script = (
        "import os, time\nos.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\nprint(flush=True)\n"
        "end = time.time() + 120\nwhile time.time() < end:\n  p = os.fork()\n  p or os._exit(0)\n  os.waitpid(p, 0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None and busy.stdout.readline()
            forked, since = processes_started(), time.monotonic()
            sampler = LiveSampler(Host(), effects)
            began = os.times()
            assert sampler.watch(3.0)
            ended = os.times()
            forked, took = processes_started() - forked, time.monotonic() - since
        finally:
            busy.kill()
    sampler.close()
    busiest, forks, _ = sampler.observed()
    assert busiest.stretch.value > 0.5
    # However many the machine allowed for.
    assert 0 < forks.amount <= forked
    assert forked / took / 5 < forks.stretch.value < 5 * forked / took
    assert 2.5 < forks.seconds < took
    # Light: it took next to nothing itself.
    assert (ended.user + ended.system) - (began.user + began.system) < 0.3


class CostlyCounter:
    """Counts zombies, and takes so much of a core for each count that a day's rest would be due."""

    def __init__(self, host: Host) -> None:
        self.note = ""

    def count(self) -> int:
        return 7


@pytest.mark.slow
def test_a_watch_has_enough_counts_however_costly_they_are(monkeypatch):
    costs = itertools.count(0, 432 * NANOS)
    monkeypatch.setattr(observe, "ZombieCounter", CostlyCounter)
    monkeypatch.setattr(observe.time, "thread_time_ns", lambda: next(costs))
    effect = Effect(Measure.ZOMBIES, "fall")
    with closing(LiveSampler(Host(), [effect])) as sampler:
        assert sampler.watch(5.0)
        (series,) = sampler.observed()
    assert len(series.values) >= 3 and set(series.values) == {7.0}


def processes_started() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("processes "))


class Counts:
    """A manager that counts, and then counts from 0 again."""

    def __init__(self, *numbers: int | None) -> None:
        self._numbers = list(numbers)

    def count(self, subject: str) -> int | None:
        return self._numbers.pop(0) if self._numbers else None

    def why_not(self, subject: str) -> str:
        return f"{subject} is silent"


def test_restarts_are_steps_of_the_manager_s_count():
    effect = Effect(Measure.RESTARTS, "stop", "a.service")
    sampler = LiveSampler(Host(), [effect], Counts(7, 9, 9, None, 1))
    for _ in range(4):
        sampler.tick()
    (observed,) = sampler.observed()
    assert observed.values == (2.0, 0.0, 1.0)


def test_a_silent_manager_is_reported():
    effect = Effect(Measure.RESTARTS, "stop", "a.service")
    sampler = LiveSampler(Host(), [effect], Counts())
    sampler.tick()
    (observed,) = sampler.observed()
    assert observed.stretch.value is None
    assert observed.missing == "a.service is silent"
