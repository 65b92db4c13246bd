"""Files and mappings of a program that were made to stall the recorder: it goes on, within its memory, and says so."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests import crafted_elf
from tests.parts import missing, need
from tests.system.faults.recorder_process import RecorderProcess, clean_words, losses, rows, seconds, until

from exhume.store.read.recording import Recording

pytestmark = pytest.mark.root

Start = Callable[..., RecorderProcess]

MEMORY_BUDGET = 150_000_000
MEMORY_MARGIN = 40_000_000
UNPRIVILEGED = ("--reuid=65534", "--regid=65534", "--clear-groups")


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024


def longest_gap(directory: Path, since: int) -> float:
    """Seconds between two ticks, from a moment on."""
    times = [row["time"] for row in rows(directory, "anchors") if row["time"] >= since]
    return max(seconds(after - before) for before, after in pairwise(times))


def record_next_to(recorder: RecorderProcess, run: Callable[[], None]) -> int:
    """Record for ten seconds next to some programs; returns the most memory that was held."""
    recorder.ticks(2)
    run()
    time.sleep(10)
    peak = peak_bytes(recorder.pid)
    began = time.monotonic()
    recorder.send(signal.SIGTERM)
    assert recorder.wait(patience=5.0) == 0
    assert time.monotonic() - began < 5.0
    clean_words(recorder)
    return peak


@pytest.mark.alone
def test_crafted_programs_of_another_user_neither_stall_nor_swell_the_recorder(
    tmp_path: Path, start: Start, load, compiled: Callable[[str], Path], open_directory: Path
) -> None:
    programs = [crafted_elf.write(kind, compiled("spin"), open_directory / kind) for kind in crafted_elf.KINDS]
    recorder = start(tmp_path / "recording")

    def run() -> None:
        for program in programs:
            load(need("setpriv"), *UNPRIVILEGED, program, nice=10)

    assert record_next_to(recorder, run) < MEMORY_BUDGET + MEMORY_MARGIN
    assert longest_gap(recorder.directory, 0) <= 2.2
    texts = [loss.text for loss in Recording.open(recorder.directory).losses()]
    for program in programs:
        assert any(str(program) in text and "uid 65534" in text for text in texts), program
    assert "source-failed" not in losses(recorder.directory)


@pytest.mark.alone
def test_countless_mappings_of_a_long_path_do_not_swell_the_recorder(
    tmp_path: Path, start: Start, load, compiled: Callable[[str], Path], open_directory: Path
) -> None:
    program = shutil.copy(compiled("many_maps"), open_directory)
    recorder = start(tmp_path / "recording")
    recorder.recording()

    def run() -> None:
        shell = f"cd {open_directory}; exec {program}"
        process = load(need("setpriv"), *UNPRIVILEGED, "sh", "-c", shell)
        assert process.stdout.readline() == "ready\n"

    assert record_next_to(recorder, run) < MEMORY_BUDGET + MEMORY_MARGIN
    assert longest_gap(recorder.directory, 0) <= 2.2
    found = [loss.text for loss in Recording.open(recorder.directory).losses() if loss.kind == "lost-mappings"]
    assert any("many_maps" in text and "uid 65534" in text for text in found)


@pytest.fixture
def hung_mount(tmp_path: Path, compiled: Callable[[str], Path]) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A FUSE file system that holds the program `spin`; a line to its server makes it stop to answer."""
    if not Path("/dev/fuse").exists():
        missing("/dev/fuse")
    mountpoint = tmp_path / "fuse"
    mountpoint.mkdir()
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("fuse_server.py"), mountpoint, "spin", compiled("spin")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        if server.stdout.readline() != "ready\n":
            missing("FUSE mounts")
        try:
            yield mountpoint, server
        finally:
            # Whatever waits for an answer is told that there is none; then nothing keeps the mount.
            server.kill()
            subprocess.run(["umount", "-l", mountpoint], check=True)


@pytest.mark.alone
@pytest.mark.needs("gcc", "unshare")
def test_a_program_and_a_perf_map_on_a_mount_that_hangs_do_not_stall_the_recorder(
    tmp_path: Path,
    start: Start,
    load,
    compiled: Callable[[str], Path],
    hung_mount: tuple[Path, subprocess.Popen[str]],
) -> None:
    mountpoint, server = hung_mount
    spin = load(need("setpriv"), *UNPRIVILEGED, mountpoint / "spin", nice=10)
    # Its /tmp is the mount: looking for its perf map takes for ever. The program itself is elsewhere.
    drop = f"{need('setpriv')} {' '.join(UNPRIVILEGED)}"
    command = f"exec 3< {compiled('jit_spin')}; mount --bind {mountpoint} /tmp; exec {drop} /proc/self/fd/3"
    jit = load("unshare", "-m", "sh", "-c", command, nice=10)
    until("both spin", lambda: used_cpu(spin.pid) > 0.2 and used_cpu(jit.pid) > 0.2)
    assert server.stdin is not None
    server.stdin.write("\n")
    server.stdin.flush()
    recorder = start(tmp_path / "recording").ticks(12)
    recorder.send(signal.SIGTERM)
    # Threads that wait for an answer can't be ended, not by SIGKILL either (fs/fuse/dev.c, request_wait_answer: what
    # the server has read is waited out). Everything else is over, and the next recorder begins.
    until("the recording ends", lambda: "recorded " in recorder.out, patience=5.0)
    assert "does not answer" in recorder.err
    assert longest_gap(recorder.directory, 0) <= 2.2
    successor = start(recorder.directory, "--for", "1s").recording()
    server.kill()
    assert recorder.wait(patience=5.0) == 0
    assert successor.wait() == 0
    clean_words(recorder)

    recording = Recording.open(recorder.directory)
    found = [loss.text for loss in recording.losses() if loss.kind == "symbols-timeout"]
    for process, file in ((spin, str(mountpoint / "spin")), (jit, "perf-")):
        assert any(file in text and f"process {process.pid} of uid 65534" in text for text in found), found
    assert {spin.pid, jit.pid} <= set(recording.read("samples").column("pid").to_pylist())
    assert "source-failed" not in losses(recorder.directory)


def used_cpu(pid: int) -> float:
    """Seconds of CPU time that a program has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")
