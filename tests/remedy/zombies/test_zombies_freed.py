"""On the real kernel, for each kind of pin: 500 made, the right remedy planned, applied, and as many freed as are known
to be possible. Where the kernel itself reclaims meanwhile, so many may be missing as it is seen to take, and no more
(see `tests/page_removals.py`)."""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.page_removals import traced_removals

from exhume.collect.cgroup.residuals import residuals
from exhume.control.swap import swaps
from exhume.lab.programs.zombie_maker import CONTENT
from exhume.lab.zombies import ZombieLab
from exhume.model.zombies import PAGE
from exhume.procfs.host import Host

pytestmark = [pytest.mark.root, pytest.mark.needs("mkfs.ext4"), pytest.mark.alone]
COUNT = 500
# Of the machine's zombies: single ones that others leave meanwhile, or that the kernel lets go of a second late.
OTHERS = 5
# memory.swappiness of a live neighbour, and of the parent of both.
OWN_SETTINGS = ["37\n", "60\n"]

# Pin -> the steps of its plan, what holds it in words, and how many have to be freed when it is applied.
EXPECTED = {
    "ext4": (["fadvise", "reclaim", "drop-caches"], "cached files", 499),
    "shared": (["fadvise", "reclaim", "drop-caches"], "cached files", 500),
    "mapped": (["reclaim"], "cached files", 500),
    "metadata": (["drop-caches"], "filesystem metadata", 500),
    "tmpfs": (["swap-through"], "shared memory", 496),
    "swap": (["swapoff"], "swap", 500),
}
IN_PAGE_CACHE = ("ext4", "shared", "mapped", "metadata")
# Single steps, as far as they get alone.
ALONE = [("ext4", "fadvise", 479), ("ext4", "reclaim", 498), ("ext4", "drop-caches", 499), ("shared", "reclaim", 500)]


# Freed by one step each, like others that stay: `make test-vm` frees them too.
OF_ONE_STEP = ("metadata", "mapped")


@pytest.mark.parametrize(
    "pin", [pytest.param(pin, marks=pytest.mark.long) if pin in OF_ONE_STEP else pin for pin in EXPECTED]
)
def test_the_right_remedy_is_planned_and_frees_them(pin, lab_of, fix):
    steps, words, least = EXPECTED[pin]
    with traced_removals() as removals, lab_of(COUNT, pin) as lab, live_neighbour(lab) as settings:
        assert lab.made == COUNT
        # Reading a file brings its pages back from swap, so those can't be read before.
        before = digests(lab.files) if pin == "tmpfs" else {}
        swaps_before = [(swap.path, swap.priority) for swap in swaps(Host())]
        run = fix(lab)
        # The kernel tells pages late.
        wait_until(lambda: pages_held(lab) >= COUNT - removals.of(lab).by_kernel)
        removed, held = removals.of(lab), pages_held(lab)
        plan = run.plan()
        pinned, still_held = lab.pinned(), pages_held(lab)
        planned = removals.of(lab)
        assert planned.by_processes == removed.by_processes, "a plan changes nothing"
        assert COUNT - planned.by_kernel <= pinned <= COUNT
        assert held - (planned.by_kernel - removed.by_kernel) <= still_held <= held
        assert [part["id"] for part in plan["steps"][0]["parts"]] == steps
        assert words in plan["summary"]
        assert str(lab.parent) in plan["summary"]
        assert plan["count"] >= COUNT - planned.by_kernel
        applied = run.apply()
        assert_freed(lab, least)
        assert settings() == OWN_SETTINGS, "a live neighbour keeps its settings, and the parent its own"
        done = removals.of(lab)
        # What the kernel took while the remedy was at work may have gone before it was counted, too.
        freed = max(1, least - done.by_kernel)
        # The report has the count of the whole machine; the lab's own were counted exactly above.
        reported = max(1, freed - OTHERS)
        assert applied["before"] - applied["after"] >= reported
        assert sum(outcome["freed"] for outcome in applied["outcomes"]) >= reported
        if pin in IN_PAGE_CACHE:
            assert done.by_processes - planned.by_processes >= freed, "it is the remedy that frees them"
        assert {outcome["status"] for outcome in applied["outcomes"]} <= {"done", "not-needed"}
        assert [(swap.path, swap.priority) for swap in swaps(Host())] == swaps_before
        assert run.left() == set()
        if before:
            assert digests(lab.files) == before
        if pin == "swap":
            assert {file.read_bytes() for file in lab.files} == {CONTENT}


@pytest.mark.long
@pytest.mark.parametrize(("pin", "step", "least"), ALONE)
def test_each_step_frees_what_it_is_known_to_free(pin, step, least, lab_of, fix):
    with lab_of(COUNT, pin) as lab:
        outcomes = {outcome["id"]: outcome for outcome in fix(lab).apply("--only", step)["outcomes"]}
        assert outcomes[step]["status"] == "done"
        assert outcomes[step]["core"] is not None
        assert {outcome["status"] for name, outcome in outcomes.items() if name != step} == {"not-requested"}
        assert_freed(lab, least)


def test_locked_pages_are_left_and_their_holder_is_named(lab_of, fix):
    with lab_of(COUNT, "mlock") as lab:
        run = fix(lab)
        (step,) = run.plan()["steps"]
        assert (step["id"], step["automatic"]) == ("holders", False)
        assert step["targets"] == [str(lab.holder_pid)]
        assert step["commands"] == [f"kill {lab.holder_pid}"]
        process = run.start()
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 2, output
        assert "for a person to take" in output
        assert lab.pinned() == COUNT
        assert Path(f"/proc/{lab.holder_pid}").exists()


@pytest.mark.long
def test_tmpfs_pages_that_were_read_lately_are_freed_too(lab_of, fix):
    with lab_of(COUNT, "tmpfs") as lab:
        # Read twice they count as active, which reclaim passes over when its statistics are stale.
        before = digests(lab.files)
        assert digests(lab.files) == before
        run = fix(lab)
        run.apply()
        assert_freed(lab, 496)
        assert digests(lab.files) == before
        # Narrow as it was (below one cgroup), it can be verified later.
        assert [each["state"] for each in run.listed()] == ["applied"]


@contextmanager
def live_neighbour(lab: ZombieLab) -> Iterator[Callable[[], list[str]]]:
    """A cgroup next to the zombies with settings of its own; gives those of both, where cgroups have some (v1)."""
    neighbour = lab.parent / "neighbour"
    neighbour.mkdir()
    files = [place / "memory.swappiness" for place in (neighbour, lab.parent)]
    try:
        if files[0].exists():
            files[0].write_text(OWN_SETTINGS[0])
        yield lambda: [
            file.read_text() if file.exists() else own for file, own in zip(files, OWN_SETTINGS, strict=True)
        ]
    finally:
        neighbour.rmdir()


def pages_held(lab: ZombieLab) -> int:
    """Pages that are charged to removed cgroups below the lab's parent. A zombie takes at least one to stay."""
    return sum(parent.bytes // PAGE for parent in residuals(Host()) if parent.path == str(lab.parent))


def assert_freed(lab: ZombieLab, least: int) -> None:
    """At least so many are gone, by what is still charged (exact) and by the count (on v1 that of the whole machine,
    so zombies of others have to settle)."""
    assert wait_until(lambda: pages_held(lab) <= COUNT - least)
    assert wait_until(lambda: COUNT - lab.pinned() >= least)


def wait_until(condition: Callable[[], bool]) -> bool:
    """Whether it comes true: the kernel lets go of zombies late, and tells late what is charged."""
    until = time.monotonic() + 60
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(0.2)
    return met


def digests(files: list[Path]) -> dict[Path, str]:
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
