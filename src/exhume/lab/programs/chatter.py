"""Sends messages to itself over the loopback device and waits for the answers, as services on one node do.
Words: seconds, messages a second."""

import os
import socket
import sys
import time

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


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        answer(listener)
        os._exit(0)
    address = listener.getsockname()
    listener.close()
    ask(address, float(sys.argv[1]), float(sys.argv[2]))
