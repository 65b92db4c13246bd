"""The whole story on the real kernel: what stole the core, who leaked, and what to disable, from a recording."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.parts import missing

from exhume.collect.containers.identity import identify
from exhume.diagnose.engine import diagnose
from exhume.lab.leftovers import clean
from exhume.lab.own_docker import docker_missing
from exhume.lab.scenarios import SCENARIOS, incident
from exhume.lab.scenarios.incident import AGENT, ENOUGH, IMAGE, KUBELET
from exhume.lab.score.plan import others_busy
from exhume.lab.stage import stage
from exhume.model.finding import Finding, Severity
from exhume.store.read.recording import Recording

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.needs("dockerd", "docker", "busybox"),
]


@pytest.fixture(autouse=True, scope="module")
def docker() -> None:
    if why := docker_missing():
        missing(f"a Docker that can be started ({why})")


# Permille of a second; the recorder needs a little of each core.
IN_KERNEL = 950
CALM_S, SPUN_S, AFTER_S = 6, 8.0, 2.0
# The diagnosis compares with calm seconds in a row; while others have the cores, there are none.
CALM_SHARE, CALM_WITHIN_S = 0.75, 45.0
# Docker waits twice as long before each restart: with so many in each of its lives five are enough.
IN_ONE_LIFE = 800
# Prepares the story, in a work directory and on a small scale, says so, and waits for its end.
PREPARED = """
import sys, time
from pathlib import Path
from exhume.lab.scenarios import incident
from exhume.lab.stage import stage
incident.ENOUGH = 600
with stage("incident", seconds=3, work=Path(sys.argv[1])) as playing:
    incident.prepare_incident(playing)
    print(playing.name, flush=True)
    time.sleep(60)
"""


@contextmanager
def recorder(directory: Path, said: Path) -> Iterator[None]:
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "exhume.cli.main", "record", "--dir", directory],
            env={name: value for name, value in os.environ.items() if not name.startswith(("EXHUME_", "DOCKER_"))},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, said.read_text()
    finally:
        process.kill()
        process.wait()


def wait_for_calm() -> None:
    """Until so many seconds in a row were calm; where there never are, it goes on with what it has."""
    calm, until = 0, time.monotonic() + CALM_WITHIN_S
    while calm < CALM_S and time.monotonic() < until:
        calm = calm + 1 if others_busy(1.0) < CALM_SHARE else 0


def text_of(finding: Finding, role: str) -> str:
    return "\n".join(link.text for link in finding.chain if link.role == role)


def test_the_story_is_written_from_its_recording(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident, "IN_ONE_LIFE", IN_ONE_LIFE)
    scenario = SCENARIOS["incident"]
    assert scenario.prepare is not None
    core = max(os.sched_getaffinity(0))
    with stage("incident", seconds=SPUN_S, core=core, work=work) as playing:
        with recorder(tmp_path / "recording", tmp_path / "said"):
            scenario.prepare(playing)
            wait_for_calm()
            scenario.play(playing)
            time.sleep(AFTER_S)
        docker_name = playing.name
    recording = Recording.open(tmp_path / "recording")
    span = recording.span()
    assert span is not None
    answer = diagnose(recording, span)

    found = answer.findings[0]
    assert (answer.verdict, found.cause, found.severity) == ("starved", "zombie-memcgs", Severity.CRITICAL)
    assert found.confidence >= 0.9
    # The reset, and the core in the kernel.
    symptoms = text_of(found, "symptom")
    assert "TX q 5 is paused for too long" in symptoms and f"core {core} was in the kernel for up to" in symptoms
    shown = [evidence for link in found.chain for evidence in link.evidence if evidence.table == "cpu"]
    assert any(each.cpu == core and float(each.value) >= IN_KERNEL for each in shown), shown
    # Function, process and core.
    assert (found.culprit.cpu, found.culprit.comm) == (core, KUBELET)
    assert found.culprit.function is not None and found.culprit.function in text_of(found, "mechanism")
    # The counts: what the kernel tracks against what can be seen.
    last = recording.read("cgroups", None).to_pylist()[-1]
    counted = [row for row in recording.read("cgroups", None).to_pylist() if row["parent"] == "" and row["dying"]]
    assert max(row["dying"] for row in counted) >= ENOUGH, last
    causes = text_of(found, "root_cause")
    assert any(f"{row['kernel']:,} memory cgroups and {row['visible']:,} are visible" in causes for row in counted)
    # The leaker, and what to stop.
    assert f"container {AGENT} (" in causes and IMAGE in causes
    stop = next(each for each in found.remedies if each.id == "stop-container")
    assert stop.target == AGENT and stop.command == f"exhume fix apply docker:{AGENT}"
    leaked = next(
        str(evidence.value)
        for link in found.chain
        for evidence in link.evidence
        if (evidence.table, evidence.how) == ("cgroup_events", "last")
    )
    identity = identify(leaked)
    assert docker_name in leaked and identity is not None and (identity.container or "")[:12] in causes

    assert left_by(docker_name, work) == []


def left_by(name: str, work: Path) -> list[str]:
    """What there still is of a story."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [*work.iterdir(), *Path("/sys/fs/cgroup").glob(f"*/{name}-engine")]
    return [*map(str, found), *(line for line in mounts if str(work) in line)]


def test_a_story_that_was_killed_leaves_nothing_once_it_is_cleaned(work: Path) -> None:
    story = subprocess.Popen([sys.executable, "-c", PREPARED, work], stdout=subprocess.PIPE, text=True)
    assert story.stdout is not None
    with story.stdout as said:
        name = said.readline().strip()
        story.kill()
    story.wait()
    assert name and left_by(name, work)
    assert clean(work).failed == []
    assert left_by(name, work) == []
