"""perf_event_open: struct perf_event_attr (include/uapi/linux/perf_event.h), the events that the recorder opens, and
system calls without a wrapper in the standard library, by number and architecture."""

import ctypes
import os
import platform
import time
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from exhume.model.errors import SourceUnavailable


@dataclass(frozen=True, slots=True)
class Numbers:
    """System call numbers of one architecture."""

    perf_event_open: int
    fsopen: int
    fsconfig: int
    fsmount: int


# From 424 on, system call numbers are the same on every architecture.
NUMBERS: dict[str, Numbers] = {
    "x86_64": Numbers(perf_event_open=298, fsopen=430, fsconfig=431, fsmount=432),
    "aarch64": Numbers(perf_event_open=241, fsopen=430, fsconfig=431, fsmount=432),
}

_libc = ctypes.CDLL(None, use_errno=True)


def numbers(machine: str | None = None) -> Numbers:
    """The system call numbers of this machine."""
    machine = machine or platform.machine()
    try:
        return NUMBERS[machine]
    except KeyError:
        raise SourceUnavailable(
            "stacks",
            f"system call numbers of {machine} are not known",
            f"use one of {', '.join(sorted(NUMBERS))}",
        ) from None


def call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Call syscall(2); raises OSError with the kernel's errno.

    Every integer is passed as a full register: ctypes would truncate a bare Python int to 32 bits.
    """
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *converted))
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
    return result


def set_thread_name(name: bytes) -> None:
    """prctl(PR_SET_NAME) for the calling thread."""
    _libc.prctl(15, ctypes.c_char_p(name), 0, 0, 0)


def current_core() -> int:
    """The core on which the calling thread runs."""
    return int(_libc.sched_getcpu())


class EventType(IntEnum):
    HARDWARE = 0
    SOFTWARE = 1
    TRACEPOINT = 2


HW_CPU_CYCLES = 0
SW_CPU_CLOCK = 0
SW_DUMMY = 9


class SampleType(IntFlag):
    """enum perf_event_sample_format: the fields of a sample."""

    IP = 1 << 0
    TID = 1 << 1
    TIME = 1 << 2
    ADDR = 1 << 3
    READ = 1 << 4
    CALLCHAIN = 1 << 5
    ID = 1 << 6
    CPU = 1 << 7
    PERIOD = 1 << 8
    STREAM_ID = 1 << 9
    RAW = 1 << 10
    STACK_USER = 1 << 13
    IDENTIFIER = 1 << 16


class Flag(IntFlag):
    """Bits of the attribute's bit field, from linux/perf_event.h."""

    DISABLED = 1 << 0
    EXCLUDE_KERNEL = 1 << 5
    EXCLUDE_HV = 1 << 6
    MMAP = 1 << 8
    COMM = 1 << 9
    FREQ = 1 << 10
    TASK = 1 << 13
    WATERMARK = 1 << 14
    SAMPLE_ID_ALL = 1 << 18
    EXCLUDE_GUEST = 1 << 20
    MMAP2 = 1 << 23
    COMM_EXEC = 1 << 24
    USE_CLOCKID = 1 << 25
    KSYMBOL = 1 << 29


class _Attr(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_watermark", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64),
        ("branch_sample_type", ctypes.c_uint64),
        ("sample_regs_user", ctypes.c_uint64),
        ("sample_stack_user", ctypes.c_uint32),
        ("clockid", ctypes.c_int32),
        ("sample_regs_intr", ctypes.c_uint64),
        ("aux_watermark", ctypes.c_uint32),
        ("sample_max_stack", ctypes.c_uint16),
        ("reserved", ctypes.c_uint16),
    )


# The ring is drained on a timer, so the kernel need not wake the recorder: a watermark that no ring reaches.
NEVER_WAKE = 0xFFFFFFFF
FLAG_FD_CLOEXEC = 8


@dataclass(frozen=True, slots=True)
class EventSpec:
    """An event to open: its type, what its records carry, and the clock for their timestamps."""

    type: EventType
    config: int
    period: int
    sample_type: SampleType
    flags: Flag
    monotonic: bool = True


def open_event(spec: EventSpec, *, pid: int, cpu: int) -> int:
    """Call perf_event_open(2); returns the event's file descriptor. Raises OSError."""
    flags = spec.flags | Flag.WATERMARK
    if spec.monotonic:
        flags |= Flag.USE_CLOCKID
    attr = _Attr(
        type=spec.type,
        size=ctypes.sizeof(_Attr),
        config=spec.config,
        sample_period=spec.period,
        sample_type=spec.sample_type,
        flags=flags,
        wakeup_watermark=NEVER_WAKE,
        clockid=time.CLOCK_MONOTONIC,
    )
    buffer = ctypes.create_string_buffer(bytes(attr), ctypes.sizeof(_Attr))
    return call(numbers().perf_event_open, buffer, pid, cpu, -1, FLAG_FD_CLOEXEC)


def sampling_event(hardware: bool, rate_hz: int) -> EventSpec:
    """The stack-sampling event: cycles at a frequency, or the CPU clock with a fixed period.

    A fixed period makes every cpu-clock sample represent the same CPU time. Idle is not excluded: interrupt work on an
    idle core must be visible.
    """
    sample_type = SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.CALLCHAIN
    if hardware:
        flags = Flag.DISABLED | Flag.FREQ | Flag.EXCLUDE_HV | Flag.EXCLUDE_GUEST
        return EventSpec(EventType.HARDWARE, HW_CPU_CYCLES, rate_hz, sample_type, flags)
    return EventSpec(EventType.SOFTWARE, SW_CPU_CLOCK, 1_000_000_000 // rate_hz, sample_type, Flag.DISABLED)


def task_event(*, kernel_code: bool) -> EventSpec:
    """The event that records forks, exits, execs, names and executable mappings, and never samples.

    `kernel_code`: also record when BPF programs and other code are added to the kernel or removed (since Linux 5.1).
    """
    return EventSpec(
        EventType.SOFTWARE,
        SW_DUMMY,
        0,
        SampleType.TID | SampleType.TIME | SampleType.CPU,
        Flag.DISABLED
        | Flag.MMAP
        | Flag.MMAP2
        | Flag.COMM
        | Flag.COMM_EXEC
        | Flag.TASK
        | Flag.SAMPLE_ID_ALL
        | (Flag.KSYMBOL if kernel_code else Flag(0)),
    )


def tracepoint_event(tracepoint_id: int) -> EventSpec:
    """A tracepoint; every hit is a record with its raw fields."""
    return EventSpec(
        EventType.TRACEPOINT,
        tracepoint_id,
        1,
        SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.RAW,
        Flag.DISABLED | Flag.SAMPLE_ID_ALL,
    )
