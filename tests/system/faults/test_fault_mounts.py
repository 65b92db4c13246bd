"""File systems whose server never answers, with programs that are watched: the recorder goes on, says so, and ends."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.parts import missing, need
from tests.system.faults.recorder_process import RecorderProcess, clean_words, longest_gap, losses, until

from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.root, pytest.mark.paced]

Start = Callable[..., RecorderProcess]

UNPRIVILEGED = ("--reuid=65534", "--regid=65534", "--clear-groups")


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
        assert longest_gap(recorder.directory) <= 2.2
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
