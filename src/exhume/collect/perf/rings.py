"""CPUs that were away for less than a tick.

Events of a CPU end with it and don't come back with it. The list of online CPUs shows one that is away when it is read;
one that was back by then is told by the kernel's device events. A suspended machine takes all of its CPUs away without
saying so, but the clock that counts the suspended time shows it.
"""

import contextlib
import ctypes
import errno
import os
import re
import resource
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from exhume.collect.perf.attr import open_event, sampling_event, task_event, tracepoint_event
from exhume.collect.perf.ring import Ring, load_fence
from exhume.collect.perf.tracepoints import Tracepoint
from exhume.model.clock import MILLIS
from exhume.model.errors import SourceUnavailable
from exhume.procfs.cpulist import parse_cpulist
from exhume.procfs.host import Host, ProcFile

_NETLINK_KOBJECT_UEVENT = 15
_GROUP_OF_THE_KERNEL = 1
_SO_ATTACH_FILTER = 26
_LARGEST = 8192
_OFFLINE = re.compile(rb"offline@/devices/system/cpu/cpu(\d+)\0")
# Only what begins with "offl" gets into the socket: a node that starts containers all day tells of little else.
_FILTER = (
    (0x20, 0, 0, 0),  # load the first word
    (0x15, 0, 1, int.from_bytes(b"offl", "big")),
    (0x06, 0, 0, 0xFFFFFFFF),  # take it
    (0x06, 0, 0, 0),  # drop it
)
_SUSPENDED_NS = 100 * MILLIS


def _suspended_ns() -> int:
    """The time that the machine has been suspended since it was booted."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class HotplugWatch:
    """Tells which CPUs were taken away, whether they are back or not."""

    def __init__(self, suspended_ns: Callable[[], int] = _suspended_ns) -> None:
        self._suspended_ns = suspended_ns
        self._suspended = suspended_ns()
        self._socket: socket.socket | None = None
        # Without the kernel's word (another kind of network namespace) only the list of CPUs tells.
        with contextlib.suppress(OSError):
            self._socket = _listen()

    def went(self, cpus: Collection[int]) -> set[int]:
        """Those of the CPUs that were taken away since this was last asked."""
        told = self._told(cpus)
        suspended, self._suspended = self._suspended, self._suspended_ns()
        return set(cpus) if self._suspended - suspended > _SUSPENDED_NS else told

    def _told(self, cpus: Collection[int]) -> set[int]:
        found: set[int] = set()
        while self._socket is not None:
            try:
                match = _OFFLINE.match(self._socket.recv(_LARGEST))
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    # Some were not told: it may have been any of them.
                    return set(cpus)
                self.close()
                break
            if match:
                found.add(int(match[1]))
        return found.intersection(cpus)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _listen() -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    events = socket.socket(socket.AF_NETLINK, kind, _NETLINK_KOBJECT_UEVENT)
    try:
        program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in _FILTER))
        events.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(_FILTER), ctypes.addressof(program))
        )
        events.bind((0, _GROUP_OF_THE_KERNEL))
    except OSError:
        events.close()
        raise
    return events


# A recorder that is itself starved must not lose what it is there to record.
HELD_SECONDS = 20
# The mean over busy services: 26 frames and the fixed part.
SAMPLE_BYTES = 250
# Task records come by the fork, not by the clock: all cores together share this much, within bounds.
TASK_BYTES_IN_ALL = 64 << 20
TASK_BYTES_LEAST, TASK_BYTES_MOST = 512 << 10, 4 << 20


@dataclass(slots=True)
class CpuRings:
    """One CPU's two rings: a flood of task records must never push samples out."""

    samples: Ring
    tasks: Ring

    def enable(self) -> None:
        self.samples.enable()
        self.tasks.enable()

    def close(self) -> None:
        self.samples.close()
        self.tasks.close()


class RingSet:
    """Keeps a pair of rings for every CPU that is online."""

    def __init__(self, host: Host, rate_hz: int, tracepoints: list[Tracepoint]) -> None:
        self._online = ProcFile(host.sys / "devices/system/cpu/online")
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
        """Open rings for CPUs that came; give back those of CPUs that went, for a last drain and close."""
        # Asked before the list is read: a CPU that goes in between is missed by neither.
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
                # It went offline again between the list and the open, or is on its way back and only listed yet.
                if error.errno != errno.ENODEV:
                    raise
        if self.rings.keys() >= online:
            # Else what is missing is tried again, though the list stays as it is.
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

    def start(self) -> None:
        """Begin to sample; until then nothing can overflow."""
        self._started = True
        for rings in self:
            rings.enable()

    def set_rate(self, rate_hz: int) -> None:
        """Sample at another rate from now on."""
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
    """Whether the hardware counts cycles here; they see into code that runs with interrupts off."""
    with contextlib.suppress(OSError):
        os.close(open_event(sampling_event(True, rate_hz), pid=-1, cpu=0))
        return True
    return False


def _raise_descriptor_limit() -> None:
    """Six descriptors a CPU: 96 cores need more than the usual 1,024 with everything else."""
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
