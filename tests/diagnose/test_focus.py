"""Which seconds stand out: one core of many, also on a node where something always happens; trouble without a pause, at
an edge of the window, or near another."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.diagnose.scenes import Scene, at
from tests.parts import examples
from tests.store.store_rows import MONO, cpu_rows, recorder, tick_at

from exhume.diagnose.focus import find_foci
from exhume.model.clock import MILLIS, NANOS, Window
from exhume.store.read.recording import Recording


def chatter(cores: int = 32, seconds: int = 120) -> Scene:
    """A busy node: kernel time comes and goes on all cores, and some container is always a little throttled."""
    scene, dice = Scene(cores=cores, seconds=seconds), random.Random(5)
    for second in range(seconds):
        for cpu in range(cores):
            scene.core(cpu, second, second + 1, user=dice.randrange(300, 600), system=dice.randrange(50, 300))
        if dice.random() < 0.6:
            scene.row("throttling", second, cgroup="/pods/a", periods=10, throttled=dice.randrange(8), throttled_ns=9)
    return scene


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Trouble at the beginning, in the middle and at the end of three minutes."""
    scene = chatter(cores=4, seconds=180).core(1, 0, 20, user=0, system=1000)
    scene = scene.core(2, 80, 99, user=0, system=1000).core(3, 150, 180, user=0, system=0, softirq=1000)
    return scene.write(tmp_path_factory.mktemp("troubled"))


@examples(60)
@given(since=st.integers(0, 170_000), length=st.integers(1, 60_000), moment=st.none() | st.integers(0, 180_000))
def test_what_stands_out_lies_in_the_window(troubled, since: int, length: int, moment: int | None) -> None:
    window = Window(at(0) + since * MILLIS, min(at(180), at(0) + (since + length) * MILLIS))
    foci = find_foci(troubled, window, None if moment is None else at(0) + moment * MILLIS)
    assert foci
    for focus in foci:
        assert window.since <= focus.window.since < focus.window.until <= window.until
        assert focus.window.nanos <= window.nanos


def begins(recording, window: Window, moment: int | None = None) -> list[float]:
    return [(focus.window.since - at(0)) / NANOS for focus in find_foci(recording, window, moment)]


def test_one_core_stands_out_of_the_chatter(tmp_path: Path) -> None:
    scene = chatter().core(17, 70, 76, user=0, system=1000)
    focus = find_foci(scene.write(tmp_path), scene.window)[0]
    assert (focus.window, focus.measure) == (Window(at(70), at(76)), "kernel")
    assert focus.baseline.seconds >= 30


def test_a_core_that_is_always_in_the_kernel_does_not_hide_another(tmp_path: Path) -> None:
    scene = chatter().core(3, 0, 120, user=0, system=950).core(17, 70, 76, user=0, system=1000)
    assert begins(scene.write(tmp_path), scene.window)[0] == 70


def test_a_line_of_the_log_counts_for_the_seconds_before_it(tmp_path: Path) -> None:
    scene = chatter().event(90.5, "nic-tx-paused", "eth0: TX q 5 is paused for too long", device="eth0", queue=5)
    found = find_foci(scene.write(tmp_path), scene.window)[0]
    assert found.window.since <= at(84) and found.window.contains(at(90))


def test_a_wait_counts_while_it_lasted(tmp_path: Path) -> None:
    scene = chatter().row("threads", 60, tid=9, comm="ksoftirqd/4", cpu=4, run_ns=0, wait_ns=5 * NANOS)
    assert begins(scene.write(tmp_path), scene.window)[0] == 55


def test_near_a_moment_the_grave_comes_before_the_trifle(tmp_path: Path) -> None:
    scene = chatter().core(17, 70, 76, user=0, system=1000).core(5, 64, 66, user=0, system=620)
    assert begins(scene.write(tmp_path), Window(at(45), at(85)), at(65)) == [70]


def test_of_two_alike_the_nearer_one(tmp_path: Path) -> None:
    scene = chatter().core(17, 30, 36, user=0, system=1000).core(5, 80, 86, user=0, system=1000)
    recording = scene.write(tmp_path)
    assert begins(recording, scene.window, at(40)) == [30]
    assert begins(recording, scene.window, at(74))[0] in (79, 80)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.05, 0.25])
def test_what_a_large_node_counts_hides_no_core(tmp_path: Path, spread: float) -> None:
    scene, dice = chatter(cores=96, seconds=200).core(70, 150, 156, user=0, system=1000), random.Random(7)
    for second in range(200):
        life = max(0.0, dice.gauss(1, spread))
        scene.node(
            second, second + 1, pgfault=round(3e6 * life), forks=round(3000 * life), pgscan_kswapd=round(5e5 * life)
        )
    recording = scene.write(tmp_path)
    assert begins(recording, scene.window)[0] == 150
    # Who asks a little later means the core, not the faults of that very second.
    assert begins(recording, scene.window, at(160)) == [150]


@pytest.mark.slow
def test_a_storm_over_all_cores_of_a_large_node_stands_out_of_what_it_usually_counts(tmp_path: Path) -> None:
    scene, dice = chatter(cores=96, seconds=200), random.Random(7)
    for second in range(200):
        usual = max(0.0, dice.gauss(1, 0.1))
        scene.node(second, second + 1, forks=round(3000 * usual) + 9_000 * (140 <= second < 170))
    found = find_foci(scene.write(tmp_path), scene.window)[0]
    assert (found.window, found.measure) == (Window(at(140), at(170)), "forks")


def test_where_waits_are_not_counted_runnable_threads_stand_out(tmp_path: Path) -> None:
    """The cores are full all the time: only the number of threads that want them is another."""
    scene, dice = Scene(cores=4, seconds=120), random.Random(3)
    for second in range(120):
        for cpu in range(4):
            scene.core(cpu, second, second + 1, user=990, wait_ns=None)
        scene.node(second, second + 1, running=dice.choice((4, 5, 5, 6, 14)))
    scene.node(70, 82, running=20)
    focus = find_foci(scene.write(tmp_path), scene.window)[0]
    assert abs(focus.window.since - at(70)) <= 3 * NANOS and abs(focus.window.until - at(82)) <= NANOS
    assert focus.measure == "runnable"


def test_what_programs_do_less_of_while_they_wait_does_not_hide_that_they_wait(tmp_path: Path) -> None:
    """They make faults in the calm, and few while many share the cores: the calm stands out by them."""
    scene = Scene(cores=2, seconds=24)
    scene.node(0, 24, running=3, pgfault=75_000)
    for cpu in range(2):
        scene.core(cpu, 0, 24, user=500, wait_ns=None).core(cpu, 10, 18, user=990, wait_ns=None)
    scene.node(10, 18, running=11, pgfault=300)
    foci = find_foci(scene.write(tmp_path), scene.window)
    assert foci[0].window.seconds > 20
    [waiting] = [each for each in foci if abs(each.window.since - at(10)) <= NANOS]
    assert abs(waiting.window.until - at(18)) <= NANOS
    assert waiting.baseline.seconds >= 5 and waiting.baseline.until <= at(10)


def test_time_in_which_zombies_grow_is_calm_enough_to_compare_a_core_with(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=60).core(2, 40, 48, system=980)
    for second in range(0, 61, 5):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=9_000, visible=300, dying=100 * second)
    [focus, *_] = find_foci(scene.write(tmp_path), scene.window)
    assert (focus.window.since, focus.measure) == (at(40), "kernel")
    assert focus.baseline.seconds >= 30 and focus.baseline.until <= at(40)


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


@pytest.mark.parametrize(("system", "lasting"), [(900, 1), (850, 0)])
def test_continuous_trouble_of_a_guest_is_of_the_time_that_it_has(tmp_path: Path, system: int, lasting: int) -> None:
    scene = Scene(cores=4, seconds=130).core(2, 0, 130, system=system)
    for cpu in range(4):
        scene.core(cpu, 0, 130, steal=80)
    found = find_foci(scene.write(tmp_path), scene.window)
    assert [focus.measure for focus in found if focus.score > 0] == [""] * lasting


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


def test_rows_of_five_seconds_are_an_interval_and_not_late(tmp_path: Path) -> None:
    """As mpstat writes them that runs with an interval of 5 s."""
    writer = recorder(tmp_path, segment_s=60)
    for row in range(60):
        tick = tick_at(0, nanos=5 * NANOS, start=MONO + row * 5 * NANOS)
        system = np.array([20, 970 if 40 <= row < 44 else 20])
        writer.append("cpu", {**cpu_rows(tick, 2), "system": system, "idle": 1000 - system})
        writer.commit(tick)
    writer.close()
    recording = Recording.open(tmp_path)
    (focus, *_) = find_foci(recording, recording.span())
    assert focus.window.since == recording.span().since + 200 * NANOS
    assert focus.baseline.seconds >= 15 and focus.baseline.until <= focus.window.since


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
