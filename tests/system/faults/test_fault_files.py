"""Files and mappings of a program that were made to stall the recorder: it goes on, within its memory, and says so."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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


@contextmanager
def mounted(mountpoint: Path, program: Path, operation: str) -> Iterator[Callable[[], None]]:
    """A FUSE file system that holds the program `spin`; yields what makes it leave an operation unanswered."""
    if not Path("/dev/fuse").exists():
        missing("/dev/fuse")
    mountpoint.mkdir()
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("fuse_server.py"), mountpoint, "spin", program, operation],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        stdin = server.stdin
        if server.stdout.readline() != "ready\n":
            missing("FUSE mounts")

        def hang() -> None:
            stdin.write("\n")
            stdin.flush()

        try:
            yield hang
        finally:
            # Whatever waits for an answer gets an error; then nothing keeps the mount.
            server.kill()
            subprocess.run(["umount", "-l", mountpoint], check=True)


@pytest.mark.paced
@pytest.mark.slow
@pytest.mark.needs("gcc", "unshare", "taskset")
@pytest.mark.parametrize(
    "operations",
    [
        ("lookup", "release"),
        pytest.param(("lookup", "open", "read", "flush", "release"), marks=pytest.mark.long),
    ],
    ids=["some", "all"],
)
def test_mounts_that_hang_in_any_operation_neither_stall_the_recorder_nor_keep_it_from_ending(
    tmp_path: Path, start: Start, load, compiled: Callable[[str], Path], operations: tuple[str, ...]
) -> None:
    setpriv = need("setpriv")
    with ExitStack() as mounts:
        programs: list[tuple[int, int, str]] = []
        hangs: list[Callable[[], None]] = []
        # Each for a user of its own: a user has its share of processes that may be blocked.
        for user, operation in enumerate(operations, 65530):
            mountpoint = tmp_path / operation
            hangs.append(mounts.enter_context(mounted(mountpoint, compiled("spin"), operation)))
            drop = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
            spin = load(setpriv, *drop, mountpoint / "spin", core=0, nice=10)
            programs.append((spin.pid, user, str(mountpoint / "spin")))
        # Its /tmp is a mount: looking for its perf map takes for ever. The program itself is elsewhere.
        command = (
            f"exec 3< {compiled('jit_spin')}; mount --bind {tmp_path / 'lookup'} /tmp; "
            f"exec {setpriv} {' '.join(UNPRIVILEGED)} /proc/self/fd/3"
        )
        jit = load("unshare", "-m", "sh", "-c", command, core=0, nice=10)
        programs.append((jit.pid, 65534, "perf-"))
        until("all spin", lambda: all(used_cpu(pid) > 0.1 for pid, _, _ in programs))
        for hang in hangs:
            hang()
        recorder = start(tmp_path / "recording", "--rate", "49")

        def unnamed() -> list[str]:
            """Files that are not reported yet; one whose release is not answered can be read."""
            texts = [
                loss.text for loss in Recording.open(recorder.directory).losses() if loss.kind == "symbols-timeout"
            ]
            return [
                file
                for pid, user, file in programs
                if not any(file in text and f"process {pid} of uid {user}" in text for text in texts)
            ]

        recorder.ticks(5)
        until("each file is reported", lambda: unnamed() == [str(tmp_path / "release/spin")], patience=90.0)
        began = time.monotonic()
        recorder.send(signal.SIGTERM)
        # Nothing has answered by now, and nothing will before the mounts are gone.
        assert recorder.wait(patience=5.0) == 0
        assert time.monotonic() - began < 5.0
        assert "does not answer" in recorder.err and "uid 65530" in recorder.err
        clean_words(recorder)
        assert longest_gap(recorder.directory, 0) <= 2.2
        left = [
            int(pid) for pids in re.findall(r"process ([\d, ]+), which opened", recorder.err) for pid in pids.split(",")
        ]
        assert left and all(Path(f"/proc/{pid}").exists() for pid in left), "what is blocked is another process"
        assert start(recorder.directory, "--for", "1s").wait() == 0
    until("what was left behind ends", lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))
    recording = Recording.open(recorder.directory)
    assert {pid for pid, _, _ in programs} <= set(recording.read("samples").column("pid").to_pylist())
    assert "source-failed" not in losses(recorder.directory)


def used_cpu(pid: int) -> float:
    """Seconds of CPU time that a program has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


@pytest.mark.paced
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


@pytest.mark.paced
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
