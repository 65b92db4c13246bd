"""The command where there is nothing to ask, and its words."""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROGRAM = "import sys; from exhume.cli.main import run; sys.exit(run())"


def exhume(*words: str) -> subprocess.CompletedProcess[str]:
    surroundings = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"}
    program = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(program, capture_output=True, text=True, env=surroundings, check=False)


def test_a_root_without_any_manager_is_one_sentence(tmp_path):
    said = exhume("audit", "--root", str(tmp_path))
    assert said.returncode == 3 and said.stdout == ""
    assert said.stderr.startswith("exhume: there is nothing to audit:") and said.stderr.count("\n") == 1


def test_a_root_that_is_not_there_is_one_sentence(tmp_path):
    said = exhume("audit", "--root", str(tmp_path / "none"), "--json")
    assert said.returncode == 2 and "there is no such directory" in said.stderr


def test_hours_have_bounds():
    for hours in ("0", "-1", "x", "1e9"):
        assert exhume("audit", "--hours", hours).returncode == 2


def test_it_is_in_the_list_of_commands():
    assert "audit" in exhume("--help").stdout
