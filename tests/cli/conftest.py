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

from exhume.cli.main import run as run_program
from exhume.lab.synth import write_synthetic


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory):
    """Four minutes of a node with eight cores: (directory, what was written)."""
    directory = tmp_path_factory.mktemp("synthetic") / "recording"
    return directory, write_synthetic(directory, cores=8, hours=4 / 60, seed=7)


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
    """Run the program with these words, in this process (a new one takes most of a second to load what it needs).

    Its environment holds no settings of whoever runs the tests."""

    def run(*words: str, check: bool = True, **environment: str) -> Result:
        output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        code: int | str | None = 0
        with surroundings(words, environment), redirect_stdout(output), redirect_stderr(errors):
            try:
                run_program()
            except SystemExit as exit_:
                code = exit_.code
        told = [stream.buffer.getvalue().decode() for stream in (output, errors)]
        result = Result(int(code or 0), *told)
        assert not check or result.returncode == 0, result.stderr
        return result

    return run


@contextmanager
def surroundings(words: tuple[str, ...], environment: dict[str, str]) -> Iterator[None]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EXHUME_")}
    # rich remembers how it wrote a style; one kind of terminal for all tests keeps them independent of their order.
    clean |= {"TZ": "UTC", "COLUMNS": "100", "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
    with mock.patch.dict(os.environ, clean, clear=True), mock.patch.object(sys, "argv", ["exhume", *words]):
        time.tzset()
        yield
    time.tzset()
