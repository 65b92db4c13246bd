"""Metrics of made-up ticks: each family from the rows it comes from."""

import math
from pathlib import Path

import numpy as np
import pytest
from tests.present.metrics.ticks import Watched, cpu, events, threads, tick

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.counting import DIRECT_RECLAIM
from exhume.model.clock import NANOS
from exhume.model.tables import CgroupEvents, Events, Losses, Self, Throttling, to_columns
from exhume.present.metrics.observer import cgroup_pattern
from exhume.procfs.host import Host

POD = "0" * 8 + "-1111-2222-3333-" + "4" * 12
IN_POD = f"/kubepods/burstable/pod{POD}/{'a1' * 32}"


def test_a_core_in_the_kernel_is_stalled_and_no_other() -> None:
    watched = Watched().tick(cpu=cpu({}, {"system": 500, "irq": 100, "softirq": 350}, {"system": 949}, {"user": 1000}))
    stalled = watched.values("exhume_core_stall_seconds_total")
    assert stalled == {("0",): 0, ("1",): 1, ("2",): 0, ("3",): 0}
    watched.tick(cpu=cpu({}, {"softirq": 1000}), seconds=2.5)
    assert watched.value("exhume_core_stall_seconds_total", "1") == 3.5
    assert watched.value("exhume_cores") == 2


def test_the_busiest_core_of_a_minute_with_its_states() -> None:
    watched = Watched().tick(cpu=cpu({"user": 1000}, {"user": 300, "softirq": 700}, {"steal": 100}))
    states = watched.values("exhume_busiest_core_ratio")
    # Both are full: the one that is more in the kernel counts.
    assert states[("softirq",)] == 0.7
    assert sum(states.values()) == pytest.approx(1)
    assert watched.value("exhume_busiest_core_number") == 1
    for _ in range(59):
        watched.tick(cpu=cpu({}, {}, {"system": 100}))
    assert watched.value("exhume_busiest_core_number") == 1
    watched.tick(cpu=cpu({}, {}, {"system": 100}))
    assert watched.value("exhume_busiest_core_number") == 2
    assert watched.value("exhume_busiest_core_ratio", "idle") == 0.9


def test_cpu_time_by_state_is_that_of_all_cores() -> None:
    watched = Watched().tick(cpu=cpu({"user": 400, "guest": 100, "nice": 50}, {"user": 1000}))
    assert watched.value("exhume_cpu_seconds_total", "user") == pytest.approx(1.5)
    assert watched.value("exhume_cpu_seconds_total", "nice") == pytest.approx(0.05)


def test_run_queue_wait_is_missing_where_the_kernel_does_not_count_it() -> None:
    watched = Watched().tick(cpu=cpu({}, {}))
    assert watched.value("exhume_run_queue_wait_seconds_total") is None
    watched.tick(cpu=cpu({}, {}, {}, wait_ns=[NANOS // 2, 3 * NANOS, None]))
    assert watched.value("exhume_run_queue_wait_seconds_total") == 3.5
    assert watched.value("exhume_run_queue_worst_core_threads") == 3


def test_runnable_threads_and_pressure() -> None:
    node = {"running": [6], "psi_cpu_some": [500_000], "psi_io_full": [None], "oom_kill": [2]}
    watched = Watched().tick(node=node).tick(node=node)
    assert watched.value("exhume_runnable_thread_seconds_total") == 12
    assert watched.values("exhume_pressure_stalled_seconds_total") == {("cpu", "some"): 1.0, ("io", "full"): 0.0}
    assert watched.value("exhume_oom_kills_total") == 4


def test_waits_of_ksoftirqd() -> None:
    watched = Watched().tick(
        threads=threads(("ksoftirqd/3", 2 * NANOS, 1), ("migration/3", 9 * NANOS, 1), ("ksoftirqd/4", NANOS // 2, 1))
    )
    assert watched.value("exhume_ksoftirqd_wait_seconds_total") == 2.5
    assert watched.value("exhume_ksoftirqd_longest_wait_seconds") == 2
    for _ in range(60):
        watched.tick(threads=threads(("ksoftirqd/3", 0, 1)))
    assert watched.value("exhume_ksoftirqd_longest_wait_seconds") == 0


@pytest.mark.parametrize(
    ("waited_s", "slices", "queue", "longest_s"),
    [
        pytest.param(0.9, 30, None, 0.03, id="turns"),
        pytest.param(0.9, 30, 4.0, 0.03, id="turns-of-some"),
        pytest.param(0.9, 30, 1.0, 0.9, id="a-long-wait-then-turns-with-one-other"),
        pytest.param(0.9, 2, None, 0.9, id="two-long-waits"),
        pytest.param(3.0, 60, 9.0, 3.0, id="longer-than-the-tick"),
        pytest.param(0.1, 4, 1.0, 0.025, id="short-waits"),
        pytest.param(0.9, None, 4.0, 0.9, id="not-counted"),
    ],
)
def test_short_waits_that_add_up_are_no_long_wait(
    waited_s: float, slices: int | None, queue: float | None, longest_s: float
) -> None:
    waits = None if queue is None else [0, 0, 0, int(queue * NANOS)]
    rows = threads(("ksoftirqd/3", int(waited_s * NANOS), slices))
    watched = Watched().tick(cpu=cpu({}, {}, {}, {}, wait_ns=waits), threads=rows)
    assert watched.value("exhume_ksoftirqd_longest_wait_seconds") == pytest.approx(longest_s)
    assert watched.value("exhume_ksoftirqd_wait_seconds_total") == pytest.approx(waited_s)


def test_a_queue_counts_in_its_own_tick_alone() -> None:
    rows = threads(("ksoftirqd/0", 9 * NANOS // 10, 30))
    watched = Watched().tick(cpu=cpu({}, wait_ns=[NANOS])).tick(threads=rows)
    assert watched.value("exhume_ksoftirqd_longest_wait_seconds") == pytest.approx(0.03)


def cgroups(dying: int | None, visible: int | None = 50) -> dict[str, list[object]]:
    kernel = None if dying is None or visible is None else visible + dying
    rows = [("memory", "", kernel, visible, dying), ("memory", "/kubepods", 3, 2, 1)]
    return dict(
        zip(("hierarchy", "parent", "kernel", "visible", "dying"), map(list, zip(*rows, strict=True)), strict=True)
    )


def test_growth_and_forecast_of_dying_cgroups() -> None:
    watched = Watched()
    for second in range(120):
        rows = {"cgroups": cgroups(100 + second * 2)} if second % 10 == 0 else {}
        watched.tick(**rows)
    assert watched.value("exhume_memory_cgroups_dying", "memory") == 320
    assert watched.value("exhume_memory_cgroups_tracked", "memory") == 370
    assert watched.value("exhume_memory_cgroups_visible", "memory") == 50
    growth = watched.value("exhume_memory_cgroups_dying_growth_per_second", "memory")
    assert growth == pytest.approx(2, rel=0.15)
    ahead = watched.value("exhume_memory_cgroups_dying_forecast_seconds", "memory", "1000")
    assert ahead == pytest.approx((1000 - 320) / 2, rel=0.15)
    watched.tick(cgroups=cgroups(1200))
    assert watched.value("exhume_memory_cgroups_dying_forecast_seconds", "memory", "1000") == 0


def test_what_does_not_grow_has_no_forecast() -> None:
    watched = Watched()
    for second in range(100):
        watched.tick(**({"cgroups": cgroups(20)} if second % 10 == 0 else {}))
    assert watched.value("exhume_memory_cgroups_dying_growth_per_second", "memory") == 0
    assert watched.value("exhume_memory_cgroups_dying_forecast_seconds", "memory", "1000") == math.inf


def test_counts_that_are_unknown_are_missing() -> None:
    watched = Watched().tick(cgroups=cgroups(5)).tick(cgroups=cgroups(None, None))
    assert watched.value("exhume_memory_cgroups_dying", "memory") is None
    assert watched.value("exhume_memory_cgroups_visible", "memory") is None


def cgroup_events(second: int, *rows: tuple[str, int, str], hierarchy: int = 3):
    return to_columns(
        "cgroup_events", [CgroupEvents(tick(second).start, hierarchy, op, number, 1, path) for op, number, path in rows]
    )


def test_cgroups_that_are_made_and_leaked_by_their_pattern() -> None:
    watched = Watched()
    paths = [f"/docker/{number:064x}" for number in range(1, 4)]
    made = [("mkdir", number, path) for number, path in enumerate(paths)]
    watched.tick(cgroup_events=cgroup_events(0, *made))
    removed = [("rmdir", number, path) for number, path in enumerate(paths)]
    watched.tick(cgroup_events=cgroup_events(1, *removed, ("release", 0, paths[0])))
    watched.tick(cgroup_events=cgroup_events(2, ("release", 1, paths[1]), ("mkdir", 9, "/x"), hierarchy=3))
    watched.tick(cgroup_events=cgroup_events(3, ("mkdir", 10, "/y"), hierarchy=4))
    assert watched.value("exhume_cgroups_made_total", "/docker/*") == 3
    assert watched.value("exhume_cgroups_made_total", "/x") == 1
    # Another hierarchy than that of the memory cgroups.
    assert watched.value("exhume_cgroups_made_total", "/y") is None
    assert watched.value("exhume_cgroups_leaked_total", "/docker/*") == 0
    for _ in range(8):
        watched.tick()
    assert watched.value("exhume_cgroups_leaked_total", "/docker/*") == 1
    for _ in range(20):
        watched.tick()
    assert watched.value("exhume_cgroups_leaked_total", "/docker/*") == 1


def test_cgroups_that_are_only_counted() -> None:
    row = CgroupEvents(tick(0).start, 3, "churn", created=40)
    watched = Watched().tick(cgroup_events=to_columns("cgroup_events", [row]))
    assert watched.value("exhume_cgroups_made_total", "unknown") == 40


def test_patterns_of_cgroups() -> None:
    assert cgroup_pattern(IN_POD) == "/kubepods/burstable/pod*/*"
    assert cgroup_pattern("/system.slice/run-r1234567890abcdef.service") == "/system.slice/run-r*.service"


def nic(second: int, kind: str, device: str = "eth7", source: str = "kernel-log", value: float | None = None) -> Events:
    return Events(tick(second).start, source, kind, "critical", "made up", device=device, value=value)


def sys_with_nic(root: Path) -> Host:
    (root / "class/net/eth7/device").mkdir(parents=True)
    (root / "drivers/ena").mkdir(parents=True)
    (root / "class/net/eth7/device/driver").symlink_to(root / "drivers/ena")
    (root / "class/net/veth1").mkdir()
    return Host(sys=root)


def test_timeouts_and_resets_of_a_network_device(tmp_path: Path) -> None:
    watched = Watched(sys_with_nic(tmp_path))
    # Hardware is there from the start, so that the first timeout is an increase.
    assert watched.values("exhume_nic_timeouts_total") == {("eth7", "ena", "kernel-counter"): 0}
    assert watched.values("exhume_nic_resets_total") == {("eth7", "ena", "unknown"): 0}
    before = Events(tick(-5).start, "kernel-log", "nic-reset", "critical", "before the start", device="eth7")
    watched.tick(events=events(before, nic(0, "nic-tx-paused"), nic(0, "nic-tx-paused"), nic(0, "nic-health")))
    counted = nic(1, "nic-tx-timeout", source="netdev", value=3.0)
    watched.tick(events=events(nic(1, "nic-reset-triggered"), nic(1, "nic-reset"), counted))
    watched.tick(events=events(nic(2, "nic-reset", device="eth9")))
    assert watched.values("exhume_nic_timeouts_total") == {
        ("eth7", "ena", "kernel-counter"): 3,
        ("eth7", "ena", "tx-paused"): 2,
    }
    assert watched.values("exhume_nic_resets_total") == {
        ("eth7", "ena", "unknown"): 0,
        ("eth7", "ena", "tx-paused"): 1,
        ("eth9", "", "unknown"): 1,
    }


@pytest.mark.parametrize("device", ["../../../etc", "..", "a" * 300, "a\0b"])
def test_a_device_of_a_forged_line_opens_nothing(device: str, tmp_path: Path) -> None:
    watched = Watched(sys_with_nic(tmp_path)).tick(events=events(nic(0, "nic-watchdog", device=device)))
    assert watched.value("exhume_nic_timeouts_total", device, "", "watchdog") == 1


def test_incidents_by_what_they_were_marked_for() -> None:
    watched = Watched()
    assert watched.value("exhume_incidents_total", "core") == 0
    assert watched.value("exhume_incidents_total", "nic-reset") == 0
    mark = Events(tick(0).start, "recorder", "incident", "critical", "made up", trigger="core")
    watched.tick(events=events(mark, mark))
    assert watched.value("exhume_incidents_total", "core") == 2
    watched.observer.count_finding("zombie-memcgs")
    watched.tick()
    assert watched.value("exhume_findings_total", "zombie-memcgs") == 1


def happened(kind: str, name: str = "", value: float | None = None, **others: object) -> Events:
    event = Events(tick(0).start, "made-up", kind, "info", "made up", value=value)
    if kind.startswith("container"):
        event.container_name = name
    else:
        event.comm = name
    for field, given in others.items():
        setattr(event, field, given)
    return event


def test_restarts_and_results_of_units_containers_and_programs() -> None:
    watched = Watched().tick(
        events=events(
            happened("unit-ended", "ecs.service", 1.0),
            happened("unit-restarted", "ecs.service", 7.0),
            happened("unit-ended", "ok.service", 0.0),
            happened("container-start", "shop/web-1/app", pod="uid"),
            happened("container-die", "shop/web-1/app", 137.0, pod="uid"),
            happened("container-start", "shop/web-1/app", pod="uid"),
            happened("container-die", "db", None),
            happened("restart", "agent", 4.0, exit_code=3),
        )
    )
    assert watched.values("exhume_restarts_total") == {
        ("unit", "", "ecs.service"): 1,
        ("unit", "", "ok.service"): 0,
        ("container", "shop", "web-1/app"): 1,
        ("container", "", "db"): 0,
        ("program", "", "agent"): 4,
        ("other", "other", "other"): 0,
    }
    exits = watched.values("exhume_exits_total")
    assert exits["unit", "", "ecs.service", "failure"] == 1
    assert exits["unit", "", "ok.service", "success"] == 1
    assert exits["container", "shop", "web-1/app", "failure"] == 1
    # How it ended is not known.
    assert exits["container", "", "db", "failure"] == exits["container", "", "db", "success"] == 0
    assert exits["program", "", "agent", "failure"] == 4


def samples(*rows: tuple[int, int]) -> dict[str, object]:
    pids, stacks = zip(*rows, strict=True)
    return {
        "pid": np.array(pids, np.int32),
        "stack": np.array(stacks, np.uint64),
        "weight_us": np.full(len(rows), 10_000, np.uint32),
    }


def test_direct_reclaim_and_throttling_by_pod() -> None:
    processes = {
        "pid": [10, 20],
        "cgroup": [IN_POD, "/system.slice/ssh.service/x"],
        "pod": [POD, None],
        "pod_name": ["shop/web-1", None],
    }
    frames = {
        "frame": [1, 2, 2**63 + 5],
        "kind": ["kernel", "user", "kernel"],
        "module": ["", "", ""],
        "name": ["do_syscall_64", "try_to_free_pages", "try_to_free_mem_cgroup_pages"],
    }
    stacks = {"stack": [2**64 - 1, 8], "frames": [[1, 2**63 + 5], [1, 2]]}
    throttled = to_columns("throttling", [Throttling(tick(0).start, IN_POD, 10, 5, 250_000_000, 0.5)])
    watched = Watched().tick(
        processes=processes,
        frames=frames,
        stacks=stacks,
        samples=samples((10, 2**64 - 1), (10, 8), (20, 8), (99, 8)),
        throttling=throttled,
    )
    # Samples are counted every ten ticks.
    watched.ticks(9)
    assert watched.value("exhume_throttled_seconds_total", "shop", "web-1", "") == 0.25
    assert watched.value("exhume_sampled_cpu_seconds_total", "shop", "web-1", "") == pytest.approx(0.02)
    # A function of that name in a program is not the kernel's.
    assert watched.value("exhume_direct_reclaim_seconds_total", "shop", "web-1", "") == pytest.approx(0.01)
    assert watched.value("exhume_direct_reclaim_seconds_total", "", "", "/system.slice/ssh.service") == 0
    # Stacks are announced once in a segment, and stay known.
    watched.tick(samples=samples((10, 2**64 - 1))).ticks(9)
    assert watched.value("exhume_direct_reclaim_seconds_total", "shop", "web-1", "") == pytest.approx(0.02)
    # The number was used again.
    watched.tick(processes={"pid": [10], "cgroup": ["/system.slice/ssh.service"]}, samples=samples((10, 8))).ticks(9)
    assert watched.value("exhume_sampled_cpu_seconds_total", "", "", "/system.slice/ssh.service") == pytest.approx(0.02)


def test_a_pod_without_a_name_goes_by_its_uid() -> None:
    throttled = to_columns("throttling", [Throttling(tick(0).start, IN_POD, 10, 5, NANOS, 0.5)])
    assert Watched().tick(throttling=throttled).value("exhume_throttled_seconds_total", "", POD, "") == 1


def test_direct_reclaim_is_what_the_diagnosis_takes_for_it() -> None:
    groups = catalogue()["memory-reclaim"].groups
    # A worker of the kernel frees memory in the background.
    assert {*groups["limit"], *groups["node"]} - {"high_work_func"} == DIRECT_RECLAIM


def test_the_recorder_itself() -> None:
    own = Self(tick(0).start, 1000, 30_000, 10_000, 90_000, 97, 190, 12_000, 5_000, 250)
    losses = [Losses(0, "stacks", "lost-samples", 7, ""), Losses(0, "stacks", "rate-lowered", 49, "")]
    watched = Watched(missing=["systemd"]).tick(losses, self=to_columns("self", [own]))
    watched.now += 3 * NANOS
    assert watched.value("exhume_recorder_cpu_seconds_total", "user") == pytest.approx(0.03)
    assert watched.value("exhume_recorder_resident_memory_bytes") == 90_000 * 1024
    assert watched.value("exhume_recorder_written_bytes_total") == 5_000
    assert watched.value("exhume_recorder_losses_total", "stacks", "lost-samples") == 7
    # Each change of the rate is one; its count is the new rate.
    assert watched.value("exhume_recorder_losses_total", "stacks", "rate-lowered") == 1
    assert watched.value("exhume_recorder_last_tick_age_seconds") == 3
    assert watched.value("exhume_recorder_ticks_total") == 1
    assert watched.value("exhume_recorder_source_unavailable", "systemd") == 1
    assert watched.value("exhume_build_info", "1.2.3") == 1
    assert watched.value("exhume_node_info", "node-17", "6.1.0", "x86_64") == 1


def test_cardinality_is_bounded_whatever_the_node_does() -> None:
    watched = Watched()
    for second in range(60):
        base = second * 200
        made = [("mkdir", base + n, f"/kind-{chr(97 + n % 26)}{'x' * (base // 26 + n)}/c") for n in range(200)]
        watched.tick(
            [Losses(0, f"source-{base}", "made-up", 1, "")] * 3,
            cgroup_events=cgroup_events(second, *made),
            events=events(
                *(happened("unit-restarted", f"unit-{'y' * (base + n)}.service", 1.0) for n in range(50)),
                *(nic(second, "nic-watchdog", device=f"eth{base + n}") for n in range(50)),
            ),
        )
    sizes = {family.name: len(series) for family, series in watched.observer.read()}
    assert sizes["exhume_cgroups_made"] == 21
    assert sizes["exhume_restarts"] == 21
    assert sizes["exhume_exits"] == 42
    assert sizes["exhume_nic_timeouts"] <= 257
    assert sum(sizes.values()) < 600
