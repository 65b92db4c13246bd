"""Logging of the program: one handler on the root logger, writing to stderr or to a file."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from exhume.model.errors import UsageError, os_reason
from exhume.model.settings import LogTarget

FILE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
STDERR_FORMAT = "exhume: %(levelname)s: %(message)s"


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the current stderr, or to a status that is redrawn on the same terminal."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.write_line: Callable[[str], None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.write_line is None:
            self.stream = sys.stderr
            super().emit(record)
            return
        try:
            self.write_line(self.format(record))
        except OSError:
            self.handleError(record)


class _BriefFormatter(logging.Formatter):
    """Formats messages without tracebacks: a traceback per retry would push the status off the terminal."""

    def formatException(self, ei: object) -> str:
        return ""

    def format(self, record: logging.LogRecord) -> str:
        # Another handler that wants tracebacks may have cached one in the record.
        record.exc_text = None
        return super().format(record).rstrip("\n")


def configure_logging(target: LogTarget) -> None:
    """Send the log of exhume and of its libraries (uvicorn) to stderr or a file. On a terminal tracebacks need -v; in
    a file, a pipe or the journal they are always included."""
    level = target.level.upper()
    handler: logging.Handler
    if target.file is not None:
        try:
            handler = logging.FileHandler(target.file, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"can't log to {target.file}: {os_reason(error)}") from None
        handler.setFormatter(logging.Formatter(FILE_FORMAT))
    else:
        handler = _StderrHandler()
        brief = sys.stderr is not None and sys.stderr.isatty() and level in ("WARNING", "ERROR")
        handler.setFormatter((_BriefFormatter if brief else logging.Formatter)(STDERR_FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=True)


@contextmanager
def log_lines_to(write_line: Callable[[str], None]) -> Iterator[None]:
    """Redirect log lines from stderr to a status that is drawn on the same terminal."""
    handlers = [each for each in logging.getLogger().handlers if isinstance(each, _StderrHandler)]
    for handler in handlers:
        handler.write_line = write_line
    try:
        yield
    finally:
        for handler in handlers:
            handler.write_line = None
