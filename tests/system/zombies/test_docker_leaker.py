"""A container that crashes again and again and leaves a zombie each time is named from a recording."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.parts import missing
from tests.system.zombies.own_docker import OwnDocker, own_docker, until

from exhume.collect.cgroup.census import take_census
from exhume.collect.cgroup.layout import find_v1, hierarchies
from exhume.collect.containers.names import ContainerName, container_names
from exhume.diagnose.facts.leaks import RELEASED_WITHIN_NS
from exhume.lab.own_docker import docker_missing
from exhume.procfs.host import Host
from exhume.store.read.recording import Recording

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.needs("dockerd", "docker", "busybox"),
]

PROGRAM = (sys.executable, "-m", "exhume.cli.main")
IMAGE = "exhume.test/crash-loop:7"
LEAKER, CLEAN_LOOP, STEADY = "wobbly_heron.9", "clean-crasher", "quiet-neighbour"
# Docker waits 0.1 s before the first restart and twice as long before each further one.
CRASHES = 6
PATIENCE_S = 120
# The page that it writes outlives it and pins its memory cgroup.
LEAK = 'echo leaked > "$(busybox mktemp /leak/XXXXXX)"; exit 1'


@pytest.fixture(autouse=True, scope="module")
def memory_cgroups() -> None:
    if take_census(Host()).memory is None:
        missing("memory cgroups")
    if why := docker_missing():
        missing(f"a Docker that can be started ({why})")


def ticks(directory: Path) -> list[int]:
    """When they ended, on the monotonic clock."""
    return sorted(Recording.open(directory).read("anchors")["time"].to_pylist()) if directory.exists() else []


def nameless(directory: Path, cgroup: str) -> list[str]:
    """Processes that made, removed or released a cgroup below this one and are known by number alone."""
    rows = Recording.open(directory).read("cgroup_events", None, ["path", "comm"]).to_pylist()
    return [row["comm"] for row in rows if (row["path"] or "").startswith(cgroup) and row["comm"].startswith(":")]


@contextmanager
def recorder(directory: Path, said: Path) -> Iterator[None]:
    """`exhume record` for as long as the context lasts."""
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*PROGRAM, "record", "--dir", directory],
            env={name: value for name, value in os.environ.items() if not name.startswith("EXHUME_")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        # What happens before the first tick is not recorded.
        until("it records", lambda: process.poll() is not None or ticks(directory), PATIENCE_S)
        assert process.poll() is None, said.read_text()
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, said.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE_S)


def drain(cgroup: str) -> None:
    """Have every core give back what it keeps of pages and charges for later: on a core that idles that holds a removed
    cgroup which nothing else does. Pages of tmpfs stay, so what the leaker left stays, too."""
    legacy = find_v1(hierarchies(Host()), "memory")
    if legacy is not None:
        (legacy.path / cgroup.lstrip("/") / "memory.force_empty").write_text("0")


@pytest.fixture
def docker() -> Iterator[OwnDocker]:
    with own_docker() as own:
        own.import_busybox(IMAGE)
        yield own


def explain(recording: Path, socket: Path) -> dict[str, Any]:
    words = ("zombies", "--explain", "--json", "--utc", "--dir", str(recording), "--docker-socket", str(socket))
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["explanation"]


def stop_between_crashes(docker: OwnDocker, *names: str) -> dict[str, float]:
    """Stop containers that have just crashed, long before Docker starts them again: one that is stopped while it starts
    may have done only half of what it does each time. When each was stopped."""
    stopped: dict[str, float] = {}

    def has_just_crashed(name: str) -> bool:
        reported = docker("inspect", "-f", "{{.State.Restarting}} {{.State.FinishedAt}}", name).split()
        # To the microsecond: Docker tells nanoseconds.
        ended = datetime.fromisoformat(reported[1].rstrip("Z")[:26] + "+00:00").timestamp()
        return reported[0] == "true" and time.time() - ended < 1

    def all_are_stopped() -> bool:
        for name in names:
            if name not in stopped and has_just_crashed(name):
                docker("stop", "-t", "0", name)
                stopped[name] = time.time()
        return len(stopped) == len(names)

    until(f"{' and '.join(names)} crash", all_are_stopped, PATIENCE_S)
    return stopped


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def of_docker(explanation: dict[str, Any], docker: OwnDocker) -> list[dict[str, Any]]:
    return [each for each in explanation["leakers"] if each["pattern"] == f"{docker.parent}/*"]


def test_a_crash_looping_container_is_named_by_name_and_image(docker: OwnDocker, tmp_path: Path) -> None:
    leaked, recording = docker.room / "leaked", tmp_path / "recording"
    leaked.mkdir()
    began = int(time.time())
    with recorder(recording, tmp_path / "said"):
        steady = docker.run(STEADY, IMAGE, "busybox sleep 600")
        # Crashes as often, with nothing that stays behind.
        clean = docker.run(CLEAN_LOOP, IMAGE, "exit 1", "--restart=always")
        number = docker.run(LEAKER, IMAGE, LEAK, "--restart=always", "-v", f"{leaked}:/leak")
        until(f"{CRASHES} crashes", lambda: len(list(leaked.iterdir())) >= CRASHES, PATIENCE_S)
        # The one that was started first crashes first, too.
        stopped = stop_between_crashes(docker, CLEAN_LOOP, LEAKER)[LEAKER]
        docker("restart", "-t", "0", STEADY)
        explanation: dict[str, Any] = {}

        def only_leaked_ones_are_left() -> bool:
            """The kernel takes its time to let go of what nothing holds, the more the busier the machine is."""
            drain(docker.parent)
            # From then on what was removed and not released is a zombie; and a tick to record that.
            certain = time.monotonic_ns() + RELEASED_WITHIN_NS
            until("that is recorded", lambda: ticks(recording)[-1] > certain, PATIENCE_S)
            explanation.update(explain(recording, docker.socket))
            return sum(each["zombies"] for each in of_docker(explanation, docker)) <= len(list(leaked.iterdir()))

        until("all others are released", only_leaked_ones_are_left, PATIENCE_S)

    crashed = sorted(file.stat().st_mtime for file in leaked.iterdir())
    started = docker.started(since=began)
    (leaker,) = of_docker(explanation, docker)
    assert leaker["containers"] == [{"id": number, "name": LEAKER, "image": IMAGE, "count": len(crashed)}]
    assert leaker["zombies"] == len(crashed)
    # Each start makes a cgroup; only the leaker's stay.
    assert started[number] == len(crashed) and started[clean] > 1 and started[steady] == 2
    assert leaker["made"] == started.total()
    assert leaker["example"] == f"{docker.parent}/{number}"
    # Each cgroup is removed after the crash, and before there is another one of the same name.
    assert crashed[0] <= seconds(leaker["first"]) <= crashed[1]
    assert crashed[-1] <= seconds(leaker["last"]) <= stopped
    span = seconds(leaker["last"]) - seconds(leaker["first"])
    assert leaker["per_hour"] == pytest.approx((len(crashed) - 1) * 3600 / span, rel=0.01)
    assert leaker["creators"] == [{"comm": "runc", "count": len(crashed)}]
    # runc is often gone before its command line could be read, and the shim that started it may have slept.
    creator = leaker["creator"]
    assert creator["comm"] == "runc"
    assert creator["cmdline"] is None or number in creator["cmdline"]
    assert creator["parent_comm"] is None or creator["parent_comm"].startswith("containerd-shim")
    assert nameless(recording, docker.parent) == []
    # Its neighbours did nothing wrong: their names are nowhere.
    reported = json.dumps(explanation["leakers"])
    assert CLEAN_LOOP not in reported and STEADY not in reported and clean not in reported and steady not in reported

    (parent,) = [each for each in explanation["parents"] if each["cgroup"] == docker.parent]
    assert parent["shmem_bytes"] == len(crashed) * os.sysconf("SC_PAGE_SIZE")

    # Docker still tells who it was once the container is gone.
    docker("rm", "-f", LEAKER)
    assert container_names(docker.socket, began).names[number] == ContainerName(LEAKER, IMAGE, "docker")
