"""Failed units are listed by name; where systemd can't be asked, the reason is said."""

from pathlib import Path

import pytest

from exhume.collect.failed_units import failed_units


def systemctl(directory: Path, script: str) -> str:
    program = directory / "systemctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_their_names_are_told(tmp_path: Path) -> None:
    lines = "bootstrap.service loaded failed failed Fetch it\\ndata.mount loaded failed failed /data\\n"
    program = systemctl(tmp_path, f"printf '{lines}'")
    assert failed_units(program, tmp_path) == ["bootstrap.service", "data.mount"]


def test_none_is_none(tmp_path: Path) -> None:
    assert failed_units(systemctl(tmp_path, "true"), tmp_path) == []


def test_without_systemd_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="doesn't run here"):
        failed_units("systemctl", tmp_path / "no-such-directory")


def test_a_bus_that_does_not_answer_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no bus"):
        failed_units(systemctl(tmp_path, "echo no bus >&2; exit 1"), tmp_path)
    with pytest.raises(OSError, match="not installed"):
        failed_units(str(tmp_path / "nothing"), tmp_path)
