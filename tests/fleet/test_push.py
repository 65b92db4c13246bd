"""From a recording to a target: every minute once, whatever the target answers."""

import json
import threading
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.diagnose.scenes import WALL, Scene, at
from tests.fleet.fleet_rows import keys_in, rows_in
from tests.store.store_rows import cpu_rows, recorder, tick_at

from exhume.diagnose.moments import moments_of
from exhume.fleet.batch import decode
from exhume.fleet.lake import Lake, bundle_path
from exhume.fleet.push import LakeTarget, Pusher, explained, facts_attributes, node_name, recorded_attributes
from exhume.fleet.spool import Spool, SpoolError
from exhume.fleet.summary import Stretch
from exhume.model.clock import NANOS
from exhume.model.errors import ExhumeError
from exhume.model.inventory import Kernel
from exhume.model.inventory.codec import section_text
from exhume.model.tables import INCIDENT
from exhume.notify.outbox import Delivery
from exhume.store.format.names import SegmentName
from exhume.store.read.index import Segment
from exhume.store.read.recording import Recording

NEVER = threading.Event()


class Scripted:
    """A target that answers as configured, and keeps what it took."""

    every_s = 60.0

    def __init__(self, *answers: Delivery) -> None:
        self.answers = list(answers)
        self.taken = []

    def deliver(self, entry) -> Delivery:
        answer = self.answers.pop(0) if self.answers else Delivery(True)
        if answer.delivered:
            self.taken.append(decode(entry.read()) if entry.incident is None else entry.incident)
        return answer


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """Five minutes with an incident in the second and a failed job in the third."""
    scene = Scene(cores=2, seconds=300, labels={"zone": "b", "team": "infra"})
    scene.core(1, 70, 90, system=990)
    scene.event(72, INCIDENT, "core 1 in the kernel", source="recorder", trigger="core", cpu=1)
    scene.event(
        130,
        "job-failed",
        "train-7 failed (job=train-7)",
        source="jobs",
        severity="error",
        job="train-7",
        member="gpu-7",
    )
    directory = tmp_path_factory.mktemp("recorded")
    scene.write(directory)
    return directory


@pytest.fixture
def directory(recorded, tmp_path) -> Path:
    """The same recording, for a test of its own."""
    own = tmp_path / "recording"
    own.mkdir()
    for path in recorded.iterdir():
        if path.is_dir() and path.name not in ("live", "push"):
            (own / path.name).symlink_to(path)
    (own / "recorder.lock").touch()
    return own


def pusher(directory: Path, tmp_path: Path, target, **given) -> Pusher:
    return Pusher(directory, Spool(tmp_path / "spool"), target, first_ns=10**18, **given)


def restarted(before: Pusher, directory: Path, tmp_path: Path, target, **given) -> Pusher:
    before.spool.close()
    return pusher(directory, tmp_path, target, **given)


def test_every_minute_of_a_recording_is_pushed_once(directory, tmp_path):
    lake = Lake.open(str(tmp_path / "lake"))
    one = pusher(directory, tmp_path, LakeTarget(lake, "node-1"))
    assert one.collect(NEVER) == 5
    sent = one.send(NEVER)
    assert (sent.batches, sent.minutes, sent.problem) == (1, 5, "")
    assert one.collect(NEVER) == 0
    again = restarted(one, directory, tmp_path, LakeTarget(lake, "node-1"))
    assert again.collect(NEVER, final=True) == 0
    rows = rows_in(lake)
    assert [row["minute"] for row in rows] == [datetime.fromtimestamp(WALL // NANOS + 60 * n, UTC) for n in range(5)]
    assert {row["node"] for row in rows} == {"node-1"}
    assert [row["incidents"] for row in rows] == [0, 1, 0, 0, 0]
    (job,) = rows_in(lake, "jobs")
    assert (job["job"], job["kind"], job["member"]) == ("train-7", "job-failed", "gpu-7")


def test_a_failure_with_long_texts_does_not_cost_its_batch(tmp_path):
    scene = Scene(cores=2, seconds=120)
    long = {"job": "\N{GREEK SMALL LETTER OMEGA}" * 300, "member": "n" * 800}
    scene.event(30, "job-failed", "\N{GREEK SMALL LETTER OMEGA}" * 4000, source="jobs", severity="error", **long)
    scene.write(tmp_path / "recording")
    lake = Lake.open(str(tmp_path / "lake"))
    one = pusher(tmp_path / "recording", tmp_path, LakeTarget(lake, "node-1"))
    assert one.collect(NEVER, final=True) == 2
    assert one.send(NEVER).problem == ""
    (job,) = rows_in(lake, "jobs")
    assert job["member"] == "n" * 200 and set(job["job"]) == set(job["reason"]) == {"\N{GREEK SMALL LETTER OMEGA}"}


def test_attributes_are_sent_when_they_change_and_once_a_day(directory, tmp_path):
    known = {"zone": "b", "kernel": "6.8.0"}
    one = pusher(directory, tmp_path, Scripted(), attributes=lambda recording, facts: dict(known))
    facts = Recording.open(directory).facts
    day = 86_400 * NANOS

    def changes(later: int) -> dict:
        # As after the next inventory.
        one._attributes_of = None
        found = one._attribute_changes(facts, (), WALL + later)
        return dict(zip(found.get("key", ()), found.get("value", ()), strict=True))

    assert changes(0) == {"zone": "b", "kernel": "6.8.0"}
    assert changes(60 * NANOS) == {}
    known["kernel"] = "6.9.0"
    assert changes(120 * NANOS) == {"kernel": "6.9.0"}
    del known["zone"]
    assert changes(180 * NANOS) == {"zone": None}
    assert changes(day) == {"kernel": "6.9.0"}


def test_attributes_are_read_again_only_after_an_inventory(directory, tmp_path):
    reads = []
    one = pusher(directory, tmp_path, Scripted(), attributes=lambda recording, facts: reads.append(1) or {"zone": "b"})
    facts = Recording.open(directory).facts
    copied = tmp_path / "20260714T120000250Z_1f0c5a9e_86400250_60000"
    copied.mkdir()
    stretch = Stretch((Segment(SegmentName.parse(copied.name), copied),), True)
    for _ in range(3):
        one._known_attributes(facts, (stretch,))
    assert len(reads) == 1
    (copied / "inventory.parquet").touch()
    one._known_attributes(facts, (stretch,))
    assert len(reads) == 2


def test_a_recording_without_an_inventory_has_the_attributes_of_its_facts(directory):
    recording = Recording.open(directory)
    found = facts_attributes(recording, recording.facts)
    assert (found["kernel"], found["zone"], found["label.team"]) == ("6.8.0", "b", "infra")
    assert recorded_attributes(recording, recording.facts) == found


def test_the_inventory_of_a_recording_has_the_say_over_its_facts(tmp_path):
    writer = recorder(tmp_path / "recording")
    for index in range(5):
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick, system=1))
        content = section_text("kernel", Kernel("6.6"))
        row = {"time": [tick.start], "section": ["kernel"], "content": [content], "missing": [None]}
        if index == 2:
            writer.append("inventory", row)
        writer.commit(tick)
    writer.close()
    recording = Recording.open(tmp_path / "recording")
    found = recorded_attributes(recording, recording.facts)
    assert found["kernel"] == "6.6" and found["cores"] == str(recording.facts.cores)


def finding(**values):
    return {
        "cause": "zombie-memcgs",
        "severity": "critical",
        "confidence": 0.93,
        "summary": "kubelet walks 41,000 zombies",
        "lost_s": 12.345,
        "culprit": {
            "cpu": 39,
            "comm": "kubelet",
            "function": "mem_cgroup_iter",
            "cgroup": "/system.slice/kubelet.service",
        },
        "entities": [
            {"kind": "unit", "id": "kubelet.service", "name": "kubelet.service"},
            {"kind": "unit", "id": "ecs.service", "name": "ecs.service"},
        ],
        "forecast": {"what": "zombies", "cost_us": {"value": 2.345678, "low": 2, "high": 3}},
        **values,
    }


def bundle_of(*findings):
    def make(moment, place, cancel) -> bool:
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("diagnosis.json", json.dumps({"verdict": "starved", "findings": findings}))
        return True

    return make


def test_an_incident_has_its_finding_and_its_bundle(directory, tmp_path):
    lake = Lake.open(str(tmp_path / "lake"))
    one = pusher(directory, tmp_path, LakeTarget(lake, "node-1"), bundles=bundle_of(finding()))
    one.collect(NEVER)
    sent = one.send(NEVER)
    assert (sent.batches, sent.bundles) == (1, 1)
    (row,) = rows_in(lake, "incidents")
    assert row["at"].timestamp() * NANOS == at(72)
    assert (row["cause"], row["severity"], row["core"]) == ("zombie-memcgs", "critical", 39)
    assert (row["culprit"], row["leaker"], row["function"]) == ("kubelet.service", "ecs.service", "mem_cgroup_iter")
    assert row["lost_core_s"] == pytest.approx(12.35, abs=0.01)
    assert json.loads(row["finding"])["cause"] == "zombie-memcgs"
    assert row["bundle"] == bundle_path("node-1", row["id"])
    assert lake.has(row["bundle"])
    # What a zombie costs is known from now on.
    assert one.spool.state.cost_per_zombie_us == 2.346


def test_what_a_mount_costs_is_not_what_a_zombie_does(directory, tmp_path):
    forecast = {"what": "mounts", "cost_us": {"value": 1.5, "low": 1, "high": 2}}
    found = bundle_of(finding(cause="mount-storm", forecast=forecast))
    one = pusher(directory, tmp_path, LakeTarget(Lake.open(str(tmp_path / "lake")), "node-1"), bundles=found)
    one.collect(NEVER)
    assert one.spool.state.cost_per_zombie_us is None


def test_an_incident_without_a_bundle_is_a_row_all_the_same(directory, tmp_path):
    lake = Lake.open(str(tmp_path / "lake"))
    one = pusher(directory, tmp_path, LakeTarget(lake, "node-1"), bundles=lambda moment, place, cancel: False)
    one.collect(NEVER)
    assert one.send(NEVER).bundles == 0
    (row,) = rows_in(lake, "incidents")
    assert (row["cause"], row["bundle"], row["core"]) == (None, None, 1)


def test_an_unexplained_incident_says_so(directory):
    (moment,) = moments_of(Recording.open(directory).events(None, [INCIDENT]))
    row = explained("node-1", moment, {"verdict": "starved", "findings": []})
    assert (row["cause"], row["severity"]) == ("unexplained", "critical")


def test_a_finding_that_is_too_long_stays_json(directory):
    (moment,) = moments_of(Recording.open(directory).events(None, [INCIDENT]))
    row = explained("node-1", moment, {"findings": [finding(chain=["x" * 70_000])]})
    assert len(row["finding"]) < 60_000
    assert json.loads(row["finding"])["chain"] == []


def test_a_mark_at_the_end_of_what_is_recorded_waits(directory, tmp_path):
    """It is an incident once the seconds after it are there; also when the process was restarted meanwhile."""
    late = Scene(cores=2, seconds=120)
    late.event(110, INCIDENT, "core 1", source="recorder", trigger="core", cpu=1)
    place = tmp_path / "late"
    late.write(place)
    lake = Lake.open(str(tmp_path / "lake"))
    one = pusher(place, tmp_path, LakeTarget(lake, "node-1"), bundles=bundle_of(finding()))
    assert one.collect(NEVER) == 2
    one.send(NEVER)
    assert rows_in(lake, "incidents") == []
    assert one.spool.state.marks_since == at(110)
    again = restarted(one, place, tmp_path, LakeTarget(lake, "node-1"), bundles=bundle_of(finding()))
    recording = Recording.open(place)
    waiting = again._pending_marks(recording)
    rows = again._incidents("node-1", waiting, at(180), NEVER, final=False)
    assert rows["at"] == [at(110) // 1000]
    assert again.spool.state.marks_since is None


def test_what_is_not_taken_stays_and_is_sent_later(directory, tmp_path):
    target = Scripted(Delivery(False, retry=True, problem="away", code=503), Delivery(False, problem="", code=401))
    one = pusher(directory, tmp_path, target)
    one.collect(NEVER)
    assert [one.send(NEVER).problem != "" for _ in range(2)] == [True, True]
    assert len(one.spool.entries()) == 1
    assert one.send(NEVER).minutes == 5
    assert one.spool.entries() == []


@pytest.mark.parametrize("code", [400, 413, 422])
def test_what_is_refused_for_good_is_dropped_and_counted(directory, tmp_path, code):
    one = pusher(directory, tmp_path, Scripted(Delivery(False, problem="no", code=code)))
    one.collect(NEVER)
    sent = one.send(NEVER)
    assert (sent.refused, sent.problem) == (1, "")
    assert one.spool.entries() == []
    assert one.spool.state.dropped_minutes == 5


def test_a_conflict_numbers_the_spool_again(directory, tmp_path):
    target = Scripted(Delivery(False, code=409, problem="other rows"))
    one = pusher(directory, tmp_path, target)
    before = one.spool.state.spool
    one.collect(NEVER)
    assert one.send(NEVER).batches == 1
    assert target.taken[0].spool == one.spool.state.spool != before


def test_minutes_that_were_dropped_are_in_the_next_summary(directory, tmp_path):
    target = Scripted()
    one = pusher(directory, tmp_path, target)
    one.spool.state.dropped_minutes = 77
    one.collect(NEVER)
    one.send(NEVER)
    assert target.taken[0].tables["summaries"]["dropped_minutes"] == [None] * 4 + [77]
    assert one.spool.state.dropped_minutes == 0


def test_a_full_disk_repeats_the_same_minutes_later(directory, tmp_path, monkeypatch):
    target = Scripted()
    one = pusher(directory, tmp_path, target)

    def full(self):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Spool, "_save", full)
        with pytest.raises(SpoolError):
            one.collect(NEVER)
    assert one.collect(NEVER) == 5
    one.send(NEVER)
    assert len(target.taken) == 1


def test_new_segments_are_found_and_old_ones_are_not_taken_again(tmp_path):
    place = tmp_path / "recording"
    lake = Lake.open(str(tmp_path / "lake"))
    Scene(cores=1, seconds=120).write(place)
    one = pusher(place, tmp_path, LakeTarget(lake, "node-1"))
    assert one.collect(NEVER) == 2
    # Another boot of the node, as its next segment.
    other = tmp_path / "other"
    Scene(cores=1, seconds=60, boot_id="abcdef01" + "0" * 24).write(other)
    (segment,) = (path for path in other.iterdir() if path.is_dir() and path.name[:2] == "20")
    segment.rename(place / segment.name)
    assert one.collect(NEVER) == 1
    assert one.collect(NEVER) == 0
    one.send(NEVER)
    assert len(keys_in(lake)) == 3


def test_a_name_that_can_not_be_a_node_is_an_error():
    assert node_name("ip-10-0-0-1") == "ip-10-0-0-1"
    with pytest.raises(ExhumeError):
        node_name("../x")
