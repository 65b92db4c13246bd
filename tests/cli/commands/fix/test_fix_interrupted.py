"""Ctrl-C in a fix is answered at once, whatever it has to wait for; next commands know where the fix is kept."""

import os
import signal
from pathlib import Path

from exhume.cli.commands.fix.terminal import INTERRUPTED, work_dir_flag
from exhume.cli.signals import stopped_by_signals
from exhume.present.fix_view import fix_lines, list_lines
from exhume.remedy.ledger import Fix, Shelf


def test_the_first_signal_is_answered_and_more_are_not(capfd):
    with stopped_by_signals(INTERRUPTED) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.is_set()
    assert capfd.readouterr().err.splitlines() == [INTERRUPTED]


def test_without_a_message_nothing_is_printed(capfd):
    with stopped_by_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_set()
    assert capfd.readouterr().err == ""


def test_the_next_command_names_the_work_directory_unless_it_is_the_usual_one():
    assert work_dir_flag(Path("/var/lib/exhume-fix")) == ""
    where = work_dir_flag(Path("/srv/my fixes"))
    assert where == " --work-dir '/srv/my fixes'"
    fix = Fix("20260101-000000-abcd", "n", "m", "/", "b", "t", "s", 0, (), rollback_at=None)
    for lines in (fix_lines(fix, where), list_lines(Shelf([fix], []), where)):
        assert list(lines)[-1] == f"  next: exhume fix verify {fix.id}{where}"
