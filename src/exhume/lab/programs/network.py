"""Programs that use the network and network namespaces. Run as: network.py PROGRAM ARGUMENT..."""

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

SIZE = 4 << 10
# So many go out between two pauses.
TOGETHER = 8


def loopback(seconds: str, per_second: str) -> None:
    """Sends messages to itself over the loopback device and waits for the answers, as services on one node do."""
    listener = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        answered, _ = listener.accept()
        while received := answered.recv(SIZE, socket.MSG_WAITALL):
            answered.sendall(received)
        os._exit(0)
    connection = socket.create_connection(listener.getsockname())
    listener.close()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    message, until = os.urandom(SIZE), time.monotonic() + float(seconds)
    while (began := time.monotonic()) < until:
        for _ in range(TOGETHER):
            connection.sendall(message)
            connection.recv(SIZE, socket.MSG_WAITALL)
        time.sleep(max(0.0, began + TOGETHER / float(per_second) - time.monotonic()))


CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def in_the_kernel() -> int:
    """Network namespaces that exist; 0 where the kernel doesn't report it."""
    content = Path("/proc/slabinfo").read_bytes()
    start = content.find(b"\nnet_namespace ")
    return int(content[start:].split(None, 2)[1]) if start >= 0 else 0


def in_a_child() -> int:
    """Have a child make a namespace and end; 0 where it could."""
    child = os.fork()
    if child == 0:
        os._exit(1 if libc.unshare(CLONE_NEWNET) else 0)
    return os.waitpid(child, 0)[1]


def churn_namespaces(seconds: str, most: str, who: str) -> None:
    """Makes network namespaces and drops them, one after the other: by itself (`self`), or a new process for each
    (`children`). No more than so many wait to be taken down."""
    until = time.monotonic() + float(seconds)
    made = 0
    while time.monotonic() < until:
        # A namespace goes with its last process, or when that gets a new one.
        if in_a_child() if who == "children" else libc.unshare(CLONE_NEWNET):
            sys.exit("a network namespace can't be made here")
        made += 1
        while made % 32 == 0 and in_the_kernel() > int(most) and time.monotonic() < until:
            time.sleep(0.02)


def hold_namespace(seconds: str) -> None:
    """Makes a network namespace and stays in it."""
    if libc.unshare(CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    time.sleep(float(seconds))


def enter(path: str) -> None:
    namespace = os.open(path, os.O_RDONLY)
    if libc.setns(namespace, CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    os.close(namespace)


def read_in_namespace(seconds: str, namespace: str, path: str) -> None:
    """Reads a file from its beginning to its end, over and over, in a network namespace."""
    enter(namespace)
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        opened = os.open(path, os.O_RDONLY)
        while os.read(opened, 1 << 20) and time.monotonic() < until:
            pass
        os.close(opened)


FIRST_PORT = 20_000
# Another source port makes other connections of the same destinations.
ROUNDS_PER_SOCKET = 16


def send_packets(seconds: str, namespace: str, first: str, *numbers: str) -> None:
    """Sends small UDP packets in a network namespace: to so many addresses from the first on, so many ports of each, so
    many packets in a burst, and so many microseconds between two bursts."""
    enter(namespace)
    addresses, ports, burst, pause_us = map(int, numbers)
    start = int.from_bytes(socket.inet_aton(first), "big")
    hosts = [socket.inet_ntoa((start + number).to_bytes(4, "big")) for number in range(addresses)]
    targets = [(host, FIRST_PORT + port) for host in hosts for port in range(ports)]
    bursts = [targets[begin : begin + burst] for begin in range(0, len(targets), burst)]
    until, payload = time.monotonic() + float(seconds), b"x" * 32
    while time.monotonic() < until:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for each in bursts * ROUNDS_PER_SOCKET:
                for target in each:
                    # What can't be sent (a full queue, a rule against it) is not sent: the next is tried.
                    with contextlib.suppress(OSError):
                        sender.sendto(payload, socket.MSG_DONTWAIT, target)
                if pause_us:
                    time.sleep(pause_us / 1e6)
                if time.monotonic() >= until:
                    return


def rewrite_rules(seconds: str, namespace: str, path: str, pause: str, command: str) -> None:
    """Replaces packet filter rules in a network namespace by those of a file, over and over."""
    enter(namespace)
    rules, length = Path(path).read_bytes(), float(seconds)
    until = time.monotonic() + length
    while time.monotonic() < until:
        subprocess.run([command], input=rules, check=False, capture_output=True, timeout=length + 5)
        time.sleep(float(pause))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
