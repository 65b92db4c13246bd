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
# Number of packets sent between two pauses.
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
    """The number of network namespaces; 0 if the kernel doesn't report it."""
    content = Path("/proc/slabinfo").read_bytes()
    start = content.find(b"\nnet_namespace ")
    return int(content[start:].split(None, 2)[1]) if start >= 0 else 0


def in_a_child() -> int:
    """Let a child create a namespace and exit; 0 if it succeeded."""
    child = os.fork()
    if child == 0:
        os._exit(1 if libc.unshare(CLONE_NEWNET) else 0)
    return os.waitpid(child, 0)[1]


def churn_namespaces(seconds: str, most: str, who: str) -> None:
    """Creates network namespaces and drops them, one after the other: by itself (`self`), or in a new process for each
    (`children`). At most `most` of them wait to be cleaned up."""
    until = time.monotonic() + float(seconds)
    made = 0
    while time.monotonic() < until:
        # A namespace goes away with its last process, or when that process enters a new one.
        if in_a_child() if who == "children" else libc.unshare(CLONE_NEWNET):
            sys.exit("a network namespace can't be made here")
        made += 1
        while made % 32 == 0 and in_the_kernel() > int(most) and time.monotonic() < until:
            time.sleep(0.02)


def hold_namespace(seconds: str) -> None:
    """Creates a network namespace and stays in it."""
    if libc.unshare(CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    time.sleep(float(seconds))


def enter(path: str) -> None:
    namespace = os.open(path, os.O_RDONLY)
    if libc.setns(namespace, CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    os.close(namespace)


def read_in_namespace(seconds: str, namespace: str, path: str) -> None:
    """Reads a file from beginning to end, over and over, in a network namespace."""
    enter(namespace)
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        opened = os.open(path, os.O_RDONLY)
        while os.read(opened, 1 << 20) and time.monotonic() < until:
            pass
        os.close(opened)


FIRST_PORT = 20_000
# Another source port makes new connections to the same destinations.
ROUNDS_PER_SOCKET = 16


def send_packets(seconds: str, namespace: str, first: str, *numbers: str) -> None:
    """Sends small UDP packets in a network namespace. The numbers are: addresses (from the first on), ports per
    address, packets per burst, and microseconds from one burst to the next (0: without a pause).

    A call that sends may also handle the packet, with all that it leads to (kernel/softirq.c, __local_bh_enable_ip: the
    softirqs that it raised run at its end). A burst that took longer than its interval is followed by the next at once.
    """
    enter(namespace)
    addresses, ports, burst, interval_us = map(int, numbers)
    start = int.from_bytes(socket.inet_aton(first), "big")
    hosts = [socket.inet_ntoa((start + number).to_bytes(4, "big")) for number in range(addresses)]
    targets = [(host, FIRST_PORT + port) for host in hosts for port in range(ports)]
    bursts = [targets[begin : begin + burst] for begin in range(0, len(targets), burst)]
    due = time.monotonic()
    until, payload = due + float(seconds), b"x" * 32
    while time.monotonic() < until:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for each in bursts * ROUNDS_PER_SOCKET:
                for target in each:
                    # If a packet can't be sent (a full queue, a rule against it), continue with the next.
                    with contextlib.suppress(OSError):
                        sender.sendto(payload, socket.MSG_DONTWAIT, target)
                now = time.monotonic()
                if now >= until:
                    return
                due = max(due + interval_us / 1e6, now)
                if due > now:
                    time.sleep(due - now)


def rewrite_rules(seconds: str, namespace: str, path: str, pause: str, command: str) -> None:
    """Replaces packet filter rules in a network namespace with those of a file, over and over."""
    enter(namespace)
    rules, length = Path(path).read_bytes(), float(seconds)
    until = time.monotonic() + length
    while time.monotonic() < until:
        subprocess.run([command], input=rules, check=False, capture_output=True, timeout=length + 5)
        time.sleep(float(pause))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
