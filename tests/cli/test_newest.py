"""Without a time, commands look at what was recorded last, whatever the wall clock said before."""

from argparse import Namespace
from pathlib import Path

import pytest
from tests.store.store_rows import MONO, OFFSET, cpu_rows, recorder, tick_at

from exhume.cli.commands.diagnose import find_target
from exhume.cli.recording_args import RecordingView
from exhume.model.clock import NANOS, Window


@pytest.fixture
def view(tmp_path: Path) -> RecordingView:
    """A recording of two minutes, in whose middle the clock was an hour ahead for ten seconds."""
    writer = recorder(tmp_path)
    for index in range(120):
        tick = tick_at(index, offset=OFFSET + (3600 * NANOS if 50 <= index < 60 else 0))
        writer.append("cpu", cpu_rows(tick))
        writer.commit(tick)
    writer.close()
    return RecordingView.open(Namespace(dir=str(tmp_path), utc=True))


ANY_TIME = Namespace(last=None, since=None, until=None)
END = MONO + 120 * NANOS + OFFSET


def test_a_clock_that_was_ahead_does_not_own_the_default_window(view: RecordingView) -> None:
    assert view.window(ANY_TIME, default_ns=30 * NANOS) == Window(END - 30 * NANOS, END)
    target = find_target(view, Namespace(at=None, last="20s", since=None, until=None))
    assert target.window == Window(END - 20 * NANOS, END)
    target = find_target(view, Namespace(at=None, last=None, since=None, until=None))
    assert target.window == Window(view.span.since, END)


def test_the_whole_recording_is_still_all_of_it(view: RecordingView) -> None:
    whole = view.window(ANY_TIME)
    assert whole.since < END < whole.until
