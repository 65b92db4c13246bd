"""Netlink sockets: CPUs that were offline for less than a tick, and exit codes of processes that failed. A filter in
the kernel drops all other messages before they wake the recorder.

The events of a CPU end when it goes offline and do not return with it (kernel/events/core.c, perf_event_exit_cpu). The
list of online CPUs lacks a CPU that is offline when the list is read; a CPU that is back by then has caused a device
event (uevent). A suspended machine takes its CPUs offline without events, but the clock that counts suspended time
shows it.

Exit codes come from the process connector (drivers/connector/cn_proc.c, proc_exit_connector). Exits with code 0 cost no
wakeup and run no Python code.
"""

import contextlib
import ctypes
import errno
import re
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Sequence

from exhume.model.clock import MILLIS

_SO_ATTACH_FILTER = 26
# struct sock_filter of include/uapi/linux/filter.h: code, jump if true, jump if false, operand.
_Instruction = tuple[int, int, int, int]
_LOAD, _TO_X, _EQUAL, _EQUAL_X, _RETURN = 0x20, 0x07, 0x15, 0x1D, 0x06


class _Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _attach_filter(sock: socket.socket, program: Sequence[_Instruction]) -> None:
    """Attach a classic BPF filter that passes only the messages it accepts; jumps are relative to the next
    instruction."""
    instructions = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(_Program(len(program), instructions)))


_NETLINK_KOBJECT_UEVENT = 15
_GROUP_OF_THE_KERNEL = 1
_LARGEST = 8192
_OFFLINE = re.compile(rb"offline@/devices/system/cpu/cpu(\d+)\0")
# Pass only messages that begin with "offl": on a node that starts containers all day nearly all events are about
# something else.
_FILTER = (
    (_LOAD, 0, 0, 0),  # the first word
    (_EQUAL, 0, 1, int.from_bytes(b"offl", "big")),
    (_RETURN, 0, 0, 0xFFFFFFFF),  # accept
    (_RETURN, 0, 0, 0),  # drop
)
_SUSPENDED_NS = 100 * MILLIS


def _suspended_ns() -> int:
    """How long the machine has been suspended in total since boot."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class HotplugWatch:
    """Watches for CPUs that went offline, even if they are back by now."""

    def __init__(self, suspended_ns: Callable[[], int] = _suspended_ns) -> None:
        self._suspended_ns = suspended_ns
        self._suspended = suspended_ns()
        self._socket: socket.socket | None = None
        # Without uevents (in another network namespace) there is only the list of CPUs.
        with contextlib.suppress(OSError):
            self._socket = _listen()

    def went(self, cpus: Collection[int]) -> set[int]:
        """Which of the CPUs went offline since the last call."""
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
                    # Some events were dropped, so any of the CPUs may have gone offline.
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
        _attach_filter(events, _FILTER)
        events.bind((0, _GROUP_OF_THE_KERNEL))
    except OSError:
        events.close()
        raise
    return events


_NETLINK_CONNECTOR = 11
_CN_IDX_PROC = _CN_VAL_PROC = 1
_LISTEN = 1
_EXIT = 0x80000000
_RECEIVE_BYTES = 1 << 18
_ACK_PATIENCE_S = 0.2
# More than this in a tick is a storm rather than a crash loop, and a part of it is enough.
MOST_PER_TICK = 512

_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_MESSAGE = struct.Struct("=IIIIHH")  # struct cn_msg
_EVENT_AT = _HEADER.size + _MESSAGE.size
_WHAT = struct.Struct("=I")
# After the event type, the CPU and the timestamp: pid, tgid, exit code.
_ENDED_AT = _EVENT_AT + 16
_ENDED = struct.Struct("=III")


class ExitCodes:
    """The processes that ended with a failure. Raises OSError where the connector does not answer: it needs
    CAP_NET_ADMIN and the node's own network and pid namespaces."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            self._socket.bind((0, _CN_IDX_PROC))
            self._socket.settimeout(_ACK_PATIENCE_S)
            self._socket.send(_request(_LISTEN))
            # Any reply means that the connector listens; where it does not, the request is silently ignored.
            self._socket.recv(1024)
            self._filter()
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise

    def drain(self) -> dict[int, int]:
        """The processes that failed since the last call, with their wait status (code << 8, or a signal)."""
        failed: dict[int, int] = {}
        # After an overflow the socket returns one error, and then goes on.
        with contextlib.suppress(OSError):
            for _ in range(MOST_PER_TICK):
                message = self._socket.recv(1024)
                if len(message) < _ENDED_AT + _ENDED.size or _WHAT.unpack_from(message, _EVENT_AT)[0] != _EXIT:
                    continue
                _, process, status = _ENDED.unpack_from(message, _ENDED_AT)
                failed[process] = status
        return failed

    def close(self) -> None:
        self._socket.close()

    def _filter(self) -> None:
        """Accept only exits of whole processes with a code other than 0."""
        swapped = int.from_bytes(_EXIT.to_bytes(4, sys.byteorder), "big")
        program = (
            (_LOAD, 0, 0, _EVENT_AT),
            (_EQUAL, 0, 6, swapped),  # another event: drop
            (_LOAD, 0, 0, _ENDED_AT),
            (_TO_X, 0, 0, 0),
            (_LOAD, 0, 0, _ENDED_AT + 4),
            (_EQUAL_X, 0, 2, 0),  # a thread: drop
            (_LOAD, 0, 0, _ENDED_AT + 8),
            (_EQUAL, 0, 1, 0),  # code 0: drop, else keep
            (_RETURN, 0, 0, 0),
            (_RETURN, 0, 0, 0xFFFF),
        )
        _attach_filter(self._socket, program)


def _request(operation: int) -> bytes:
    order = _WHAT.pack(operation)
    message = _MESSAGE.pack(_CN_IDX_PROC, _CN_VAL_PROC, 0, 0, len(order), 0) + order
    return _HEADER.pack(_HEADER.size + len(message), 3, 0, 0, 0) + message
