"""A real leaker of memory cgroups is measured, stopped, and that the zombies no longer grow is proved."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.parts import missing
from tests.system.zombies.own_docker import until

from exhume.collect.cgroup.census import take_census
from exhume.lab.hierarchies import find_memory_hierarchy
from exhume.model.clock import SystemClock
from exhume.model.errors import LabError
from exhume.model.remedy import Effect, Measure, Step
from exhume.procfs.host import Host
from exhume.remedy.ledger import Entry, Fix, Ledger, Mark, new_id
from exhume.remedy.verify.proof import Baseline, take_baseline

# On cgroup v1 zombies can only be counted for the whole machine.
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.xdist_group("cgroups")]

PROGRAM = (sys.executable, "-m", "exhume.cli.main")
GROWTH = Effect(Measure.ZOMBIE_GROWTH, "fall")
# For how long to look, before and after. A rate that comes and goes with the machine's speed may take longer to tell
# from chance: where there was not enough evidence, it is measured again and longer.
LOOKS_S = (8, 16, 32)
# A page of a file in memory outlives its writer, and pins its cgroup. Ten a second, and fewer only where each of them
# takes longer. It ends by itself, whatever becomes of us.
LEAKER = """
for number in $(seq $3); do
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


@contextmanager
def leaking(most: int) -> Iterator[Leaker]:
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
        process = subprocess.Popen(["sh", "-c", LEAKER, "leaker", parent, pages, str(most)], start_new_session=True)
        made = Leaker(process, Path(pages))
        try:
            until("it leaks", lambda: made.leaked > 3, 60)
            yield made
        finally:
            stop(made)
            for cgroup in (*parent.glob("*/"), parent):
                with suppress(FileNotFoundError):
                    cgroup.rmdir()
    # Without their pages they go.
    until("the zombies are freed", lambda: (take_census(Host()).dying or 0) < before + 20, 60)


def stop(leaker: Leaker) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leaker.process.pid, 15)
    leaker.process.wait(60)


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


def stopped_and_verified(seconds: int, work: Path) -> tuple[dict[str, Any], int]:
    """What `exhume fix verify` says of a leaker that was looked at for so long, and for as long after its end; and with
    which code it ended."""
    # It is stopped long before that, also where each step here takes its time.
    most = 10 * seconds + 1000
    with leaking(most) as leaker:
        baseline = take_baseline(Host(), [GROWTH], seconds)
        (before,) = baseline.observed
        assert before.stretch.value > 3600, "more than one a second"
        began = SystemClock().wall_ns()
        stop(leaker)
        assert 20 < leaker.leaked < most
        fix = applied(work, baseline, began)
        # What is half done on its way down is not counted.
        time.sleep(0.5)
        words = ("fix", "verify", fix.id, "--for", f"{seconds}s", "--json", "--work-dir", str(work))
        done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=120 + seconds, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.returncode


def test_a_leaker_that_is_stopped_is_proved_by_the_zombies_that_no_longer_come(tmp_path: Path):
    for seconds in LOOKS_S:
        proof, code = stopped_and_verified(seconds, tmp_path / f"{seconds}s")
        (growth,) = proof["measures"]
        if growth["change"] != "not-enough-evidence":
            break
    assert (growth["measure"], growth["change"], growth["as_expected"]) == ("zombie-growth", "improved", True), growth
    assert (proof["verdict"], code) == ("proved", 0)
