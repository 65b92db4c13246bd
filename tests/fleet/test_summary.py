"""Summaries of scenes whose minutes are known, and of segments as recorders leave them."""

import shutil

import pyarrow.parquet as pq
import pytest
from tests.diagnose.scenes import MONO, WALL, Scene

from exhume.fleet.batch import Batch, decode
from exhume.fleet.schema import SUMMARIES
from exhume.fleet.summary import MINUTE_NS, Stretch, Summariser, stretches
from exhume.model.clock import NANOS
from exhume.store.format.names import SegmentName
from exhume.store.read.index import Segment
from exhume.store.read.recording import Recording

OWN = {"rate_hz": 97, "samples": 1, "tick_us": 1, "written_bytes": 1, "ring_fill": 1}


def summarised(recording: Recording, **given):
    (stretch,) = stretches([segment for segment in recording.segments if segment.sealed])
    found = Summariser(**given).summarise(recording, stretch)
    assert found is not None
    return found


def rows_of(found) -> list[dict]:
    return [dict(zip(found.columns, values, strict=True)) for values in zip(*found.columns.values(), strict=True)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> list[dict]:
    """Three minutes of four cores: calm, one core lost to the kernel, calm."""
    scene = Scene(cores=4, seconds=180)
    scene.core(1, 0, 180, user=200, iowait=300)
    scene.core(2, 70, 100, system=900, softirq=90, wait_ns=500_000_000)
    scene.core(2, 104, 106, system=990)
    scene.core(3, 110, 111, system=990)
    scene.node(60, 120, psi_cpu_some=250_000, psi_memory_some=0, psi_io_some=1_000, oom_kill=0)
    scene.node(65, 66, oom_kill=2)
    for second, wait in ((80, 3_000_000_000), (130, 20_000_000)):
        scene.row("threads", second, tid=9, comm="ksoftirqd/2", cpu=2, run_ns=0, wait_ns=wait)
    scene.row("threads", 81, tid=8, comm="migration/2", cpu=2, run_ns=0, wait_ns=9_000_000_000)
    for second, dying in ((5, 10), (50, 20), (70, 200), (110, 300)):
        scene.row("cgroups", second, hierarchy="unified", parent="", kernel=1000 + dying, visible=1000, dying=dying)
        scene.row("cgroups", second, hierarchy="unified", parent="/a", kernel=5, visible=5, dying=0)
    scene.row("throttling", 90, cgroup="/x", periods=10, throttled=9, throttled_ns=900_000_000)
    for second in range(60, 70):
        scene.row("cgroup_events", second, hierarchy=0, op="mkdir", id=second, path=f"/c{second}")
        scene.row("cgroup_events", second + 0.2, hierarchy=0, op="rmdir", id=second, path=f"/c{second}")
        if second % 2:
            scene.row("cgroup_events", second + 0.3, hierarchy=0, op="release", id=second, path=f"/c{second}")
    scene.event(75, "nic-tx-timeout", "eth0: transmit queue 3 timed out", device="eth0")
    scene.event(75.5, "nic-tx-timeout", "eth0", device="eth0", value=3.0, source="netdev")
    scene.event(76, "nic-reset-triggered", "eth0: reset", device="eth0")
    scene.event(77, "nic-reset", "eth0: reset done", device="eth0")
    scene.event(78, "nic-health", "eth0: fine", device="eth0")
    for second in (71, 72):
        scene.event(second, "unit-restarted", "ecs.service", source="systemd", comm="ecs.service")
    scene.event(73, "container-start", "a", source="docker", container_name="agent")
    scene.event(74, "container-die", "a", source="docker", container_name="agent", value=1.0)
    scene.event(79, "container-start", "a", source="docker", container_name="agent")
    for second in (72, 75, 160):
        scene.event(second, "incident", "core 2 in the kernel", source="recorder", trigger="core", cpu=2)
    scene.event(85, "job-failed", "train-7: NCCL timeout (job=train-7)", source="jobs", job="train-7")
    scene.event(86, "job-failed", "train-8 (node=gpu-7)", source="jobs", job="train-8", member="gpu-7")
    scene.stack(2, 70, 80, 0.5, "java", 77, ["do_syscall_64", "try_to_free_pages", "shrink_node"])
    scene.row("self", 60, span_ms=60_000, user_us=300_000, system_us=300_000, rss_kb=1, **OWN)
    directory = tmp_path_factory.mktemp("scene")
    found = summarised(scene.write(directory), cost_per_zombie_us=2.5)
    return [*rows_of(found), found]


def test_every_minute_has_one_row_with_its_time(scene):
    *rows, found = scene
    first = WALL // 1000
    assert [row["minute"] for row in rows] == [first, first + 60_000_000, first + 120_000_000]
    assert [row["uptime_s"] for row in rows] == [MONO // NANOS, MONO // NANOS + 60, MONO // NANOS + 120]
    assert {row["boot_id"] for row in rows} == {"1f0c5a9e" + "0" * 24}
    assert [row["covered_s"] for row in rows] == [60.0] * 3
    assert [row["lost_s"] for row in rows] == [0.0] * 3
    assert [row["cores"] for row in rows] == [4] * 3
    assert {row["cost_per_zombie_us"] for row in rows} == {2.5}
    # What it says can be sent.
    sent = Batch("node-1", "0" * 16, 0, {"summaries": found.columns})
    assert decode(sent.encode()) == sent


def test_the_busiest_core_and_what_it_does(scene):
    calm, sick, _, _ = scene
    assert (calm["busiest_core"], calm["busiest_share"]) == (1, 0.2)
    # Waiting for a disk is what it did most, and is not busy.
    assert calm["busiest_state"] == "iowait"
    assert (sick["busiest_core"], sick["busiest_state"]) == (2, "system")
    assert sick["busiest_share"] == pytest.approx((30 * 0.99 + 2 * 0.99) / 60, abs=0.001)
    assert sick["busy_share"] == pytest.approx((60 * 0.2 + 33 * 0.99) / 240, abs=0.001)
    assert sick["kernel_share"] == pytest.approx(33 * 0.99 / 240, abs=0.001)


def test_stalls(scene):
    calm, sick, after, _ = scene
    assert [row["stall_s"] for row in (calm, sick, after)] == [0.0, 33.0, 0.0]
    assert [row["longest_stall_s"] for row in (calm, sick, after)] == [0.0, 30.0, 0.0]
    assert [row["runqueue_wait_s"] for row in (calm, sick, after)] == [0.0, 15.0, 0.0]
    assert [row["ksoftirqd_wait_s"] for row in (calm, sick, after)] == [0.0, 3.0, 0.02]


def test_short_waits_of_a_ksoftirqd_that_add_up_are_no_long_wait(tmp_path):
    scene = Scene(cores=2, seconds=300)
    scene.core(1, 60, 180, wait_ns=4 * NANOS).core(1, 180, 240, wait_ns=NANOS)
    # 30 turns with no other, and with four; two waits; 30 turns with one other; turns that were not counted.
    for second, slices in ((10, 30), (70, 30), (130, 2), (190, 30), (250, None)):
        values = {"run_ns": 0, "wait_ns": 900_000_000, "slices": slices}
        scene.row("threads", second, tid=9, comm="ksoftirqd/1", cpu=1, **values)
    # On another core, in the same second.
    scene.row("threads", 70, tid=8, comm="ksoftirqd/0", cpu=0, run_ns=0, wait_ns=100_000_000, slices=2)
    rows = rows_of(summarised(scene.write(tmp_path)))
    assert [row["ksoftirqd_wait_s"] for row in rows] == [0.9, 0.05, 0.9, 0.9, 0.9]


def test_counts_of_the_node(scene):
    calm, sick, after, _ = scene
    assert (sick["pressure_cpu"], sick["pressure_memory"], sick["pressure_io"]) == (0.25, 0.0, 0.001)
    assert [row["oom_kills"] for row in (calm, sick, after)] == [0, 2, 0]
    assert [row["memcgs_dying"] for row in (calm, sick, after)] == [20, 300, None]
    assert [row["memcgs_tracked"] for row in (calm, sick, after)] == [1020, 1300, None]
    assert [row["throttled_s"] for row in (calm, sick, after)] == [0.0, 0.9, 0.0]
    assert [row["cgroups_made"] for row in (calm, sick, after)] == [0, 10, 0]
    assert [row["cgroups_leaked"] for row in (calm, sick, after)] == [0, 5, 0]
    assert sick["recorder_cpu"] == 0.01
    assert sick["reclaim_share"] == pytest.approx(10 * 0.5 / (60 * 0.2 + 33 * 0.99), abs=0.01)
    assert calm["reclaim_share"] == 0.0


def test_what_happened(scene):
    calm, sick, after, found = scene
    assert (sick["nic_timeouts"], sick["nic_resets"]) == (3, 1)
    assert (sick["unit_restarts"], sick["container_restarts"]) == (2, 1)
    assert [row["incidents"] for row in (calm, sick, after)] == [0, 1, 1]
    assert found.jobs["job"] == ["train-7", "train-8"]
    assert found.jobs["at"] == [(WALL + second * NANOS) // 1000 for second in (85, 86)]
    assert found.jobs["member"] == [None, "gpu-7"]


def test_tables_that_are_missing_leave_their_columns_out(tmp_path):
    scene = Scene(cores=2, seconds=60).without("cpu", "node")
    found = summarised(scene.write(tmp_path))
    assert "busy_share" not in found.columns
    assert "pressure_cpu" not in found.columns
    assert found.columns["covered_s"] == [0.0]
    assert set(found.columns) <= set(SUMMARIES.schema.names)


def test_a_hole_in_a_minute_is_lost_time(tmp_path):
    scene = Scene(cores=1, seconds=60)
    recording = scene.write(tmp_path)
    (segment,) = recording.segments
    path = segment.file("cpu")
    rows = pq.ParquetFile(path).read()
    keep = [not 20 <= (time - MONO) // NANOS < 32 for time in rows.column("time").to_pylist()]
    metadata = pq.read_metadata(path).metadata
    cut = rows.filter(keep)
    with pq.ParquetWriter(path, cut.schema, store_schema=False) as writer:
        writer.add_key_value_metadata({key: value for key, value in metadata.items() if key != b"ARROW:schema"})
        writer.write_table(cut)
    (row,) = rows_of(summarised(Recording.open(tmp_path)))
    assert (row["covered_s"], row["lost_s"]) == (48.0, 12.0)


def segment(start_s: float, length_s: float, boot: str = "aaaaaaaa", clock_s: float = 0.0) -> Segment:
    begin = WALL // 1_000_000 + round((start_s + clock_s) * 1000)
    return Segment(SegmentName(begin, boot, round(start_s * 1000), round(length_s * 1000)), None)


def test_segments_are_joined_up_to_the_end_of_a_minute():
    parts = [segment(0, 60.3), segment(60.3, 20), segment(80.3, 40.1), segment(120.4, 30)]
    assert WALL % MINUTE_NS == 0
    assert list(stretches(parts)) == [
        Stretch((parts[0],), True),
        Stretch((parts[1], parts[2]), True),
        Stretch((parts[3],), False),
    ]


@pytest.mark.parametrize(
    "next_segment",
    [segment(30, 20, boot="bbbbbbbb"), segment(30, 20, clock_s=3600), segment(30, 20, clock_s=-3600), segment(300, 20)],
)
def test_another_boot_or_clock_ends_a_minute(next_segment):
    first = segment(0, 30)
    assert list(stretches([first, next_segment])) == [Stretch((first,), True), Stretch((next_segment,), False)]


def test_what_can_not_be_read_has_no_summary(tmp_path):
    recording = Scene(cores=1, seconds=60).write(tmp_path)
    (stretch,) = stretches(recording.segments)
    shutil.rmtree(recording.segments[0].path)
    assert Summariser().summarise(recording, stretch) is None
