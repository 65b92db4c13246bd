"""Tests that make or count memory cgroups are one group: a single worker runs them, one after the other."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import group_of

TESTS = Path(__file__).resolve().parents[2]
MODULE = """
import pytest
@pytest.mark.parametrize("number", range(4))
def test_it(number): pass
"""
# Not in one piece, or this file would be in the group.
MARK = "pytestmark = pytest.mark." + 'xdist_group("shared")'


def test_a_group_is_named_in_the_file_or_next_to_it():
    groups = {path: group_of(path) for path in TESTS.rglob("test_*.py")}
    assert {name for name in groups.values() if name} == {"cgroups"}
    assert {groups[path] for path in (TESTS / "system/runtimes").glob("test_*.py")} == {"cgroups"}
    assert len([path for path, group in groups.items() if group and "system" not in path.parts]) >= 6
    # nspawn containers have no memory cgroups of their own on cgroup v1, the only version that counts whole hosts.
    assert {groups[path] for path in (TESTS / "system/machines").glob("test_*.py")} == {None}
    assert groups[TESTS / "model/test_times.py"] is None


@pytest.mark.long
def test_a_worker_takes_whole_files_and_groups(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "parts.py"):
        shutil.copy(TESTS / name, tmp_path / "tests" / name)
    shutil.copy(TESTS.parent / "pyproject.toml", tmp_path)
    for name in ("test_a", "test_b"):
        (tmp_path / f"tests/{name}.py").write_text(MODULE + MARK)
    for name in ("test_c", "test_d"):
        (tmp_path / f"tests/{name}.py").write_text(MODULE)
    options = ["-v", "-n", "3", "--dist", "loadscope", "--no-loadscope-reorder", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    workers: dict[str, set[str]] = {}
    for worker, file in re.findall(r"\[(gw\d)\].* PASSED tests/(\w+)\.py", done.stdout):
        workers.setdefault(file, set()).add(worker)
    assert {file: len(each) for file, each in workers.items()} == dict.fromkeys(
        ("test_a", "test_b", "test_c", "test_d"), 1
    )
    assert workers["test_a"] == workers["test_b"]
    assert len(workers["test_a"] | workers["test_c"] | workers["test_d"]) == 3
