"""--on-incident: what the command gets, and commands that misbehave."""

import json
import logging

import pytest

from exhume.model.settings import INTERNAL_VARIABLES, SETTINGS
from exhume.notify.command import CommandSink, variables


@pytest.fixture
def run(reports, eventually, tmp_path):
    report_of, finding = reports

    def run(command, report=None, **options):
        sink = CommandSink(command, tmp_path, **options)
        sink.start()
        sink.deliver(report or report_of(finding()))
        eventually("it ended", lambda: sink.outbox.delivered + sink.outbox.dropped == 1)
        sink.close(1)
        return bool(sink.outbox.delivered)

    return run


def test_it_gets_json_and_variables(run, tmp_path, monkeypatch):
    monkeypatch.setenv("EXHUME_WEBHOOK_TOKEN", "secret-of-the-recorder")
    assert run(f"cat > {tmp_path}/in; env > {tmp_path}/env; ps -o pgid= -p $$ > {tmp_path}/group")
    assert json.loads((tmp_path / "in").read_text())["cause"] == "softirq-storm"
    lines = (tmp_path / "env").read_text().splitlines()
    assert "EXHUME_CAUSE=softirq-storm" in lines and f"EXHUME_DIR={tmp_path}" in lines
    assert "secret-of-the-recorder" not in (tmp_path / "env").read_text()


def test_every_variable_is_known(reports, tmp_path):
    names = variables(reports[0](), tmp_path)
    assert set(names) <= set(INTERNAL_VARIABLES) | {setting.variable for setting in SETTINGS}


def test_values_are_never_part_of_the_command(run, reports, tmp_path):
    report_of, finding = reports
    hostile = f"$(touch {tmp_path}/owned); `touch {tmp_path}/owned`\x00"
    assert run('test -n "$EXHUME_SUMMARY"', report_of(finding(summary=hostile)))
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sleep 60", "longer than"),
        ("exit 7", "code 7"),
        ("no-such-command-here", "code 127"),
        ("head -c 9000000 /dev/zero; echo bad >&2; exit 1", "bad"),
        ("sleep 60 & sleep 60", "longer than"),
    ],
)
def test_commands_that_fail_are_one_sentence_and_not_repeated(run, caplog, command, said):
    with caplog.at_level(logging.WARNING):
        assert not run(command, timeout_s=1.0)
    (record,) = caplog.records
    assert said in record.getMessage()
