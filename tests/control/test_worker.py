"""Workers: bounded in time, behind every other process, gone with their caller; and the choice of a core."""

import contextlib
import errno
import hashlib
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from tests.control.made_node import node

from exhume.control import jobs
from exhume.control.worker import JobFailed, Workers, idlest_core
from exhume.model.stop import Stop
from exhume.procfs.host import Host


def test_a_worker_writes_dirty_pages_and_lets_go_of_them(tmp_path, workers):
    files = []
    for number in range(300):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(b"x" * 5000)
    done = workers.run({"job": "fadvise", "files": [*map(str, files), str(tmp_path / "gone")]}, 30)
    assert (done.complete, done.reached, done.error) == (True, 301, 0)
    assert done.cpu_seconds > 0
    assert all(file.read_bytes() == b"x" * 5000 for file in files)


@pytest.mark.slow
def test_paging_out_leaves_files_of_tmpfs_as_they_are(workers):
    """Holes stay holes: reading them through a mapping would fill them."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        sparse, empty = Path(name, "sparse"), Path(name, "empty")
        empty.touch()
        with sparse.open("wb") as file:
            for offset in (0, 5 << 20, (200 << 20) + 4096 + 17):
                file.seek(offset)
                file.write(b"data" * 2000)
        before = (sparse.stat().st_blocks, hashlib.sha256(sparse.read_bytes()).digest())
        files = [str(sparse), str(empty), str(Path(name, "gone"))]
        done = workers.run({"job": "page-out", "files": files}, 30)
        assert (done.complete, done.reached, done.error) == (True, 3, 0)
        assert (sparse.stat().st_blocks, hashlib.sha256(sparse.read_bytes()).digest()) == before


def test_file_names_that_are_no_text_reach_the_worker(tmp_path, workers):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    done = workers.run({"job": "settings", "values": [(name, "kept out")]}, 30)
    assert done.complete
    Path(name).write_text("")
    workers.must({"job": "settings", "values": [(name, "0")]}, "writing")
    assert Path(name).read_text() == "0"


def test_a_worker_runs_at_the_lowest_priority_on_its_core(tmp_path, stop):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    core = max(os.sched_getaffinity(0))
    seen = {}

    def at_work() -> bool:
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            if b"exhume.control.jobs" in Path(f"/proc/{child}/cmdline").read_bytes():
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
    Workers(stop, core).run({"job": "settings", "values": [(str(fifo), "0")]}, 120)
    watcher.join()
    assert seen == {"nice": 19, "cores": {core}}


def test_a_job_ends_when_its_time_is_over(tmp_path, workers):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    began = time.monotonic()
    done = workers.run({"job": "settings", "values": [(str(fifo), "0")]}, 0.5)
    assert not done.complete
    assert not done.error
    assert 0.4 < time.monotonic() - began < 60


def test_a_job_ends_when_a_stop_is_requested(tmp_path, workers, stop):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    threading.Timer(0.4, stop.set).start()
    began = time.monotonic()
    assert not workers.run({"job": "settings", "values": [(str(fifo), "0")]}, 60).complete
    assert time.monotonic() - began < 50, "it would go on for 60 s"


def test_a_worker_that_is_slow_to_start_has_all_its_time(tmp_path, workers, monkeypatch):
    """As on a machine that is starved: the interpreter takes longer to load than the job may take."""
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(1.5)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), *sys.path)))
    file = tmp_path / "setting"
    file.touch()
    done = workers.run({"job": "settings", "values": [(str(file), "7")]}, 0.5)
    assert done.complete
    assert file.read_text() == "7"
    assert done.seconds > 1.5


def test_what_the_kernel_refuses_is_reported_with_errno_and_file(tmp_path, workers):
    file = tmp_path / "memory.force_empty"
    file.mkdir()
    (tmp_path / "memory.stat").touch()
    done = workers.run({"job": "reclaim", "file": str(file), "text": "0"}, 30)
    assert done.error == errno.EISDIR
    assert str(file) in done.message
    with pytest.raises(JobFailed, match="cleaning: Is a directory"):
        workers.must({"job": "reclaim", "file": str(file), "text": "0"}, "cleaning")


def test_a_swapfile_is_one_for_the_kernel_and_not_for_others(tmp_path, monkeypatch):
    turned_on = []
    monkeypatch.setattr(jobs, "swap_on", lambda *args: turned_on.append(args))
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


def test_the_core_that_idles_most_is_chosen(tmp_path, monkeypatch):
    host = node(tmp_path, stat="cpu 0\ncpu0 5 0 5 100 0 0\ncpu1 5 0 5 100 0 0\ncpu2 5 0 5 100 0 0\n")

    def work(seconds: float) -> None:
        node(tmp_path, stat="cpu 0\ncpu0 90 0 5 105 0 0\ncpu1 5 0 5 110 80 0\ncpu2 5 0 5 190 5 0\n")

    # It happens between the two looks.
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("exhume.control.worker.time.sleep", work)
        assert idlest_core(host, {0, 1, 2}, sample_s=0.3) == 2
    assert idlest_core(host, {0, 1}, sample_s=0.0) == 1
    assert idlest_core(host, set(), sample_s=0.0) is None
    assert idlest_core(Host(proc=tmp_path / "none"), {0}, sample_s=0.0) is None


def test_workers_do_not_outlive_a_caller_that_is_killed(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    caller = os.fork()
    if caller == 0:
        Workers(Stop()).run({"job": "settings", "values": [(str(fifo), "0")]}, 60)
        os._exit(0)
    worker = wait_for(lambda: worker_of(caller))
    # It waits for a reader of the fifo.
    wait_for(lambda: b"exhume.control.jobs" in Path(f"/proc/{worker}/cmdline").read_bytes() and nice_of(worker) == 19)
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
