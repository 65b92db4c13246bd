"""Messages and progress next to a command's output: on stderr, and most of it only on a terminal."""

import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from exhume.model.settings import default_directory

DELAY_S = 1.0  # work that takes less shows no progress
_BAR = 30


def say(text: str) -> None:
    """Print a line to stderr."""
    print(text, file=sys.stderr)


def suggest(command: str) -> None:
    """Name the next command, on a terminal only."""
    if sys.stderr.isatty():
        say(f"next: {command}")


def dir_args(directory: Path) -> str:
    """` --dir D` for a suggested command; empty for the default."""
    return "" if directory == default_directory() else f" --dir {shlex.quote(str(directory))}"


@contextmanager
def activity(doing: str) -> Iterator[Callable[[str, float], None]]:
    """On a terminal, show what is being done once it takes over a second. Yields what sets its stage and share."""
    stages = [""]

    def set_stage(stage: str, share: float) -> None:
        stages[0] = f": {stage}, {share:.0%}"

    if not sys.stderr.isatty():
        yield set_stage
        return
    done = threading.Event()
    thread = threading.Thread(target=_show_elapsed, args=(doing, stages, done), daemon=True)
    thread.start()
    try:
        yield set_stage
    finally:
        done.set()
        thread.join()


def _show_elapsed(doing: str, stages: list[str], done: threading.Event) -> None:
    began, shown = time.monotonic(), False
    while not done.wait(0.25 if shown else DELAY_S):
        shown = True
        _rewrite(f"{doing}{stages[0]} … {time.monotonic() - began:.0f} s")
    if shown:
        _rewrite("")


class ProgressBar:
    """A bar on stderr, on a terminal only; it appears when the work takes over a second."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._began = time.monotonic()
        self._shown = -1
        self._active = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __call__(self, share: float) -> None:
        elapsed = time.monotonic() - self._began
        percent = int(share * 100)
        if not self._active or elapsed < DELAY_S or percent == self._shown:
            return
        self._shown = percent
        filled = int(share * _BAR)
        left = f", {elapsed * (1 - share) / share:.0f} s left" if share > 0.02 else ""
        _rewrite(f"{self._doing} {'█' * filled}{'░' * (_BAR - filled)} {percent:3d}%{left}")

    def __exit__(self, *_: object) -> None:
        if self._shown >= 0:
            _rewrite("")


class StagedProgress:
    """Progress of work in several stages, each with its own bar."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar = ProgressBar("")

    def __enter__(self) -> Self:
        return self

    def __call__(self, stage: str, share: float) -> None:
        if stage != self._stage:
            self._bar.__exit__()
            self._stage, self._bar = stage, ProgressBar(stage)
        self._bar(share)

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()


def _rewrite(text: str) -> None:
    """Replace the line of the cursor."""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()
