"""The ring buffers of all CPUs: two per CPU, opened and closed as CPUs go online and offline, drained together once a
tick."""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from exhume.collect.perf.attr import open_event, sampling_event, task_event, tracepoint_event
from exhume.collect.perf.netlink import HotplugWatch
from exhume.collect.perf.records import Records, lost_counts, walk
from exhume.collect.perf.tracepoints import Tracepoint
from exhume.model.errors import SourceUnavailable
from exhume.procfs.cpulist import parse_cpulist
from exhume.procfs.host import Host, ProcFile

# Offsets in struct perf_event_mmap_page, in 64-bit words: data_head and data_tail.
HEAD = 1024 // 8
TAIL = 1032 // 8

_IOC_ENABLE = 0x2400
_IOC_PERIOD = 0x40082404
_IOC_SET_OUTPUT = 0x2405


def copy_out(data: memoryview, tail: int, head: int) -> bytes:
    """The bytes from tail to head of a ring, joined where they wrap around."""
    size = len(data)
    start, length = tail % size, head - tail
    if start + length <= size:
        return bytes(data[start : start + length])
    first = size - start
    return bytes(data[start:]) + bytes(data[: length - first])


def load_fence() -> Callable[[], object]:
    """The barrier between reading a ring's head and reading its data.

    include/uapi/linux/perf_event.h, struct perf_event_mmap_page, requires a read barrier there. x86 does not reorder
    loads, so no barrier is needed. Other architectures use a real fence where libatomic has one, and a system call
    otherwise: its exception entry synchronises the context, and together with the branch on the head that we just took,
    this orders the later loads after the earlier one (control dependency plus ISB in the Arm memory model).
    """
    if platform.machine() == "x86_64":
        return lambda: None
    try:
        fence = ctypes.CDLL("libatomic.so.1").atomic_thread_fence
    except (OSError, AttributeError):
        return os.getppid
    sequentially_consistent = 5
    return lambda: fence(sequentially_consistent)


def pages_for(wanted_bytes: int) -> int:
    """The smallest ring, in pages, that holds `wanted_bytes`: a power of two."""
    pages = max(1, -(-wanted_bytes // mmap.PAGESIZE))
    return 1 << (pages - 1).bit_length()


class Ring:
    """An event of one CPU with its mapped ring. Owns the file descriptors of the event and of the events
    joined to it."""

    def __init__(self, fd: int, cpu: int, wanted_bytes: int, fence: Callable[[], object]) -> None:
        self.cpu = cpu
        self.fd = fd
        self._joined: list[int] = []
        self._fence = fence
        pages = pages_for(wanted_bytes)
        try:
            while True:
                try:
                    self._map = mmap.mmap(fd, (1 + pages) * mmap.PAGESIZE)
                    break
                except OSError:
                    # Locked memory is limited, and a smaller ring is better than none.
                    if pages <= 4:
                        raise
                    pages //= 2
        except OSError:
            os.close(fd)
            raise
        self.size = pages * mmap.PAGESIZE
        self._words = memoryview(self._map).cast("Q")
        self._data = memoryview(self._map)[mmap.PAGESIZE :]

    def join(self, fd: int) -> None:
        """Redirect another event of the same CPU into this ring."""
        try:
            fcntl.ioctl(fd, _IOC_SET_OUTPUT, self.fd)
        except OSError:
            os.close(fd)
            raise
        self._joined.append(fd)

    def enable(self) -> None:
        for fd in (self.fd, *self._joined):
            fcntl.ioctl(fd, _IOC_ENABLE, 0)

    def set_period(self, period: int) -> None:
        """Change the sampling rate (a period, or a frequency for a frequency event)."""
        fcntl.ioctl(self.fd, _IOC_PERIOD, period.to_bytes(8, "little"))

    def read(self) -> bytes:
        """Read all records since the last read, and release the space to the kernel."""
        words = self._words
        head, tail = words[HEAD], words[TAIL]
        if head == tail:
            return b""
        self._fence()
        records = copy_out(self._data, tail, head)
        self._fence()
        words[TAIL] = head
        return records

    def close(self) -> None:
        self._words.release()
        self._data.release()
        self._map.close()
        for fd in (*self._joined, self.fd):
            os.close(fd)
        self._joined.clear()


# Even a recorder that is itself starved must not lose the samples of the starvation.
HELD_SECONDS = 20
# The mean over busy services: 26 frames and the fixed part.
SAMPLE_BYTES = 250
# The volume of task records depends on forks, not on time: all cores together share this much, within bounds.
TASK_BYTES_IN_ALL = 64 << 20
TASK_BYTES_LEAST, TASK_BYTES_MOST = 512 << 10, 4 << 20
# The longest task record: a mapping with the longest possible path.
TASK_RECORD_BYTES = 4352


@dataclass(slots=True)
class CpuRings:
    """The two rings of one CPU: a flood of task records must never push out samples."""

    samples: Ring
    tasks: Ring

    def enable(self) -> None:
        self.samples.enable()
        self.tasks.enable()

    def close(self) -> None:
        self.samples.close()
        self.tasks.close()


@dataclass(frozen=True, slots=True)
class Drained:
    """The records of all rings in a tick; `cpus` are the rings' CPUs, in the same order. `whole` is False when task
    records are or may be missing: the kernel reports a loss only once there is space again
    (kernel/events/ring_buffer.c, __perf_output_begin). `fill` is the fill level of the fullest sample ring, in
    permille."""

    cpus: list[int]
    samples: Records
    tasks: Records
    whole: bool
    fill: int


class RingSet:
    """Keeps a pair of rings for every online CPU."""

    def __init__(self, host: Host, rate_hz: int, tracepoints: list[Tracepoint]) -> None:
        self._online = ProcFile(host.sys / "devices/system/cpu/online", single=True)
        self._rate = rate_hz
        self._tracepoints = tracepoints
        self._fence = load_fence()
        self._listed = b""
        self._watch = HotplugWatch()
        self._gone: list[CpuRings] = []
        self._started = False
        self._task_bytes = 0
        self._kernel_code = True
        self.rings: dict[int, CpuRings] = {}
        self.tracing = bool(tracepoints)
        _raise_descriptor_limit()
        self.hardware = _has_cycles(rate_hz)
        try:
            self.follow_hotplug()
        except OSError as error:
            self.close()
            raise _unavailable(host, error) from error

    def __iter__(self) -> Iterator[CpuRings]:
        return iter(self.rings.values())

    def follow_hotplug(self) -> list[CpuRings]:
        """Open rings for CPUs that came online; return those of CPUs that went offline, for a last drain and close."""
        # Read this before the list, so that a CPU that goes offline in between is noticed.
        went = self._watch.went(self.rings.keys())
        listed = self._online.read()
        if listed == self._listed and not went:
            return []
        self._listed = b""
        online = set(parse_cpulist(listed.decode()))
        self._gone += [self.rings.pop(cpu) for cpu in list(self.rings) if cpu not in online or cpu in went]
        self._task_bytes = min(max(TASK_BYTES_IN_ALL // len(online), TASK_BYTES_LEAST), TASK_BYTES_MOST)
        for cpu in sorted(online - self.rings.keys()):
            try:
                self.rings[cpu] = self._open(cpu)
            except OSError as error:
                # It went offline again between the list and the open, or is coming online and only listed yet.
                if error.errno != errno.ENODEV:
                    raise
        if self.rings.keys() >= online:
            # Otherwise the missing CPUs are tried again, even though the list stays the same.
            self._listed = listed
        gone, self._gone = self._gone, []
        return gone

    def _open(self, cpu: int) -> CpuRings:
        wanted = HELD_SECONDS * self._rate * SAMPLE_BYTES
        samples = Ring(open_event(sampling_event(self.hardware, self._rate), pid=-1, cpu=cpu), cpu, wanted, self._fence)
        try:
            tasks = Ring(self._open_task_event(cpu), cpu, self._task_bytes, self._fence)
        except OSError:
            samples.close()
            raise
        for tracepoint in self._tracepoints:
            try:
                tasks.join(open_event(tracepoint_event(tracepoint.id), pid=-1, cpu=cpu))
            except OSError:
                self.tracing = False
        rings = CpuRings(samples, tasks)
        if self._started:
            rings.enable()
        return rings

    def _open_task_event(self, cpu: int) -> int:
        if self._kernel_code:
            try:
                return open_event(task_event(kernel_code=True), pid=-1, cpu=cpu)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._kernel_code = False
        return open_event(task_event(kernel_code=False), pid=-1, cpu=cpu)

    def drain(self) -> Drained:
        """All records since the last call, including those of CPUs that went offline in between."""
        before = list(self)
        gone = self.follow_hotplug()
        # Forks and execs on a CPU that came back were not recorded until now.
        moved = before != list(self)
        rings = [*self, *gone]
        samples = [each.samples.read() for each in rings]
        tasks = [each.tasks.read() for each in rings]
        fill = max(
            (len(part) * 1000 // each.samples.size for part, each in zip(samples, rings, strict=True)), default=0
        )
        full = any(len(part) + TASK_RECORD_BYTES > each.tasks.size for part, each in zip(tasks, rings, strict=True))
        for each in gone:
            each.close()
        records = walk(*tasks)
        whole = not (moved or full or any(records.damaged) or any(lost_counts(records)))
        return Drained([each.samples.cpu for each in rings], walk(*samples), records, whole, fill)

    def start(self) -> None:
        """Start sampling; nothing can overflow before that."""
        self._started = True
        for rings in self:
            rings.enable()

    def set_rate(self, rate_hz: int) -> None:
        """Change the sampling rate."""
        self._rate = rate_hz
        for rings in self:
            rings.samples.set_period(sampling_event(self.hardware, rate_hz).period)

    def close(self) -> None:
        for rings in (*self, *self._gone):
            rings.close()
        self.rings.clear()
        self._gone.clear()
        self._online.close()
        self._watch.close()


def _has_cycles(rate_hz: int) -> bool:
    """Whether there is a hardware cycle counter; its samples also see code that runs with interrupts off."""
    with contextlib.suppress(OSError):
        os.close(open_event(sampling_event(True, rate_hz), pid=-1, cpu=0))
        return True
    return False


def _raise_descriptor_limit() -> None:
    """Raise the limit: with six descriptors per CPU, 96 cores need more than the usual 1,024 in total."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _unavailable(host: Host, error: OSError) -> SourceUnavailable:
    if error.errno in (errno.EACCES, errno.EPERM):
        try:
            level = (host.proc / "sys/kernel/perf_event_paranoid").read_text().strip()
        except OSError:
            level = "?"
        return SourceUnavailable(
            "stacks",
            f"perf_event_open was refused (kernel.perf_event_paranoid is {level})",
            "run as root or add CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8); in a container also allow "
            "perf_event_open in the seccomp profile",
        )
    if error.errno == errno.ENOSYS:
        return SourceUnavailable(
            "stacks", "this kernel has no perf_event_open", "use a kernel built with CONFIG_PERF_EVENTS"
        )
    return SourceUnavailable(
        "stacks",
        f"perf_event_open failed: {error.strerror}",
        "see the open files and locked memory limits (ulimit -n -l)",
    )
