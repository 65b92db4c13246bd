"""Filters of netlink sockets: the kernel drops what is not needed before it wakes the recorder."""

import ctypes
import socket
import struct
from collections.abc import Sequence

_SO_ATTACH_FILTER = 26
# struct sock_filter of include/uapi/linux/filter.h: code, jump if true, jump if false, operand.
Instruction = tuple[int, int, int, int]
LOAD, TO_X, EQUAL, EQUAL_X, RETURN = 0x20, 0x07, 0x15, 0x1D, 0x06


class _Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def attach_filter(sock: socket.socket, program: Sequence[Instruction]) -> None:
    """Let only messages through that a classic BPF program accepts; jumps count from the next instruction."""
    instructions = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(_Program(len(program), instructions)))
