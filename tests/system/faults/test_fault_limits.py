"""Limits of resources, thousands of threads, and names that bite: the recorder goes on, says what it lost, and stores
nothing but text."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.parts import missing
from tests.system.faults.recorder_process import PATIENCE_S, RecorderProcess, clean_words, losses, rows, until

from exhume.lab.hierarchies import find_memory_hierarchy
from exhume.procfs.host import Host
from exhume.store.read.recording import Recording

pytestmark = pytest.mark.root

Start = Callable[..., RecorderProcess]


@pytest.mark.needs("prlimit")
@pytest.mark.parametrize("limit", ["--as=734003200", "--memlock=0"])
def test_with_little_address_space_or_locked_memory_all_is_recorded(tmp_path: Path, start: Start, limit: str) -> None:
    directory = tmp_path / "recording"
    usual = start(tmp_path / "usual").ticks(1)
    assert usual.stop() == 0
    recorder = start(directory, under=["prlimit", limit]).ticks(3)
    assert recorder.stop() == 0
    clean_words(recorder)
    assert recorder.missing == usual.missing
    assert Recording.open(directory).read("samples").num_rows
    assert not losses(directory).keys() & {"source-failed", "lost-samples", "lost-stacks"}


@pytest.mark.needs("prlimit")
def test_files_that_may_not_grow_cost_rows_that_are_counted(tmp_path: Path, start: Start) -> None:
    """As on a disk that is full: the kernel writes no more than the limit of a file."""
    directory = tmp_path / "recording"
    recorder = start(directory, under=["prlimit", "--fsize=40000"])
    until("rows are dropped", lambda: recorder.ended or "disk was full" in recorder.out + recorder.err, every=0.2)
    assert recorder.stop() == 0, recorder.err
    clean_words(recorder)
    assert rows(directory, "cpu", "cpu")
    assert losses(directory).get("disk-full", 0) > 0


THREADS = 10_000
MOST_MEMORY_MB = 150
MANY_THREADS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *rest(void *unused) { for (;;) sleep(1); }
int main(int argc, char **argv) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (int i = 0; i < atoi(argv[1]); i++) {
        pthread_t made;
        if (pthread_create(&made, &small, rest, NULL)) { printf("%d\n", i); return 1; }
    }
    printf("all\n");
    fflush(stdout);
    for (;;) pause();
}
"""


@pytest.fixture
def many_threads(tmp_path: Path, load: Callable[..., subprocess.Popen[str]]) -> Callable[[], None]:
    program, source = tmp_path / "many_threads", tmp_path / "many_threads.c"
    source.write_text(MANY_THREADS)
    subprocess.run(["gcc", "-O1", "-pthread", "-o", str(program), str(source)], check=True)

    def run() -> None:
        running = load(program, str(THREADS))
        assert running.stdout is not None
        if running.stdout.readline() != "all\n":
            missing(f"room for {THREADS:,} threads")

    return run


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.needs("gcc")
def test_ten_thousand_threads_cost_no_row(tmp_path: Path, start: Start, many_threads: Callable[[], None]) -> None:
    """Each wakes up once a second."""
    directory = tmp_path / "recording"
    recorder = start(directory).ticks(1)
    many_threads()
    recorder.ticks(8)
    assert recorder.stop() == 0
    clean_words(recorder)
    lost = losses(directory)
    assert not lost.keys() & {"source-failed", "lost-samples", "lost-tasks", "lost-stacks"}, lost
    assert Recording.open(directory).self_cost().rss_kb_max < MOST_MEMORY_MB * 1024
    ticks = rows(directory, "self", "tick_us")
    print(f"longest tick {max(row['tick_us'] for row in ticks) / 1000:.0f} ms, lost {lost}")
    assert max(row["tick_us"] for row in ticks) < 1_000_000


DEPTH = 60
NAMES = ("<script>alert(1)<!--", "\x1b[2Jred", "quo\"te'`$(reboot)", os.fsdecode(b"\xff\xfe\x80"), "a b\tc")
# Gives itself a name of bytes that are no text, and computes.
SPIN = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]) + b"\\0", 0, 0, 0)
while True:
    pass
"""
THREAD_NAME = b"\xff<\x1b[2J\n\"'&"


@pytest.fixture
def deep() -> Iterator[Path]:
    """A cgroup that is nested as deep as nobody needs it, each with a name that bites."""
    made: list[Path] = []
    at = find_memory_hierarchy(Host()).root / f"exhume-names-{os.getpid()}"
    try:
        for level in range(DEPTH):
            at.mkdir()
            made.append(at)
            at = at / f"{NAMES[level % len(NAMES)]}{level}"
        yield made[-1]
    finally:
        for each in reversed(made):
            with suppress(FileNotFoundError):
                until("its processes are gone", lambda each=each: not (each / "cgroup.procs").read_text())  # type: ignore[misc]
                each.rmdir()


def test_names_that_bite_and_cgroups_sixty_levels_deep_are_text(
    tmp_path: Path, start: Start, deep: Path, load: Callable[..., subprocess.Popen[str]]
) -> None:
    directory = tmp_path / "recording"
    spin = load(sys.executable, "-I", "-c", SPIN, THREAD_NAME.hex())
    (deep / "cgroup.procs").write_text(str(spin.pid))
    recorder = start(directory).ticks(3)
    spin.kill()
    spin.wait(PATIENCE_S)
    assert recorder.stop() == 0
    clean_words(recorder)
    assert not losses(directory).keys() & {"source-failed", "lost-samples"}
    recording = Recording.open(directory)
    own = [row for row in recording.read("processes").to_pylist() if row["pid"] == spin.pid]
    names = {row["comm"] for row in recording.read("samples").to_pylist() if row["pid"] == spin.pid}
    assert names
    assert any("alert(1)" in (row["cgroup"] or "") and f"{DEPTH - 2}" in row["cgroup"] for row in own), own
    for text in (*names, *(value for row in own for value in row.values() if isinstance(value, str))):
        text.encode()
    assert any("<" in name and "'&" in name for name in names)
    for command in ("flame", "diagnose", "info"):
        # Nothing that a terminal would obey.
        said = recorder_says(command, directory)
        assert "\x1b" not in said and "Traceback" not in said


def recorder_says(command: str, directory: Path) -> str:
    options = ["--format", "folded", "-o", "-"] if command == "flame" else []
    done = subprocess.run(
        [sys.executable, "-m", "exhume.cli.main", command, "--dir", str(directory), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.stdout + done.stderr
