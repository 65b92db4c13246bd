"""The recorder's priority, on the real kernel."""

import os
import subprocess
import threading

import pytest

from exhume.model.process import raised_priority, share_priority, usual_priority

NOBODY = 65534


def nice_of(tid: int = 0) -> int:
    return os.getpriority(os.PRIO_PROCESS, tid)


@pytest.mark.root
def test_threads_have_it_and_children_do_not():
    before = nice_of()
    seen = []
    with raised_priority(-20) as got:
        thread = threading.Thread(target=lambda: seen.append(nice_of()))
        thread.start()
        thread.join()
        child = subprocess.Popen(["sleep", "60"])
        try:
            usual_priority(child.pid)
            assert (got, nice_of(), seen, nice_of(child.pid)) == (-20, -20, [-20], before)
        finally:
            child.kill()
            child.wait()
    assert nice_of() == before
    usual_priority()
    assert nice_of() == before


def in_child(check) -> int:
    child = os.fork()
    if child == 0:
        try:
            os._exit(check())
        except BaseException:  # noqa: BLE001  nothing of pytest's may run in the child
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.root
def test_without_the_right_everything_stays():
    def check() -> int:
        os.setgroups([])
        os.setresuid(NOBODY, NOBODY, NOBODY)
        with raised_priority(-20) as got:
            return int(not (got == nice_of() == before))

    before = nice_of()
    assert in_child(check) == 0


@pytest.mark.root
def test_a_session_of_its_own_is_raised_among_the_others():
    def group() -> str:
        with open("/proc/self/autogroup") as file:  # noqa: PTH123
            return file.read().split()[-1]

    def check() -> int:
        os.setsid()
        if not os.path.exists("/proc/self/autogroup"):  # noqa: PTH110
            return 0
        with raised_priority(-20):
            inside = group()
        return int((inside, group()) != ("-20", "0"))

    assert in_child(check) == 0


@pytest.mark.root
def test_a_child_with_a_session_of_its_own_shares_the_priority():
    def group(pid: int) -> str:
        with open(f"/proc/{pid}/autogroup") as file:  # noqa: PTH123
            return file.read().split()[-1]

    def check() -> int:
        os.setsid()
        with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
            try:
                with raised_priority(-20):
                    share_priority(child.pid)
                    grouped = os.path.exists("/proc/self/autogroup")  # noqa: PTH110
                    same = not grouped or group(child.pid) == "-20"
                    return int(os.getpriority(os.PRIO_PROCESS, child.pid) != -20 or not same)
            finally:
                child.kill()

    assert in_child(check) == 0
