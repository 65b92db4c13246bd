"""One boot of each kernel for all tests: booting takes longer than most of them."""

from collections.abc import Iterator

import pytest
from tests.system.vm.vm_disks import PYTHON
from tests.system.vm.vm_kernel import KERNELS
from tests.system.vm.vm_machine import Machine

# Each CPU keeps pages in stock for the memory cgroup that was charged last, and a reference to it. When that cgroup is
# removed, a stock that happens to be empty is left as it is (mm/memcontrol.c of 5.10 and 6.1, drain_all_stock), until
# another cgroup is charged there. On a node that takes a moment; where all else is in the root, which is not charged,
# it would take for ever.
OTHER_WORK = """
import mmap, os, pathlib, sys, time
cgroup = pathlib.Path(sys.argv[1], "other-work")
cgroup.mkdir()
if os.fork():
    sys.exit()
os.setsid()
(cgroup / "cgroup.procs").write_text("0")
memory = mmap.mmap(-1, 256 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
while True:
    for core in range(os.cpu_count()):
        os.sched_setaffinity(0, {core})
        memory[:: mmap.PAGESIZE] = bytes(256)
        memory.madvise(mmap.MADV_DONTNEED)
    time.sleep(1)
"""


@pytest.fixture(scope="session", params=KERNELS)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with Machine(KERNELS[request.param]) as booted:
        started = booted.run(str(PYTHON), "-c", OTHER_WORK, booted.kernel.memory_root)
        assert started.code == 0, started.err
        yield booted
