"""Events, incidents and facts of a recording on a terminal: wrapped; on a pipe one line each."""

import io
from datetime import UTC

import pytest
from rich.console import Console
from rich.text import Text

from exhume.model.clock import NANOS
from exhume.present.terminal.console import console, fitted, print_values
from exhume.present.terminal.events import print_events
from exhume.store.read.events import EventView

WALL = 1_772_334_847_350_000_000  # 2026-03-01 03:14:07.35 UTC
TEXT = "mlx5_core 0000:3b:00.0 eth0: TX timeout on queue 17, recovered after resetting the queue"


def event(offset_s: int, severity: str = "warning", text: str = TEXT) -> EventView:
    absent = dict.fromkeys(("cpu", "pid", "comm", "device", "queue", "value", "kernel_us", "sequence"))
    moment = {"wall": WALL + offset_s * NANOS, "time": offset_s * NANOS}
    return EventView(**moment, source="kernel-log", kind="nic-timeout", severity=severity, text=text, **absent)


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, no_color=True, width=width, highlight=False, soft_wrap=True)


def shown(console: Console) -> list[str]:
    return Text.from_ansi(console.file.getvalue()).plain.splitlines()


@pytest.mark.parametrize("width", [50, 80, 120])
def test_events_fit_the_terminal_with_the_date_once(width):
    screen = terminal(width)
    print_events(screen, [event(0), event(1, "info"), event(86_400)], UTC)
    lines = shown(screen)
    assert max(map(len, lines)) <= width
    assert [line for line in lines if line.startswith("2026-")] == ["2026-03-01 UTC", "2026-03-02 UTC"]
    assert sum(line.startswith("03:14:07.350") for line in lines) == 2
    text = " ".join(" ".join(lines).split())
    assert text.count(TEXT) == 3, "no word is cut"


def test_piped_events_are_one_line_each_with_the_whole_time():
    output = io.StringIO()
    print_events(
        Console(file=output, width=40, soft_wrap=True, highlight=False), [event(0), event(1, text="a\x1b[2Jb")], UTC
    )
    first, second = output.getvalue().splitlines()
    assert first == f"2026-03-01T03:14:07.350000Z  warning  nic-timeout  {TEXT}"
    assert second.endswith("a\\x1b[2Jb")


def test_info_hangs_below_its_values():
    screen = terminal(40)
    print_values(screen, [("node", "n"), ("missing", "stacks: perf_event_open was refused; add CAP_PERFMON")])
    assert shown(screen) == [
        "node       n",
        "missing    stacks: perf_event_open was",
        "           refused; add CAP_PERFMON",
    ]


@pytest.mark.parametrize(
    ("color", "no_color", "escapes"), [("never", "", False), ("auto", "1", False), ("auto", "", True)]
)
def test_without_colours_there_are_no_escapes_on_a_terminal(color, no_color, escapes, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    output = Terminal()
    print_events(console(color, output), [event(0)], UTC)
    assert ("\x1b" in output.getvalue()) is escapes


@pytest.mark.parametrize("length", [1, 79, 80, 81, 400])
def test_a_fitted_line_keeps_its_text(length):
    text = ("word " * length)[:length].strip()
    lines = [line.plain for line in fitted(terminal(80), Text(f"  {text}"))]
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == text
