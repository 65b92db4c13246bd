"""Files that are not what they should be: whatever is wrong with one, it is named, and the rest is read."""

import json
import os
import resource
import shutil
import signal
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.parts import sampled
from tests.store.store_rows import FACTS, cpu_rows, loss_row, recorder, sample_rows, tick_at

from exhume.model.clock import Window
from exhume.model.facts import RecordingFacts
from exhume.store.format.files import NOT_REGULAR, TOO_LARGE
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import FACTS_KEY, SEGMENT_KEY
from exhume.store.read import reader
from exhume.store.read.core_grid import OVERVIEW_FILE, read_overview
from exhume.store.read.reader import MOST_LIVE_BYTES
from exhume.store.read.recording import Recording

ALWAYS = Window(0, 2**62)
TICKS, SEGMENT_S = 25, 10
LONGEST_S = 30


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """What waits for a FIFO waits for ever."""
    signal.alarm(LONGEST_S)
    yield
    signal.alarm(0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sealed segments, and a live one of a recorder that was killed."""
    place = tmp_path_factory.mktemp("kept")
    writer = recorder(place / "writing", segment_s=SEGMENT_S)
    for index in range(TICKS):
        tick = tick_at(index)
        writer.append("frames", {"frame": [7], "kind": ["kernel"], "module": ["[kernel]"], "name": ["spin"]})
        writer.append("stacks", {"stack": [1], "frames": [[7]]})
        writer.append("cpu", cpu_rows(tick, system=index))
        writer.append("samples", sample_rows(tick, [(0, 1, "a", 1)]))
        writer.append("events", event(tick.start))
        writer.append("losses", loss_row(tick, 1))
        writer.commit(tick)
    writer._sealer.close()
    shutil.copytree(place / "writing", place / "recorded")
    writer.close()
    return place / "recorded"


@pytest.fixture
def recorded(kept: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(kept, tmp_path / "recorded")


def event(time: int) -> dict[str, list[object]]:
    return {"time": [time], "source": ["kernel-log"], "kind": ["line"], "severity": ["info"], "text": ["hello"]}


def look_at_everything(directory: Path) -> Recording:
    recording = Recording.open(directory)
    recording.info()
    recording.events(ALWAYS)
    recording.events()
    recording.losses()
    recording.profile(ALWAYS)
    for measure in ("busy", "wait"):
        recording.cores(recording.span() or ALWAYS, 10, measure)
    for table in ("cpu", "samples", "stacks", "frames", "events"):
        recording.read(table).to_pylist()
    for segment in recording.segments:
        read_overview(segment.path, segment.name, "busy")
    return recording


def sealed_file(directory: Path, name: str) -> Path:
    return min(directory.glob(f"2*/{name}"))


def live_file(directory: Path, table: str) -> Path:
    return next(directory.glob(f"live/*/{table}.arrows"))


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows of a sealed file, as another program would."""
    found = pq.read_table(path)
    changed = change(found)
    pq.write_table(changed.replace_schema_metadata(pq.read_metadata(path).metadata), path)


def without(column: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.drop_columns([column])


def retyped(column: str, values: Callable[[int], pa.Array]) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.set_column(rows.schema.get_field_index(column), column, values(rows.num_rows))


def bad_text(rows: int) -> pa.Array:
    ends = pa.array([0, *range(2, 2 * rows + 1, 2)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), rows, [None, ends, pa.py_buffer(b"\xff\xfe" * rows)])


def nulls(rows: int) -> pa.Array:
    return pa.nulls(rows, pa.int64())


CHANGED = [
    *(("samples", without(column)) for column in ("comm", "stack", "time_ms", "weight_us", "cpu")),
    *(("cpu", without(column)) for column in ("time", "idle", "cpu", "span_ms")),
    *(("stacks", without(column)) for column in ("stack", "frames")),
    ("frames", without("name")),
    ("events", without("time")),
    ("losses", without("count")),
    ("cpu", retyped("time", nulls)),
    ("cpu", retyped("idle", lambda n: pa.array(["x"] * n))),
    ("cpu", retyped("idle", lambda n: pa.array([float("nan")] * n))),
    ("cpu", retyped("idle", lambda n: pa.array([-1] * n))),
    ("cpu", retyped("time", lambda n: pa.array([0] * n, pa.timestamp("ns")))),
    ("cpu", retyped("time", lambda n: pa.array([2**62] * n))),
    ("cpu", retyped("time", lambda n: pa.array([-(2**62)] * n))),
    ("samples", retyped("comm", bad_text)),
    ("frames", retyped("name", bad_text)),
    ("stacks", retyped("frames", lambda n: pa.array([["a"]] * n))),
]


@pytest.mark.parametrize("place", sampled(range(len(CHANGED))))
def test_another_column_than_the_tables_is_named(recorded: Path, place: int) -> None:
    table, change = CHANGED[place]
    victim = sealed_file(recorded, f"{table}.parquet")
    rewrite(victim, change)
    recording = look_at_everything(recorded)
    assert [skipped.path for skipped in recording.damaged] == [victim]
    assert recording.read("cpu").num_rows == 2 * (TICKS - (SEGMENT_S if table == "cpu" else 0))


def test_a_column_that_may_be_null_may_be_missing(recorded: Path) -> None:
    rewrite(sealed_file(recorded, "cpu.parquet"), without("wait_ns"))
    recording = look_at_everything(recorded)
    assert recording.damaged == []
    assert recording.read("cpu").num_rows == 2 * TICKS


@pytest.mark.parametrize(("table", "other"), [("cpu", "samples"), ("events", "losses"), ("anchors", "cpu")])
def test_a_file_of_another_table_is_named(recorded: Path, table: str, other: str) -> None:
    victim = sealed_file(recorded, f"{table}.parquet")
    shutil.copy(victim.with_name(f"{other}.parquet"), victim)
    found = {skipped.path: skipped.reason for skipped in look_at_everything(recorded).damaged}
    assert found[victim] == "a file of another table"


def test_a_file_of_another_segment_is_named(recorded: Path) -> None:
    first, second = sorted(recorded.glob("2*/cpu.parquet"))
    shutil.copy(second, first)
    found = {skipped.path: skipped.reason for skipped in look_at_everything(recorded).damaged}
    assert found[first] == "a file of another segment"
    # Files of earlier versions don't say which segment they are of.
    metadata = {key: value for key, value in pq.read_metadata(second).metadata.items() if key != SEGMENT_KEY}
    pq.write_table(pq.read_table(second).replace_schema_metadata(metadata), first)
    found = {skipped.path: skipped.reason for skipped in look_at_everything(recorded).damaged}
    assert found[first] == "rows of another time than its segment's"


@pytest.mark.parametrize(
    "facts",
    [
        b"[" * 100_000,
        b'{"format_version":' + b"9" * 6_000 + b"}",
        b"\xff\xfe",
        b"{}",
        json.dumps({**asdict(FACTS), "cores": [1]}).encode(),
        json.dumps({**asdict(FACTS), "node": "\ud800"}).encode(),
    ],
    ids=["deep", "huge", "no text", "none", "no number", "surrogate"],
)
def test_facts_that_are_none_are_named(recorded: Path, facts: bytes) -> None:
    victim = sealed_file(recorded, "cpu.parquet")
    pq.write_table(pq.read_table(victim).replace_schema_metadata({FACTS_KEY: facts}), victim)
    assert [skipped.path for skipped in look_at_everything(recorded).damaged] == [victim]
    with pytest.raises(ValueError, match="no facts"):
        RecordingFacts.from_json(facts)


@pytest.mark.parametrize("name", ["cpu.parquet", "events.parquet", OVERVIEW_FILE])
@pytest.mark.parametrize("kind", ["fifo", "device", "directory"])
def test_what_is_no_regular_file_is_named_and_not_waited_for(recorded: Path, name: str, kind: str) -> None:
    victim = sealed_file(recorded, name)
    replace(victim, kind)
    found = {skipped.path: skipped.reason for skipped in look_at_everything(recorded).damaged}
    assert found == {victim: NOT_REGULAR}


@pytest.mark.parametrize("target", ["cpu.parquet", "nowhere"])
def test_a_link_that_leads_nowhere_costs_its_table_alone(recorded: Path, target: str) -> None:
    victim = sealed_file(recorded, "cpu.parquet")
    whole = Recording.open(recorded).info()
    victim.unlink()
    victim.symlink_to(target)
    recording = look_at_everything(recorded)
    found = recording.info()
    assert [skipped.path for skipped in recording.damaged] == [victim]
    assert found.samples == whole.samples
    assert 0 < found.bytes < whole.bytes


@pytest.mark.parametrize("kind", sampled(["fifo", "device", "directory"]))
def test_in_a_live_segment_neither(recorded: Path, kind: str) -> None:
    victim = live_file(recorded, "cpu")
    replace(victim, kind)
    found = {skipped.path: skipped.reason for skipped in look_at_everything(recorded).damaged}
    assert found == {victim: NOT_REGULAR}
    # Nor does a recorder.
    recorder(recorded).close()
    assert Recording.open(recorded).read("anchors").num_rows == TICKS


def replace(victim: Path, kind: str) -> None:
    victim.unlink()
    if kind == "fifo":
        os.mkfifo(victim)
    elif kind == "device":
        victim.symlink_to("/dev/zero")
    else:
        victim.mkdir()


def test_an_endless_live_file_is_named(recorded: Path) -> None:
    victim = live_file(recorded, "cpu")
    os.truncate(victim, MOST_LIVE_BYTES + 1)
    found = {skipped.path: skipped.reason for skipped in look_at_everything(recorded).damaged}
    assert found == {victim: TOO_LARGE}


@pytest.mark.parametrize(
    "name",
    [
        "00010101T000000000Z_1f0c5a9e_0_60000",
        "99991231T235959999Z_1f0c5a9e_0_60000",
        f"20260714T120000250Z_1f0c5a9e_{'9' * 100}_60000",
        f"20260714T120000250Z_1f0c5a9e_0_{'9' * 13}",
        f"20260714T120000250Z_1f0c5a9e_0_60000_{'9' * 30}",
        "２０２６0714T120000250Z_1f0c5a9e_0_60000",
    ],
)
def test_a_name_beyond_all_clocks_is_no_segment(recorded: Path, name: str) -> None:
    assert SegmentName.of_entry(name) is None
    (recorded / name).mkdir()
    (recorded / "live" / name).mkdir()
    recording = look_at_everything(recorded)
    assert {skipped.path for skipped in recording.skipped} == {recorded / name, recorded / "live" / name}


@pytest.mark.parametrize(
    ("first", "cores", "seconds"),
    [(0, 2**32 - 1, 2**32 - 1), (2**63 - 1, 1, 1), (0, 3, 5), (0, -1, -1), (0, "3", 10**8), (None, [3], 5)],
)
def test_a_crafted_overview_is_left_aside(recorded: Path, first: object, cores: object, seconds: object) -> None:
    victim = sealed_file(recorded, OVERVIEW_FILE)
    metadata = dict(pq.read_metadata(victim).metadata)
    segment, size, *_ = json.loads(metadata[b"exhume.overview"])
    index = json.dumps([segment, size, first, cores, seconds]).encode()
    rows = pq.read_table(victim)
    checksum = zlib.crc32(rows.column("busy").to_numpy().tobytes(), zlib.crc32(index))
    metadata |= {b"exhume.overview": index, b"exhume.crc32.busy": b"%d" % checksum}
    pq.write_table(rows.replace_schema_metadata(metadata), victim)
    assert read_overview(victim.parent, Recording.open(recorded).segments[0].name, "busy") is None
    look_at_everything(recorded)


def test_a_file_is_not_blamed_for_the_memory_that_others_took(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(reader, "_sealed", exhausted)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (used + (64 << 20), before[1]))
        with pytest.raises(MemoryError):
            Recording.open(recorded).read("cpu")
        resource.setrlimit(resource.RLIMIT_DATA, (used + (1 << 30), before[1]))
        recording = Recording.open(recorded)
        recording.read("cpu")
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert {skipped.path.name for skipped in recording.damaged} == {"cpu.parquet"}
