"""`exhume install` and `uninstall`: what is refused before anything is changed, and what would be written."""

import os
import sys
from pathlib import Path

import pytest

from exhume.cli import exit_codes
from exhume.cli.commands import install
from exhume.control.installation import OWN_FILES, OWN_LINKS


def test_a_dry_run_prints_every_file_and_changes_nothing(exhume):
    result = exhume("install", "--dry-run")
    for path in (*OWN_FILES, *OWN_LINKS):
        assert f"# {path}" in result.stdout
    assert "@EXHUME@" not in result.stdout and "@CAPABILITIES@" not in result.stdout
    assert not any(Path(path).exists() for path in OWN_FILES)


def test_the_recorder_alone(exhume):
    assert "exhume-page" not in exhume("install", "--dry-run", "--no-page").stdout


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_without_root_it_is_refused_in_a_sentence(exhume, monkeypatch, command):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = exhume(command, check=False)
    assert result.returncode == exit_codes.ERROR
    assert "root" in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.root
def test_nothing_installed_is_no_data(exhume):
    assert exhume("uninstall", check=False).returncode == exit_codes.NO_DATA


@pytest.mark.parametrize(("mode", "reason"), [(0o777, "another user"), (0o700, "can't read")])
@pytest.mark.root
def test_a_program_that_services_must_not_or_can_not_run_is_refused(monkeypatch, tmp_path, mode, reason):
    place = tmp_path / "bin"
    place.mkdir()
    (place / "python").touch(0o755)
    place.chmod(mode)
    monkeypatch.setattr(install, "INTERPRETER", str(place / "python"))
    monkeypatch.setattr(install, "_HOMES", ())
    monkeypatch.setattr(install, "package_file", str(place / "python"))
    monkeypatch.setattr(install.os, "__file__", str(place / "python"))
    with pytest.raises(install.UsageError, match=reason):
        install.refuse_unsafe_program(page=True)


def test_a_program_in_a_home_directory_is_refused(monkeypatch):
    monkeypatch.setattr(install, "INTERPRETER", "/home/someone/venv/bin/python")
    with pytest.raises(install.UsageError, match="home"):
        install.refuse_unsafe_program(page=False)


def test_the_command_is_the_script_next_to_the_interpreter_or_the_module(monkeypatch, tmp_path):
    script = tmp_path / "exhume"
    script.touch()
    monkeypatch.setattr(install, "INTERPRETER", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert install.program_command() == [str(script)]
    monkeypatch.setattr(sys, "argv", ["/elsewhere/exhume"])
    assert install.program_command()[-2:] == ["-m", "exhume.cli.main"]


def test_a_path_that_needs_quoting_is_refused(monkeypatch, tmp_path):
    script = tmp_path / "a b" / "exhume"
    script.parent.mkdir()
    script.touch()
    monkeypatch.setattr(install, "INTERPRETER", str(script.parent / "python"))
    monkeypatch.setattr(sys, "argv", [str(script)])
    with pytest.raises(install.UsageError, match="unit file"):
        install.program_command()
