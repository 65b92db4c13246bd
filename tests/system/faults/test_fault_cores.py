"""Cores that go, come back, or are taken by the kernel or by others."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib import resources
from pathlib import Path

import pytest
from tests.on_time import on_time
from tests.parts import missing
from tests.system.deploy.manifests import containers, kustomized
from tests.system.faults.recorder_process import (
    RecorderProcess,
    clean_words,
    exhume,
    losses,
    monotonic,
    rows,
    seconds,
    share_sums,
    until,
)

from exhume.collect.loop import LATE_NS
from exhume.collect.perf.netlink import HotplugWatch
from exhume.control.installation import RECORDER
from exhume.lab.hierarchies import cpu_cgroups
from exhume.model.clock import MILLIS, NANOS
from exhume.model.errors import LabError
from exhume.procfs.host import Host
from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]

Start = Callable[..., RecorderProcess]
Load = Callable[..., subprocess.Popen[str]]

SPIN = "while :; do :; done"
# As many as starved a recorder that had the usual priority, on as many cores.
SPINNERS, STARVED_S = 64, 12
STARVED = sorted(os.sched_getaffinity(0))[:2]
PINNED = ["taskset", "-c", ",".join(map(str, STARVED))]
CPU1 = Path("/sys/devices/system/cpu/cpu1/online")


@pytest.fixture
def core_one() -> Iterator[Callable[[bool], None]]:
    """Take core 1 away or bring it back; at the end it is back."""
    if not CPU1.exists():
        missing("a core 1 that can be taken offline")
    yield lambda online: CPU1.write_text("1" if online else "0") and None
    CPU1.write_text("1")


@pytest.mark.needs("taskset")
def test_a_core_that_goes_and_comes_back(
    tmp_path: Path, start: Start, load: Load, core_one: Callable[[bool], None]
) -> None:
    directory = tmp_path / "recording"
    # It looks when it wants to: a look that comes late falls into another part of the story.
    with on_time():
        recorder = start(directory)

    def times(table: str, since: int, until_: int, cpu: int = 1, margin: int = NANOS * 11 // 10) -> list[int]:
        found = rows(directory, table, "cpu")
        return [row["time"] for row in found if row["cpu"] == cpu and since + margin < row["time"] < until_ - margin]

    def samples_of(process: subprocess.Popen[str], since: int) -> int:
        """On core 1, from then on."""
        columns = Recording.open(directory).read("samples", None, ["time_ms", "cpu", "pid"])
        found = zip(*(columns.column(name).to_pylist() for name in ("time_ms", "cpu", "pid")), strict=True)
        return sum((cpu, pid) == (1, process.pid) and time_ms * MILLIS > since for time_ms, cpu, pid in found)

    recorder.ticks(3)
    core_one(False)
    gone_at = monotonic()
    recorder.ticks(3)
    returning_at = monotonic()
    core_one(True)
    back_at = monotonic()
    first = load("sh", "-c", SPIN, core=1, nice=-20)
    until("samples come from the core again", lambda: samples_of(first, back_at) > 97, every=0.2)
    until("its shares are recorded again", lambda: len(times("cpu", back_at, monotonic())) >= 2, every=0.2)
    # Away and back within a second: nobody who looks once a second can see it.
    core_one(False)
    core_one(True)
    blinked_at = monotonic()
    # The load before was driven off to another core, and stays there.
    first.kill()
    second = load("sh", "-c", SPIN, core=1, nice=-20)
    until(
        "also after it was away for a blink",
        lambda: samples_of(second, blinked_at + 2 * NANOS) > 60,
        every=0.2,
    )
    assert recorder.stop() == 0
    clean_words(recorder)

    end = monotonic()
    assert times("cpu", 0, gone_at)
    assert times("cpu", gone_at - NANOS, returning_at) == [], "no row for a core that is not there"
    anchors = len(rows(directory, "anchors"))
    assert len(times("cpu", 0, end, cpu=0, margin=0)) >= anchors - 1, "the other core has a row for every tick"
    assert all(990 <= total <= 1010 for total in share_sums(directory)), "no share is wrong"
    assert "source-failed" not in losses(directory)
    samples = Recording.open(directory).read("samples").to_pylist()
    assert not [row for row in samples if row["cpu"] == 1 and gone_at < row["time_ms"] * MILLIS < returning_at]


def test_a_suspended_machine_took_all_of_its_cores_away() -> None:
    suspended = [5 * NANOS]
    with closing(HotplugWatch(lambda: suspended[0])) as watch:
        suspended[0] += MILLIS
        assert watch.went([0, 1]) == set(), "the clocks are not read in the same moment"
        suspended[0] += 10 * NANOS
        assert watch.went([0, 1]) == {0, 1}
        assert watch.went([0, 1]) == set(), "reported once"


@pytest.mark.needs("dd", "taskset")
def test_a_core_that_is_busy_in_the_kernel_is_marked_once(tmp_path: Path, start: Start, load: Load) -> None:
    directory = tmp_path / "recording"
    with on_time():
        recorder = start(directory)
    recorder.ticks(2)
    before = time.time_ns()
    busy = load("dd", "if=/dev/zero", "of=/dev/null", "bs=1M", core=1, nice=-20)
    until("dd has begun", lambda: Path(f"/proc/{busy.pid}/comm").read_text() == "dd\n")
    begun = time.time_ns()
    until("the incident is marked", lambda: "incident: core 1" in recorder.out)
    recorder.ticks(3)
    busy.kill()
    recorder.ticks(2)
    assert recorder.stop() == 0
    found = exhume("incidents", "--dir", directory)["incidents"]
    mine = [each for each in found if each["cpu"] == 1 and "in the kernel" in str(each["text"])]
    assert len(mine) == 1, "one mark for one episode, however long"
    marked = Recording.open(directory).events(None, ["incident"])
    begin = next(each.wall for each in marked if each.cpu == 1 and "in the kernel" in each.text)
    assert before - 1.5 * NANOS < begin < begun + 1.5 * NANOS, "at the second in which it began"


def assert_not_starved(
    raised: RecorderProcess,
    usual: RecorderProcess,
    spinners: Callable[[], list[subprocess.Popen[str]]],
    longer: float = 5,
) -> None:
    """Record next to spinners that have every core, for a while. The recorder that is raised has no late tick; one that
    is not waits `longer` times as long in the same seconds, which shows that it would have."""
    for recorder in (raised, usual):
        recorder.ticks(2)
    running = spinners()
    before = {recorder: recorder.kept_waiting for recorder in (raised, usual)}
    since = monotonic()
    time.sleep(STARVED_S)
    until_ = monotonic()
    waited = {recorder: recorder.kept_waiting - before[recorder] for recorder in before}
    for spinner in running:
        spinner.kill()
    for recorder in (raised, usual):
        assert recorder.stop() == 0
        clean_words(recorder)
    shares = [row for row in rows(raised.directory, "cpu", "cpu", "span_ms", "idle") if since < row["time"] < until_]
    assert len({row["time"] for row in shares}) >= STARVED_S - 2, "every second has its row"
    within = [row for row in shares if row["cpu"] in STARVED and row["time"] + row["span_ms"] * MILLIS < until_]
    assert within and all(row["idle"] <= 10 for row in within), "the spinners had the cores"
    assert max(row["span_ms"] for row in shares) * MILLIS <= LATE_NS
    late = [loss for loss in Recording.open(raised.directory).losses() if loss.kind == "late-tick"]
    assert not [loss.text for loss in late if since < loss.time < until_]
    # A core that 32 others want comes late at the usual priority.
    print(f"waited {seconds(waited[raised]):.3f} s for a core, at the usual priority {seconds(waited[usual]):.3f} s")
    assert waited[usual] > longer * waited[raised]


@pytest.mark.needs("gcc", "taskset")
def test_spinners_on_every_core_do_not_starve_the_recorder(
    tmp_path: Path, start: Start, load: Load, compiled: Callable[[str], Path]
) -> None:
    raised = start(tmp_path / "raised", under=PINNED)
    usual = start(tmp_path / "usual", "--nice", "0", under=PINNED)

    def spinners() -> list[subprocess.Popen[str]]:
        # Each in a session of its own: where the kernel groups processes by session, that is the worst case.
        return [load(compiled("spin"), core=STARVED[number % len(STARVED)]) for number in range(SPINNERS)]

    assert_not_starved(raised, usual, spinners)


@pytest.fixture
def services() -> Iterator[Callable[[str, int | None], list[str]]]:
    """Make CPU cgroups next to each other, as services have them, with a weight of systemd; returns how a command is
    started in one. They are removed at the end."""
    try:
        (top, *_) = cpu_cgroups(Host(), f"exhume-faults-{os.getpid()}")
    except LabError as error:
        missing(f"a CPU cgroup ({error})")
    top.mkdir()
    version_2 = (top / "cgroup.controllers").exists()
    if version_2:
        (top / "cgroup.subtree_control").write_text("+cpu")

    def set_weight(cgroup: Path, weight: int) -> None:
        # As systemd 252 does: src/core/cgroup.c, cgroup_cpu_weight_to_shares.
        file, value = ("cpu.weight", weight) if version_2 else ("cpu.shares", weight * 1024 // 100)
        (cgroup / file).write_text(str(value))

    # What else runs on the host is not part of it.
    set_weight(top, 10000)

    def make(name: str, weight: int = 100) -> list[str]:
        (top / name).mkdir()
        set_weight(top / name, weight)
        return ["sh", "-c", 'echo $$ >"$0"; exec "$@"', str(top / name / "cgroup.procs")]

    yield make

    def emptied() -> bool:
        for each in [*top.glob("*/cgroup.procs")]:
            for pid in each.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            with suppress(OSError):
                each.parent.rmdir()
        with suppress(OSError):
            top.rmdir()
        return not top.exists()

    until("its cgroups are gone", emptied)


@pytest.mark.needs("gcc", "taskset")
def test_services_that_spin_do_not_starve_the_one_that_records(
    tmp_path: Path, start: Start, load: Load, compiled: Callable[[str], Path], services: Callable[..., list[str]]
) -> None:
    """Priorities of processes count within their cgroup alone, so there it is the weight of the unit that raises it."""
    unit = (resources.files("exhume.control") / "units" / RECORDER).read_text()
    (weight,) = re.findall(r"^CPUWeight=(\d+)$", unit, re.MULTILINE)
    raised = start(tmp_path / "raised", under=[*services("recorder", int(weight)), *PINNED])
    usual = start(tmp_path / "usual", under=[*services("usual"), *PINNED])

    def spinners() -> list[subprocess.Popen[str]]:
        places = [services(f"spinner-{number}") for number in range(SPINNERS)]
        return [
            load(*place, compiled("spin"), core=STARVED[number % len(STARVED)]) for number, place in enumerate(places)
        ]

    assert_not_starved(raised, usual, spinners)


@pytest.mark.needs("gcc", "taskset")
def test_pods_that_spin_do_not_starve_the_pod_that_records(
    tmp_path: Path, start: Start, load: Load, compiled: Callable[[str], Path], services: Callable[..., list[str]]
) -> None:
    """The CPU request of a pod is its weight, and without SYS_NICE nothing else raises its recorder. Three times
    as much is requested as there is, which stands for services outside of the pods that want the cores too."""

    def pod(name: str, request: int) -> list[str]:
        return services(name, request // 10)

    requested = containers(kustomized())["recorder"]["resources"]["requests"]["cpu"]
    request = int(requested.removesuffix("m"))
    raised = start(tmp_path / "raised", "--nice", "0", under=[*pod("recorder", request), *PINNED])
    # A quarter is what a recorder takes, and was its request.
    usual = start(tmp_path / "usual", "--nice", "0", under=[*pod("usual", request // 4), *PINNED])

    def spinners() -> list[subprocess.Popen[str]]:
        places = [pod(f"spinner-{number}", 100) for number in range(SPINNERS)]
        return [
            load(*place, compiled("spin"), core=STARVED[number % len(STARVED)]) for number, place in enumerate(places)
        ]

    assert_not_starved(raised, usual, spinners, longer=2)
