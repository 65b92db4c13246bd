"""A synthetic recording is a recording: whole, the same for a seed, and with its incident where the summary says."""

import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exhume.diagnose.engine import diagnose
from exhume.lab import synth
from exhume.lab.synth import SyntheticSummary, write_synthetic
from exhume.lab.synth.world import Timeline, plan_incident
from exhume.model.clock import NANOS, Window
from exhume.model.errors import RecordingError, UsageError
from exhume.model.finding import EntityKind
from exhume.model.tables import TABLES
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.recording import Recording

pytestmark = pytest.mark.slow

CORES = 12
# Up to and past the minute of the hour that has a loss in it.
HOURS = 18 / 60


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> SyntheticSummary:
    return write_synthetic(tmp_path_factory.mktemp("synth") / "recording", cores=CORES, hours=HOURS, seed=11)


@pytest.fixture(scope="module")
def recording(written: SyntheticSummary) -> Recording:
    return Recording.open(written.directory)


def around(summary: SyntheticSummary) -> Window:
    return Window(summary.incident.since, summary.incident.until)


@pytest.mark.slow
def test_every_table_is_there(recording: Recording):
    assert not recording.skipped
    assert [table for table in TABLES if recording.read(table, None).num_rows == 0] == []


def test_the_summary_tells_what_is_on_disk(written: SyntheticSummary, recording: Recording):
    span = recording.span()
    assert (span.since, span.until) == (written.since, written.until)
    assert written.seconds == 18 * 60
    assert recording.read("samples", None, columns=["cpu"]).num_rows == written.samples
    files = list(written.directory.glob("2*/*"))
    assert sum(path.stat().st_size for path in files) == written.bytes
    assert len({path.parent for path in files}) == written.segments == 18
    assert written.bytes / written.samples < 40


def test_every_second_of_every_core_is_accounted_for(recording: Recording):
    cpu = recording.read("cpu", None)
    assert cpu.num_rows == CORES * 18 * 60
    states = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest", "idle")
    total = sum(cpu[state].to_numpy().astype(int) for state in states)
    assert (total == 1000).all()
    busy = 1 - np.mean(cpu["idle"].to_numpy()) / 1000
    assert 0.3 < busy < 0.5


def test_segments_stand_alone(written: SyntheticSummary):
    for segment in {path.parent for path in written.directory.glob("*/samples.parquet")}:
        used = set(pq.read_table(segment / "samples.parquet", columns=["stack"])["stack"].to_pylist())
        stacks = pq.read_table(segment / "stacks.parquet")
        assert used == set(stacks["stack"].to_pylist())
        needed = set(pa.compute.list_flatten(stacks["frames"]).to_pylist())
        assert needed == set(pq.read_table(segment / "frames.parquet")["frame"].to_pylist())


def test_one_core_is_held_for_the_length_of_the_incident(written: SyntheticSummary, recording: Recording):
    incident = written.incident
    cpu = recording.read("cpu", None)
    full = cpu.filter(pa.compute.greater_equal(cpu["system"], 990))
    assert set(full["cpu"].to_pylist()) == {incident.cpu}
    walls = sorted(full["wall"].to_pylist())
    assert len(walls) in (5, 6)
    assert incident.since <= walls[0] and walls[-1] + NANOS <= incident.until


def test_its_stacks_name_the_culprit(written: SyntheticSummary, recording: Recording):
    incident = written.incident
    profile = recording.profile(around(written), ProfileFilter(cpus={incident.cpu}))
    assert abs(profile.samples - 6.6 * 97) <= 2
    walk = recording.profile(around(written), ProfileFilter(cpus={incident.cpu}, stack_regex=incident.function))
    assert walk.samples > 0.6 * profile.samples
    assert {profile.comms[index] for index in profile.comm_index} == {"kubelet"}
    elsewhere = recording.profile(Window(written.since, incident.since), ProfileFilter(stack_regex=incident.function))
    assert elsewhere.samples == 0


def test_the_log_speaks_at_the_true_moment(written: SyntheticSummary, recording: Recording):
    events = recording.read("events", None).to_pylist()
    paused = [event for event in events if event["kind"] == "nic-tx-paused"]
    assert [event["wall"] for event in paused] == [written.incident.log_time]
    assert (paused[0]["queue"], paused[0]["value"]) == (5, pytest.approx(6.596))
    assert "Time since last napi 6596000 usec. napi scheduled: 1" in paused[0]["text"]
    kinds = [event["kind"] for event in events if event["wall"] >= written.incident.log_time and event["sequence"]]
    assert kinds[:3] == ["nic-tx-paused", "nic-napi-starved", "nic-reset"]


def test_dead_cgroups_grow_to_what_the_kernel_tracked(written: SyntheticSummary, recording: Recording):
    rows = [row for row in recording.read("cgroups", None).to_pylist() if row["parent"] == ""]
    assert all(row["kernel"] - row["visible"] == row["dying"] for row in rows)
    counts = [row["kernel"] for row in sorted(rows, key=lambda row: row["wall"])]
    assert counts == sorted(counts) and counts[0] < counts[-1]
    nearest = min(rows, key=lambda row: abs(row["wall"] - written.incident.since))
    assert abs(nearest["kernel"] - written.incident.cgroups_tracked) <= 2
    assert nearest["visible"] == written.incident.cgroups_visible


def test_docker_names_the_containers_whose_cgroups_are_left(recording: Recording):
    events = [event for event in recording.read("events", None).to_pylist() if event["source"] == "docker"]
    assert {(event["kind"], event["container_name"], event["value"]) for event in events} == {
        ("container-start", "ecs-agent", None),
        ("container-die", "ecs-agent", 5.0),
    }
    started = {event["container"]: event["wall"] for event in events if event["kind"] == "container-start"}
    made = [row for row in recording.read("cgroup_events", None).to_pylist() if row["path"].startswith("/docker/")]
    assert {row["path"].removeprefix("/docker/") for row in made} == started.keys()
    assert all(row["wall"] < started[row["path"][8:]] for row in made if row["op"] == "mkdir")


def test_systemd_reports_the_unit_that_runs_each_container(recording: Recording):
    events = recording.read("events", None).to_pylist()
    moments = {
        kind: sorted(event["wall"] for event in events if event["kind"] == kind)
        for kind in ("unit-started", "container-start", "container-die", "unit-ended", "unit-restarted")
    }
    # The first run began before the recording.
    runs = zip(
        moments["unit-started"],
        moments["container-start"][1:],
        moments["container-die"][1:],
        moments["unit-ended"][1:],
        strict=False,
    )
    assert all(list(run) == sorted(run) for run in runs)
    assert len(moments["unit-ended"]) == len(moments["container-die"])
    ends = {(event["comm"], event["value"]) for event in events if event["kind"] == "unit-ended"}
    assert ends == {("ecs.service", 5.0)}
    counts = [event["value"] for event in events if event["kind"] == "unit-restarted"]
    assert sorted(counts) == [min(counts) + number for number in range(len(counts))]
    restarts = [event for event in events if event["kind"] == "restart"]
    known = {row["pid"]: row for row in recording.read("processes", None).to_pylist()}
    assert {(event["comm"], event["exit_code"]) for event in restarts} == {("docker", 5)}
    assert {known[event["pid"]]["cgroup"] for event in restarts} == {"/system.slice/ecs.service"}


def test_the_diagnosis_names_the_agent_by_these_events(written: SyntheticSummary, recording: Recording):
    best = diagnose(recording, around(written)).findings[0]
    assert best.cause == "zombie-memcgs"
    assert [entity.name for entity in best.entities if entity.kind is EntityKind.CONTAINER] == ["ecs-agent"]
    assert [entity.name for entity in best.entities if entity.kind is EntityKind.UNIT] == ["ecs.service"]
    assert best.remedies[0].target == "ecs.service"


def test_the_held_core_serves_no_network(written: SyntheticSummary, recording: Recording):
    incident = written.incident
    inside = Window(incident.since + NANOS, incident.until - NANOS)
    served = recording.read("interrupts", inside).to_pylist()
    assert served and not [row for row in served if row["queue"] == incident.queue]
    waited = recording.read("threads", None).to_pylist()
    longest = max(waited, key=lambda row: row["wait_ns"])
    assert (longest["cpu"], longest["comm"]) == (incident.cpu, f"ksoftirqd/{incident.cpu}")
    assert longest["wait_ns"] // NANOS == 6
    assert longest["wall"] <= incident.until < longest["wall"] + NANOS


def test_the_recorder_would_have_marked_it(written: SyntheticSummary, recording: Recording):
    incident = written.incident
    marks = [event for event in recording.read("events", None).to_pylist() if event["kind"] == "incident"]
    cores = [mark for mark in marks if mark["cpu"] is not None]
    assert {mark["cpu"] for mark in cores} == {incident.cpu}
    assert any(mark["device"] == "eth0" and "is paused for too long" in mark["text"] for mark in marks)
    assert all(incident.since - NANOS <= mark["wall"] <= incident.until + NANOS for mark in marks)


@pytest.mark.parametrize("seed", range(8))
def test_the_incident_lies_inside_one_minute(seed: int):
    timeline = Timeline(3 * 3600)
    plan = plan_incident(timeline, 96, seed)
    into = (plan.start - timeline.start) % (60 * NANOS)
    assert into >= NANOS and into + (plan.stop - plan.start) < 60 * NANOS
    assert 0.2 * timeline.seconds * NANOS < plan.start - timeline.start < 0.8 * timeline.seconds * NANOS


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.glob("2*/*")}


@pytest.mark.slow
def test_a_seed_writes_the_same_bytes_in_one_process_or_in_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arguments = {"cores": 3, "hours": 2 / 60, "seed": 5}
    first = write_synthetic(tmp_path / "first", **arguments)
    monkeypatch.setattr(synth, "WORTH_SHARING", 0)
    second = write_synthetic(tmp_path / "second", **arguments)
    assert first.incident == second.incident
    assert contents(tmp_path / "first") == contents(tmp_path / "second")
    other = write_synthetic(tmp_path / "other", **{**arguments, "seed": 6})
    assert other.incident.since != first.incident.since
    assert contents(tmp_path / "other") != contents(tmp_path / "first")


def test_a_large_node_has_thousands_of_stacks(tmp_path: Path):
    summary = write_synthetic(tmp_path / "large", cores=96, hours=1 / 60, seed=1)
    rows = pq.read_table(next((tmp_path / "large").glob("*/stacks.parquet")))
    assert rows.num_rows > 5_000
    assert 0.33 < summary.samples / (96 * 97 * 60) < 0.48


def test_a_recording_shorter_than_the_incident_is_still_one(tmp_path: Path):
    summary = write_synthetic(tmp_path / "short", cores=1, hours=3 / 3600, seed=0)
    assert Recording.open(tmp_path / "short").read("cpu", None).num_rows == 3
    assert summary.incident.since == summary.since


def test_progress_is_reported_minute_by_minute(tmp_path: Path):
    reported: list[tuple[int, int]] = []
    write_synthetic(
        tmp_path / "r", cores=1, hours=2.5 / 60, seed=0, progress=lambda done, all_: reported.append((done, all_))
    )
    assert reported == [(1, 3), (2, 3), (3, 3)]


def test_what_is_there_is_not_touched(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RecordingError, match="not empty"):
        write_synthetic(tmp_path, cores=1, hours=0.01, seed=0)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2 << 30, 1 << 30, 1 << 30))
    with pytest.raises(RecordingError, match=r"has 1\.1 GB free"):
        write_synthetic(tmp_path / "r", cores=96, hours=12, seed=0)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("bad", [{"cores": 0}, {"hours": 0}, {"seed": -1}])
def test_nonsense_is_refused(tmp_path: Path, bad: dict[str, int]):
    with pytest.raises(UsageError):
        write_synthetic(tmp_path / "r", **{"cores": 1, "hours": 0.01, "seed": 0, **bad})
