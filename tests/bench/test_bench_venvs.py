"""Environments of what is only compared with: made once, and again when the requirements change."""

from pathlib import Path

import pytest
from bench.processes import BenchError
from bench.venvs import venv_with

pytestmark = pytest.mark.slow


def test_an_environment_is_kept_until_its_requirements_change(tmp_path: Path) -> None:
    directory = tmp_path / "venv"
    python = venv_with(directory, ["# nothing"])
    assert python.exists()
    marker = directory / "marker"
    marker.touch()
    assert venv_with(directory, ["# nothing"]) == python and marker.exists()
    venv_with(directory, ["# something else"])
    assert not marker.exists()


def test_what_cannot_be_installed_is_attempted_again(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(BenchError, match="could not be installed"):
            venv_with(tmp_path / "venv", ["./no-such-package"])
