"""Exit codes of every command: 0 ok, 1 findings, 2 error, 3 no data."""

from dataclasses import replace
from unittest import mock

import pytest

from exhume.cli import exit_codes
from exhume.cli.commands import diagnose, doctor, zombies
from exhume.cli.commands.audit import run as run_audit
from exhume.cli.main import COMMANDS, parser_for
from exhume.diagnose.zombie_report import GROWING, MANY, UNKNOWN, WELL
from exhume.model.errors import NoData
from exhume.model.finding import Check, Culprit, Diagnosis, Finding, Level, Severity, Verdict
from exhume.present.diagnosis_view import Checkup

OK, FINDINGS, ERROR, NO_DATA = 0, 1, 2, 3
BEFORE = ("--until", "2001-01-01T00:00:00Z")
READERS = ("diagnose", "incidents", "cores", "flame", "events")


def test_the_codes():
    codes = (exit_codes.OK, exit_codes.FINDINGS, exit_codes.ERROR, exit_codes.NO_DATA, exit_codes.INTERRUPTED)
    assert codes == (0, 1, 2, 3, 130)


def args_of(command):
    return (command, "-o", "-") if command == "flame" else (command,)


@pytest.mark.parametrize(
    ("command", "code"),
    [("info", OK), ("cores", OK), ("flame", OK), ("events", OK), ("incidents", FINDINGS), ("diagnose", FINDINGS)],
)
def test_a_recording_with_an_incident(exhume, small_recording, command, code):
    assert exhume(*args_of(command), "--dir", str(small_recording), check=False).returncode == code


@pytest.mark.parametrize(
    ("command", "code"),
    [("info", OK), ("cores", OK), ("diagnose", OK), ("incidents", OK), ("flame", NO_DATA), ("events", NO_DATA)],
)
def test_a_quiet_recording_without_stacks_and_log(exhume, quiet_recording, command, code):
    assert exhume(*args_of(command), "--dir", str(quiet_recording), check=False).returncode == code


@pytest.mark.parametrize("command", READERS)
def test_a_window_without_data(exhume, small_recording, command):
    assert exhume(*args_of(command), "--dir", str(small_recording), *BEFORE, check=False).returncode == NO_DATA


@pytest.mark.parametrize("command", [*READERS, "info", "serve"])
@pytest.mark.parametrize("kind", ["none", "empty", "foreign"])
def test_a_directory_without_a_recording(exhume, tmp_path, command, kind):
    directory = tmp_path / "recording"
    if kind != "none":
        directory.mkdir()
    if kind == "foreign":
        (directory / "notes.txt").touch()
    assert exhume(*args_of(command), "--dir", str(directory), check=False).returncode == NO_DATA


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_flag_is_an_error(exhume, command):
    result = exhume(command, "--frobnicate", check=False)
    assert (result.returncode, result.stdout) == (ERROR, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_ok_and_names_the_codes(exhume, command):
    result = exhume(command, "--help")
    assert (result.returncode, result.stderr) == (OK, "")
    assert exit_codes.SUMMARY in result.stdout


@pytest.mark.parametrize("command", [*READERS, "info"])
def test_a_file_instead_of_a_directory_is_an_error(exhume, tmp_path, command):
    (tmp_path / "file").touch()
    assert exhume(*args_of(command), "--dir", str(tmp_path / "file"), check=False).returncode == ERROR


def finding(severity):
    return Finding("user-hog", "title", severity, 0.9, "summary", Culprit())


@pytest.mark.parametrize(
    ("verdict", "severities", "code"),
    [
        (Verdict.HEALTHY, [], OK),
        (Verdict.HEALTHY, [Severity.INFO], OK),
        (Verdict.HEALTHY, [Severity.WARNING], FINDINGS),
        (Verdict.STARVED, [], FINDINGS),
        (Verdict.DEGRADED, [Severity.WARNING, Severity.INFO], FINDINGS),
        (Verdict.UNKNOWN, [], NO_DATA),
        (Verdict.UNKNOWN, [Severity.CRITICAL], FINDINGS),
    ],
)
def test_diagnose(verdict, severities, code):
    found = Diagnosis("node-1", (0, 1), (0, 1), verdict)
    assert diagnose.exit_code(replace(found, findings=tuple(map(finding, severities)))) == code


@pytest.mark.parametrize(
    ("verdict", "levels", "code"),
    [
        (Verdict.HEALTHY, [Level.WELL, Level.UNSEEN], OK),
        (Verdict.HEALTHY, [Level.LOOK], FINDINGS),
        (Verdict.STARVED, [Level.WELL], FINDINGS),
        (Verdict.UNKNOWN, [Level.WELL], OK),
        (Verdict.UNKNOWN, [Level.UNSEEN], NO_DATA),
    ],
)
def test_doctor(verdict, levels, code):
    checks = [Check(f"check-{n}", "title", level, "5") for n, level in enumerate(levels)]
    assert doctor.exit_code(Checkup("n", 6.0, checks, Diagnosis("n", (0, 1), (0, 1), verdict))) == code


@pytest.mark.parametrize(("level", "code"), [(WELL, OK), (GROWING, FINDINGS), (MANY, FINDINGS), (UNKNOWN, NO_DATA)])
def test_zombies(level, code):
    assert zombies.exit_code(mock.Mock(level=level)) == code


@pytest.mark.parametrize(("troubled", "code"), [((), OK), ((False,), OK), ((True, False), FINDINGS)])
def test_audit(troubled, code, capsys):
    services = tuple(mock.Mock(troubled=each, need=mock.Mock(needed="yes")) for each in troubled)
    options = parser_for(["audit"]).parse_args(["audit", "--json"])
    audit = mock.Mock(services=services)
    with (
        mock.patch("exhume.cli.commands.audit.take_audit", return_value=audit),
        mock.patch("exhume.cli.commands.audit.audit_json", return_value={}),
    ):
        assert run_audit(options) == code


def test_audit_of_a_node_without_services(exhume):
    with mock.patch("exhume.cli.commands.audit.take_audit", side_effect=NoData("nothing to audit")):
        assert exhume("audit", check=False).returncode == NO_DATA


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("lab", "list"), OK),
        (("lab", "run", "no-such-scenario"), ERROR),
        (("lab",), ERROR),
        (("record", "--for", "0s"), ERROR),
    ],
)
def test_lab_and_record(exhume, args, code):
    assert exhume(*args, check=False).returncode == code
