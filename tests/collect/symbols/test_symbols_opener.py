"""The opener process: what it holds, what it hands over, and what becomes of it when a file system blocks it."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.collect.symbols.symbol_programs import SOURCE, Compile, mapped

from exhume.collect.symbols import file_reader, parse_queue
from exhume.collect.symbols.file_reader import FileReader
from exhume.collect.symbols.opener_process import OpenerProcess
from exhume.collect.symbols.owners import Owner, RefusalLog
from exhume.collect.symbols.parse_queue import ParseQueue
from exhume.collect.symbols.parser.open_file import FAILED, TIMEOUT, FileRefused, identity_of
from exhume.procfs.host import Host

OWNER = Owner(1000, "/")
PERF_MAP = {"kind": "perf-map", "offset": 0, "size": 4096}


@pytest.fixture
def reader() -> Iterator[FileReader]:
    made = FileReader(RefusalLog(), 60.0)
    yield made
    made.close()


def open_files(pid: int) -> list[str]:
    names = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # the list itself, where it is our own
            names.append(str(each.readlink()))
    return names


def held_below(reader: FileReader, directory: Path) -> int:
    """How many files below a directory the opener and the parser have open."""
    processes = [each for each in (reader.opener, reader.parser) if each is not None]
    return sum(name.startswith(str(directory)) for each in processes for name in open_files(each.pid))


@pytest.mark.root
def test_files_are_held_until_they_are_read_or_the_job_is_over(reader: FileReader, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one", "two")]
    for path in paths:
        path.write_text("1000 10 name\n")
    one, two, none = reader.open_regular([("", str(path)) for path in (*paths, tmp_path / "missing")])
    assert one is not None and two is not None and none is None
    assert (one.identity, one.uid, one.path) == (identity_of(paths[0].stat()), os.getuid(), str(paths[0]))
    assert held_below(reader, tmp_path) == 2
    # This process has none of them open: what closes them may block.
    assert not any(name.startswith(str(tmp_path)) for name in open_files(os.getpid()))
    reader.ask(PERF_MAP, [one], keep=True)
    assert held_below(reader, tmp_path) == 2
    reader.ask(PERF_MAP, [one])
    assert held_below(reader, tmp_path) == 1
    reader.release()
    assert held_below(reader, tmp_path) == 0


@pytest.mark.root
def test_a_refused_file_is_closed_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("nothing")
    queue = ParseQueue()

    def job(reader: FileReader) -> int:
        reader.open_regular([("", str(tmp_path / "file"))])
        readers.append(reader)
        raise FileRefused(FAILED)

    readers: list[FileReader] = []
    results: list[object] = []
    try:
        queue.submit(OWNER, "device", job, results.append)
        queue.wait(60.0)
        assert isinstance(results[0], FileRefused)
        assert held_below(readers[0], tmp_path) == 0
    finally:
        queue.close()


@pytest.mark.needs("gcc")
def test_the_mapped_file_and_no_other_is_opened(reader: FileReader, compile_c: Compile) -> None:
    program = compile_c(SOURCE)
    views = mapped(program)
    found = reader.open_mapped(Host(), views)
    assert found is not None and found.identity == identity_of(program.stat())
    program.rename(program.with_suffix(".old"))
    program.write_bytes(b"another")
    assert reader.open_mapped(Host(), views) is None
    assert reader.identities([str(program), "/missing"]) == [identity_of(program.stat()), None]


def blocking(monkeypatch: pytest.MonkeyPatch) -> Callable[[FileReader], object]:
    """A job during which the opener stops, as on a file system that blocks it; after that it seems never to end."""
    monkeypatch.setattr(file_reader, "START_S", 20.0)
    monkeypatch.setattr(OpenerProcess, "has_ended", lambda self, seconds=0.0: False)

    def job(reader: FileReader) -> object:
        reader.identities(["/"])
        assert reader.opener is not None
        os.kill(reader.opener.pid, signal.SIGSTOP)
        return reader.identities(["/"])

    return job


def result_of(queue: ParseQueue, owner: Owner, device: object, job: Callable[[FileReader], object]) -> object:
    results: list[object] = []
    queue.submit(owner, device, job, results.append)
    queue.wait(60.0)
    (result,) = results
    return result.code if isinstance(result, FileRefused) else result


def test_an_owner_blocks_no_more_processes_than_its_share_and_no_one_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "_RESTART_FIRST_S", 0.0)
    monkeypatch.setattr(parse_queue, "_MAX_BLOCKED_BY_OWNER", 1)
    job = blocking(monkeypatch)
    queue = ParseQueue(deadline_s=0.5)
    asked: list[str] = []

    def looks(reader: FileReader) -> object:
        asked.append("asked")
        return reader.identities(["/"])[0]

    try:
        assert result_of(queue, OWNER, 1, job) == TIMEOUT
        assert result_of(queue, OWNER, 2, looks) == TIMEOUT and not asked, "it has its share of blocked processes"
        other = OWNER._replace(uid=1001)
        assert result_of(queue, other, 1, looks) == TIMEOUT and not asked, "the device is left alone"
        assert result_of(queue, other, 2, looks) == identity_of(Path("/").stat())
    finally:
        queue.close()


def test_what_stays_blocked_is_named_at_the_end_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = ParseQueue(deadline_s=0.3)
    job = blocking(monkeypatch)
    assert result_of(queue, OWNER, 1, job) == TIMEOUT
    began = time.monotonic()
    queue.close()
    assert time.monotonic() - began < 5.0
    (record,) = caplog.records
    assert str(OWNER) in record.getMessage()


def test_files_are_read_for_a_fifth_of_the_time_but_at_the_start_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_queue, "_STARTING_S", 0.0)
    queue = ParseQueue()
    done: list[float] = []

    def busy(_: FileReader) -> float:
        began = time.thread_time()
        while time.thread_time() - began < 0.05:
            pass
        return time.monotonic()

    for _ in range(4):
        queue.submit(OWNER, 1, busy, done.append)
    deadline = time.monotonic() + 30
    while len(done) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        queue.poll()
    assert done[-1] - done[0] > 3 * 0.05 * (1 + parse_queue._PAUSE)
    monkeypatch.setattr(parse_queue, "_LONGEST_PAUSE_S", 30.0)
    monkeypatch.setattr(parse_queue, "_PAUSE", 1000.0)
    for _ in range(2):
        queue.submit(OWNER, 1, busy, done.append)
    queue.wait(20.0)
    assert len(done) == 6, "who waits for it waits for no pause"
    queue.close()
