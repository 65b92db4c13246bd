"""Programs that use the network and network namespaces. Run as: network.py PROGRAM ARGUMENT..."""

import ctypes
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

SIZE = 4 << 10
# So many go out between two pauses.
TOGETHER = 8


def answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    while received := connection.recv(SIZE, socket.MSG_WAITALL):
        connection.sendall(received)


def ask(address: tuple[str, int], seconds: float, per_second: float) -> None:
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    message, until = os.urandom(SIZE), time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        for _ in range(TOGETHER):
            connection.sendall(message)
            connection.recv(SIZE, socket.MSG_WAITALL)
        time.sleep(max(0.0, began + TOGETHER / per_second - time.monotonic()))


def run_loopback(argv: list[str]) -> None:
    """Sends messages to itself over the loopback device and waits for the answers, as services on one node do.

    Arguments: seconds, messages a second.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        answer(listener)
        os._exit(0)
    address = listener.getsockname()
    listener.close()
    ask(address, float(argv[1]), float(argv[2]))


CLONE_NEWNET = 0x40000000


def in_the_kernel() -> int:
    """Network namespaces that exist; 0 where the kernel doesn't report it."""
    content = Path("/proc/slabinfo").read_bytes()
    start = content.find(b"\nnet_namespace ")
    return int(content[start:].split(None, 2)[1]) if start >= 0 else 0


def in_a_child(libc: ctypes.CDLL) -> int:
    """Have a child make a namespace and end; 0 where it could."""
    child = os.fork()
    if child == 0:
        os._exit(1 if libc.unshare(CLONE_NEWNET) else 0)
    return os.waitpid(child, 0)[1]


def churn_namespaces(seconds: float, most: int, who: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    until = time.monotonic() + seconds
    made = 0
    while time.monotonic() < until:
        # A namespace goes with its last process, or when that gets a new one.
        if in_a_child(libc) if who == "children" else libc.unshare(CLONE_NEWNET):
            sys.exit("a network namespace can't be made here")
        made += 1
        while made % 32 == 0 and in_the_kernel() > most and time.monotonic() < until:
            time.sleep(0.02)


def run_churn_namespaces(argv: list[str]) -> None:
    """Makes network namespaces and drops them, one after the other.

    Arguments: seconds, most, who (self, or children: a new process for each).
    """
    churn_namespaces(float(argv[1]), int(argv[2]), argv[3])


def run_hold_namespace(argv: list[str]) -> None:
    """Makes a network namespace and stays in it. Arguments: seconds."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    time.sleep(float(argv[1]))


def read_in_namespace(seconds: float, path: str, file: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(path, os.O_RDONLY)
    if libc.setns(namespace, CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        opened = os.open(file, os.O_RDONLY)
        while os.read(opened, 1 << 20) and time.monotonic() < until:
            pass
        os.close(opened)


def run_read_in_namespace(argv: list[str]) -> None:
    """Reads a file from its beginning to its end, over and over, in a network namespace.

    Arguments: seconds, namespace file, file.
    """
    read_in_namespace(float(argv[1]), argv[2], argv[3])


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


def send_packets(seconds: float, path: str, first: str, numbers: list[int]) -> None:
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


def run_send_packets(argv: list[str]) -> None:
    """Sends small UDP packets in a network namespace.

    Arguments: seconds, namespace file, first address, addresses, ports, burst, pause in microseconds.
    """
    send_packets(float(argv[1]), argv[2], argv[3], [int(word) for word in argv[4:8]])


def rewrite_rules(seconds: float, path: str, rules: bytes, pause: float, command: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(path, os.O_RDONLY)
    if libc.setns(namespace, CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        subprocess.run([command], input=rules, check=False, capture_output=True, timeout=seconds + 5)
        time.sleep(pause)


def run_rewrite_rules(argv: list[str]) -> None:
    """Replaces packet filter rules in a network namespace, over and over.

    Arguments: seconds, namespace file, rules file, pause in seconds, restore command.
    """
    rewrite_rules(float(argv[1]), argv[2], Path(argv[3]).read_bytes(), float(argv[4]), argv[5])


PROGRAMS = {
    "loopback": run_loopback,
    "churn_namespaces": run_churn_namespaces,
    "hold_namespace": run_hold_namespace,
    "read_in_namespace": run_read_in_namespace,
    "send_packets": run_send_packets,
    "rewrite_rules": run_rewrite_rules,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[1:])
