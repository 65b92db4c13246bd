"""Carrying out the steps against zombies, on a node made of files."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.control.made_node import cgroup, node
from tests.system.zombies.own_docker import until

from exhume.control.changes import NodeTools, hold_journal
from exhume.control.worker import JobFailed, JobResult, JobTimeout, Workers
from exhume.model.remedy import Plan, Status, Step
from exhume.model.stop import Stop
from exhume.remedy.zombies import apply
from exhume.remedy.zombies.apply import ACTIONS, Applier, Bench, Limits, Observer
from exhume.remedy.zombies.situation import Watch, work_place


@pytest.fixture
def workers():
    stop = Stop()
    yield Workers(stop)
    stop.close()


def test_v2_is_reclaimed_in_pieces_for_as_long_as_that_frees_any(tmp_path, workers):
    top = cgroup(tmp_path / "kubepods", reclaim="", stat="file 4096\n", swap__max="max")
    pod = cgroup(top / "pod", swap__max="max")
    host = node(tmp_path, swaps="Filename Type Size Used Priority\n/swap file 64 4 -2\n")
    counts = iter([500, 300, 300, 300])
    written, sheltered = [], []
    with hold_journal(tmp_path / "work", host) as journal:
        bench = Bench(NodeTools(workers, host, tmp_path), journal, lambda: next(counts))
        for done in ACTIONS["reclaim"](Step("reclaim", "", "", action="reclaim", targets=(str(top),)), bench):
            assert done.complete
            written.append((top / "memory.reclaim").read_text())
            sheltered.append((pod / "memory.swap.max").read_text())
    assert written == ["67108864 swappiness=0"] * 3
    assert sheltered == ["0"] * 3
    assert (pod / "memory.swap.max").read_text() == "max"


class CutWorkers:
    """Workers whose passes are all cut off; what is charged after each is given."""

    def __init__(self, usage: Path, charged: list[int]) -> None:
        self.usage, self.left, self.passes = usage, iter(charged), 0

    def run(self, job, seconds, **how) -> JobResult:
        self.passes += 1
        self.usage.write_text(f"{next(self.left)}\n")
        return JobResult(False, 0, 1.0, 0.1)


@pytest.mark.parametrize(
    ("charged", "passes"),
    [
        ([900, 900, 900, 500, 100] + [100] * 10, 15),  # slow: it goes on while anything leaves
        ([900] * 10, 10),  # stubborn
        ([900, 950, 910, 950, 920, 950, 930, 950, 940, 950], 10),  # what lives there comes and goes
    ],
)
def test_pages_on_their_way_to_swap_get_time(tmp_path, charged, passes):
    top = cgroup(tmp_path / "kubepods", force_empty="", usage_in_bytes="900\n")
    slow = CutWorkers(top / "memory.usage_in_bytes", charged)
    bench = Bench(NodeTools(slow, node(tmp_path), tmp_path), None, lambda: 300)
    step = Step("swap-through", "", "", action="swap-through", targets=(str(top),))
    assert len(list(apply._reclaim_all(step, bench, cut_passes=10))) == passes
    again = CutWorkers(top / "memory.usage_in_bytes", charged)
    bench = Bench(NodeTools(again, node(tmp_path), tmp_path), None, lambda: 300)
    assert len(list(apply._reclaim_all(step, bench))) == 2, "files have nothing to wait for"


def test_named_files_are_paged_out_before_reclaim_and_none_is_reclaimed_without_zombies(tmp_path, monkeypatch):
    top = cgroup(tmp_path / "kubepods", force_empty="", usage_in_bytes="900\n", swappiness="60")
    jobs = []

    def done(self, job, seconds, **how) -> JobResult:
        jobs.append((job["job"], job.get("files")))
        return JobResult(True, len(job.get("files", ())), 0.1, 0.1)

    monkeypatch.setattr(Workers, "run", done)
    counts = iter([5, 0])
    params = (("file", "/shm/a"), ("other", "x"), ("file", "/shm/b"))
    step = Step("swap-through", "", "", action="swap-through", targets=(str(top),), bytes=1 << 20, params=params)
    with hold_journal(tmp_path / "work", node(tmp_path)) as journal:
        bench = Bench(NodeTools(Workers(Stop()), node(tmp_path), tmp_path), journal, lambda: next(counts))
        list(ACTIONS["swap-through"](step, bench))
    assert [each for each in jobs if each[0] != "settings"] == [
        ("swapfile", None),
        ("page-out", ["/shm/a", "/shm/b"]),
        ("reclaim", None),
    ]


def test_files_are_let_go_in_batches_without_leaving_one_out(tmp_path, workers, monkeypatch):
    monkeypatch.setattr(apply, "_FILES_AT_A_TIME", 2)
    asked = []
    run = Workers.run

    def watched(self, job, seconds, **others):
        asked.append(job["files"])
        return run(self, job, seconds, **others)

    monkeypatch.setattr(Workers, "run", watched)
    files = tuple(str(tmp_path / name) for name in "abcde")
    step = Step("fadvise", "", "", action="fadvise", targets=files)
    with hold_journal(tmp_path / "work", node(tmp_path)) as journal:
        batches = list(
            ACTIONS["fadvise"](step, Bench(NodeTools(workers, node(tmp_path), tmp_path), journal, lambda: 0))
        )
    assert len(batches) == 3
    assert tuple(file for files in asked for file in files) == files


def test_a_place_without_a_disk_is_refused(tmp_path):
    mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:9 / {} rw - {} x rw\n"
    for kind, said in (("tmpfs", "on tmpfs"), ("fuse.sshfs", "on fuse.sshfs"), ("xfs", "")):
        host = node(tmp_path, **{"self/mountinfo": mounts.format(tmp_path, kind)})
        place = work_place(host, tmp_path / "not/made/yet")
        assert said in place.why_not
        assert bool(place.why_not) == bool(said)
        assert place.free > 0


@pytest.fixture
def stuck_disk(tmp_path) -> Iterator[Callable[[], None]]:
    """A mounted disk with dirty pages that takes no data: its image is on a file system that is frozen. Yields what
    thaws that."""
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    for image, mountpoint, size in ((tmp_path / "image", outer, 48 << 20), (outer / "image", inner, 16 << 20)):
        with image.open("xb") as file:
            file.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        mountpoint.mkdir()
        subprocess.run(["mount", "-o", "loop", image, mountpoint], check=True)
    (inner / "dirty").write_bytes(bytes(1 << 20))
    subprocess.run(["fsfreeze", "--freeze", outer], check=True)
    frozen = [outer]

    def thaw() -> None:
        if frozen:
            subprocess.run(["fsfreeze", "--unfreeze", frozen.pop()], check=True)

    try:
        yield thaw
    finally:
        thaw()
        subprocess.run(["umount", inner, outer], check=True)


def state_of(pid: int) -> str:
    """D while it waits for a disk; Z once it ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.needs("mkfs.ext4", "fsfreeze", "mount")
def test_a_disk_that_takes_no_data_does_not_hold_up_dropping_caches(tmp_path, workers, stuck_disk):
    file = tmp_path / "drop_caches"
    file.touch()
    step = Step("drop-caches", "", "", action="drop-caches", targets=(str(file),))
    bench = Bench(NodeTools(workers, node(tmp_path), tmp_path), None, lambda: 0, step_s=0.5)
    began = time.monotonic()
    with pytest.raises(JobTimeout, match="nothing was dropped: sync did not end") as raised:
        list(ACTIONS["drop-caches"](step, bench))
    assert time.monotonic() - began < 30, "a worker starts within this, and has half a second"
    pid = int(str(raised.value).partition("(pid ")[2].partition(")")[0])
    assert state_of(pid) == "D"
    stuck_disk()
    until("the worker that was left behind ends", lambda: state_of(pid) == "Z", 60)
    assert file.read_text() == "", "it drops nothing after its time"


@pytest.mark.parametrize(
    ("error", "stopped", "status"),
    [
        (JobTimeout("sync did not end"), False, Status.TIMED_OUT),
        (JobTimeout("sync did not end"), True, Status.INTERRUPTED),
        (JobFailed("sync did not end"), False, Status.FAILED),
    ],
)
def test_a_step_that_does_not_end_is_reported_with_its_reason(tmp_path, monkeypatch, error, stopped, status):
    given = []

    def fails(step, bench):
        given.append(bench.step_s)
        if stopped:
            stop.set()
        raise error
        yield

    host, stop = node(tmp_path), Stop()
    monkeypatch.setitem(ACTIONS, "drop-caches", fails)
    monkeypatch.setattr(apply, "still_held", lambda parents, step: True)
    step = Step("drop-caches", "drop", "", action="drop-caches", targets=("x",))
    with hold_journal(tmp_path / "work", host) as journal:
        applier = Applier(host, stop, journal, None, Watch(host, tmp_path, pin_seconds=0.1), Observer())
        report = applier.apply(Plan("zombies", 5, "", (step,)), Limits(lambda step: True, step_s=7.0))
    stop.close()
    (outcome,) = report.outcomes
    assert (outcome.status, outcome.why) == (status, "sync did not end")
    assert given == [7.0], "--max-time reaches it"
