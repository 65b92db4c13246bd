"""The live view of a node: stalls, who runs and who waits, zombies and their growth, over the last seconds."""

from datetime import UTC

import numpy as np
import pyarrow as pa
import pytest
from tests.replay import Replay
from tests.synthetic import synthetic_recording

from exhume.model.clock import MILLIS, NANOS
from exhume.model.tables import columns_of
from exhume.present.top_view import TABLES, LiveNode, Order, Strip, top_json
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import schema_of
from exhume.store.read.recording import Recording
from exhume.store.read.tail import Tail

SEGMENT = SegmentName(1_772_334_840_000, "1f0c5a9e", 5_000_000)
START = SEGMENT.start_ms * MILLIS
SHARES = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest")


def table(name, /, **columns):
    """Rows with these columns; the others are null, or 0 where they must not be."""
    count = len(next(iter(columns.values())))
    given = {
        column.name: columns.get(column.name, [None if column.nullable else 0] * count) for column in columns_of(name)
    }
    return pa.table({field.name: pa.array(given[field.name], field.type) for field in schema_of(name)})


def cpu(second, *cores):
    """Rows of one tick; each core is a dict of its shares."""
    count = len(cores)
    shares = {name: [core.get(name, 0) for core in cores] for name in SHARES}
    idle = [1000 - sum(core.values()) for core in cores]
    times = [START + second * NANOS] * count
    return table("cpu", time=times, cpu=list(range(count)), span_ms=[1000] * count, idle=idle, **shares)


def tick(second, *cores, **tables):
    end = START + (second + 1) * NANOS
    return {"anchors": table("anchors", time=[end], wall=[end + SEGMENT.offset]), "cpu": cpu(second, *cores), **tables}


def samples(second, *rows):
    """Samples of a tick, each of (cpu, pid, comm, stack, microseconds)."""
    names = ("cpu", "pid", "comm", "stack", "weight_us")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return table("samples", time_ms=[SEGMENT.start_ms + second * 1000] * len(rows), tid=columns["pid"], **columns)


def node_of(*ticks):
    node = LiveNode()
    for rows in ticks:
        node.take(SEGMENT, rows)
    return node


def test_a_stall_is_an_unbroken_run_in_the_kernel():
    hot, mixed, calm = {"system": 800, "softirq": 150}, {"system": 940}, {"user": 990}
    node = node_of(*(tick(second, core, calm) for second, core in enumerate([hot, hot, hot, mixed, hot])))
    first, second = node.frame("n").cores
    assert (first.stall_s, first.longest_stall_s) == (1.0, 3.0)
    assert (first.state, first.permille, first.kernel_permille, first.busy_permille) == ("system", 800, 950, 950)
    assert (second.stall_s, second.longest_stall_s, second.state) == (0.0, 0.0, "user")
    assert [core.cpu for core in node.frame("n").worst_cores] == [0, 1]


def test_a_stall_does_not_go_on_over_a_gap():
    hot = {"system": 1000}
    frame = node_of(tick(0, hot), tick(1, hot), tick(10, hot)).frame("n")
    assert (frame.cores[0].stall_s, frame.cores[0].longest_stall_s) == (1.0, 2.0)


def test_what_is_older_than_a_minute_is_forgotten():
    node = node_of(tick(0, {"system": 1000}), *(tick(second, {"user": 10}) for second in range(1, 70)))
    frame = node.frame("n")
    assert frame.cores[0].longest_stall_s == 0.0
    assert frame.strip.permille.shape == (1, 60)


def test_cores_come_and_go():
    node = node_of(tick(0, {"system": 1000}), tick(1, {"system": 1000}, {"user": 500}), tick(2, {"user": 100}))
    frame = node.frame("n")
    assert [core.cpu for core in frame.cores] == [0]
    assert frame.cores[0].longest_stall_s == 2.0
    assert frame.strip.permille.tolist() == [[1000, 1000, 100]]


def test_a_line_of_the_strip_shows_its_worst_core():
    states = np.array([[2, 2], [0, 2], [2, 0]], np.int8)
    permille = np.array([[1000, 300], [950, 100], [10, 200]], np.int16)
    (row,) = Strip([0, 1, 2], states, permille).rows(1)
    # Programs are what a node is for: the same share of the kernel is worse.
    assert (row.cpus, row.states, row.permille) == ([0, 1, 2], [0, 0], [950, 200])
    assert [each.cpus for each in Strip([0, 1, 2], states, permille).rows(2)] == [[0, 1], [2]]


FRAMES = table("frames", frame=[7, 8], kind=["kernel", "user"], module=["[kernel]", "app"], name=["spin", "work"])
STACKS = pa.table({"stack": pa.array([70, 80], pa.uint64()), "frames": pa.array([[8, 7], [8]], pa.list_(pa.uint64()))})
PROCESSES = table(
    "processes",
    time=[START] * 2,
    pid=[10, 20],
    comm=["kubelet", "python3"],
    container=[None, "c" * 64],
    container_name=[None, "team/job/main"],
    pod=[None, "uid-1"],
    pod_name=[None, "team/job"],
)
EXPLAINED = {"frames": FRAMES, "stacks": STACKS, "processes": PROCESSES}


def test_processes_containers_and_pods_by_cpu_kernel_and_waiting():
    waits = table(
        "run_delays", time=[START], tid=[21], pid=[20], comm=["t"], cpu=[1], run_ns=[0], wait_ns=[800 * MILLIS]
    )
    cgroup = f"/kubepods/pod{'a' * 8}-1111-2222-3333-{'b' * 12}/{'c' * 64}"
    stopped = table(
        "throttling", time=[START], cgroup=[cgroup], periods=[10], throttled=[5], throttled_ns=[250 * MILLIS]
    )
    ran = samples(0, (0, 10, "kubelet", 70, 900_000), (1, 20, "worker", 80, 400_000), (1, 20, "worker", 70, 100_000))
    node = node_of(tick(0, {"system": 1000}, {}, samples=ran, run_delays=waits, throttling=stopped, **EXPLAINED))
    frame = node.frame("n")
    assert [(each.name, each.pid, each.cpu, each.kernel, each.waiting) for each in frame.processes] == [
        ("kubelet", 10, 0.9, 0.9, None),
        ("python3", 20, 0.5, 0.1, 0.8),
    ]
    (container,), pods = frame.containers, frame.pods
    assert (container.name, container.cpu, container.waiting, container.throttled) == ("team/job/main", 0.5, 0.8, 0.25)
    assert {pod.name: (pod.cpu, pod.throttled) for pod in pods}["team/job"] == (0.5, None)
    assert (frame.processes[1].container, frame.processes[1].pod) == ("team/job/main", "team/job")
    assert [each.name for each in node.frame("n", Order.WAIT).processes] == ["python3", "kubelet"]
    assert [each.name for each in node.frame("n", match="TEAM/").processes] == ["python3"]
    assert node.frame("n", match="nosuch").processes == []
    first, second = frame.cores
    assert (first.pid, first.comm, first.function) == (10, "kubelet", "spin")
    assert (second.comm, second.function) == ("python3", "work")


def test_the_window_ends_with_the_last_tick():
    ticks = [tick(second, {}, samples=samples(second, (0, 10, "a", 80, 500_000))) for second in range(10)]
    frame = node_of(*ticks).frame("n")
    assert (frame.window_s, frame.processes[0].cpu) == (5.0, 0.5)
    # The first rows of a recorder that runs for long are those of minutes.
    lump = {name: pa.concat_tables([each[name] for each in ticks]) for name in ("anchors", "cpu", "samples")}
    assert node_of(lump).frame("n").processes == frame.processes
    assert node_of(lump).frame("n").window_s == 5.0


def test_another_boot_starts_from_zero():
    node = node_of(*(tick(second, {"system": 1000}) for second in range(5)))
    other = SegmentName(SEGMENT.wall_ms + 60_000, "ffffffff", 1_000)
    times = [1_000 * MILLIS]
    ends = [2_000 * MILLIS]
    shares = {name: [0] for name in SHARES}
    rows = table("cpu", time=times, cpu=[0], span_ms=[1000], idle=[1000], **shares)
    node.take(other, {"anchors": table("anchors", time=ends, wall=[ends[0] + other.offset]), "cpu": rows})
    frame = node.frame("n")
    assert (frame.cores[0].longest_stall_s, frame.strip.permille.shape) == (0.0, (1, 1))
    assert frame.time == ends[0] + other.offset


def test_zombies_and_their_growth():
    def counted(second, dying):
        place = {"time": [START + second * NANOS], "hierarchy": ["memory"], "parent": [""]}
        return table("cgroups", **place, kernel=[dying + 240], visible=[240], dying=[dying])

    node = node_of(*(tick(second, {}, cgroups=counted(second, 1000 + second)) for second in range(0, 130, 5)))
    zombies = node.frame("n").zombies
    assert zombies is not None
    assert (zombies.count, zombies.tracked) == (1125, 1365)
    assert zombies.per_hour == pytest.approx(3600, rel=0.05)


def test_losses_and_incidents_of_the_last_minutes():
    def lost(second, kind, number):
        return table("losses", time=[START + second * NANOS], source=["x"], kind=[kind], count=[number], text=["t"])

    mark = table("events", time=[START], source=["recorder"], kind=["incident"], severity=["critical"], text=["hot"])
    line = table("events", time=[START], source=["kernel-log"], kind=["kernel-line"], severity=["info"], text=["x"])
    node = node_of(
        tick(0, {}, losses=lost(0, "lost-samples", 3), events=pa.concat_tables([mark, line])),
        tick(1, {}, losses=lost(1, "rate-raised", 97)),
        tick(2, {}, losses=lost(2, "lost-samples", 4)),
    )
    frame = node.frame("n")
    assert frame.recorder.losses == {"lost-samples": 7}
    assert [each.text for each in frame.incidents] == ["hot"]
    node.take(SEGMENT, tick(400, {}))
    assert node.frame("n").recorder.losses == {}


def test_an_hour_before_the_live_segment_is_known(tmp_path, tmp_path_factory):
    """The incident is in the sealed past; its cores and marks are shown from the first frame on."""
    source = synthetic_recording(tmp_path_factory, cores=8, minutes=4, seed=7)
    minute = (source.incident.since - source.since) // (60 * NANOS)
    with Replay(source.directory, tmp_path / "r", minute=minute) as replay:
        replay.play(60)
        replay.writer.relabel({"pool": "b"})
        replay.play(1)
        replay.play(2)
        tail, node = Tail(replay.directory, TABLES), LiveNode()
        ((segment, rows),) = tail.poll()
        replay.writer._sealer.close()
        recording = Recording.open(replay.directory)
        node.take_past(recording, segment)
        node.take(segment, rows)
        tail.close()
    frame = node.frame("n")
    worst = frame.worst_cores[0]
    assert (worst.cpu, worst.stall_s) == (source.incident.cpu, 0.0)
    assert worst.longest_stall_s >= 5.0
    assert frame.incidents
    assert frame.strip.permille.shape == (8, 60)
    found = top_json(frame, UTC)
    assert (found["version"], found["cores"][0]["cpu"]) == (1, source.incident.cpu)
