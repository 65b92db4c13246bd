"""Requests in which a proxy and a server may disagree about where they end."""

import re
import socket

PATIENCE_S = 30.0


def framings(inner: bytes, otherwise: int) -> dict[bytes, list[int]]:
    """What precedes `inner`, which closes its connection, and the statuses that have to be answered; `otherwise` is
    that of a request whose body is `inner`, and which may be followed by another one."""
    length = str(len(inner)).encode()
    return {
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": [411],
        b"Transfer-Encoding: chunked\r\nContent-Length: " + length + b"\r\n\r\n0\r\n\r\n": [411],
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n": [411],
        b"tRANSFER-eNCODING: chunked\r\n\r\n0\r\n\r\n": [411],
        b"Transfer-Encoding: xchunked\r\n\r\n": [400],
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n": [400],
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n": [400],
        b"Content-Length: 0\r\nContent-Length: " + length + b"\r\n\r\n": [400],
        b"Content-Length: +0\r\n\r\n": [400],
        b"Content-Length : 0\r\n\r\n": [400],
        b"Host: evil.example\r\n\r\n": [400],
        b"Content-Length: " + length + b"\r\n\r\n" + inner: [otherwise, 200],
    }


def statuses(port: int, sent: bytes) -> list[int]:
    """The statuses of all answers on one connection, until the server closes it."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        connection.sendall(sent)
        answer = b""
        while piece := connection.recv(1 << 16):
            answer += piece
    return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+)", answer)]
