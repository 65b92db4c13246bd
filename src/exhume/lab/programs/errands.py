"""One of the things that a healthy machine does all day. Words: seconds, errand, size (0 to 1), directory."""

import ctypes
import fcntl
import os
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
PORT = 4077


def compress(until: float, size: float, directory: Path) -> None:
    block = os.urandom(1 << 15) + bytes(1 << 17)
    while time.monotonic() < until:
        began = time.monotonic()
        for _ in range(4):
            zlib.compress(block, 6)
        # Now and then it waits for its next piece of work.
        time.sleep((time.monotonic() - began) * (1 - size) * 0.5)


def fork(until: float, size: float, directory: Path) -> None:
    while time.monotonic() < until:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.03 + 0.2 * (1 - size))


def files(until: float, size: float, directory: Path) -> None:
    path = directory / f"data-{os.getpid()}"
    block = os.urandom(1 << 16)
    while time.monotonic() < until:
        with path.open("wb") as file:
            for _ in range(int(8 + 40 * size)):
                file.write(block)
        for _ in range(4):
            with path.open("rb") as file:
                while file.read(1 << 16):
                    pass
        path.unlink()
        time.sleep(0.05)


def network(until: float, size: float, directory: Path) -> None:
    """Loopback traffic in a network namespace of its own."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network namespace of its own")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        asked = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", asked)[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
    listener = socket.create_server(("127.0.0.1", PORT))
    child = os.fork()
    if child == 0:
        connection, _ = listener.accept()
        while data := connection.recv(1 << 16):
            connection.sendall(data[:100])
        os._exit(0)
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        while time.monotonic() < until:
            for _ in range(int(5 + 40 * size)):
                connection.sendall(bytes(4000))
                connection.recv(1 << 16)
            time.sleep(0.01)
    os.waitpid(child, 0)


def memory(until: float, size: float, directory: Path) -> None:
    while time.monotonic() < until:
        held = bytearray(int((4 + 28 * size) * (1 << 20)))
        held[:: os.sysconf("SC_PAGESIZE")] = b"x" * len(held[:: os.sysconf("SC_PAGESIZE")])
        time.sleep(0.2)


def sleepers(until: float, size: float, directory: Path) -> None:
    def rest() -> None:
        while time.monotonic() < until:
            time.sleep(0.05)

    threads = [threading.Thread(target=rest) for _ in range(int(5 + 40 * size))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


ERRANDS: dict[str, Callable[[float, float, Path], None]] = {
    each.__name__: each for each in (compress, fork, files, network, memory, sleepers)
}

if __name__ == "__main__":
    ERRANDS[sys.argv[2]](time.monotonic() + float(sys.argv[1]), float(sys.argv[3]), Path(sys.argv[4]))
