"""Sends small UDP packets in a network namespace. Words: seconds, namespace file, first address, addresses, ports,
burst, pause in microseconds.

Packets go to every port of every address in turn, a burst with one call of sendmmsg; after each burst it pauses."""

import ctypes
import os
import socket
import struct
import sys
import time

CLONE_NEWNET = 0x40000000
FIRST_PORT = 20_000
# Another source port makes other connections of the same destinations.
ROUNDS_PER_SOCKET = 16


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class Message(ctypes.Structure):
    _fields_ = (("header", Header), ("sent", ctypes.c_uint32))


def enter(libc: ctypes.CDLL, path: str) -> None:
    namespace = os.open(path, os.O_RDONLY)
    if libc.setns(namespace, CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    os.close(namespace)


def bursts_of(
    first: str, addresses: int, ports: int, burst: int, keep: list[object]
) -> list[tuple[ctypes.Array[Message], int]]:
    """Arrays of messages to all destinations; `keep` holds what they point to."""
    payload = ctypes.create_string_buffer(b"x" * 32)
    vector = Vector(ctypes.addressof(payload), 32)
    start = int.from_bytes(socket.inet_aton(first), "big")
    total = addresses * ports
    names = bytearray()
    for i in range(total):
        names += struct.pack("=H", socket.AF_INET) + struct.pack("!HI8x", FIRST_PORT + i % ports, start + i // ports)
    buffer = (ctypes.c_char * len(names)).from_buffer(names)
    keep += [payload, vector, names, buffer]
    base = ctypes.addressof(buffer)
    found = []
    for begin in range(0, total, burst):
        count = min(burst, total - begin)
        messages = (Message * count)()
        for i in range(count):
            header = messages[i].header
            header.name, header.name_length = base + 16 * (begin + i), 16
            header.vectors, header.vector_count = ctypes.pointer(vector), 1
        found.append((messages, count))
    return found


def main(seconds: float, path: str, first: str, numbers: list[int]) -> None:
    addresses, ports, burst, pause_us = numbers
    libc = ctypes.CDLL(None, use_errno=True)
    enter(libc, path)
    keep: list[object] = []
    bursts = bursts_of(first, addresses, ports, burst, keep)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            for _ in range(ROUNDS_PER_SOCKET):
                for messages, count in bursts:
                    # What can't be sent (a full queue, a rule against it) is not sent: the next is tried.
                    libc.sendmmsg(sender.fileno(), messages, count, socket.MSG_DONTWAIT)
                    if pause_us:
                        time.sleep(pause_us / 1e6)
                    if time.monotonic() >= until:
                        return


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], sys.argv[3], [int(word) for word in sys.argv[4:8]])
