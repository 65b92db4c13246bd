"""Running the recorder beside the tools that it is compared with."""

import json
import os
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.processes import EXHUME, Watched, start
from tests.on_time import on_time

from exhume.model.clock import NANOS, Window
from exhume.model.errors import RecordingError
from exhume.store.read.recording import Recording

START_S = 60.0
SOURCES = Path(__file__).parent


@contextmanager
def recorder(directory: Path, *options: str, cores: Collection[int] = ()) -> Iterator[Watched]:
    """`exhume record` at its defaults, from its first recorded second until the block ends; it must end well.

    It has a real-time priority: what it is compared with knows full seconds, and so does the recorder wherever others
    don't keep it from its core. What it reads is not touched by this. Where it must not take a core that is watched,
    it gets others."""
    pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
    words = [*pinned, str(EXHUME), "record", "--dir", str(directory), *options]
    with on_time():
        watched = start("exhume record", words, directory.with_suffix(".log"))
    try:
        await_first_second(watched, directory)
        yield watched
        watched.finish()
        assert watched.process.returncode == 0, watched.output.read_text()
    finally:
        stop(watched)


def await_first_second(watched: Watched, directory: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert watched.process.poll() is None, watched.output.read_text()
        if directory.is_dir() and recorded_until(directory):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing was recorded within {START_S:.0f} s")


def await_recorded(directory: Path, wall_ns: int) -> None:
    """Until everything before that moment is in the recording."""
    deadline = time.monotonic() + START_S
    while recorded_until(directory) < wall_ns:
        assert time.monotonic() < deadline, f"not recorded {START_S:.0f} s later"
        time.sleep(0.1)


def late_by(directory: Path, window: Window) -> float:
    """By how many seconds a tick that ended in this window missed the full second, at most. The machine itself may be
    held up, and a recorder on it."""
    ends = Recording.open(directory).read("anchors", window)["wall"].to_pylist()
    return max(abs(end - round(end / NANOS) * NANOS) for end in ends) / NANOS


def recorded_until(directory: Path) -> int:
    try:
        span = Recording.open(directory).span()
    except RecordingError:  # not yet a recording
        return 0
    return 0 if span is None else span.until


def stop(watched: Watched) -> None:
    """Whatever happened, nothing is left running."""
    if watched.process.returncode is None:
        watched.process.kill()
        watched.process.wait()


def ask(directory: Path, *words: str, statuses: Collection[int] = (0,)) -> str:
    """What a command of the program prints about a recording, if it ends with one of these."""
    command, *rest = words
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EXHUME_")}
    done = subprocess.run(
        [str(EXHUME), command, "--dir", str(directory), *rest],
        capture_output=True,
        text=True,
        check=False,
        env=clean | {"TZ": "UTC"},
    )
    assert done.returncode in statuses, done.stderr
    return done.stdout


def ask_json(directory: Path, *words: str, statuses: Collection[int] = (0,)) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(ask(directory, *words, "--json", statuses=statuses))
    return answer


def between(window: Window) -> tuple[str, ...]:
    """A window as the words of a command."""
    since, until = (f"@{moment // NANOS}.{moment % NANOS:09d}" for moment in (window.since, window.until))
    return "--since", since, "--until", until


def await_wall(wall_ns: int) -> None:
    while (left := wall_ns - time.time_ns()) > 0:
        time.sleep(left / NANOS)


def next_second(least_s: float = 0.1) -> int:
    """The next full second of the wall clock that is at least so far away."""
    return -(-(time.time_ns() + round(least_s * NANOS)) // NANOS) * NANOS


def compiled(source: str, directory: Path) -> Path:
    """A C program of this folder, with symbols and frame pointers."""
    program = directory / Path(source).stem
    flags = ("-O1", "-g0", "-fno-omit-frame-pointer", "-fno-inline", "-fno-optimize-sibling-calls")
    subprocess.run(["gcc", *flags, "-o", str(program), str(SOURCES / source)], check=True)
    return program


def preferred(words: list[str], stdout: int | None = None) -> subprocess.Popen[bytes]:
    """Start a program that gets nearly all of what it asks for, also on a machine that is busy with something else.

    The scheduler shares a core first among sessions, then by priority inside one: it needs both."""
    process = subprocess.Popen(["nice", "-n", "-20", *words], start_new_session=True, stdout=stdout)
    group = Path(f"/proc/{process.pid}/autogroup")
    if group.exists():  # a kernel without it knows only the priority
        group.write_text("-20")
    return process
