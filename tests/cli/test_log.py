"""Logging: to stderr or a file, with tracebacks where they don't bury a status."""

import io
import logging
import sys

import pytest

from exhume.cli.log import configure_logging, log_lines_to
from exhume.model.errors import UsageError
from exhume.model.settings import LogTarget


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def restored():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], level = before
    root.setLevel(level)


def log_failure():
    try:
        raise KeyError("lost")
    except KeyError as error:
        logging.getLogger("exhume.test").warning("source x failed", exc_info=error)
    logging.getLogger("uvicorn.error").info("started")


@pytest.mark.parametrize(
    ("stream", "level", "traceback", "info"),
    [
        (Terminal, "warning", False, False),
        (Terminal, "info", True, True),
        (io.StringIO, "warning", True, False),
        (io.StringIO, "debug", True, True),
    ],
)
def test_tracebacks_need_v_on_a_terminal_only(monkeypatch, stream, level, traceback, info):
    monkeypatch.setattr(sys, "stderr", stream())
    configure_logging(LogTarget(level))
    log_failure()
    written = sys.stderr.getvalue()
    assert "source x failed" in written
    assert ("Traceback" in written) is traceback
    assert ("started" in written) is info


def test_a_file_has_the_traceback_and_stderr_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stderr", Terminal())
    configure_logging(LogTarget("warning", tmp_path / "log"))
    log_failure()
    assert sys.stderr.getvalue() == ""
    written = (tmp_path / "log").read_text()
    assert "WARNING exhume.test: source x failed" in written
    assert "KeyError: 'lost'" in written


def test_a_file_that_cannot_be_written_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="can't log to"):
        configure_logging(LogTarget("warning", tmp_path / "none" / "log"))


def test_a_status_takes_the_lines_of_stderr(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    configure_logging(LogTarget("warning"))
    lines = []
    with log_lines_to(lines.append):
        log_failure()
    assert lines == ["exhume: WARNING: source x failed"]
    assert sys.stderr.getvalue() == ""
