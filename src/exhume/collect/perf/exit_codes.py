"""Exit codes of processes that failed, from the kernel's process connector (drivers/connector/cn_proc.c,
proc_exit_connector). A socket filter drops the exits with code 0, which then cost no wakeup and no line of Python."""

import contextlib
import socket
import struct
import sys

from exhume.collect.perf.netlink import EQUAL, EQUAL_X, LOAD, RETURN, TO_X, attach_filter

_NETLINK_CONNECTOR = 11
_CN_IDX_PROC = _CN_VAL_PROC = 1
_LISTEN = 1
_EXIT = 0x80000000
_RECEIVE_BYTES = 1 << 18
_ACK_PATIENCE_S = 0.2
# More in a tick are no crash loop but a storm, of which a part is enough.
MOST_PER_TICK = 512

_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_MESSAGE = struct.Struct("=IIIIHH")  # struct cn_msg
_EVENT_AT = _HEADER.size + _MESSAGE.size
_WHAT = struct.Struct("=I")
# Behind the kind of event, the core and the time: pid, process, code.
_ENDED_AT = _EVENT_AT + 16
_ENDED = struct.Struct("=III")


class ExitCodes:
    """The processes that ended with a failure. Raises OSError where there is no such listener: it needs CAP_NET_ADMIN
    and the node's own network and process namespaces."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            self._socket.bind((0, _CN_IDX_PROC))
            self._socket.settimeout(_ACK_PATIENCE_S)
            self._socket.send(_request(_LISTEN))
            # Anything at all says that it listens; elsewhere the request is passed over in silence.
            self._socket.recv(1024)
            self._filter()
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise

    def drain(self) -> dict[int, int]:
        """The processes that failed since the last call, with their wait status (code << 8, or a signal)."""
        failed: dict[int, int] = {}
        # A buffer that ran over says so once, and goes on.
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
        """Only whole processes that end with a code other than 0."""
        swapped = int.from_bytes(_EXIT.to_bytes(4, sys.byteorder), "big")
        program = (
            (LOAD, 0, 0, _EVENT_AT),
            (EQUAL, 0, 6, swapped),  # another event: drop
            (LOAD, 0, 0, _ENDED_AT),
            (TO_X, 0, 0, 0),
            (LOAD, 0, 0, _ENDED_AT + 4),
            (EQUAL_X, 0, 2, 0),  # a thread: drop
            (LOAD, 0, 0, _ENDED_AT + 8),
            (EQUAL, 0, 1, 0),  # code 0: drop, else keep
            (RETURN, 0, 0, 0),
            (RETURN, 0, 0, 0xFFFF),
        )
        attach_filter(self._socket, program)


def _request(operation: int) -> bytes:
    order = _WHAT.pack(operation)
    message = _MESSAGE.pack(_CN_IDX_PROC, _CN_VAL_PROC, 0, 0, len(order), 0) + order
    return _HEADER.pack(_HEADER.size + len(message), 3, 0, 0, 0) + message
