"""Environments of what is only compared with: made once, and again when the requirements change."""

from pathlib import Path

import pytest
from bench.processes import BenchError
from bench.venvs import venv_with

from bench import venvs


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are run, none of them for real; a venv is made of nothing but its Python."""
    made: list[list[str]] = []

    def run(args: list[str]) -> None:
        made.append(args)
        if "venv" in args:
            python = Path(args[-1]) / "bin/python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.touch()

    monkeypatch.setattr(venvs, "_run", run)
    return made


def test_an_environment_is_kept_until_its_requirements_change(tmp_path: Path, commands: list[list[str]]) -> None:
    assert venv_with(tmp_path / "venv", ["one==1"]).exists()
    assert len(commands) == 2
    venv_with(tmp_path / "venv", ["one==1"])
    assert len(commands) == 2
    venv_with(tmp_path / "venv", ["one==2"])
    assert len(commands) == 4


def test_what_cannot_be_installed_is_attempted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def fail(args: list[str]) -> None:
        attempts.append(args)
        (tmp_path / "venv").mkdir(exist_ok=True)
        if "pip" in args:
            raise BenchError("packages to compare with could not be installed: no such package")

    monkeypatch.setattr(venvs, "_run", fail)
    for number in (1, 2):
        with pytest.raises(BenchError, match="could not be installed"):
            venv_with(tmp_path / "venv", ["no-such-package"])
        assert len(attempts) == 2 * number
