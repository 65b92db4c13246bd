"""The parts that carry remedies out: workers, the journal, the choice of a core, settings that are put back."""

import contextlib
import errno
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from exhume.model.remedy import Step
from exhume.model.stop import Stop
from exhume.procfs.host import Host
from exhume.remedy import jobs
from exhume.remedy.journal import Change, Journal, JournalError, hold_journal
from exhume.remedy.spare_core import spare_core
from exhume.remedy.swaps import Swap, is_on, swaps
from exhume.remedy.undo import undo
from exhume.remedy.worker import Crew, JobFailed
from exhume.remedy.zombies import actions
from exhume.remedy.zombies.actions import ACTIONS, Bench
from exhume.remedy.zombies.look import work_place
from exhume.remedy.zombies.shelter import shelter


@pytest.fixture
def stop():
    stop = Stop()
    yield stop
    stop.close()


@pytest.fixture
def crew(stop):
    return Crew(stop)


def node(tmp_path: Path, **files: str) -> Host:
    proc = tmp_path / "proc"
    for name, content in {"sys/kernel/random/boot_id": "aaaa-bbbb\n", **files}.items():
        path = proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return Host(proc=proc)


def cgroup(directory: Path, **files: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / f"memory.{name.replace('__', '.')}").write_text(content)
    return directory


# workers


def test_a_worker_writes_dirty_pages_and_lets_go_of_them(tmp_path, crew):
    files = []
    for number in range(300):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(b"x" * 5000)
    done = crew.run({"job": "fadvise", "files": [*map(str, files), str(tmp_path / "gone")]}, 30)
    assert (done.complete, done.reached, done.error) == (True, 301, 0)
    assert done.cpu_seconds > 0
    assert all(file.read_bytes() == b"x" * 5000 for file in files)


def test_file_names_that_are_no_text_reach_the_worker(tmp_path, crew):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    done = crew.run({"job": "settings", "values": [(name, "kept out")]}, 30)
    assert done.complete
    Path(name).write_text("")
    crew.must({"job": "settings", "values": [(name, "0")]}, "writing")
    assert Path(name).read_text() == "0"


def test_a_worker_runs_behind_everybody_on_its_core(tmp_path, stop):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    core = max(os.sched_getaffinity(0))
    seen = {}

    def at_work() -> bool:
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            if b"exhume.remedy.jobs" in Path(f"/proc/{child}/cmdline").read_bytes():
                seen["nice"] = os.getpriority(os.PRIO_PROCESS, int(child))
                seen["cores"] = os.sched_getaffinity(int(child))
        return seen == {"nice": 19, "cores": {core}}

    def look() -> None:
        # The worker waits for a reader: until then it can be looked at.
        with contextlib.suppress(AssertionError):
            wait_for(at_work)
        fifo.read_text()

    watcher = threading.Thread(target=look)
    watcher.start()
    Crew(stop, core).run({"job": "settings", "values": [(str(fifo), "0")]}, 120)
    watcher.join()
    assert seen == {"nice": 19, "cores": {core}}


def test_a_job_ends_when_its_time_is_over(tmp_path, crew):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    began = time.monotonic()
    done = crew.run({"job": "settings", "values": [(str(fifo), "0")]}, 0.5)
    assert not done.complete
    assert not done.error
    assert 0.4 < time.monotonic() - began < 60


def test_a_job_ends_when_a_stop_is_asked_for(tmp_path, crew, stop):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    threading.Timer(0.4, stop.set).start()
    began = time.monotonic()
    assert not crew.run({"job": "settings", "values": [(str(fifo), "0")]}, 60).complete
    assert time.monotonic() - began < 50, "it would go on for 60 s"


def test_a_worker_that_is_slow_to_start_has_all_its_time(tmp_path, crew, monkeypatch):
    """As on a machine that is starved: the interpreter takes longer to load than the job may take."""
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(1.5)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), *sys.path)))
    file = tmp_path / "setting"
    file.touch()
    done = crew.run({"job": "settings", "values": [(str(file), "7")]}, 0.5)
    assert done.complete
    assert file.read_text() == "7"
    assert done.seconds > 1.5


def test_what_the_kernel_refuses_is_told_with_its_words(tmp_path, crew):
    file = tmp_path / "memory.force_empty"
    file.mkdir()
    (tmp_path / "memory.stat").touch()
    done = crew.run({"job": "reclaim", "file": str(file), "text": "0"}, 30)
    assert done.error == errno.EISDIR
    assert str(file) in done.words
    with pytest.raises(JobFailed, match="cleaning: Is a directory"):
        crew.must({"job": "reclaim", "file": str(file), "text": "0"}, "cleaning")


def test_a_swapfile_is_one_for_the_kernel_and_not_for_others(tmp_path, monkeypatch):
    turned_on = []
    monkeypatch.setattr(jobs, "swap_on", lambda *words: turned_on.append(words))
    path = tmp_path / "swap"
    jobs._swapfile({"path": str(path), "size": 1 << 20})
    content = path.read_bytes()
    assert len(content) == 1 << 20
    assert content[4086:4096] == b"SWAPSPACE2"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_blocks * 512 >= 1 << 20
    assert turned_on == [(str(path), 0x7FFF)]
    with pytest.raises(FileExistsError):
        jobs._swapfile({"path": str(path), "size": 1 << 20})


# journal


def test_the_journal_keeps_what_is_not_undone(tmp_path):
    host, place = node(tmp_path), tmp_path / "work"
    one, other = Change("swapfile", "/x/zombies.swap"), Change("swap-off", "/dev/sdb1", priority=-2)
    with hold_journal(place, host) as journal:
        journal.add(one, other)
    with hold_journal(place, host) as journal:
        assert journal.changes == [one, other]
        assert not journal.earlier_boot
        journal.forget(one)
    assert Journal.read(place, host).changes == [other]
    assert place.stat().st_mode & 0o777 == 0o700
    with hold_journal(place, host) as journal:
        journal.forget(other)
    assert list(place.iterdir()) == []


def test_a_journal_knows_an_earlier_boot(tmp_path):
    host, place = node(tmp_path), tmp_path / "work"
    with hold_journal(place, host) as journal:
        journal.add(Change("swap-off", "/dev/sdb1"))
    node(tmp_path, **{"sys/kernel/random/boot_id": "cccc\n"})
    assert Journal.read(place, host).earlier_boot


def test_one_remedy_at_a_time(tmp_path):
    host = node(tmp_path)
    with hold_journal(tmp_path / "work", host), pytest.raises(JournalError, match="another exhume fix"):  # noqa: SIM117
        with hold_journal(tmp_path / "work", host):
            pass


@pytest.mark.parametrize("content", ["{", json.dumps({"version": 99})])
def test_a_journal_that_can_not_be_understood_is_said(tmp_path, content):
    host, place = node(tmp_path), tmp_path / "work"
    place.mkdir()
    (place / "journal.json").write_text(content)
    with pytest.raises(JournalError, match=r"journal\.json"):
        Journal.read(place, host)


def test_after_a_reboot_only_the_file_is_left_to_remove(tmp_path, crew):
    host, place = node(tmp_path, swaps="Filename Type Size Used Priority\n"), tmp_path / "work"
    setting = cgroup(tmp_path / "cg", swappiness="60") / "memory.swappiness"
    place.mkdir()
    (place / "zombies.swap").write_bytes(b"swap")
    outside = tmp_path / "elsewhere.swap"
    outside.write_bytes(b"not ours")
    changes = [
        Change("swapfile", str(place / "zombies.swap")),
        Change("swapfile", str(outside)),
        Change("swap-off", "/dev/none", priority=3),
        Change("setting", str(setting), was="10"),
    ]
    journal = Journal(place, "aaaabbbb", list(changes), earlier_boot=True)
    undo(journal, changes, crew, host)
    assert not (place / "zombies.swap").exists()
    assert outside.exists()
    assert setting.read_text() == "60"
    assert journal.changes == []


def test_what_can_not_be_undone_stays_in_the_journal(tmp_path, crew):
    host, place = node(tmp_path, swaps="Filename Type Size Used Priority\n"), tmp_path / "work"
    lost = Change("swap-off", str(tmp_path / "no-such-swap"), priority=3)
    with hold_journal(place, host) as journal:
        journal.add(lost)
        with pytest.raises(JobFailed, match="could not be put on again"):
            undo(journal, [lost], crew, host)
    assert Journal.read(place, host).changes == [lost]


# settings of cgroups


def test_live_cgroups_of_v1_are_kept_out_of_swap_and_get_their_settings_back(tmp_path, crew):
    host, top = node(tmp_path), tmp_path / "docker"
    for name, value in (("", "60"), ("a", "60"), ("a/deep", "10"), ("never", "0")):
        cgroup(top / name, swappiness=value)
    with hold_journal(tmp_path / "work", host) as journal:
        with shelter((str(top),), journal, crew, host):
            assert {file.read_text() for file in top.rglob("memory.swappiness")} == {"0"}
            assert len(Journal.read(tmp_path / "work", host).changes) == 4
            # A container that comes meanwhile takes over what its parent has.
            cgroup(top / "a/new", swappiness="0")
        assert journal.changes == []
    values = {str(file.parent.relative_to(top)): file.read_text() for file in top.rglob("memory.swappiness")}
    assert values == {".": "60", "a": "60", "a/deep": "10", "a/new": "60", "never": "0"}


def test_live_cgroups_of_v2_are_kept_out_of_swap_but_not_the_parent(tmp_path, crew):
    host, top = node(tmp_path), tmp_path / "kubepods"
    cgroup(top, swap__max="max")
    cgroup(top / "pod", swap__max="1048576")
    with hold_journal(tmp_path / "work", host) as journal, shelter((str(top),), journal, crew, host):
        assert (top / "memory.swap.max").read_text() == "max"
        assert (top / "pod/memory.swap.max").read_text() == "0"
    assert (top / "pod/memory.swap.max").read_text() == "1048576"


def test_a_cgroup_that_goes_meanwhile_is_no_error(tmp_path, crew):
    host, top = node(tmp_path), cgroup(tmp_path / "docker", swappiness="60")
    gone = cgroup(top / "gone", swappiness="60")
    with hold_journal(tmp_path / "work", host) as journal, shelter((str(top),), journal, crew, host):
        (gone / "memory.swappiness").unlink()
        gone.rmdir()
    assert (top / "memory.swappiness").read_text() == "60"
    assert not gone.exists()


# reclaim


def test_v2_is_reclaimed_in_pieces_for_as_long_as_that_frees_any(tmp_path, crew):
    top = cgroup(tmp_path / "kubepods", reclaim="", stat="file 4096\n", swap__max="max")
    pod = cgroup(top / "pod", swap__max="max")
    host = node(tmp_path, swaps="Filename Type Size Used Priority\n/swap file 64 4 -2\n")
    counts = iter([500, 300, 300, 300])
    written, sheltered = [], []
    with hold_journal(tmp_path / "work", host) as journal:
        bench = Bench(crew, host, journal, lambda: next(counts))
        for done in ACTIONS["reclaim"](Step("reclaim", "", "", action="reclaim", targets=(str(top),)), bench):
            assert done.complete
            written.append((top / "memory.reclaim").read_text())
            sheltered.append((pod / "memory.swap.max").read_text())
    assert written == ["67108864 swappiness=0"] * 3
    assert sheltered == ["0"] * 3
    assert (pod / "memory.swap.max").read_text() == "max"


def test_files_are_let_go_in_batches_without_leaving_one_out(tmp_path, crew, monkeypatch):
    monkeypatch.setattr(actions, "_FILES_AT_A_TIME", 2)
    asked = []
    run = Crew.run

    def watched(self, job, seconds, **others):
        asked.append(job["files"])
        return run(self, job, seconds, **others)

    monkeypatch.setattr(Crew, "run", watched)
    files = tuple(str(tmp_path / name) for name in "abcde")
    step = Step("fadvise", "", "", action="fadvise", targets=files)
    with hold_journal(tmp_path / "work", node(tmp_path)) as journal:
        batches = list(ACTIONS["fadvise"](step, Bench(crew, node(tmp_path), journal, lambda: 0)))
    assert len(batches) == 3
    assert tuple(file for files in asked for file in files) == files


# the node


def test_the_core_that_idles_most_is_chosen(tmp_path, monkeypatch):
    host = node(tmp_path, stat="cpu 0\ncpu0 5 0 5 100 0 0\ncpu1 5 0 5 100 0 0\ncpu2 5 0 5 100 0 0\n")

    def work(seconds: float) -> None:
        node(tmp_path, stat="cpu 0\ncpu0 90 0 5 105 0 0\ncpu1 5 0 5 110 80 0\ncpu2 5 0 5 190 5 0\n")

    # It happens between the two looks.
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("exhume.remedy.spare_core.time.sleep", work)
        assert spare_core(host, {0, 1, 2}, look_s=0.3) == 2
    assert spare_core(host, {0, 1}, look_s=0.0) == 1
    assert spare_core(host, set(), look_s=0.0) is None
    assert spare_core(Host(proc=tmp_path / "none"), {0}, look_s=0.0) is None


def test_swaps_are_read_as_the_kernel_writes_them(tmp_path):
    table = "Filename\tType\tSize\tUsed\tPriority\n/a\\040b/swap  file\t64\t4\t-2\n/gone\\040(deleted) file 8 0 5\n"
    host = node(tmp_path, swaps=table)
    assert swaps(host) == [Swap("/a b/swap", 65536, 4096, -2), Swap("/gone", 8192, 0, 5)]
    assert is_on(host, "/a b/swap")
    assert not is_on(host, "/a")
    assert swaps(Host(proc=tmp_path / "none")) == []


def test_a_place_without_a_disk_is_told(tmp_path):
    mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:9 / {} rw - {} x rw\n"
    for kind, said in (("tmpfs", "on tmpfs"), ("fuse.sshfs", "on fuse.sshfs"), ("xfs", "")):
        host = node(tmp_path, **{"self/mountinfo": mounts.format(tmp_path, kind)})
        place = work_place(host, tmp_path / "not/made/yet")
        assert said in place.why_not
        assert bool(place.why_not) == bool(said)
        assert place.free > 0


def test_workers_do_not_outlive_a_caller_that_is_killed(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    caller = os.fork()
    if caller == 0:
        Crew(Stop()).run({"job": "settings", "values": [(str(fifo), "0")]}, 60)
        os._exit(0)
    worker = wait_for(lambda: worker_of(caller))
    # It waits for a reader of the fifo.
    wait_for(lambda: b"exhume.remedy.jobs" in Path(f"/proc/{worker}/cmdline").read_bytes() and nice_of(worker) == 19)
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    assert wait_for(lambda: not Path(f"/proc/{worker}").exists() or state_of(worker) == "Z")


def worker_of(parent: int) -> int | None:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(children[0]) if children else None


def nice_of(pid: int) -> int:
    """19 once it has begun."""
    return os.getpriority(os.PRIO_PROCESS, pid)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(condition, seconds: float = 60.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")
