"""The priority and the memory of the recorder, on the real kernel."""

import os
import resource
import subprocess
import sys
import threading

import pytest

from exhume.model import process
from exhume.model.process import keep_freed_memory, raised_priority, share_priority, usual_priority

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


SMAPS = b"""\
1000-3000 r--p 00000000 fe:00 11                         /usr/lib/libone.so
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
3000-9000 r-xp 00002000 fe:00 11                         /usr/lib/libone.so (deleted)
Rss:                  12 kB
Anonymous:             0 kB
9000-a000 r--p 00008000 fe:00 11                         /usr/lib/libone.so
Rss:                   4 kB
Anonymous:             4 kB
a000-b000 rw-p 00009000 fe:00 11                         /usr/lib/libone.so
Rss:                   4 kB
Anonymous:             0 kB
b000-c000 r--s 00000000 fe:00 12                         /var/lib/shared
Rss:                   4 kB
Anonymous:             0 kB
c000-d000 r-xp 00000000 fe:00 13                         /usr/lib/untouched.so
Rss:                   0 kB
Anonymous:             0 kB
d000-e000 r--p 00000000 00:00 0
Rss:                   4 kB
Anonymous:             0 kB
e000-f000 r-xp 00000000 00:00 0                          [vdso]
Rss:                   4 kB
Anonymous:             0 kB
"""


def test_only_unchanged_code_and_constants_are_unmapped():
    found = list(process._clean_mappings(SMAPS.splitlines(keepends=True)))
    assert found == [(0x1000, 0x3000, 8192), (0x3000, 0x9000, 12288)]


def test_a_process_goes_on_after_its_clean_pages_were_unmapped():
    program = """
import numpy, zlib
from pathlib import Path
from exhume.model.process import unmap_clean_pages

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if "RssFile" in line).split()[1])

before, freed = resident(), unmap_clean_pages()
after = resident()
print(before - after, freed // 1024, int(numpy.sort(numpy.arange(5)[::-1]).sum()), len(zlib.compress(bytes(99))) < 99)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    fell, freed, total, works = ran.stdout.split()
    assert int(fell) > 4000 and int(freed) >= int(fell)
    assert (total, works) == ("10", "True")


def test_freed_memory_is_used_again_without_page_faults():
    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            # Of a second's records, and of what is computed from them.
            buffers = [bytearray(1_500_000) for _ in range(4)]
            del buffers
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def check() -> int:
        keep_freed_memory()
        faults()
        return int(faults() > 500)

    # Each round touches 1,464 pages.
    assert in_child(check) == 0
