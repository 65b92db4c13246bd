"""Ctrl-C in a fix is answered at once, whatever it has to wait for; next commands know where the fix is kept."""

import os
import signal
from pathlib import Path

from exhume.cli.fix_acting import ENDS_SOON
from exhume.cli.fix_words import place_words
from exhume.cli.stopping import stopped_by_signals
from exhume.present.fix_list import fix_lines, list_lines
from exhume.remedy.ledger import Fix, Shelf


def test_the_first_signal_is_answered_and_more_are_not(capfd):
    with stopped_by_signals(ENDS_SOON) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.is_set()
    assert capfd.readouterr().err.splitlines() == [ENDS_SOON]


def test_without_an_answer_nothing_is_said(capfd):
    with stopped_by_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_set()
    assert capfd.readouterr().err == ""


def test_the_next_command_names_the_work_directory_unless_it_is_the_usual_one():
    assert place_words(Path("/var/lib/exhume-fix")) == ""
    where = place_words(Path("/srv/my fixes"))
    assert where == " --work-dir '/srv/my fixes'"
    fix = Fix("20260101-000000-abcd", "n", "m", "/", "b", "t", "s", 0, (), rollback_at=None)
    for lines in (fix_lines(fix, where), list_lines(Shelf([fix], []), where)):
        assert list(lines)[-1] == f"  next: exhume fix verify {fix.id}{where}"
