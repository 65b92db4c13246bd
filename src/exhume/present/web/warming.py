"""What a process does for the first time takes it three times as long. It is done once on nobody's time, soon after the
first view, so that whoever selects first does not wait for it."""

from concurrent.futures import wait
from pathlib import Path

from exhume.model.clock import NANOS
from exhume.model.window import Window
from exhume.present.web.opened import Opened, opened_at

# At the longest; nothing depends on it.
_LONGEST_S = 30.0


def warm(opened: Opened) -> None:
    """Have every process that answers open the recording, and learn the stacks of its end: a node runs the same code
    minute after minute."""
    readers = opened.readers
    if not readers.apart:
        return
    ask = readers.ask()
    wait([readers.submit(ask, _warmed, opened.directory) for _ in range(readers.count)], _LONGEST_S)
    readers.end(ask)


def _warmed(directory: Path) -> None:
    recording = opened_at(directory).recording()
    span = recording.span()
    if span is not None:
        end = Window(span.until - NANOS, span.until)
        recording.profile(end)
        # Loads what joins and sorts rows, too.
        recording.read("processes", end, ["time", "pid"])
