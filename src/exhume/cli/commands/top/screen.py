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

# The alternate screen, so that what was there before comes back; and no cursor.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"
# Arrows and other keys that send several characters.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.)")


class Screen:
    """Restored however it is left: by its end, by an error, and while the process is stopped (Ctrl-Z)."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._before: list[object] | None = None
        # Wakes up the wait when the size changed.
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._handlers = {signal.SIGWINCH: self._resized, signal.SIGTSTP: self._suspended}
        self._previous: dict[int, object] = {}
        #: False once the terminal is gone.
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
        """Write the lines that differ from what is shown."""
        changed = [
            f"\x1b[{place + 1};1H{line}\x1b[K"
            for place, line in enumerate(lines)
            if place >= len(self._shown) or self._shown[place] != line
        ]
        left_over = f"\x1b[{len(lines) + 1};1H\x1b[J" if len(lines) < len(self._shown) else ""
        self._shown = list(lines)
        self._write("".join(changed) + left_over)

    def wait(self, stop: Stop, seconds: float | None) -> list[str]:
        """Wait for keys, for another size, or for the end of a time; returns the keys."""
        keyboard = [sys.stdin.fileno()] if self._before is not None else []
        timeout = None if seconds is None else max(0.0, seconds)
        ready, _, _ = select.select([*keyboard, stop, self._reader], [], [], timeout)
        if self._reader in ready:
            os.read(self._reader, 64)
            # What a terminal shows after its size changed is its own affair.
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
        # Keys can only be read where they are typed.
        if sys.stdin is not None and sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin.fileno())
            tty.setcbreak(sys.stdin.fileno())
        self._shown = []
        self._write(_ENTER)

    def _end(self) -> None:
        self._write(_LEAVE)
        if self._before is not None:
            # A terminal that is gone has no mode.
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:
            self.open = False

    def _resized(self, *_: object) -> None:
        with suppress(BlockingIOError):
            os.write(self._writer, b"\0")

    def _suspended(self, *_: object) -> None:
        """Give the terminal back, stop, and take it again when the process goes on."""
        self._end()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspended)
        self._begin()
        self._resized()
