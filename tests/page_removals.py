"""Who removes the pages of a lab's ext4 from memory, as the kernel's own trace tells it.

A kernel may reclaim by itself: kdamond, where DAMON has a scheme that pages out, takes what lies in stretches of
physical memory that nobody used for a while, and a page that is seconds old may lie in one. A zombie that this page was
the last to hold goes with it, while no remedy is at work. A test that counts to the last page sees such removals here,
page by page, and who made them: only for so many may there be fewer.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.parts import missing

from exhume.collect.perf.tracepoints import find_tracefs
from exhume.lab.zombies import ZombieLab
from exhume.procfs.host import Host

EVENT = "events/filemap/mm_filemap_delete_from_page_cache"
# A lab's ext4 lies on a loop device. Its metadata are pages of the device, whose number is the inode's in the trace.
LOOP = 7
BUFFER_KB = 2048
# Files are stamped by a coarser clock.
CLOCKS_APART_S = 0.05
_REMOVED = re.compile(
    r"-(?P<pid>\d+)\s+\[\d+\]\s.* (?P<seconds>\d+\.\d+): mm_filemap_delete_from_page_cache: "
    r"dev (?P<major>\d+):(?P<minor>\d+) ino (?P<inode>[0-9a-f]+) "
)
_WRITTEN = re.compile(r"entries-in-buffer/entries-written: (\d+)/(\d+)")
_KERNEL_THREAD = 0x00200000


@dataclass(frozen=True, slots=True)
class Removed:
    """Pages that were removed by threads of the kernel, and by processes."""

    by_kernel: int
    by_processes: int


class Removals:
    """What was removed while it was traced."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace
        self._began: dict[ZombieLab, float] = {}

    def of(self, lab: ZombieLab) -> Removed:
        """Pages of a lab's files and of their filesystem's metadata, since its first file was made; none where it lies
        on tmpfs."""
        first = lab.files[0].stat()
        device = first.st_dev
        if os.major(device) != LOOP:
            return Removed(0, 0)
        # A lab that was made again has the device of the one before. Found once: clocks drift.
        began = self._began.setdefault(lab, time.monotonic() - (time.time() - first.st_ctime) - CLOCKS_APART_S)
        text = self._trace.read_text()
        found = _WRITTEN.search(text)
        assert found is not None and found[1] == found[2], "the buffer of the trace is too small"
        lines = [line for line in _REMOVED.finditer(text) if float(line["seconds"]) >= began and _is_on(device, line)]
        pids = [int(line["pid"]) for line in lines]
        kernel = {pid: _is_kernel_thread(pid) for pid in set(pids)}
        by_kernel = sum(kernel[pid] for pid in pids)
        return Removed(by_kernel, len(pids) - by_kernel)


@contextmanager
def traced_removals() -> Iterator[Removals]:
    """Trace removals from all loop devices, in a tracing instance of its own."""
    tracefs = find_tracefs(Host())
    if tracefs is None:
        missing("tracefs")
    # The name that the recorder gives its own: should this process be killed, the next recorder removes it.
    instance = tracefs / "instances" / f"exhume-{os.getpid()}"
    instance.mkdir()
    try:
        (instance / "trace_clock").write_text("mono")
        (instance / "buffer_size_kb").write_text(str(BUFFER_KB))
        first, end = LOOP << 20, (LOOP + 1) << 20
        on_loop = " || ".join(f"({field} >= {first} && {field} < {end})" for field in ("s_dev", "i_ino"))
        (instance / EVENT / "filter").write_text(on_loop)
        (instance / EVENT / "enable").write_text("1")
        yield Removals(instance / "trace")
    finally:
        instance.rmdir()


def _is_on(device: int, line: re.Match[str]) -> bool:
    """Whether a page is of a file on a device, or, being of the filesystem without a number that devices are in, of the
    device itself."""
    major, minor, inode = int(line["major"]), int(line["minor"]), int(line["inode"], 16)
    if major == 0:
        major, minor = inode >> 20, inode & 0xFFFFF
    return (major, minor) == (os.major(device), os.minor(device))


def _is_kernel_thread(pid: int) -> bool:
    """False for a process that is gone meanwhile: threads of the kernel stay."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # Behind the name, which may hold anything: state, parent, group, session, terminal, its group, flags.
    return bool(int(stat.rpartition(")")[2].split()[6]) & _KERNEL_THREAD)
