"""The program on a terminal of its own: what it shows there, keys, and another size."""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from typing import Self

PROGRAM = [sys.executable, "-m", "exhume.cli.main"]
_PART = re.compile(r"\x1b\[(\?)?([0-9;]*)([A-Za-z])|([^\x1b])")


class PtyProgram:
    """A program, and the lines that its terminal shows: absolute positions, clearing and colours are understood."""

    def __init__(self, *args: str, columns: int = 80, lines: int = 24, **environment: str) -> None:
        self.leader, follower = pty.openpty()
        self.columns, self.lines_in_all = columns, lines
        # Frames that may still have the width from before the terminal was resized.
        self._of_another_width = 0
        self._set_size(follower, columns, lines)
        hidden = ("EXHUME_", "COLUMNS", "LINES", "NO_COLOR")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.process = subprocess.Popen(
            # Opened by the leader of a session the terminal becomes its own, so that Ctrl-C and Ctrl-Z reach it.
            ["sh", "-c", f'exec "$0" "$@" < {os.ttyname(follower)}', *PROGRAM, *args],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**clean, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment},
            start_new_session=True,
        )
        os.close(follower)
        self.written = self._unread = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.codes: set[str] = set()
        self._rows: list[str] = []
        self._row = self._column = 0

    def _set_size(self, fd: int, columns: int, lines: int) -> None:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        self.columns, self.lines_in_all = columns, lines
        # The one that is being read, and one that was drawn before.
        self._of_another_width = 2
        self._set_size(self.leader, columns, lines)

    def send(self, keys: str) -> None:
        os.write(self.leader, keys.encode())

    def until(self, shown: Callable[[list[str]], object], seconds: float = 60.0) -> list[str]:
        """Read until the screen is as expected; returns its lines."""
        deadline = time.monotonic() + seconds
        while not shown(self.screen):
            assert time.monotonic() < deadline, "\n".join(self.screen)
            assert self._read(0.5) or self.process.poll() is None, "\n".join(self.screen)
        return self.screen

    def ended(self, seconds: float = 60.0) -> int:
        """Read to the end; returns the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(0.2) or self.process.poll() is None:
            assert time.monotonic() < deadline, "\n".join(self.screen)
        return self.process.wait(10)

    @property
    def screen(self) -> list[str]:
        return [row.rstrip() for row in self._rows]

    def _read(self, seconds: float) -> bool:
        if not select.select([self.leader], [], [], seconds)[0]:
            return False
        try:
            read = os.read(self.leader, 65536)
        except OSError:
            return False
        text = self._decoder.decode(read)
        self.written += text
        self._unread += text
        # A sequence may be cut off where a read ends.
        while part := _PART.match(self._unread):
            self._unread = self._unread[part.end() :]
            self._take(*(found or "" for found in part.groups()))
        return bool(read)

    def _take(self, private: str, numbers: str, code: str, character: str) -> None:
        if private:
            self.codes.add(f"?{numbers}{code}")
        elif code == "m":
            self.codes.add("m")
        elif code == "H":
            self._row, self._column = (int(number) - 1 for number in (numbers or "1;1").split(";"))
            if (self._row, self._column) == (0, 0):
                self._of_another_width = max(0, self._of_another_width - 1)
        elif code == "J":
            self._rows = [] if numbers == "2" else self._rows[: self._row]
        elif code == "K":
            self._fill()
            self._rows[self._row] = self._rows[self._row][: self._column]
        elif character == "\n":
            self._row, self._column = self._row + 1, 0
        elif character == "\r":
            self._column = 0
        elif character:
            self._fill()
            row = self._rows[self._row].ljust(self._column)
            self._rows[self._row] = row[: self._column] + character + row[self._column + 1 :]
            self._column += 1
            fits = self._column <= self.columns or self._of_another_width
            assert fits, f"wider than the terminal: {self._rows[self._row]!r}"

    def _fill(self) -> None:
        self._rows += [""] * (self._row + 1 - len(self._rows))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.leader)
