"""A journal that says too much, too slowly, or nonsense: what is known is reported, and what is not is said."""

import json
import os
import time
from pathlib import Path

import pytest

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd import journal
from exhume.collect.systemd.journal import read_journal, unit_log

FAILED = "d9b373ed55a64feb8242e02dbe79a49c"


def journalctl(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program of that name that says what the test wants: the real one can't be made to misbehave."""
    program = directory / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")


def line(seconds_ago: float, **more: str) -> str:
    return json.dumps({"__REALTIME_TIMESTAMP": str(int((time.time() - seconds_ago) * 1e6)), **more})


def test_without_the_program_the_past_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reported = read_journal(NodeRoot(), 1)
    assert reported.blind_spots == ["the past of units is not known: journalctl is not installed here"]
    assert reported.history("x.service") is None
    assert unit_log(NodeRoot(), "x.service") == ()


def test_an_empty_journal_is_not_a_good_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journalctl(tmp_path, monkeypatch, "echo 'No journal files were opened due to insufficient permissions.' >&2")
    reported = read_journal(NodeRoot(), 1)
    assert "insufficient permissions" in reported.blind_spots[0]
    assert reported.history("x.service") is None


def test_one_that_does_not_end_is_cut_and_the_hours_are_those_that_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest come first; the reader stops at its bound and counts the time that it saw."""
    journalctl(
        tmp_path,
        monkeypatch,
        f'case "$*" in *--reverse*) cat {tmp_path}/lines; exec sleep 600;; *) cat {tmp_path}/first;; esac',
    )
    # A machine that is busy otherwise may not have it said everything within a second.
    for patience_s in (1.0, 5.0, 25.0):
        lines = [line(60 * minute, MESSAGE_ID=FAILED, UNIT="x.service") for minute in range(1, 31)]
        (tmp_path / "lines").write_text("\n".join(lines) + "\n")
        (tmp_path / "first").write_text(line(7200) + "\n")
        monkeypatch.setattr(journal, "_PATIENCE_S", patience_s)
        began = time.monotonic()
        reported = read_journal(NodeRoot(), 24)
        took_s, past = time.monotonic() - began, reported.history("x.service")
        if past is not None and past.failures == 30:
            break
    assert took_s < 60
    assert "too much in the journal" in reported.blind_spots[0]
    assert past is not None
    assert past.failures == 30
    assert past.hours == pytest.approx(0.5, abs=0.02)


def test_nonsense_between_the_lines_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = line(5, MESSAGE_ID=FAILED, UNIT="x.service")
    odd = ["{", "[]", "null", '{"__REALTIME_TIMESTAMP": "soon"}', line(4, MESSAGE_ID=FAILED), good]
    (tmp_path / "lines").write_text("\n".join(odd) + "\n")
    journalctl(tmp_path, monkeypatch, f"tac {tmp_path}/lines")
    past = read_journal(NodeRoot(), 1).history("x.service")
    assert past is not None
    assert past.failures == 1


def test_lines_that_are_no_text_or_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = str(int(time.time() * 1e6))
    messages = [[255, 104, 105], "x" * 5000, None, ["first", "second"], "\x1b[31mred"]
    rows = [json.dumps({"__REALTIME_TIMESTAMP": stamp, "MESSAGE": each}) for each in messages]
    (tmp_path / "lines").write_text("\n".join(rows) + "\n")
    journalctl(tmp_path, monkeypatch, f"cat {tmp_path}/lines")
    reported = unit_log(NodeRoot(), "x.service")
    assert reported[0] == "\ufffdhi"
    assert len(reported[1]) == 500
    assert reported[2:] == ("", "first", "\x1b[31mred")
