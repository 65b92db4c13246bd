"""Which seconds are looked at: a bad run on one core of many, trouble without a pause, at an edge, near another."""

from pathlib import Path

import pytest
from tests.diagnose.scenes import Scene, at

from exhume.diagnose.focus import find_foci
from exhume.model.clock import NANOS, Window


@pytest.mark.slow
def test_one_bad_run_on_one_core_of_96_in_ten_minutes(tmp_path: Path) -> None:
    scene = Scene(cores=96, seconds=600)
    for cpu in range(96):
        # Another core is in the kernel all the time, and all compute.
        scene.core(cpu, 0, 600, user=500, system=400 if cpu == 7 else 30)
    scene.core(41, 311, 318, system=480)
    (focus, *_) = find_foci(scene.write(tmp_path), scene.window)
    assert focus.measure == "kernel"
    assert (focus.window.since, focus.window.until) == (at(311), at(318))
    assert focus.baseline.until <= at(311)
    assert focus.baseline.seconds >= 30


def test_continuous_trouble_while_a_program_starts(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=130).core(2, 0, 130, system=990).core(0, 100, 110, user=900)
    first, lasting = find_foci(scene.write(tmp_path), scene.window)
    assert first.measure == "busy"
    assert lasting.baseline.empty
    assert lasting.window.seconds == 60


def test_a_single_second_is_enough(tmp_path: Path) -> None:
    scene = Scene(cores=8, seconds=60).core(3, 33, 34, system=990)
    (focus, *_) = find_foci(scene.write(tmp_path), scene.window)
    assert focus.window == Window(at(33), at(34))


def test_the_calm_of_a_busy_core_does_not_stand_out_from_what_took_it(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40).core(2, 0, 40, user=850).core(2, 20, 30, user=0, system=800)
    (focus, *_) = find_foci(scene.write(tmp_path), scene.window)
    assert (focus.window, focus.measure) == (Window(at(20), at(30)), "kernel")


def test_trouble_without_a_pause_is_not_its_own_calm(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=130).core(2, 0, 130, system=990)
    (focus, *_) = find_foci(scene.write(tmp_path), scene.window)
    assert focus.window.seconds == 60
    assert focus.baseline.empty


@pytest.mark.parametrize("late", [False, True], ids=["away", "late"])
def test_what_was_not_recorded_is_no_calm(tmp_path: Path, late: bool) -> None:
    """Else a recorder that stalled would be compared with: 0.0% before."""
    scene = Scene(cores=4, seconds=60).pause(20, 40, late=late).core(1, 45, 50, system=970)
    (focus, *_) = find_foci(scene.write(tmp_path), scene.window)
    assert focus.window == Window(at(45), at(50))
    assert focus.baseline.until <= at(20) and focus.baseline.seconds >= 15


@pytest.mark.parametrize(("since", "until"), [(0, 6), (34, 40)])
def test_trouble_at_an_edge(tmp_path: Path, since: int, until: int) -> None:
    scene = Scene(cores=4, seconds=40).core(1, since, until, system=970)
    (focus, *_) = find_foci(scene.write(tmp_path), scene.window)
    assert (focus.window.since, focus.window.until) == (at(since), at(until))
    assert focus.baseline.seconds >= 20
    assert focus.baseline.until <= at(since) or focus.baseline.since >= at(until)


def test_of_two_episodes_the_one_before_the_moment(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=60).core(1, 20, 26, system=980).core(3, 34, 40, system=990)
    recording = scene.write(tmp_path)

    def nearest(second: float) -> int:
        (focus,) = find_foci(recording, scene.window, at=at(second))
        return (focus.window.since - at(0)) // NANOS

    assert nearest(22) == 20
    assert nearest(36) == 34
    # The log speaks up after the trouble: what was 4.5 s ago is nearer than what comes in 3.5 s.
    assert nearest(30.5) == 20
    assert nearest(33.5) == 34
    assert [focus.window.since for focus in find_foci(recording, scene.window)] == [at(34), at(20)]


def test_a_throttled_cgroup_alone(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40)
    for second in range(10, 20):
        scene.row("throttling", second, cgroup="/pods/a", periods=10, throttled=9, throttled_ns=10**9)
    (focus, *_) = find_foci(scene.write(tmp_path), scene.window)
    assert focus.measure == "throttling"
    assert (focus.window.since, focus.window.until) == (at(10), at(20))


def test_nothing_stands_out_on_an_even_node(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=100)
    for cpu in range(4):
        scene.core(cpu, 0, 100, user=600, system=100)
    (focus,) = find_foci(scene.write(tmp_path), scene.window)
    assert focus.score < 0.2
    assert (focus.window.since, focus.window.until) == (at(40), at(100))
    assert focus.baseline.seconds == 40


def test_a_full_core_that_changes_hands(tmp_path: Path) -> None:
    scene = Scene(cores=8, seconds=60)
    for cpu in range(8):
        scene.core(cpu, 0, 60, user=990)
        for number in range(3):
            scene.stack(cpu, 0, 60, 0.33, "job", 100 + 10 * cpu + number, ["app:work"])
    scene.stack(5, 30, 40, 0.95, "hog", 7, ["app:spin"])
    (focus, *_) = find_foci(scene.write(tmp_path), scene.window)
    assert (focus.window, focus.measure) == (Window(at(30), at(40)), "one process")
