"""Fixes of containers on a real Docker: what crash-loops is stopped for good, comes back by a rollback, and a kill -9
at any point of either is no harm."""

import contextlib
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.parts import missing
from tests.remedy.killing import die_at_point, killed
from tests.system.zombies.own_docker import OwnDocker, own_docker, until

from exhume.collect.node_root import NodeRoot
from exhume.control.changes import hold_journal
from exhume.control.containers import DockerControl
from exhume.control.managers import Controls
from exhume.control.unit_files import OwnFiles
from exhume.lab.own_docker import docker_missing
from exhume.model.audit import Manager, Service
from exhume.model.errors import LabError
from exhume.model.remedy import Plan
from exhume.model.stop import Stop
from exhume.procfs.host import Host
from exhume.remedy.fixer import Fixer, Point
from exhume.remedy.ledger import Fix, FixState, Ledger, SavedPlan, last_plan, new_id
from exhume.remedy.services.actions import service_actions
from exhume.remedy.services.planner import Planner
from exhume.remedy.services.refusals import Surroundings
from exhume.remedy.services.steps import Selection
from exhume.remedy.verify.restarts import NodeRestarts

pytestmark = [pytest.mark.xdist_group("containers"), pytest.mark.root]
IMAGE = "plain.test/fixing:1"
CRASHES = "echo no credentials; exit 7"
# A first process that heeds SIGTERM.
LASTS = "trap 'exit 0' TERM; while :; do busybox sleep 0.1; done"


@pytest.fixture(scope="module")
def docker() -> Iterator[OwnDocker]:
    if why := docker_missing():
        missing(f"a Docker that can be started ({why})")
    with own_docker() as own:
        own.import_busybox(IMAGE)
        yield own


@pytest.fixture
def looping(docker) -> Iterator[str]:
    """The id of a container that crashes for as long as it is let."""
    container = docker.run("stray-agent.7", IMAGE, CRASHES, "--restart=always")
    until("it restarts", lambda: restarts(docker, container) >= 1, 60)
    yield container
    docker("rm", "-f", container)


@pytest.fixture
def lasting(docker) -> Iterator[str]:
    container = docker.run("neighbour", IMAGE, LASTS, "--restart=on-failure:4")
    yield container
    docker("rm", "-f", container)


def restarts(docker: OwnDocker, container: str) -> int:
    return int(docker("inspect", "-f", "{{.RestartCount}}", container))


def state(docker: OwnDocker, container: str) -> tuple[str, bool]:
    """The restart policy, and whether it runs or is to be started again."""
    form = "{{.HostConfig.RestartPolicy.Name}}:{{.HostConfig.RestartPolicy.MaximumRetryCount}} "
    policy, *up = docker("inspect", "-f", form + "{{.State.Running}} {{.State.Restarting}}", container).split()
    return policy, "true" in up


def stopped(docker: OwnDocker, container: str) -> bool:
    """Whether it is down after an order to stop. The engine may fail to stop one that it is just starting again."""
    with contextlib.suppress(LabError):
        docker("stop", "-t", "0", container)
    return not state(docker, container)[1]


class Program:
    """`exhume fix` as its users run it, against that Docker."""

    def __init__(self, docker: OwnDocker, work_dir: Path) -> None:
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("EXHUME_")}
        self.environment["DOCKER_HOST"] = f"unix://{docker.socket}"
        self.work_dir = work_dir

    def __call__(self, action: str, *words: str, code: int = 0) -> dict:
        command = [sys.executable, "-m", "exhume.cli.main", "fix", action, "--json", "--work-dir", str(self.work_dir)]
        done = subprocess.run(
            [*command, *words], env=self.environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if done.stdout else {"said": done.stderr}


@pytest.fixture
def fix(docker, tmp_path) -> Program:
    return Program(docker, tmp_path / "fix")


def test_a_crash_loop_ends_for_good_and_comes_back_by_a_rollback(docker, fix, looping, lasting):
    plan = fix("plan", "docker:stray-agent.7")
    assert [step["id"] for step in plan["steps"]] == [
        "stop:docker:stray-agent.7",
        "restart-policy:docker:stray-agent.7",
    ]
    assert plan["steps"][1]["commands"] == [f"docker update --restart=no {looping}"]
    assert {"measure": "restarts", "expected": "stop", "subject": "docker:stray-agent.7"} in plan["steps"][0]["effects"]
    assert state(docker, looping)[0] == "always:0", "a plan changes nothing"
    applied = fix("apply", "--yes", "--baseline", "1s")
    assert (applied["id"], applied["state"]) == (plan["id"], "applied")
    assert [step["mark"] for step in applied["steps"]] == ["done", "done"]
    assert state(docker, looping) == ("no:0", False)
    count = restarts(docker, looping)
    time.sleep(2)
    assert (restarts(docker, looping), state(docker, looping)) == (count, ("no:0", False))
    assert state(docker, lasting) == ("on-failure:4", True), "nobody else is touched"
    assert fix("list")["fixes"][0]["state"] == "applied"
    assert fix("rollback")["state"] == "rolled-back"
    assert state(docker, looping)[0] == "always:0"
    until("it crash-loops again", lambda: restarts(docker, looping) >= 1, 60)
    assert "no fix to roll back" in fix("rollback", code=2)["said"]


def test_what_ran_well_runs_again_with_its_own_policy(docker, fix, lasting):
    fix("apply", f"docker:{lasting[:12]}", "--yes", "--baseline", "0s")
    assert state(docker, lasting) == ("no:0", False)
    assert "nothing starts it again" in fix("apply", "docker:neighbour", "--yes", code=2)["said"]
    fix("rollback")
    assert state(docker, lasting) == ("on-failure:4", True)


def test_what_was_paused_is_paused_again_and_the_plan_says_what_is_lost(docker, fix, lasting):
    docker("pause", lasting)
    stop, _ = fix("plan", "docker:neighbour")["steps"]
    assert "memory is lost" in stop["harm"] and stop["undo_commands"][-1] == f"docker pause {lasting}"
    fix("apply", "--yes", "--baseline", "0s")
    assert state(docker, lasting) == ("no:0", False)
    fix("rollback")
    assert docker("inspect", "-f", "{{.State.Paused}}", lasting) == "true"
    assert state(docker, lasting) == ("on-failure:4", True)


def test_an_engine_says_what_it_does_not_start_again(docker, looping, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.socket}")
    restarts = NodeRestarts(NodeRoot())
    assert restarts.settled("docker:stray-agent.7") == "", "it is started again"
    until("it is stopped", lambda: stopped(docker, looping), 60)
    assert restarts.settled("docker:stray-agent.7") == "", "by its policy it comes back with the engine"
    docker("update", "--restart=no", looping)
    assert restarts.settled("docker:stray-agent.7") == "docker has it exited, with restart policy no"
    assert restarts.settled("docker:nobody") == "docker has it no more"
    assert restarts.settled("loops.service") == restarts.settled("cri:pod/app") == ""


def test_a_plan_that_is_older_than_the_container_is_refused(docker, fix, lasting):
    fix("plan", "docker:neighbour")
    docker("update", "--restart=unless-stopped", lasting)
    said = fix("apply", "--yes", code=2)["said"]
    assert "restart policy was on-failure:4, and is unless-stopped now" in said
    docker("rm", "-f", lasting)
    assert "is gone" in fix("apply", "--yes", code=2)["said"]
    assert fix("list", code=3)["fixes"] == []


def test_what_is_removed_when_it_stops_is_refused_and_runs_on(docker, fix):
    container = docker.run("short_lived", IMAGE, LASTS, "--rm")
    assert "--rm" in fix("apply", "docker:short_lived", "--yes", "--baseline", "0s", code=2)["said"]
    assert DockerControl(docker.socket).runs(container)
    docker("rm", "-f", container)


def test_a_policy_changed_since_is_kept(docker, fix, lasting):
    fix("apply", "docker:neighbour", "--yes", "--baseline", "0s")
    docker("update", "--restart=unless-stopped", lasting)
    left = fix("rollback", code=2)
    assert left["state"] == "partly-rolled-back"
    assert [step["mark"] for step in left["steps"]] == ["undone", "kept"]
    assert state(docker, lasting) == ("unless-stopped:0", True)
    docker("rm", "-f", lasting)
    assert fix("rollback")["state"] == "rolled-back", "what is gone needs no undoing"


@pytest.mark.parametrize(
    "name", ["docker:$(touch /tmp/x)", "docker:../../../etc", "docker:", "docker:-rf", "docker:neighbour;x"]
)
def test_names_of_no_container_are_refused(fix, name):
    assert "there is no container" in fix("plan", name, code=2)["said"]


def begun(docker: OwnDocker, container: str, ledger: Ledger) -> Fix:
    controls = controls_of(docker)
    now = time.time_ns()
    planner = Planner(controls, OwnFiles(Path), Surroundings(), new_id(now), "now")
    steps, refused = planner.steps([Selection(Service(Manager.DOCKER, container, "agent"))])
    assert (len(steps), refused) == (2, [])
    return ledger.save(SavedPlan(planner.fix, Plan("t", None, "s", tuple(steps)), "n", "m", "/", "b", now).begun())


def controls_of(docker: OwnDocker) -> Controls:
    return Controls(engines={Manager.DOCKER: DockerControl(docker.socket)})


@pytest.mark.parametrize("point", range(2 * len(Point)))
def test_a_kill_at_each_point_of_apply_and_of_rollback(docker, lasting, tmp_path, point):
    ledger = Ledger(tmp_path / "work")
    actions = service_actions(controls_of(docker), OwnFiles(Path))

    def newest() -> Fix:
        found = ledger.newest()
        assert found is not None
        return found

    def fixer(die_at: int = 10**6) -> Fixer:
        return Fixer(ledger, actions, Stop(), die_at_point(die_at))

    begun(docker, lasting, ledger)
    assert killed(lambda: fixer(point).apply(newest()))
    assert newest().state is FixState.UNFINISHED or point == 2 * len(Point) - 1
    # One way: back.
    assert fixer().roll_back(newest()).state is FixState.ROLLED_BACK
    assert state(docker, lasting) == ("on-failure:4", True)
    # The other: on.
    begun(docker, lasting, ledger)
    assert killed(lambda: fixer(point).apply(newest()))
    assert fixer().apply(newest()).state is FixState.APPLIED
    assert state(docker, lasting) == ("no:0", False)
    # And the way back is killed as well.
    assert killed(lambda: fixer(point).roll_back(newest()))
    assert fixer().roll_back(newest()).state is FixState.ROLLED_BACK
    assert state(docker, lasting) == ("on-failure:4", True)


def test_an_interrupted_fix_is_gone_on_with_or_undone_before_anything_else(docker, fix, lasting, looping):
    fix("plan", "docker:neighbour")
    ledger = Ledger(fix.work_dir)
    begun_fix = ledger.save(last_plan(fix.work_dir).begun())
    actions = service_actions(controls_of(docker), OwnFiles(Path))
    assert killed(lambda: Fixer(ledger, actions, Stop(), die_at_point(2)).apply(begun_fix))
    assert fix("list")["fixes"][0]["state"] == "unfinished"
    said = fix("apply", "docker:stray-agent.7", "--yes", code=2)["said"]
    assert f"fix {begun_fix.id} of docker:neighbour was interrupted" in said and "rollback" in said
    assert fix("apply", "docker:neighbour", "--yes")["state"] == "applied"
    assert state(docker, lasting) == ("no:0", False)
    assert "applied already" in fix("apply", "--yes", code=2)["said"]
    assert fix("rollback", begun_fix.id)["state"] == "rolled-back"
    assert state(docker, lasting) == ("on-failure:4", True)


def test_one_fix_at_a_time(docker, fix, lasting):
    with hold_journal(fix.work_dir, Host()):
        assert "another exhume fix is at work" in fix("apply", "docker:neighbour", "--yes", code=2)["said"]
    assert "pass --yes" in fix("apply", "docker:neighbour", code=2)["said"]
    assert state(docker, lasting) == ("on-failure:4", True)


@pytest.mark.parametrize(("answer", "after"), [("n", ("on-failure:4", True)), ("y", ("no:0", False))])
def test_a_terminal_asks_for_confirmation(docker, fix, lasting, answer, after):
    words = ["fix", "apply", "docker:neighbour", "--work-dir", str(fix.work_dir), "--baseline", "0s"]
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "exhume.cli.main", *words]
    asked = subprocess.Popen(command, env=fix.environment, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    try:
        heard = b""
        until_asked = time.monotonic() + 60
        while b"Take these steps? [y/N]" not in heard:
            assert time.monotonic() < until_asked, heard
            heard += os.read(leader, 4096)
        os.write(leader, f"{answer}\n".encode())
        drain(leader)
        assert asked.wait(60) == (0 if answer == "y" else 2)
    finally:
        os.close(leader)
        asked.kill()
        asked.wait()
    assert state(docker, lasting) == after


def drain(leader: int) -> None:
    """Until the other side of the terminal is closed."""
    with contextlib.suppress(OSError):
        while os.read(leader, 4096):
            pass
