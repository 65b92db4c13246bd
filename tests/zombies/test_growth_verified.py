"""A real leaker of memory cgroups is measured, stopped, and that the zombies no longer grow is proved."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from own_docker import until
from tests.parts import missing

from exhume.collect.host import Host
from exhume.collect.memcg.census import take_census
from exhume.lab.memory_hierarchy import find_memory_hierarchy
from exhume.model.clock import SystemClock
from exhume.model.errors import LabError
from exhume.model.remedy import Effect, Measure, Step
from exhume.remedy.ledger import Entry, Fix, Ledger, Mark, new_id
from exhume.remedy.verify.baseline import Baseline, take_baseline

# On cgroup v1 zombies can only be counted for the whole machine.
pytestmark = [pytest.mark.root, pytest.mark.alone]

PROGRAM = (sys.executable, "-m", "exhume.cli.main")
GROWTH = Effect(Measure.ZOMBIE_GROWTH, "fall")
# A page of a file in memory outlives whoever wrote it, and pins its cgroup. Ten a second, however long each of them
# takes: a rate that comes and goes with the machine's speed takes longer to tell from chance. It ends by itself,
# whatever becomes of us.
LEAKER = """
for number in $(seq 250); do
    sleep 0.1 &
    mkdir "$1/$number" && sh -c 'echo $$ > "$1/cgroup.procs"; head -c 4096 /dev/zero > "$2"' - "$1/$number" "$2/$number"
    rmdir "$1/$number"
    wait
done
"""


@dataclass(frozen=True)
class Leaker:
    process: subprocess.Popen[bytes]
    pages: Path

    @property
    def leaked(self) -> int:
        return len(list(self.pages.iterdir()))


@pytest.fixture
def leaker() -> Iterator[Leaker]:
    try:
        hierarchy = find_memory_hierarchy(Host())
    except LabError as error:
        missing(f"memory cgroups ({error})")
    before = take_census(Host()).dying or 0
    parent = hierarchy.root / f"exhume-leaks-{os.getpid()}"
    parent.mkdir()
    if hierarchy.version == 2:
        (parent / "cgroup.subtree_control").write_text("+memory")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as pages:
        process = subprocess.Popen(["sh", "-c", LEAKER, "leaker", parent, pages], start_new_session=True)
        made = Leaker(process, Path(pages))
        try:
            until("it leaks", lambda: made.leaked > 3, 10)
            yield made
        finally:
            stop(made)
            for cgroup in (*parent.glob("*/"), parent):
                with suppress(FileNotFoundError):
                    cgroup.rmdir()
    # Without their pages they go.
    until("the zombies are freed", lambda: (take_census(Host()).dying or 0) < before + 20, 10)


def stop(leaker: Leaker) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leaker.process.pid, 15)
    leaker.process.wait(10)


def applied(place: Path, baseline: Baseline, began: int) -> Fix:
    """The fix that stopped it, as a ledger keeps it."""
    step = Step("stop", "stop the leaker", "it leaks cgroups", action="stop-units", effects=(GROWTH,))
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    now = SystemClock().wall_ns()
    fix = Fix(
        new_id(now), "node", machine, "/", "", "leaker", "It is stopped.", began,
        (Entry(step, Mark.DONE, {}, now, now),),
        baseline=baseline.to_dict(), applied_at=began, finished_at=now,
    )  # fmt: skip
    return Ledger(place).save(fix)


def test_a_leaker_that_is_stopped_is_proved_by_the_zombies_that_no_longer_come(leaker: Leaker, tmp_path: Path):
    baseline = take_baseline(Host(), [GROWTH], 8.0)
    (before,) = baseline.observed
    assert before.stretch.value > 3600, "more than one a second"
    began = SystemClock().wall_ns()
    stop(leaker)
    assert 20 < leaker.leaked < 250
    fix = applied(tmp_path, baseline, began)
    # What is half done on its way down is not counted.
    time.sleep(0.5)
    words = ("fix", "verify", fix.id, "--for", "8s", "--json", "--work-dir", str(tmp_path))
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    proof = json.loads(done.stdout)
    (growth,) = proof["measures"]
    assert (growth["measure"], growth["change"], growth["as_expected"]) == ("zombie-growth", "improved", True), growth
    assert (proof["verdict"], done.returncode) == ("proved", 0)
