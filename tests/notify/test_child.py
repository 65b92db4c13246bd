"""Children that hang, fork, flood or don't read."""

import os
import threading
import time
from pathlib import Path

import pytest

from exhume.model.process import raised_priority
from exhume.notify.child import KEPT_BYTES, KEPT_ERROR_BYTES, run_child


def run(script, data=b"", timeout_s=20.0, cancel=None):
    return run_child(
        ["/bin/sh", "-c", script],
        data,
        timeout_s=timeout_s,
        cancel=cancel or threading.Event(),
        environment=dict(os.environ),
    )


def test_output_errors_and_code():
    done = run("cat; echo first >&2; echo last >&2; exit 3", b"hello")
    assert (done.code, done.output, done.last_error) == (3, b"hello", "last")


LOOK = "cat; cut -d' ' -f19 /proc/self/stat; cat /proc/self/oom_score_adj"


@pytest.mark.root
def test_it_has_the_usual_priority_and_is_the_first_to_be_killed_for_memory():
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with raised_priority(usual - 3):
        # Its input ends after its priority is set.
        assert run(LOOK).output.split() == [str(usual).encode(), b"1000"]


def test_a_hanging_child_is_ended():
    began = time.monotonic()
    assert run("sleep 60", timeout_s=0.3).code is None
    assert time.monotonic() - began < 10


def test_a_child_is_ended_when_the_recorder_stops():
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    assert run("sleep 60", cancel=cancel).code is None


def test_what_it_left_in_the_background_is_ended_too(tmp_path, eventually):
    done = run(f"sleep 60 & echo $! > {tmp_path}/pid; exit 0")
    assert done.code == 0
    pid = int((tmp_path / "pid").read_text())
    eventually("the process is gone", lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_flood_is_cut():
    done = run("head -c 6000000 /dev/zero; head -c 100000 /dev/zero >&2")
    assert (done.code, len(done.output), done.truncated) == (0, KEPT_BYTES, True)
    assert len(done.errors) <= KEPT_ERROR_BYTES


@pytest.mark.parametrize("script", ["exit 0", "exec 0<&-; sleep 0.2"])
def test_a_child_that_does_not_read_its_input(script):
    assert run(script, bytes(1 << 20)).code == 0


def test_a_program_that_does_not_exist():
    with pytest.raises(FileNotFoundError):
        run_child(["/no/such"], b"", timeout_s=1, cancel=threading.Event(), environment={})
