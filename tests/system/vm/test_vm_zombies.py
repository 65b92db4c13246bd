"""On cgroup v2 and on v1 before its statistics were exact, for each kind of pin: 300 made, of a page each, counted
exactly, their kind and parent named, the right remedy planned, applied, and as many freed as are known to be possible
there."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from tests.system.vm.vm_disks import PYTHON
from tests.system.vm.vm_machine import Machine

pytestmark = [pytest.mark.vm, pytest.mark.timeout(5400)]
COUNT = 300
FILES = "/var/lib/exhume-lab/exhume-lab"
# Counts of the recorder on each side of a fix: three have to follow one.
COUNTS = 5
# Seconds without any change after which nothing more is expected to go.
STILL_S = 60


@dataclass(frozen=True)
class Expected:
    """The kind of page that is named, the steps that are planned, and how many are freed."""

    kind: str
    steps: list[str]
    least: int


# One swap entry or page in a hundred may be out of reach for a moment, as on other kernels.
CACHED = ["fadvise", "reclaim", "drop-caches"]
EXPECTED = {
    "tmpfs": Expected("shmem", ["swap-through"], 298),
    "ext4": Expected("file", CACHED, 300),
    "shared": Expected("file", CACHED, 300),
    "metadata": Expected("metadata", ["reclaim", "drop-caches"], 300),
    "swap": Expected("swap", ["swapoff"], 300),
    "mapped": Expected("mapped", ["reclaim"], 300),
}


def parent_of(machine: Machine) -> str:
    return f"{machine.kernel.memory_root}/exhume-lab"


@contextmanager
def zombies(machine: Machine, pin: str) -> Iterator[int | None]:
    """So many of them, and the process that holds them, if there is one."""
    made = machine.run_exhume("lab", "run", "zombies", "--count", str(COUNT), "--pin", pin)
    try:
        assert made.out.startswith(f"{COUNT} zombies below {parent_of(machine)}")
        holder = re.search(r"process (\d+) holds", made.err)
        yield int(holder[1]) if holder else None
    finally:
        cleaned = machine.exhume("lab", "clean")
        assert settled(machine, 0) == 0, cleaned + machine.shell("cat /proc/mounts; ps")
        assert machine.shell("tail -n +2 /proc/swaps") == ""


def settled(machine: Machine, most: int) -> int:
    """The kernel's own count, once it is done with those that nothing holds, or none went for a while."""
    if machine.kernel.cgroup_version == 2:
        read = "sed -n 's/^nr_dying_descendants //p' /sys/fs/cgroup/cgroup.stat"
    else:
        kernel = "awk '$1 == \"memory\" {print $3}' /proc/cgroups"
        read = f"echo $(( $({kernel}) - $(find {machine.kernel.memory_root} -type d | wc -l) ))"
    return int(machine.shell(SETTLE.format(read=read, most=most, still=STILL_S)))


SETTLE = """
count=$({read}) still=0
while [ $count -gt {most} ] && [ $still -lt {still} ]; do
    sleep 1
    now=$({read})
    [ $now -lt $count ] && still=0 || still=$((still + 1))
    count=$now
done
echo $count
"""


def assert_counted_and_named(machine: Machine, kind: str) -> None:
    report = machine.exhume_json("zombies", "--explain", "--dir", "/var/none", codes=(0, 1))
    assert report["zombies"] == COUNT == settled(machine, COUNT)
    memory = report["hierarchies"][0]
    assert (memory["cgroup_version"], memory["path"]) == (machine.kernel.cgroup_version, machine.kernel.memory_root)
    parent = report["explanation"]["parents"][0]
    # v1 has no count by parent.
    assert (parent["path"], parent["zombies"]) == (
        parent_of(machine),
        COUNT if machine.kernel.cgroup_version == 2 else None,
    )
    held = sum(parent[f"{each}_bytes"] for each in ("file", "shmem", "anon", "swap", "unclassified"))
    assert held >= (1 if kind in ("file", "mapped", "mlocked") else COUNT) * 4096
    patterns = report["explanation"]["pins"]["patterns"]
    if kind == "metadata":
        # These kernels have no cachestat, without which the pages of a device can't be seen: that is reported.
        assert not patterns
        assert any("cachestat" in spot for spot in report["explanation"]["blind_spots"])
        return
    # The cgroup of a page in swap can't be read.
    cgroup = parent_of(machine) if kind != "swap" else None
    assert (kind, cgroup) in [(pattern["kind"], pattern["cgroup"]) for pattern in patterns], report["explanation"]


@pytest.mark.parametrize("pin", EXPECTED)
def test_they_are_counted_explained_and_freed(machine: Machine, pin: str) -> None:
    expected = EXPECTED[pin]
    with zombies(machine, pin):
        contents = f"cat {FILES}/tmpfs/*/* | sha256sum"
        # Reading a file brings its pages back from swap, so those can't be read before.
        before = machine.shell(contents) if pin == "tmpfs" else ""
        assert_counted_and_named(machine, expected.kind)
        plan = machine.exhume_json("fix", "plan", "zombies")
        assert [part["id"] for part in plan["steps"][0]["parts"]] == expected.steps, plan["summary"]
        assert parent_of(machine) in plan["summary"]
        assert plan["count"] == COUNT
        assert settled(machine, COUNT) == COUNT, "a plan changes nothing"
        applied = freed_by(machine)["steps"][0]["details"]
        assert COUNT - settled(machine, COUNT - expected.least) >= expected.least, applied
        assert applied["before"] - applied["after"] >= expected.least
        assert {outcome["status"] for outcome in applied["outcomes"]} <= {"done", "not-needed"}, applied
        if before:
            assert machine.shell(contents) == before


def freed_by(machine: Machine, *options: str) -> dict:
    """`fix apply zombies`, as the fix is recorded."""
    command = ("fix", "apply", "zombies", "--yes", "--baseline", "0s", "--max-time", "1000s", *options)
    fix = machine.exhume_json(*command, seconds=3600)
    assert fix["state"] == "applied"
    return fix


def test_reclaim_on_the_parent_frees_what_it_is_known_to_free(machine: Machine) -> None:
    with zombies(machine, "ext4"):
        applied = freed_by(machine, "--only", "reclaim")
        assert COUNT - settled(machine, COUNT - 281) >= 281, applied


def test_locked_pages_are_left_and_their_holder_is_named(machine: Machine) -> None:
    with zombies(machine, "mlock") as holder:
        assert holder is not None
        assert_counted_and_named(machine, "mlocked")
        plan = machine.exhume_json("fix", "plan", "zombies")
        assert [(step["id"], step["automatic"]) for step in plan["steps"]] == [("holders", False)]
        assert plan["steps"][0]["targets"] == [str(holder)]
        assert f"pid {holder}" in plan["steps"][0]["title"]
        assert settled(machine, COUNT) == COUNT
        machine.shell(f"kill -0 {holder}")


RECORD = """
{python} -m exhume.cli.main record --dir /var/fix >/var/fix.log 2>&1 & echo $! >/var/fix.pid
until ls /var/fix/*/ >/dev/null 2>&1; do sleep 0.2; done
"""
# Waits for so many counts from now on: a slow core makes them rarer. Prints how long that took.
WAIT_FOR_COUNTS = """
import sys, time
from pathlib import Path
from exhume.store.read.recording import Recording
began = time.time_ns()
while True:
    rows = Recording.open(Path("/var/fix")).read("cgroups", None, ["parent", "dying", "wall"]).to_pylist()
    if sum(row["wall"] > began and not row["parent"] and row["dying"] is not None for row in rows) >= int(sys.argv[1]):
        break
    time.sleep(5)
print((time.time_ns() - began) // 10**9)
"""


def wait_for_counts(machine: Machine) -> int:
    answer = machine.run(str(PYTHON), "-c", WAIT_FOR_COUNTS, str(COUNTS))
    assert answer.code == 0, answer.err + machine.shell("cat /var/fix.log")
    return int(answer.out)


def test_a_recorded_fix_is_verified(machine: Machine) -> None:
    with zombies(machine, "ext4"):
        machine.shell(RECORD.format(python=PYTHON))
        try:
            wait_for_counts(machine)
            fix = freed_by(machine, "--dir", "/var/fix")
            seconds = wait_for_counts(machine)
            # What was recorded since is enough: without --for it would look for ten minutes.
            command = ("fix", "verify", fix["id"], "--dir", "/var/fix", "--for", f"{seconds}s")
            verdict = machine.exhume_json(*command, codes=(0, 1))
            count = next(each for each in verdict["measures"] if each["measure"] == "zombies")
            assert count["change"] == "improved", verdict
            assert (count["before"]["value"], count["after"]["value"]) == (COUNT, 0)
        finally:
            machine.shell("p=$(cat /var/fix.pid); kill $p; while kill -0 $p; do sleep 0.2; done; rm -r /var/fix")
