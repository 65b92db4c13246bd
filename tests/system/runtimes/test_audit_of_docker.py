"""The whole audit against a real Docker: from its socket to the words and the exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.system.runtimes.runtime_parts import Containers
from tests.system.zombies.own_docker import OwnDocker, until

SOURCE = Path(__file__).resolve().parents[3] / "src"
PROGRAM = "import sys; from exhume.cli.main import run; sys.exit(run())"

pytestmark = pytest.mark.root


def exhume(docker: OwnDocker, *args: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "PYTHONPATH": str(SOURCE), "DOCKER_HOST": f"unix://{docker.socket}"}
    program = [sys.executable, "-c", PROGRAM, "audit", *args]
    return subprocess.run(program, capture_output=True, text=True, env=surroundings, check=False)


@pytest.fixture(scope="module")
def reported(docker: OwnDocker, docker_containers: Containers) -> dict[str, dict[str, Any]]:
    """What the audit says of each container, once one of them has crashed often enough."""

    def crashes() -> bool:
        return int(docker("inspect", "--format", "{{.RestartCount}}", docker_containers.crashing)) >= 4

    until("it crashes", crashes, 60)
    said = exhume(docker, "--all", "--json")
    assert said.returncode == 1, said.stderr
    shape = json.loads(said.stdout)
    assert "docker" in shape["managers"]
    return {each["key"]: each for each in shape["services"] if each["manager"] == "docker"}


def test_the_one_that_crashes_is_reported_with_its_reason(reported: dict[str, dict[str, Any]]) -> None:
    loop = reported["docker:wobbly_heron.9"]
    assert loop["traits"] == ["crash-loop"] and loop["troubled"]
    assert "code 7" in loop["explained"][0] and "has no credentials" in loop["explained"][-1]
    assert loop["history"]["failures"] >= 3 and loop["history"]["success_rate"] < 0.5
    # It was made here by a person: that it never worked is not enough to call it useless.
    assert loop["need"]["needed"] == "unknown" and loop["next"] == "exhume fix plan docker:wobbly_heron.9"


def test_the_others_are_not_in_trouble(reported: dict[str, dict[str, Any]]) -> None:
    for name in ("docker:quiet-neighbour", "docker:done_and-gone"):
        assert not reported[name]["troubled"], reported[name]
    steady = reported["docker:quiet-neighbour"]
    assert steady["costs"]["memory_bytes"] > 0
    # That it works is known once it did for a minute.
    assert steady["need"]["needed"] == ("yes" if steady["age_seconds"] >= 60 else "unknown")


def test_names_narrow_it_down_and_decide_the_exit_code(docker: OwnDocker, reported: dict[str, dict[str, Any]]) -> None:
    assert exhume(docker, "quiet-neighbour").returncode == 0
    said = exhume(docker, "docker:wobbly_heron.9")
    assert said.returncode == 1 and "CRASH LOOP" in said.stdout.splitlines()[0]
    assert "quiet-neighbour" not in said.stdout
