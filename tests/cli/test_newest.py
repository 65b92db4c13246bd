"""Without a time, commands look at what was recorded last, whatever the wall clock said before."""

from argparse import Namespace
from pathlib import Path

import pytest
from tests.store.store_rows import MONO, OFFSET, cpu_rows, recorder, tick_at

from exhume.cli.diagnose import what_was_asked
from exhume.cli.looking import Look
from exhume.model.clock import NANOS
from exhume.model.window import Window


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """A recording of two minutes, in whose middle the clock was an hour ahead for ten seconds."""
    writer = recorder(tmp_path)
    for index in range(120):
        tick = tick_at(index, offset=OFFSET + (3600 * NANOS if 50 <= index < 60 else 0))
        writer.append("cpu", cpu_rows(tick))
        writer.commit(tick)
    writer.close()
    return Look.into(Namespace(dir=tmp_path, utc=True))


END = MONO + 120 * NANOS + OFFSET


def test_a_clock_that_was_ahead_does_not_own_the_default_window(look: Look) -> None:
    assert look.window(None, None, at_most=30 * NANOS) == Window(END - 30 * NANOS, END)
    asked = what_was_asked(look, Namespace(at=None, last="20s", since=None, until=None))
    assert asked.window == Window(END - 20 * NANOS, END)
    asked = what_was_asked(look, Namespace(at=None, last=None, since=None, until=None))
    assert asked.window == Window(look.span.since, END)


def test_the_whole_recording_is_still_all_of_it(look: Look) -> None:
    whole = look.window(None, None)
    assert whole.since < END < whole.until
