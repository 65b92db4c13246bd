"""A leak on the real kernel: what is forecast from its first part is compared with when it really gets there."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from exhume.diagnose.engine import diagnose
from exhume.lab.hierarchies import find_memory_hierarchy
from exhume.lab.leftovers import OwnCgroup
from exhume.lab.score.play import recorder
from exhume.lab.stage import stage
from exhume.model.clock import NANOS, Window
from exhume.procfs.host import Host
from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.xdist_group("cgroups")]
PER_S, SECONDS, LEARNED_S = 14, 95, 55
# Leaves a page of shared memory in each of so many cgroups a second, and removes them.
LEAK = """
import os, sys, time
parent, join, files, rate, seconds = sys.argv[1:]
began, made = time.monotonic(), 0
while (now := time.monotonic() - began) < float(seconds):
    while made < now * float(rate):
        cgroup = f"{parent}/leak-{made}"
        os.mkdir(cgroup)
        with open(f"{files}/{made}", "wb") as file:
            for target in (cgroup, f"{parent}/home"):
                with open(f"{target}/{join}", "w") as procs:
                    procs.write("0")
                if target == cgroup:
                    file.write(b"x" * 100)
                    file.flush()
        os.rmdir(cgroup)
        made += 1
    time.sleep(0.02)
"""


def test_many_zombies_are_forecast_before_there_are_many(work: Path) -> None:
    hierarchy = find_memory_hierarchy(Host())
    files = Path(f"/dev/shm/{work.name}")
    with stage("leak", seconds=SECONDS, work=work) as playing:
        parent = hierarchy.root / work.name
        playing.leftovers.add(OwnCgroup(str(parent)))
        parent.mkdir()
        hierarchy.prepare(parent)
        (parent / "home").mkdir()
        files.mkdir()
        try:
            with recorder(work / "recording"):
                args = (parent, hierarchy.join_file, files, PER_S, SECONDS)
                command = [sys.executable, "-c", LEAK, *map(str, args)]
                began = time.time_ns()
                subprocess.run(command, check=True, timeout=SECONDS + 60)
                time.sleep(2)
        finally:
            for each in files.iterdir():
                each.unlink()
            files.rmdir()
    recording = Recording.open(work / "recording")
    learned = Window(began, began + LEARNED_S * NANOS)
    finding = next(each for each in diagnose(recording, learned).findings if each.cause == "zombie-memcgs")
    forecast = finding.forecast
    assert forecast is not None
    assert forecast.per_hour.low <= PER_S * 3600 <= forecast.per_hour.high
    many = next(each for each in forecast.milestones if each.code == "many")
    rows = recording.read("cgroups", Window(began, began + 2 * SECONDS * NANOS), ["wall", "parent", "dying"])
    listed = [(row["wall"], row["parent"], row["dying"]) for row in rows.to_pylist()]
    counts = [(wall, dying) for wall, parent_name, dying in listed if parent_name == "" and dying is not None]
    after = min(wall for wall, dying in counts if dying >= many.limit)
    before = max(wall for wall, dying in counts if wall < after)
    # From the last count of what was learned on; counts come every ten seconds.
    last = max(wall for wall, _ in counts if wall < learned.until)
    assert many.latest_s is not None
    assert many.earliest_s <= (after - last) / NANOS
    assert (before - last) / NANOS <= many.latest_s
