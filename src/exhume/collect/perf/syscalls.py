"""The system calls that the standard library has no function for, by number and architecture."""

import ctypes
import os
import platform
from dataclasses import dataclass

from exhume.model.errors import SourceUnavailable


@dataclass(frozen=True, slots=True)
class Numbers:
    """System call numbers of one architecture."""

    perf_event_open: int
    fsopen: int
    fsconfig: int
    fsmount: int


# From 424 on, numbers are the same on every architecture.
NUMBERS: dict[str, Numbers] = {
    "x86_64": Numbers(perf_event_open=298, fsopen=430, fsconfig=431, fsmount=432),
    "aarch64": Numbers(perf_event_open=241, fsopen=430, fsconfig=431, fsmount=432),
}

_libc = ctypes.CDLL(None, use_errno=True)


def numbers(machine: str | None = None) -> Numbers:
    """The numbers of this machine."""
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
    """syscall(2); raises OSError with the kernel's errno.

    Every integer goes as a full register: a bare Python int would be cut to 32 bits by ctypes.
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
    """The core that the calling thread runs on."""
    return int(_libc.sched_getcpu())
