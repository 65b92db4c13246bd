"""Tests of a group run one after the other, in a single worker; those that count memory cgroups next to none that make
some."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import LOCKS, group_of

TESTS = Path(__file__).resolve().parents[2]
MODULE = """
import pytest
@pytest.mark.parametrize("number", range(4))
def test_it(number): pass
"""
# Writes when its file began and ended.
LASTING_MODULE = """
import time
from pathlib import Path
import pytest
@pytest.fixture(scope="module", autouse=True)
def lasting():
    began = time.monotonic()
    yield
    time.sleep(0.3)
    Path(__file__).with_suffix(".times").write_text(f"{began} {time.monotonic()}")
@pytest.mark.parametrize("number", range(2))
def test_it(number): time.sleep(0.3)
"""


def mark(group: str) -> str:
    """Not in one piece, or this file would be in the group."""
    return "pytestmark = pytest.mark." + f'xdist_group("{group}")'


def test_a_group_is_named_in_the_file_or_next_to_it():
    groups = {path: group_of(path) for path in TESTS.rglob("test_*.py")}
    browsing = {path.parent.name for path in (TESTS / "system/browser").glob("*/test_*.py")}
    assert {name for name in groups.values() if name} == {
        *LOCKS,
        *(f"browser_{name}" for name in browsing),
        "kernel_log",
    }
    for name in browsing:
        assert {groups[path] for path in (TESTS / f"system/browser/{name}").glob("test_*.py")} == {f"browser_{name}"}
    assert {groups[path] for path in (TESTS / "system/runtimes").glob("test_*.py")} == {"containers"}
    assert len([path for path, group in groups.items() if group in LOCKS and "system" not in path.parts]) >= 6
    # nspawn containers have no memory cgroups of their own on cgroup v1, the only version that counts whole hosts.
    assert {groups[path] for path in (TESTS / "system/machines").glob("test_*.py")} == {None}
    assert groups[TESTS / "model/test_times.py"] is None


def run_in_workers(place: Path, files: dict[str, str]) -> str:
    """Run test files of these contents in three workers; what pytest printed."""
    (place / "tests").mkdir()
    for name in ("conftest.py", "parts.py"):
        shutil.copy(TESTS / name, place / "tests" / name)
    shutil.copy(TESTS.parent / "pyproject.toml", place)
    for name, content in files.items():
        (place / f"tests/{name}.py").write_text(content)
    options = ["-v", "-n", "3", "--dist", "loadscope", "--no-loadscope-reorder"]
    options += ["-p", "no:cacheprovider", "-p", "no:schemathesis"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_what_counts_memory_cgroups_runs_next_to_nothing_that_makes_some(tmp_path: Path):
    groups = {"test_a": "cgroups", "test_b": "containers", "test_c": "services"}
    run_in_workers(tmp_path, {name: LASTING_MODULE + mark(group) for name, group in groups.items()})
    times = {name: [*map(float, (tmp_path / f"tests/{name}.times").read_text().split())] for name in groups}
    counting, making, also_making = (times[name] for name in groups)
    for began, ended in (making, also_making):
        assert ended < counting[0] or counting[1] < began
    assert making[0] < also_making[1] and also_making[0] < making[1], "these need not wait for each other"


@pytest.mark.long
def test_a_worker_takes_whole_files_and_groups(tmp_path: Path):
    output = run_in_workers(
        tmp_path,
        {
            **dict.fromkeys(("test_a", "test_b"), MODULE + mark("shared")),
            **dict.fromkeys(("test_c", "test_d"), MODULE),
        },
    )
    workers: dict[str, set[str]] = {}
    for worker, file in re.findall(r"\[(gw\d)\].* PASSED tests/(\w+)\.py", output):
        workers.setdefault(file, set()).add(worker)
    assert {file: len(each) for file, each in workers.items()} == dict.fromkeys(
        ("test_a", "test_b", "test_c", "test_d"), 1
    )
    assert workers["test_a"] == workers["test_b"]
    assert len(workers["test_a"] | workers["test_c"] | workers["test_d"]) == 3
