"""Forecasts of the node's counts: made from the first part of a growth, and compared with when it really gets there."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.diagnose.scenes import RATE, Scene, at

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.engine import diagnose
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.facts.forecasts import count_forecast, memory_forecast, round_cost
from exhume.model.clock import Window
from exhume.model.finding import Forecast, Milestone

SECONDS, LEARNED = 300, 120
MEMORY_KIB = 1 << 20
SIZE = 100_000
# The kernel memory of each, as it is on a node: bytes.
DENTRY, NAMESPACE = 192, 90_000


def window(until: int) -> Window:
    return Window(at(until - 30), at(until))


def case_of(scene: Scene, directory: Path, until: int) -> Case:
    return Case(scene.write(directory), window(until), Window(at(0), at(0)))


def growing(  # noqa: PLR0917
    column: str, first: int, per_s: float, every: int, each: int = 0, memory: str = ""
) -> tuple[Scene, list[int]]:
    """A count that grows at a pace which varies, and the kernel memory of what is counted, which others use as well."""
    rng, scene, count, counts = random.Random(7), Scene(cores=2, seconds=SECONDS), float(first), []
    for second in range(SECONDS):
        count += rng.uniform(0.5, 1.5) * per_s
        counts.append(int(count))
        row = {"mem_total": MEMORY_KIB}
        if second % every == 0:
            row[column] = int(count)
        if memory:
            row |= dict.fromkeys(("slab_unreclaimable", "slab_reclaimable", "percpu"), 0)
            row[memory] = (40_000_000 + int(count) * each + rng.randrange(200_000)) // 1024
        scene.node(second, second + 1, **row)
    return scene, counts


READ_MOUNTS = ["do_syscall_64", "ksys_read", "vfs_read", "seq_read_iter", "m_next", "show_mountinfo"]
READ_CGROUPS = ["do_syscall_64", "ksys_read", "vfs_read", "kernfs_seq_show", "cgroup_seqfile_show", "memory_stat_show"]
# The part of a core that a walk takes for each of what it passes.
SHARE_OF_EACH = 1.0 / 80_000


def walked(scene: Scene, counts: list[int], frames: list[str]) -> None:
    """A process that walks all of them once a second; other work runs next to it."""
    for second, count in enumerate(counts):
        share = min(1.0, count * SHARE_OF_EACH)
        scene.stack(1, second, second + 1, share, "agent", 900, frames)
        scene.core(1, second, second + 1, system=min(1000, round(1000 * share)))


def assert_true(milestone: Milestone, counts: list[int], needed: float) -> None:
    """It is reached when the forecast says, within its range."""
    reached = next(second for second, count in enumerate(counts) if count >= needed) - LEARNED
    assert reached > 30, "it was still ahead"
    assert milestone.earliest_s - 10 <= reached <= (milestone.latest_s or 1e9) + 10
    assert milestone.in_s == pytest.approx(reached, rel=0.15, abs=5)


def test_when_the_mount_table_is_full(tmp_path: Path) -> None:
    scene, counts = growing("mounts", 20_000, 300, 10)
    found = count_forecast(case_of(scene, tmp_path, LEARNED), "mounts", "mounts", SIZE)
    assert found is not None and found.what == "mounts"
    [full] = found.milestones
    assert full.code == "full"
    assert_true(full, counts, SIZE)
    assert "mounts more a minute" in found.text and "a full table (100,000)" in found.text


def test_when_negative_dentries_take_much_of_the_memory(tmp_path: Path) -> None:
    scene, counts = growing("dentries_negative", 200_000, 6_000, 1, DENTRY, "slab_reclaimable")
    case = case_of(scene, tmp_path, LEARNED)
    found = memory_forecast(case, "dentries", "dentries_negative", ("slab_reclaimable",))
    assert_memory(found, counts, DENTRY)


def test_when_network_namespaces_take_much_of_the_memory(tmp_path: Path) -> None:
    scene, counts = growing("net_namespaces", 40, 13, 10, NAMESPACE, "slab_unreclaimable")
    case = case_of(scene, tmp_path, LEARNED)
    found = memory_forecast(case, "namespaces", "net_namespaces", ("slab_unreclaimable", "percpu"))
    assert_memory(found, counts, NAMESPACE)


def assert_memory(found: Forecast | None, counts: list[int], each: int) -> None:
    assert found is not None and found.cost_bytes is not None
    assert found.cost_bytes.value == pytest.approx(each, rel=0.1)
    [memory] = found.milestones
    assert memory.code == "memory"
    assert_true(memory, counts, 0.25 * MEMORY_KIB * 1024 / each)


def with_mounts() -> tuple[Scene, list[int]]:
    scene, counts = growing("mounts", 20_000, 300, 10)
    walked(scene, counts, READ_MOUNTS)
    return scene, counts


def with_cgroups() -> tuple[Scene, list[int]]:
    scene, counts = growing("load1", 20_000, 300, 1)
    for second in range(0, SECONDS, 10):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=counts[second], visible=counts[second])
    walked(scene, counts, READ_CGROUPS)
    return scene, counts


@pytest.mark.parametrize(
    ("scene_of", "cause", "what"),
    [(with_mounts, "mount-storm", "mounts"), (with_cgroups, "cgroup-excess", "cgroups")],
    ids=["mounts", "live-cgroups"],
)
def test_when_a_walk_over_what_grows_takes_a_core(
    scene_of: Callable[[], tuple[Scene, list[int]]], cause: str, what: str, tmp_path: Path
) -> None:
    scene, counts = scene_of()
    found = diagnose(scene.write(tmp_path), Window(at(LEARNED - 40), at(LEARNED)))
    [forecast] = [each.forecast for each in found.findings if each.cause == cause]
    assert forecast is not None and forecast.what == what
    [core] = [each for each in forecast.milestones if each.code == "core"]
    assert (core.limit, core.unit) == (1.0, "cores")
    assert_true(core, counts, 1 / SHARE_OF_EACH)
    assert "takes a core in about" in forecast.text


def walked_in_turns(scene: Scene, every: int, wait_s: float) -> None:
    """A reader that walks for 0.3 s of CPU time, every so many seconds; after each 41 ms it waits for its core."""
    stack = scene.stack_of(READ_MOUNTS)
    for second in range(60, LEARNED, every):
        moment, waited = second + 0.1, dict.fromkeys(range(second, second + every), 0.0)
        for number in range(29):
            if number and number % 4 == 0:
                moment += wait_s
                waited[int(moment)] += wait_s
            row = {"cpu": 1, "pid": 900, "tid": 900, "comm": "agent", "stack": stack}
            scene.row("samples", moment, weight_us=round(1e6 / RATE), **row)
            moment += 1 / RATE
        for tick, wait in waited.items():
            scene.row("run_delays", tick, tid=900, pid=900, comm="agent", cpu=1, run_ns=1, wait_ns=round(wait * 1e9))


@pytest.mark.parametrize(("every", "wait_s"), [(1, 0.0), (2, 0.09), (4, 0.4)], ids=["alone", "crowded", "overrun"])
def test_turns_of_a_walker_give_the_cost_of_each(every: int, wait_s: float, tmp_path: Path) -> None:
    """Its pauses are no waits and its waits are no pauses, however long both are."""
    scene, counts = growing("mounts", 20_000, 300, 10)
    walked_in_turns(scene, every, wait_s)
    case = case_of(scene, tmp_path, LEARNED)
    walk = case.load(catalogue()["mount-storm"].group("reading"))
    points = [(at(second), counts[second]) for second in range(0, LEARNED, 10)]
    cost = round_cost(case, walk, points)
    assert cost is not None
    assert cost.low <= 0.3e6 / counts[LEARNED - 15] <= cost.high
    assert cost.value == pytest.approx(0.3e6 / counts[LEARNED - 15], rel=0.1)


def test_what_does_not_grow_or_leads_nowhere_has_none(tmp_path: Path) -> None:
    steady, _ = growing("mounts", 900, 0, 10)
    assert count_forecast(case_of(steady, tmp_path / "steady", LEARNED), "mounts", "mounts", SIZE) is None
    slow, _ = growing("mounts", 900, 0.005, 10)
    assert count_forecast(case_of(slow, tmp_path / "slow", LEARNED), "mounts", "mounts", SIZE) is None
    # The memory of the kernel doesn't grow with them.
    free, _ = growing("net_namespaces", 40, 12, 10, 0, "slab_unreclaimable")
    case = case_of(free, tmp_path / "free", LEARNED)
    assert memory_forecast(case, "namespaces", "net_namespaces", ("slab_unreclaimable", "percpu")) is None


def test_a_finding_has_it(tmp_path: Path) -> None:
    scene, counts = growing("mounts", 20_000, 300, 10)
    mounting = ["do_syscall_64", "__x64_sys_mount", "path_mount", "do_new_mount", "attach_recursive_mnt"]
    scene.core(1, 90, LEARNED, system=900).stack(1, 90, LEARNED, 0.9, "agent", 900, mounting)
    found = diagnose(scene.write(tmp_path), Window(at(0), at(LEARNED)))
    [finding] = [each for each in found.findings if each.cause == "mount-storm"]
    assert finding.forecast is not None
    assert_true(finding.forecast.milestones[0], counts, SIZE)
