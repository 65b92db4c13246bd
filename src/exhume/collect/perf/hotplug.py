"""CPUs that were away for less than a tick.

Events of a CPU end with it and don't come back with it (kernel/events/core.c, perf_event_exit_cpu). The list of online
CPUs lacks one that is away when it is read; for one that was back by then there is a device event (a uevent). A
suspended machine takes its CPUs away without events, but the clock that counts the suspended time shows it.
"""

import contextlib
import errno
import re
import socket
import time
from collections.abc import Callable, Collection

from exhume.collect.perf.netlink import EQUAL, LOAD, RETURN, attach_filter
from exhume.model.clock import MILLIS

_NETLINK_KOBJECT_UEVENT = 15
_GROUP_OF_THE_KERNEL = 1
_LARGEST = 8192
_OFFLINE = re.compile(rb"offline@/devices/system/cpu/cpu(\d+)\0")
# Only what begins with "offl": a node that starts containers all day has events of little else.
_FILTER = (
    (LOAD, 0, 0, 0),  # the first word
    (EQUAL, 0, 1, int.from_bytes(b"offl", "big")),
    (RETURN, 0, 0, 0xFFFFFFFF),  # accept
    (RETURN, 0, 0, 0),  # drop
)
_SUSPENDED_NS = 100 * MILLIS


def _suspended_ns() -> int:
    """The time that the machine has been suspended since it was booted."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class HotplugWatch:
    """Watches for CPUs that were taken away, whether they are back or not."""

    def __init__(self, suspended_ns: Callable[[], int] = _suspended_ns) -> None:
        self._suspended_ns = suspended_ns
        self._suspended = suspended_ns()
        self._socket: socket.socket | None = None
        # Without device events (in another network namespace) there is only the list of CPUs.
        with contextlib.suppress(OSError):
            self._socket = _listen()

    def went(self, cpus: Collection[int]) -> set[int]:
        """Those of the CPUs that were taken away since the last call."""
        went = self._offline_events(cpus)
        suspended, self._suspended = self._suspended, self._suspended_ns()
        return set(cpus) if self._suspended - suspended > _SUSPENDED_NS else went

    def _offline_events(self, cpus: Collection[int]) -> set[int]:
        found: set[int] = set()
        while self._socket is not None:
            try:
                match = _OFFLINE.match(self._socket.recv(_LARGEST))
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    # Some events were dropped: it may have been any of them.
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
        attach_filter(events, _FILTER)
        events.bind((0, _GROUP_OF_THE_KERNEL))
    except OSError:
        events.close()
        raise
    return events
