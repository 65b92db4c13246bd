"""Bundles come from anywhere: what is not one, is damaged or is made to do harm is refused in a sentence, and leaves
nothing behind."""

import os
import random
import signal
import struct
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path

import pytest
from tests.parts import quick
from tests.store.store_rows import WALL, cpu_rows, recorder, sample_rows, tick_at

from exhume.model.clock import NANOS, Window
from exhume.model.errors import ExhumeError, RecordingError
from exhume.model.tables import TABLES
from exhume.store.read import bundle
from exhume.store.read.bundle import MOST_UNPACKED, unpack
from exhume.store.read.recording import Recording
from exhume.store.write.bundle import write_bundle

SEGMENT = "20260714T120000250Z_1f0c5a9e_86400250_59750"
FRAMES = {"frame": [1, 2, 3], "kind": ["kernel"] * 3, "module": ["[kernel]"] * 3, "name": ["a", "b", "c"]}


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where bundles are unpacked in these tests."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Two minutes, the first of them sealed; the seventh stack is of the second minute alone."""
    writer = recorder(tmp_path / "recording")
    for index in range(100):
        tick = tick_at(index)
        if index in (0, 60):
            writer.append("frames", FRAMES)
            writer.append("stacks", {"stack": [6, 7], "frames": [[1, 2], [1, 3]]})
            writer.append(
                "processes", {"time": [tick.start], "pid": [11], "comm": ["kubelet"], "cmdline": ["kubelet -v"]}
            )
        writer.append("cpu", cpu_rows(tick, system=index))
        writer.append("samples", sample_rows(tick, [(0, 11, "kubelet", 6 if index < 60 else 7)] * 3))
        writer.commit(tick)
    writer.close()
    return Recording.open(tmp_path / "recording")


def window(since: int, until: int) -> Window:
    return Window(WALL + since * NANOS, WALL + until * NANOS)


@pytest.fixture
def file(recording: Recording, tmp_path: Path) -> Path:
    path = tmp_path / "incident.exhume.zip"
    write_bundle(path, recording, window(50, 70), {"README.txt": b"text"})
    return path


def comparable(rows) -> list:
    return sorted(map(repr, rows.to_pylist()))


def test_a_bundle_has_the_rows_of_its_window_and_no_others(recording, file):
    packed = Recording.open(file)
    assert packed.source == file and packed.facts == recording.facts
    whole = window(0, 200)
    for table in TABLES:
        expected = recording.read(table, window(50, 70))
        assert comparable(packed.read(table, whole)) == comparable(expected), table
    assert packed.span().until <= WALL + 71 * NANOS
    assert packed.profile(whole).samples == recording.profile(window(50, 70)).samples == 60
    assert not packed.profile(whole).blind_spots and not packed.damaged
    grid, before = packed.cores(window(50, 70), 20), recording.cores(window(50, 70), 20)
    assert grid.values.tolist() == before.values.tolist()
    packed.close()


def test_stacks_that_nothing_mentions_are_left_out(recording, tmp_path):
    path = tmp_path / "first.zip"
    write_bundle(path, recording, window(10, 20), {})
    packed = Recording.open(path)
    assert packed.read("stacks").column("stack").to_pylist() == [6]
    assert sorted(packed.read("frames").column("frame").to_pylist()) == [1, 2]
    packed.close()


def test_the_same_bundle_has_the_same_bytes_and_is_private(recording, file, tmp_path):
    again = tmp_path / "again.zip"
    write_bundle(again, recording, window(50, 70), {"README.txt": b"text"})
    assert again.read_bytes() == file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_nothing_recorded_is_no_bundle(recording, tmp_path):
    with pytest.raises(RecordingError):
        write_bundle(tmp_path / "none.zip", recording, window(500, 600), {})
    assert not (tmp_path / "none.zip").exists()


def test_it_is_gone_when_it_is_closed(file, scratch):
    unpacked = unpack(file)
    assert unpacked.directory.is_dir() and scratch in unpacked.directory.parents
    assert unpacked.directory.parent.stat().st_mode & 0o077 == 0
    unpacked.close()
    assert list(scratch.iterdir()) == []


def test_it_is_gone_when_its_process_is_killed(file, scratch):
    code = (
        f"import sys, tempfile; tempfile.tempdir = {str(scratch)!r}\n"
        "from exhume.store.read.recording import Recording\n"
        f"print(Recording.open({str(file)!r}).span(), flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline().startswith(b"Window")
    assert list(scratch.iterdir())
    process.send_signal(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 20
    while list(scratch.iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    assert list(scratch.iterdir()) == []


def archive(path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes], **options) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(path, "w", **options) as made:
            for name, content in entries:
                made.writestr(name, content)
    return path


def entry(table: str = "cpu") -> str:
    return f"recording/{SEGMENT}/{table}.parquet"


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(entry())
    info.external_attr = 0o120777 << 16
    return info


@pytest.mark.parametrize(
    "name",
    [
        "recording/../../outside/cpu.parquet",
        f"/recording/{SEGMENT}/cpu.parquet",
        f"recording/{SEGMENT}/../cpu.parquet",
        f"recording/{SEGMENT}/../../../cpu.parquet",
        f"recording/{SEGMENT}/nested/cpu.parquet",
        f"recording\\{SEGMENT}\\cpu.parquet",
        f"recording/{SEGMENT}/passwd",
        f"recording/{SEGMENT}/cpu.parquet.exe",
        f"recording/{SEGMENT}/cpu.arrows",
        "recording/live/cpu.parquet",
        f"recording/x{SEGMENT}/cpu.parquet",
        "recorder.lock",
    ],
)
def test_entries_that_are_no_tables_are_not_unpacked(tmp_path, scratch, name):
    path = archive(tmp_path / "crafted.zip", (name, b"x"))
    with pytest.raises(RecordingError, match="no recording is in it"):
        unpack(path)
    assert list(scratch.iterdir()) == []
    # Next to a table they are left out.
    unpacked = unpack(archive(path, (name, b"x"), (entry(), b"PAR1")))
    found = [each.relative_to(scratch / unpacked.directory.parent) for each in unpacked.directory.rglob("*")]
    assert sorted(map(str, found)) == [f"recording/{SEGMENT}", f"recording/{SEGMENT}/cpu.parquet"]
    unpacked.close()


def test_a_link_is_unpacked_as_a_file(tmp_path):
    unpacked = unpack(archive(tmp_path / "link.zip", (link(), b"/etc/passwd")))
    found = unpacked.directory / SEGMENT / "cpu.parquet"
    assert not found.is_symlink() and found.read_bytes() == b"/etc/passwd"
    unpacked.close()


def patched(path: Path, mark: bytes, offset: int, value: bytes) -> Path:
    """The file with bytes replaced after every header of a kind."""
    content = bytearray(path.read_bytes())
    at = content.find(mark)
    while at >= 0:
        content[at + offset : at + offset + len(value)] = value
        at = content.find(mark, at + 4)
    path.write_bytes(content)
    return path


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def test_a_bomb_is_refused_before_anything_is_unpacked(tmp_path, scratch):
    path = tmp_path / "bomb.zip"
    zeros = archive(path, (entry(), bytes(1 << 20)), compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 5000
    patched(zeros, CENTRAL, 24, struct.pack("<L", MOST_UNPACKED + 1))
    with pytest.raises(RecordingError, match="GiB"):
        unpack(path)
    assert list(scratch.iterdir()) == []


def test_many_small_bombs_are_one(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "MOST_UNPACKED", 3 << 20)
    entries = [(entry(table), bytes(1 << 20)) for table in ("cpu", "samples", "events", "node")]
    path = archive(tmp_path / "bombs.zip", *entries, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(RecordingError):
        unpack(path)


@pytest.mark.parametrize("says", [10, 2 << 20])
def test_an_entry_of_another_length_than_it_says(tmp_path, scratch, says):
    path = archive(tmp_path / "liar.zip", (entry(), bytes(1 << 20)), compression=zipfile.ZIP_DEFLATED)
    for mark, offset in ((LOCAL, 22), (CENTRAL, 24)):
        patched(path, mark, offset, struct.pack("<L", says))
    with pytest.raises(RecordingError):
        unpack(path)
    assert list(scratch.iterdir()) == []


def test_too_little_room_is_said(file, monkeypatch, scratch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: os.terminal_size((0, 0)) and type("U", (), {"free": 10})())
    with pytest.raises(RecordingError, match="TMPDIR"):
        unpack(file)
    assert list(scratch.iterdir()) == []


def refused(path: Path, scratch: Path) -> None:
    with pytest.raises(RecordingError) as raised:
        unpack(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)
    assert list(scratch.iterdir()) == []


def test_what_is_no_bundle(tmp_path, scratch, file):
    other = tmp_path / "other"
    for content in (b"", b"PK", b"not a zip at all" * 10, b"\0" * 100):
        other.write_bytes(content)
        refused(other, scratch)
    refused(archive(other, (entry(), b"1"), (entry(), b"2")), scratch)
    refused(patched(archive(other, (entry(), b"1")), CENTRAL, 8, b"\x01"), scratch)
    refused(patched(archive(other, (entry(), b"1")), CENTRAL, 10, struct.pack("<H", 12)), scratch)
    with zipfile.ZipFile(other, "w") as made:
        made.comment = b"hides what follows"
        made.writestr(entry(), b"1")
    refused(other, scratch)
    refused(patched(archive(other, (entry(), b"1")), b"PK\x05\x06", 12, struct.pack("<L", 1 << 30)), scratch)
    content = file.read_bytes()
    other.write_bytes(content[:-22] + b"PK\x06\x07" + bytes(16) + content[-22:])
    refused(other, scratch)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    refused(fifo, scratch)
    with pytest.raises(RecordingError):
        Recording.open(other)


def test_too_many_entries(tmp_path, scratch, monkeypatch):
    monkeypatch.setattr(bundle, "MOST_ENTRIES", 3)
    refused(archive(tmp_path / "many.zip", *((f"{n}.txt", b"") for n in range(4))), scratch)


def test_damaged_bundles_are_refused_or_read_and_never_more(file, tmp_path, scratch):
    """Flipped, cut and overwritten bytes: a sentence, or a recording whose own readers find the damage."""
    content, damaged = file.read_bytes(), tmp_path / "damaged.zip"
    chance = random.Random(16)
    outcomes = set()
    for _ in range(20 if quick() else 60):
        changed = bytearray(content)
        match chance.randrange(3):
            case 0:
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            case 1:
                del changed[chance.randrange(len(changed)) :]
            case 2:
                at = chance.randrange(len(changed) - 4)
                changed[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"PK\x01\x02"))
        damaged.write_bytes(changed)
        try:
            opened = Recording.open(damaged)
        except ExhumeError:
            outcomes.add("refused")
        else:
            opened.read("cpu")
            opened.close()
            outcomes.add("read")
        assert list(scratch.iterdir()) == []
    assert "refused" in outcomes
