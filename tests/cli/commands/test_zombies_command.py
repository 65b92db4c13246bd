"""`exhume zombies` as its users run it: on this node, with and without a recording of this boot."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from tests.parts import missing

from exhume.collect.cgroup.census import take_census
from exhume.collect.containers.names import ContainerName, ContainerNames
from exhume.diagnose.zombie_report import last_seen
from exhume.model.clock import NANOS, SystemClock, Tick, read_boot_id
from exhume.model.facts import RecordingFacts
from exhume.model.tables import CgroupEvents, Cgroups, Processes, to_columns
from exhume.model.zombies import Census, HierarchyCensus
from exhume.procfs.host import Host
from exhume.store.read.recording import Recording
from exhume.store.write.writer import SegmentWriter

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[3] / "docs/commands/zombies.md").read_text()
CONTAINER = "0123456789abcdef" * 4
# No row can be older than the boot: a machine that was just started has fewer minutes to show.
MINUTES = min(10, int(time.clock_gettime(time.CLOCK_MONOTONIC)) // 60)


@pytest.fixture(autouse=True, scope="module")
def memory_cgroups() -> None:
    if take_census(Host()).memory is None:
        missing("memory cgroups")


def test_rows_of_an_exiting_process_are_left_out() -> None:
    named = {"pid": 7, "wall": 1, "comm": "containerd-shim"}
    nameless = {"pid": 7, "wall": 2, "comm": "(exiting)"}
    assert last_seen([named, nameless], 7, until=3) == named
    assert last_seen([nameless], 7, until=3) is None


def record(directory: Path, boot_id: str, hierarchy: int) -> None:
    """The last minutes of a container that restarts forever."""
    clock = SystemClock()
    monotonic, wall = clock.monotonic_ns(), clock.wall_ns()
    facts = RecordingFacts(
        node="n", boot_id=boot_id, cores=1, kernel="6", arch="x86_64", event_source="cpu-clock", rate_hz=97
    )
    writer = SegmentWriter(directory, facts, max_bytes=None, max_age_s=None, segment_s=60)
    for index in range(MINUTES * 6):
        end = monotonic - (MINUTES * 6 - 1 - index) * 10 * NANOS
        tick = Tick(index, end - 10 * NANOS, end, wall - (monotonic - end))
        # As many as were made before.
        dying = 2 * index
        events = []
        for number in range(2 * index, 2 * index + 2):
            born = tick.start + (number % 2) * 5 * NANOS
            row = (1000 + number, 2, f"/docker/{CONTAINER}", 4000 + number, "runc")
            events += [
                CgroupEvents(born, hierarchy, "mkdir", *row),
                CgroupEvents(born + NANOS, hierarchy, "rmdir", *row),
                CgroupEvents(born, hierarchy + 1, "mkdir", *row),
            ]
        processes = [
            Processes(tick.start, 77, 1, 0, "containerd-shim", "containerd-shim -id x"),
            Processes(tick.start, 4000 + 2 * index + 1, 77, 0, "runc", "runc create --bundle /b x"),
        ]
        writer.append("cgroups", to_columns("cgroups", [Cgroups(tick.start, "memory", "", dying + 9, 9, dying)]))
        writer.append("cgroup_events", to_columns("cgroup_events", events))
        writer.append("processes", to_columns("processes", processes))
        writer.commit(tick)
    writer.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("zombies") / "recording"
    memory = take_census(Host()).memory
    assert memory is not None
    record(directory, read_boot_id(), memory.number or 0)
    return directory


def counted(dying: int | None, note: str = "") -> Census:
    """A census of a node with so many zombies, its hierarchy where this node's is."""
    memory = take_census(Host()).memory
    assert memory is not None
    kernel = None if dying is None else dying + 240
    found = HierarchyCensus(
        "memory", 1, memory.path, "memory", kernel, 240, dying, number=memory.number or 0, note=note
    )
    return Census([found], [f"memory: {note}"] if note else [])


@pytest.fixture
def census() -> Iterator[mock.Mock]:
    with mock.patch("exhume.diagnose.zombie_report.take_census") as taken:
        yield taken


def test_this_node_is_counted(exhume, tmp_path: Path) -> None:
    result = exhume("zombies", "--json", "--dir", str(tmp_path / "none"), check=False)
    report = json.loads(result.stdout)
    assert result.returncode == {"well": 0, "unknown": 3}.get(report["verdict"], 1)
    memory = report["hierarchies"][0]
    assert memory["controller"] == "memory"
    if memory["zombies"] is not None:
        assert memory["kernel"] == memory["visible"] + memory["zombies"]
        assert memory["growth"]["source"] == "sampling"
    assert "no recording" in " ".join(report["blind_spots"])


@pytest.mark.parametrize(("dying", "expected"), [(20, (0, "WELL")), (68_680, (1, "MANY")), (None, (3, "UNKNOWN"))])
def test_exit_codes_and_badges(exhume, census, tmp_path: Path, dying: int | None, expected: tuple[int, str]) -> None:
    census.return_value = counted(dying, "" if dying else "a cgroup namespace")
    result = exhume("zombies", "--dir", str(tmp_path / "none"), check=False)
    assert (result.returncode, result.stdout.split()[0]) == expected
    assert "thresholds: 1,000 are many" in result.stdout
    if dying is None:
        assert "a cgroup namespace" in result.stdout
        assert "–" in result.stdout


def test_growth_comes_from_the_recording_of_this_boot(exhume, census, recorded: Path) -> None:
    census.return_value = counted(12 * MINUTES)
    result = exhume("zombies", "--json", "--dir", str(recorded), check=False)
    growth = json.loads(result.stdout)["hierarchies"][0]["growth"]
    assert growth["source"] == "recording"
    assert growth["per_hour"] == pytest.approx(720, rel=0.1)
    assert census.call_args.args[1] == 0.0
    assert result.returncode == 1
    assert "growth is from the recording: 0 at" in exhume("zombies", "--dir", str(recorded), check=False).stdout


def test_a_recording_of_another_boot_is_not_used(exhume, tmp_path: Path) -> None:
    record(tmp_path / "other", "f" * 32, 4)
    report = json.loads(exhume("zombies", "--json", "--dir", str(tmp_path / "other"), check=False).stdout)
    assert any("another boot" in spot for spot in report["blind_spots"])
    assert report["hierarchies"][0]["growth"]["source"] == "sampling"


def test_a_directory_that_is_no_recording_is_a_blind_spot(exhume, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    result = exhume("zombies", "--json", "--dir", str(tmp_path), check=False)
    assert json.loads(result.stdout)["blind_spots"]


def explained(exhume, recorded: Path, *more: str, dying: int = 12 * MINUTES) -> str:
    names = ContainerNames({CONTAINER: ContainerName("ecs-agent", "amazon/amazon-ecs-agent:latest", "docker")})
    with (
        mock.patch("exhume.diagnose.zombie_report.container_names", return_value=names),
        mock.patch("exhume.diagnose.zombie_report.take_census", return_value=counted(dying)),
    ):
        return exhume("zombies", "--explain", "--dir", str(recorded), *more, check=False).stdout


@pytest.fixture(scope="module")
def explanation(exhume, recorded: Path) -> dict:
    """Of this node, as JSON: finding out takes seconds."""
    return json.loads(explained(exhume, recorded, "--json"))


def test_the_leaker_is_named_by_pattern_maker_container_and_image(exhume, recorded: Path, explanation: dict) -> None:
    (leaker,) = explanation["explanation"]["leakers"]
    made = 12 * MINUTES
    assert (leaker["pattern"], leaker["made"]) == ("/docker/*", made)
    # The last removal is less than two seconds older than the recording's end.
    assert made - 1 <= leaker["zombies"] <= made
    assert leaker["per_hour"] == pytest.approx(720, rel=0.02)
    assert leaker["creators"] == [{"comm": "runc", "count": leaker["zombies"]}]
    assert leaker["creator"]["cmdline"] == "runc create --bundle /b x"
    assert leaker["creator"]["parent_comm"] == "containerd-shim"
    assert leaker["containers"] == [
        {
            "id": CONTAINER,
            "name": "ecs-agent",
            "image": "amazon/amazon-ecs-agent:latest",
            "count": leaker["zombies"],
        }
    ]
    text = explained(exhume, recorded)
    assert f"/docker/*  of {made} made, 720 an hour" in text
    assert "container: ecs-agent (amazon/amazon-ecs-agent:latest)" in text
    assert "made by runc" in text and "started by containerd-shim" in text


def test_no_more_are_explained_than_there_are(exhume, recorded: Path) -> None:
    """After a freeing of more than the recorder keeps the releases of."""
    report = json.loads(explained(exhume, recorded, "--json", dying=3))
    assert [leaker["zombies"] for leaker in report["explanation"]["leakers"]] == [3]
    # The last removal may be too young to be one of them.
    unseen = [f"{12 * MINUTES - 3 - young} removed cgroups went without a recorded release" for young in (0, 1)]
    assert any(spot.startswith(tuple(unseen)) for spot in report["explanation"]["blind_spots"])
    assert "3 of 3 zombies were removed" in explained(exhume, recorded, dying=3)


def test_only_what_was_asked_for_is_read(exhume, recorded: Path) -> None:
    span = Recording.open(recorded).span()
    assert span is not None
    since = f"@{span.until // NANOS - 60}"
    report = json.loads(explained(exhume, recorded, "--json", "--since", since))
    (leaker,) = report["explanation"]["leakers"]
    assert 11 <= leaker["made"] <= 13


def test_a_bad_time_is_one_sentence(exhume, recorded: Path) -> None:
    result = exhume("zombies", "--explain", "--since", "whenever", "--dir", str(recorded), check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1


def fields_of(value: object) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(fields_of, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    return set(value) | set().union(set(), *map(fields_of, value.values()))


def test_every_field_of_json_is_documented(explanation: dict) -> None:
    fields = fields_of(explanation)
    assert {"version", "leakers", "parents", "containers"} <= fields
    assert fields <= set(re.findall(r"`(\w+)`", PAGE))


def test_watching_ends_with_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "exhume.cli.main", "zombies", "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        second = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) in (0, 1)
    assert re.match(r"\d\d:\d\d:\d\d [\d,]+ zombies?, [\d,]+ visible, growth –", first)
    assert "zombie" in second


def test_watching_prints_json_lines_when_asked(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "exhume.cli.main", "zombies", "--watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        reports = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.terminate()
        watching.wait(60)
    growth = reports[1]["hierarchies"][0]["growth"]
    assert reports[0]["version"] == 1
    assert growth["source"] == "watching"
