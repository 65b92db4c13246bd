"""CPUs that were away for less than a tick.

Events of a CPU end with it and don't come back with it. The list of online CPUs shows one that is away when it is read;
one that was back by then is told by the kernel's device events. A suspended machine takes all of its CPUs away without
saying so, but the clock that counts the suspended time shows it.
"""

import contextlib
import ctypes
import errno
import re
import socket
import struct
import time
from collections.abc import Callable, Collection

from exhume.model.clock import MILLIS

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
