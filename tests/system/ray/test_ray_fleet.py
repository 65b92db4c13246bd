"""The fleet report on a real Ray cluster: a head and two workers as processes. `make test-ray`."""

import json
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.lakes import UNTIL, plan, planted
from tests.system.ray.ray_cluster import ROOT, RayCluster, environment, installed

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.timeout(1500)]

DAYS = 3


@pytest.fixture(scope="module")
def programs() -> Path:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return installed("ray-fleet-venv", *project["dependencies"], *project["optional-dependencies"]["ray"])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("ray") / "lake", plan(2000, DAYS, seed=6)).directory


@pytest.fixture
def cluster(programs: Path) -> Iterator[RayCluster]:
    with RayCluster(programs) as made:
        made.add_worker()
        made.add_worker()
        yield made


def start(programs: Path, lake: Path, *options: str, cluster: RayCluster | None = None) -> "subprocess.Popen[str]":
    command: list[str | Path] = [programs / "python", "-m", "exhume.cli.main", "fleet", "report", "--lake", lake]
    if cluster is not None:
        command = [*cluster.inside, *command, "--engine", "ray", "--address", cluster.address]
    command += ["--json", "--utc"]
    command += ["--since", f"{DAYS}d", "--until", f"@{UNTIL // 10**9}", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


def answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 1, errors
    shape: dict[str, Any] = json.loads(said)
    return shape


def wait_for_task(process: "subprocess.Popen[str]", cluster: RayCluster) -> None:
    """Until the worker that would be killed runs a task of the report: Ray's processes are called by what they run. The
    report may not end meanwhile: its answer is larger than its pipe, so it would only stop."""
    deadline = time.monotonic() + 180
    while not any(name.startswith("ray::run_part") for name in cluster.running()):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_both_engines_give_the_same_answer(programs: Path, lake: Path, cluster: RayCluster):
    local = answer(start(programs, lake))
    ray = answer(start(programs, lake, cluster=cluster))
    assert (local.pop("engine"), ray.pop("engine")) == ("local", "ray")
    assert local["separators"] and local == ray


def test_a_worker_that_dies_costs_nothing_but_time(programs: Path, lake: Path, cluster: RayCluster):
    local = answer(start(programs, lake))
    process = start(programs, lake, cluster=cluster)
    # In the middle of a task.
    wait_for_task(process, cluster)
    cluster.kill_worker()
    ray = answer(process)
    assert {**ray, "engine": "local"} == local


def test_a_lake_that_goes_away_is_one_sentence(programs: Path, lake: Path, cluster: RayCluster, tmp_path: Path):
    copy = Path(shutil.copytree(lake, tmp_path / "lake"))
    process = start(programs, copy, cluster=cluster)
    wait_for_task(process, cluster)
    copy.rename(tmp_path / "elsewhere")
    said, errors = process.communicate(timeout=120)
    assert (process.returncode, said) == (3, "")
    assert f"there is no lake at {copy}" in errors.splitlines()[-1]


def test_no_cluster_is_one_sentence(programs: Path, lake: Path):
    process = start(programs, lake, "--engine", "ray", "--address", "127.0.0.1:1")
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2
    assert "no Ray answers at" in errors.splitlines()[-1]
