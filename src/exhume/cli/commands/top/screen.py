"""The terminal while `exhume top` has it: a screen of its own, keys one by one, and a size that may change."""

import os
import re
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from exhume.model.stop import Stop

# Use the alternate screen, so that the previous content is restored on exit, and hide the cursor.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"
# Arrow keys and other keys that send escape sequences.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.)")


class Screen:
    """The terminal in full-screen mode. It is restored on normal exit, on an error, and while the process is stopped
    (Ctrl-Z)."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._before: list[object] | None = None
        # A self-pipe that wakes up the wait after a resize.
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._handlers = {signal.SIGWINCH: self._resized, signal.SIGTSTP: self._suspended}
        self._previous: dict[int, object] = {}
        #: False once the terminal has been closed.
        self.open = True

    @property
    def size(self) -> tuple[int, int]:
        width, height = shutil.get_terminal_size()
        return width, height

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, handler) for number, handler in self._handlers.items()}
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._reader)
        os.close(self._writer)

    def draw(self, lines: Sequence[str]) -> None:
        """Write the lines that differ from those on the screen."""
        changed = [
            f"\x1b[{place + 1};1H{line}\x1b[K"
            for place, line in enumerate(lines)
            if place >= len(self._shown) or self._shown[place] != line
        ]
        left_over = f"\x1b[{len(lines) + 1};1H\x1b[J" if len(lines) < len(self._shown) else ""
        self._shown = list(lines)
        self._write("".join(changed) + left_over)

    def wait(self, stop: Stop, seconds: float | None) -> list[str]:
        """Wait for keys, a resize or a timeout; returns the keys."""
        keyboard = [sys.stdin.fileno()] if self._before is not None else []
        timeout = None if seconds is None else max(0.0, seconds)
        ready, _, _ = select.select([*keyboard, stop, self._reader], [], [], timeout)
        if self._reader in ready:
            os.read(self._reader, 64)
            # The screen content is undefined after a resize, so redraw everything.
            self._shown = []
            self._write("\x1b[2J")
        return self._keys() if keyboard and keyboard[0] in ready else []

    def _keys(self) -> list[str]:
        try:
            typed = os.read(sys.stdin.fileno(), 1024)
        except OSError:
            typed = b""
        self.open = self.open and bool(typed)
        return list(_SEQUENCE.sub("", typed.decode(errors="replace")))

    def _begin(self) -> None:
        # Keys are read only if stdin is a terminal.
        if sys.stdin is not None and sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin.fileno())
            tty.setcbreak(sys.stdin.fileno())
        self._shown = []
        self._write(_ENTER)

    def _end(self) -> None:
        self._write(_LEAVE)
        if self._before is not None:
            # A terminal that was closed has no mode to restore.
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    def _write(self, text: str) -> None:
        # Not by sys.stdout itself: with PYTHONUNBUFFERED it drops the rest of a write that a resize interrupts.
        stream, left = sys.stdout.buffer, memoryview(text.encode(errors="replace"))
        try:
            sys.stdout.flush()
            while left and self.open:
                written = stream.write(left)
                if written is None:
                    # Another program made the terminal non-blocking.
                    select.select([], [stream], [])
                left = left[written or 0 :]
            stream.flush()
        except OSError:
            self.open = False

    def _resized(self, *_: object) -> None:
        with suppress(BlockingIOError):
            os.write(self._writer, b"\0")

    def _suspended(self, *_: object) -> None:
        """Restore the terminal, stop the process, and take the terminal again when it continues."""
        self._end()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspended)
        self._begin()
        self._resized()
