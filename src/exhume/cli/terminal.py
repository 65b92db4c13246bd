"""Messages and progress on stderr, next to a command's output; most of it only on a terminal."""

import json
import shlex
import shutil
import sys
import textwrap
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from exhume.cli.args import value_of
from exhume.model.errors import ExhumeError
from exhume.model.settings import COLOR, default_directory

DELAY_S = 1.0  # shorter work shows no progress
_BAR = 30


def say(text: str) -> None:
    """Print a line to stderr, word-wrapped on a terminal."""
    print(wrapped(text) if sys.stderr.isatty() else text, file=sys.stderr)


def wrapped(text: str) -> str:
    """A message wrapped to the terminal's width. Paths and addresses are not broken."""
    wrapper = textwrap.TextWrapper(
        shutil.get_terminal_size().columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(map(wrapper.fill, text.splitlines()))


def show(options: Namespace, as_json: Callable[[], Any], draw: Callable[[Any], None]) -> None:
    """Print a result: as JSON with --json, otherwise drawn on a rich console."""
    if options.json:
        print(json.dumps(as_json()))
        return
    # Imported here: the page's server uses this module but not rich.
    from exhume.present.terminal.console import console

    draw(console(value_of(options, COLOR)))


def write_file(path: Path, content: bytes, flag: str) -> None:
    """Write the file that a flag names."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise cannot_write(path, error, flag) from error


def cannot_write(path: Path, error: OSError, flag: str) -> ExhumeError:
    """The error for a file named by a flag that cannot be written."""
    return ExhumeError(f"can't write {path}: {error.strerror}; choose another file with {flag}")


def suggest(command: str) -> None:
    """Suggest the next command, on a terminal only."""
    if sys.stderr.isatty():
        # Not wrapped, so that it can be copied.
        print(f"next: {command}", file=sys.stderr)


def dir_args(directory: Path) -> str:
    """` --dir D` for a suggested command; empty for the default."""
    return "" if directory == default_directory() else f" --dir {shlex.quote(str(directory))}"


@contextmanager
def activity(doing: str) -> Iterator[Callable[[str, float], None]]:
    """On a terminal, show the current activity if it takes over a second. Yields a function that sets its stage and
    share."""
    done, stage_text = threading.Event(), ""

    def set_stage(stage: str, share: float) -> None:
        nonlocal stage_text
        stage_text = f": {stage}, {share:.0%}"

    def show_elapsed() -> None:
        began, shown = time.monotonic(), False
        while not done.wait(0.25 if shown else DELAY_S):
            shown = True
            _rewrite(f"{doing}{stage_text} … {time.monotonic() - began:.0f} s")
        if shown:
            _rewrite("")

    if not sys.stderr.isatty():
        yield set_stage
        return
    thread = threading.Thread(target=show_elapsed, daemon=True)
    thread.start()
    try:
        yield set_stage
    finally:
        done.set()
        thread.join()


class ProgressBar:
    """A progress bar on stderr, on a terminal only; it appears if the work takes over a second."""

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
        self._stage, self._bar = "", ProgressBar("")

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
    """Replace the current line of the terminal."""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()
