"""Messages and progress next to the output: on a terminal only, and not before it takes long."""

import io
import re
import time
from collections.abc import Callable
from contextlib import contextmanager, redirect_stderr

import pytest

from exhume.cli import terminal as messages


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(messages, "DELAY_S", 0.05)


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def on(stream):
    """Stand in for stderr."""
    with redirect_stderr(stream):
        yield stream


def test_the_next_command_is_named_to_people_only():
    with on(Terminal()) as terminal:
        messages.suggest("exhume cores")
    assert terminal.getvalue() == "next: exhume cores\n"


def test_what_takes_long_is_said_and_wiped_away():
    with on(Terminal()) as terminal, messages.activity("reading stacks"):
        until(terminal.getvalue)
    assert re.match("\r\x1b\\[Kreading stacks … \\d+ s", terminal.getvalue())
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_what_is_quick_says_nothing(monkeypatch):
    monkeypatch.setattr(messages, "DELAY_S", 30.0)
    with on(Terminal()) as terminal, messages.activity("reading stacks"):
        pass
    assert terminal.getvalue() == ""


def test_the_stage_of_long_work_is_on_the_same_line():
    with on(Terminal()) as terminal, messages.activity("planning") as set_stage:
        set_stage("reading systemd", 0.1)
        until(lambda: "planning: reading systemd, 10% … 0 s" in terminal.getvalue())
    assert "\n" not in terminal.getvalue()


def test_an_error_while_waiting_comes_through():
    with on(Terminal()), pytest.raises(KeyError), messages.activity("reading"):
        raise KeyError("lost")


def test_a_bar_shows_how_far_it_is():
    with on(Terminal()) as terminal, messages.ProgressBar("writing") as bar:
        time.sleep(0.06)
        bar(0.5)
        assert " 50%" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_pipe_gets_none_of_it():
    with on(io.StringIO()) as pipe:
        messages.suggest("exhume cores")
        with messages.activity("reading"), messages.ProgressBar("writing") as bar:
            time.sleep(0.1)
            bar(0.5)
    assert pipe.getvalue() == ""


def test_messages_are_broken_at_words_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = "source unavailable: cpu run-queue wait (no /proc/schedstat; needs CONFIG_SCHEDSTATS)"
    with on(Terminal()) as terminal:
        messages.say(text)
        messages.suggest("exhume flame --since 2026-03-01T03:14:07Z -o culprit.html")
    *lines, following = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(line.strip() for line in lines) == text
    assert all(line.startswith("  ") for line in lines[1:])
    assert following == "next: exhume flame --since 2026-03-01T03:14:07Z -o culprit.html", "commands are for copying"
    with on(io.StringIO()) as pipe:
        messages.say(text)
    assert pipe.getvalue() == f"{text}\n"
