"""A small recording with an incident in it, and the program as its users run it."""

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from tests.schema_check import check_output
from tests.synthetic import synthetic_recording

from exhume.cli.main import run as run_program
from exhume.model.clock import NANOS, Tick
from exhume.model.facts import RecordingFacts
from exhume.store.write.writer import SegmentWriter


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory):
    """Four minutes of a node with eight cores: (directory, what was written)."""
    written = synthetic_recording(tmp_path_factory, cores=8, minutes=4, seed=7)
    return written.directory, written


@pytest.fixture(scope="session")
def small_recording(synthetic) -> Path:
    return synthetic[0]


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def exhume() -> Callable[..., Result]:
    """Run the program with these arguments, in this process (a new one takes most of a second to start).

    The EXHUME_* variables of the caller are removed. What --json prints is checked against its schema."""

    def run(*args: str, check: bool = True, **environment: str) -> Result:
        output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        code: int | str | None = 0
        with surroundings(args, environment), redirect_stdout(output), redirect_stderr(errors):
            try:
                run_program()
            except SystemExit as exit_:
                code = exit_.code
        written = [stream.buffer.getvalue().decode() for stream in (output, errors)]
        result = Result(int(code or 0), *written)
        assert not check or result.returncode == 0, result.stderr
        check_output(args, result.stdout)
        return result

    return run


@contextmanager
def surroundings(args: tuple[str, ...], environment: dict[str, str]) -> Iterator[None]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EXHUME_")}
    # rich remembers how it wrote a style; one kind of terminal for all tests keeps them independent of their order.
    clean |= {"TZ": "UTC", "COLUMNS": "100", "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
    with mock.patch.dict(os.environ, clean, clear=True), mock.patch.object(sys, "argv", ["exhume", *args]):
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="session")
def quiet_recording(tmp_path_factory) -> Path:
    """A minute of two cores with little to do."""
    directory = tmp_path_factory.mktemp("quiet") / "recording"
    facts = RecordingFacts("node-1", "1f0c5a9e" + "0" * 24, 2, "6.8.0", "x86_64", "none", 0)
    writer = SegmentWriter(directory, facts, max_bytes=None, max_age_s=None)
    shares = ("nice", "irq", "softirq", "iowait", "steal", "guest")
    for second in range(60):
        start, wall = (5_000 + second) * NANOS, (1_780_000_020 + second + 1) * NANOS
        row = {name: [0, 0] for name in shares} | {"user": [150, 200], "system": [20, 30], "idle": [830, 770]}
        writer.append("cpu", {"time": [start, start], "cpu": [0, 1], "span_ms": [1000, 1000], **row})
        writer.commit(Tick(second, start, start + NANOS, wall))
    writer.close()
    return directory
