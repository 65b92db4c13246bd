"""Perf maps: names of compiled code, read as they grow and never believed too much."""

import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.symbols.settled import jit_frames, user_frames
from tests.parts import need

from exhume.collect.symbols import file_reader
from exhume.collect.symbols.frame import Frame
from exhume.collect.symbols.mappings import AddressSpace
from exhume.collect.symbols.opener_process import OpenerProcess
from exhume.collect.symbols.owners import RefusalLog
from exhume.collect.symbols.parse_queue import ParseQueue
from exhume.collect.symbols.parser.open_file import OpenFile
from exhume.collect.symbols.parser.perf_map import CodeRanges, MapPiece, read_perf_map
from exhume.collect.symbols.perf_map import JitSymbols
from exhume.collect.symbols.symbolizer import Symbolizer
from exhume.procfs.host import Host

PID = 4242
# A part of what CPython 3.12.1 wrote with -X perf.
RECORDED = Path(__file__).parent / "cpython-3.12-perf.map"
INNER = 7


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def ticks_since_boot() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """A fake process in a container; what is returned is its perf map."""
    home = tmp_path / str(PID)
    (home / "root/tmp").mkdir(parents=True)
    (home / "status").write_text(f"Name:\tnode\nUid:\t{os.geteuid()}\t{os.geteuid()}\t0\t0\nNSpid:\t{PID}\t{INNER}\n")
    (home / "stat").write_text(f"{PID} (no de) S " + " ".join(["0"] * 18) + f" {ticks_since_boot()} 0 0\n")
    return home / f"root/tmp/perf-{INNER}.map"


def names(symbols: JitSymbols, *addresses: int) -> list[str | None]:
    return [frame and frame.name for frame in jit_frames(symbols, AddressSpace(PID), list(addresses))]


def test_a_container_process_is_named_by_the_map_of_its_inner_pid(process: Path) -> None:
    process.write_text("1000 100 LazyCompile:~spin /app/spin.js:1\n2000 10 py::f:<string>\n")
    symbols = JitSymbols(Host(proc=process.parents[3]))
    assert names(symbols, 0x1000, 0x10FF, 0x1100, 0x2008) == [
        "LazyCompile:~spin /app/spin.js:1",
        "LazyCompile:~spin /app/spin.js:1",
        None,
        "py::f:<string>",
    ]
    frame = jit_frames(symbols, AddressSpace(PID), [0x1000])[0]
    assert frame is not None
    assert (frame.kind, frame.module) == ("jit", "perf-map")


def test_a_map_that_grows_is_read_on_and_half_a_line_waits(process: Path) -> None:
    clock = Clock()
    symbols = JitSymbols(Host(proc=process.parents[3]), clock=clock)
    process.write_text("1000 100 first\n2000 100 sec")
    assert names(symbols, 0x1000, 0x2000) == ["first", None]
    with process.open("a") as file:
        file.write("ond\n3000 100 third\n")
    assert names(symbols, 0x2000) == [None]  # not yet: once a second is enough
    clock.now += 1
    assert names(symbols, 0x1000, 0x2000, 0x3000) == ["first", "second", "third"]


def test_a_rewritten_map_is_read_again(process: Path) -> None:
    clock = Clock()
    symbols = JitSymbols(Host(proc=process.parents[3]), clock=clock)
    process.write_text("1000 100 old_function_name\n")
    assert names(symbols, 0x1000) == ["old_function_name"]
    process.write_text("2000 100 new\n")
    clock.now += 1
    assert names(symbols, 0x1000, 0x2000) == [None, "new"]


def test_a_map_left_behind_by_an_earlier_process_is_not_believed(process: Path) -> None:
    process.write_text("1000 100 stale\n")
    os.utime(process, (time.time() - 60, time.time() - 60))
    assert names(JitSymbols(Host(proc=process.parents[3])), 0x1000) == [None]


@pytest.mark.root
def test_a_map_that_belongs_to_another_user_is_not_believed(process: Path) -> None:
    process.write_text("1000 100 planted\n")
    os.chown(process, 12345, 12345)
    assert names(JitSymbols(Host(proc=process.parents[3])), 0x1000) == [None]


def test_a_pipe_or_a_link_in_place_of_the_map_does_no_harm(process: Path) -> None:
    os.mkfifo(process)
    assert names(JitSymbols(Host(proc=process.parents[3])), 0x1000) == [None]
    process.unlink()
    (process.parent / "elsewhere").write_text("1000 100 linked\n")
    process.symlink_to("elsewhere")
    assert names(JitSymbols(Host(proc=process.parents[3])), 0x1000) == [None]


def test_rubbish_lines_are_passed_over_and_names_are_made_safe(process: Path) -> None:
    process.write_bytes(
        b"zz 10 bad\n\n1000\n-5 3 negative\n1000 0 empty\n2000 10 esc\x1b[31m\xff\n3000 10 " + b"x" * 9999
    )
    process.write_bytes(process.read_bytes() + b"\n")
    found = names(JitSymbols(Host(proc=process.parents[3])), 0x1000, 0x2000, 0x3000)
    assert found == [None, "esc\ufffd[31m\ufffd", "x" * 512]


def test_a_huge_map_is_read_a_piece_a_second_and_held_within_its_budget(process: Path) -> None:
    with process.open("w") as file:
        for i in range(100_000):
            file.write(f"{0x10000 + i * 32:x} 20 function_with_a_rather_long_name_{i}\n")
    clock = Clock()
    symbols = JitSymbols(Host(proc=process.parents[3]), budget=1 << 20, clock=clock)
    for _ in range(20):
        names(symbols, 0x10000)
        clock.now += 1
    assert names(symbols, 0x10000) == ["function_with_a_rather_long_name_0"]
    assert symbols.nbytes <= 2 << 20


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), max_size=30))
def test_the_function_written_last_owns_its_addresses(entries: list[tuple[int, int]]) -> None:
    """Whatever was overwritten is never named again; the newest entry always is."""
    code = CodeRanges()
    for i in range(0, len(entries), 7):
        lines = b"".join(b"%x %x f%d\n" % (s, n, i + k) for k, (s, n) in enumerate(entries[i : i + 7]))
        file = OpenFile(os.memfd_create("map"), (0, 0, 0, 0))
        with file:
            os.write(file.fd, lines)
            code.add(MapPiece(read_perf_map(file, 0, len(lines)), len(lines)))
    owner = dict.fromkeys(range(100), -1)
    for number, (start, size) in enumerate(entries):
        for address in range(start, start + size):
            owner[address] = number
    found = code.find(np.arange(100, dtype=np.uint64)).tolist()
    for address, index in enumerate(found):
        if index >= 0:
            assert code.name(index) == b"f%d" % owner[address]
    if entries:
        start, size = entries[-1]
        assert all(found[address] >= 0 for address in range(start, start + size))


# A process that has code where a recorded one had it.
STAND_IN = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.mmap.argtypes, libc.mmap.restype = [ctypes.c_size_t] * 6, ctypes.c_size_t
start, size = int(sys.argv[1]), int(sys.argv[2])
EXECUTABLE, FIXED_AND_NOWHERE_ELSE = 5, 0x100022
assert libc.mmap(start, size, EXECUTABLE, FIXED_AND_NOWHERE_ELSE, 2**64 - 1, 0) == start
print("go", flush=True)
input()
"""


def recorded_code() -> tuple[int, int]:
    """Where the recorded functions were, in whole pages."""
    ranges = [line.split()[:2] for line in RECORDED.read_text().splitlines()]
    start = min(int(at, 16) for at, _ in ranges) // mmap.PAGESIZE * mmap.PAGESIZE
    end = max(int(at, 16) + int(size, 16) for at, size in ranges)
    return start, -(-(end - start) // mmap.PAGESIZE) * mmap.PAGESIZE


def pythons_with_perf_support() -> list[str]:
    """Those that are here, besides the recorded one, which stands for the rest."""
    found = []
    for candidate in dict.fromkeys((sys.executable, *map(shutil.which, ("python3.14", "python3.13", "python3.12")))):
        if candidate is None:
            continue
        check = "import sys; sys.activate_stack_trampoline('perf')"
        with subprocess.Popen([candidate, "-c", check], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as trial:
            works = trial.wait() == 0
        Path(f"/tmp/perf-{trial.pid}.map").unlink(missing_ok=True)
        if works:
            found.append(candidate)
    return found


@pytest.mark.parametrize("python", ["recorded", *pythons_with_perf_support()])
def test_a_python_with_perf_trampolines_is_named(python: str) -> None:
    code = "def grind_the_gears():\n  print('go', flush=True)\n  input()\ngrind_the_gears()"
    command = [python, "-X", "perf", "-c", code]
    if python == "recorded":
        command = [sys.executable, "-c", STAND_IN, *map(str, recorded_code())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        perf_map = Path(f"/tmp/perf-{process.pid}.map")
        try:
            assert process.stdout is not None and process.stdout.readline() == "go\n"
            if python == "recorded":
                perf_map.write_bytes(RECORDED.read_bytes())
            lines = [line for line in perf_map.read_text().splitlines() if re.search("<frozen|<string>", line)]
            assert any("grind_the_gears" in line for line in lines)
            assert_named(process.pid, lines)
        finally:
            process.kill()
            perf_map.unlink(missing_ok=True)


def assert_named(pid: int, lines: list[str]) -> None:
    """The middle of every function has its name."""
    entries = [line.split(None, 2) for line in lines]
    space = AddressSpace.from_proc(Host(), pid)
    assert space is not None
    middles = np.array([int(start, 16) + int(size, 16) // 2 for start, size, _ in entries], np.uint64)
    frames: list[Frame] = user_frames(Symbolizer(Host()), space, middles)
    expected = [("jit", "perf-map", name) for _, _, name in entries]
    assert [(frame.kind, frame.module, frame.name) for frame in frames] == expected


@pytest.mark.needs("node")
def test_a_real_node_with_perf_maps_is_named(tmp_path: Path) -> None:
    code = """
    function grindTheGears(n) { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s; }
    for (let i = 0; i < 2000; i++) grindTheGears(2000);
    console.log("go"); setTimeout(() => {}, 600000);
    """
    # It leaves a log in its working directory.
    # And compiles when it is due, not when a thread of its own gets to it.
    command = [need("node"), "--perf-basic-prof", "--no-concurrent-recompilation", "-e", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        perf_map = Path(f"/tmp/perf-{process.pid}.map")
        try:
            assert process.stdout is not None and process.stdout.readline() == "go\n"
            space = AddressSpace.from_proc(Host(), process.pid)
            assert space is not None
            lines = [line.split(None, 2) for line in perf_map.read_text().splitlines() if "grindTheGears" in line]
            start, size, name = next(line for line in reversed(lines) if space.find(int(line[0], 16)) is not None)
            address = int(start, 16) + int(size, 16) // 2
            symbolizer = Symbolizer(Host())
            deadline = time.monotonic() + 60
            frame = user_frames(symbolizer, space, np.array([address], np.uint64))[0]
            while frame.kind != "jit" and time.monotonic() < deadline:  # a long map is read a piece a second
                time.sleep(0.5)
                frame = user_frames(symbolizer, space, np.array([address], np.uint64))[0]
            assert (frame.kind, frame.name) == ("jit", name)
        finally:
            process.kill()
            perf_map.unlink(missing_ok=True)


def another_process(proc: Path, pid: int, uid: int) -> Path:
    """Another fake process; what is returned is its perf map."""
    home = proc / str(pid)
    (home / "root/tmp").mkdir(parents=True)
    (home / "status").write_text(f"Name:\tnode\nUid:\t{uid}\t{uid}\t0\t0\nNSpid:\t{pid}\n")
    (home / "stat").write_text(f"{pid} (node) S " + " ".join(["0"] * 18) + f" {ticks_since_boot()} 0 0\n")
    return home / f"root/tmp/perf-{pid}.map"


@pytest.mark.root
def test_sparse_maps_of_one_user_do_not_keep_the_map_of_another_from_being_read(process: Path) -> None:
    proc = process.parents[3]
    with process.open("w") as file:
        for i in range(6000):
            file.write(f"{0x10000 + i * 32:x} 20 function_with_a_rather_long_name_{i}\n")
    sparse = [another_process(proc, pid, 12345) for pid in (5001, 5002, 5003)]
    for path in sparse:
        path.write_bytes(b"")
        os.truncate(path, 10 << 30)
        os.chown(path, 12345, 12345)
    clock, log = Clock(), RefusalLog()
    symbols = JitSymbols(Host(proc=proc), clock=clock, refusals=log)
    refused = []
    for _ in range(4):
        for pid in (5001, 5002, 5003):
            jit_frames(symbols, AddressSpace(pid), [0x10000])
        last = names(symbols, 0x10000 + 5999 * 32)
        refused.extend(log.take())
        clock.now += 1
    assert last == ["function_with_a_rather_long_name_5999"]
    # Each was read once, found to be no map, and left alone.
    malformed = [row for row in refused if row.kind == "symbols-malformed"]
    assert len(malformed) == 3
    assert all("uid 12345" in row.text for row in refused)
    assert all(any(str(path) in row.text and "uid 12345" in row.text for row in refused) for path in sparse)


def test_one_process_does_not_take_all_that_is_read_in_a_second(process: Path) -> None:
    proc = process.parents[3]
    large = another_process(proc, 5001, os.geteuid())
    large.write_text("1000 100 a_name_of_a_function\n" * 100_000)
    process.write_text("1000 100 small\n")
    symbols = JitSymbols(Host(proc=proc), clock=Clock())
    jit_frames(symbols, AddressSpace(5001), [0x1000])
    assert names(symbols, 0x1000) == ["small"]


def test_a_map_on_a_filesystem_that_does_not_answer_does_not_hold_up_the_caller(
    process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reader, "START_S", 0.5)
    opener = OpenerProcess.spawn()
    os.kill(opener.pid, signal.SIGSTOP)
    clock, log = Clock(), RefusalLog()
    queue = ParseQueue(log, deadline_s=0.05, opener=opener)
    symbols = JitSymbols(Host(proc=process.parents[3]), clock=clock, queue=queue, refusals=log)
    try:
        began = time.monotonic()
        assert names(symbols, 0x1000) == [None]
        deadline = time.monotonic() + 30
        while not (rows := log.take()) and time.monotonic() < deadline:
            time.sleep(0.01)
            symbols.queue.poll()
        assert time.monotonic() - began < 30
        (row,) = rows
        assert row.kind == "symbols-timeout" and str(process) in row.text
        clock.now += 30
        assert names(symbols, 0x1000) == [None]
        assert log.take() == []  # left alone for a while
    finally:
        queue.close()
