"""The Container Runtime Interface (CRI, gRPC) of a runtime over its socket. `Cri` waits for answers, within limits on
time and bytes; `CriConnection` reads what has arrived and never waits.

CriConnection implements the little HTTP/2 that gRPC needs by itself: the recorder keeps it for as long as it runs, and
the gRPC library takes 17 MiB and seven threads.
"""

import os
import socket
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from exhume.model.errors import ExhumeError

_TIMEOUT_S = 5.0
# A node full of containers is listed in one answer.
_MOST_ANSWER = 64 << 20
# Before version 1 the same messages were in another package.
PACKAGES = ("runtime.v1", "runtime.v1alpha2")
CREATED, RUNNING, EXITED = range(3)
OOM_KILLED = "OOMKilled"


@lru_cache(maxsize=1)
def messages() -> dict[str, Any]:
    """The classes of all messages, by their names without the package. They are created from a compiled descriptor
    instead of generated Python code, so any version of protobuf works."""
    from importlib.resources import files

    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    described = descriptor_pb2.FileDescriptorSet.FromString(
        files("exhume.collect.containers").joinpath("runtime.protoset").read_bytes()
    )
    pool = descriptor_pool.DescriptorPool()
    found = {}
    for file in described.file:
        pool.Add(file)
        for message in file.message_type:
            descriptor = pool.FindMessageTypeByName(f"{file.package}.{message.name}")
            found[message.name] = message_factory.GetMessageClass(descriptor)
    return found


class CriError(ExhumeError):
    """The runtime could not be queried, or refused. `unknown` is True if it does not speak CRI at all."""

    def __init__(self, message: str, *, unknown: bool = False) -> None:
        super().__init__(message)
        self.unknown = unknown


class Cri:
    """A runtime by its socket, for use in a `with`. Every failure is a CriError."""

    def __init__(self, socket: Path, packages: tuple[str, ...] = PACKAGES) -> None:
        # Otherwise gRPC writes log lines to the terminal. The import is late because it takes a while.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc

        self._socket = socket
        self._channel = grpc.insecure_channel(
            # gRPC addresses are escaped, paths are not.
            f"unix:{quote(os.fspath(socket))}",
            # Servers written in Go refuse an authority that is made from a path.
            options=(("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", _MOST_ANSWER)),
        )
        for self._package in packages:
            try:
                self.version = self._ask("RuntimeService", "Version")
            except CriError as error:
                if error.unknown:
                    continue
                self._channel.close()
                raise
            return
        self._channel.close()
        raise CriError(f"{socket} does not speak CRI", unknown=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def sandboxes(self) -> list[Any]:
        """The runtime's pods (PodSandbox)."""
        return list(self._ask("RuntimeService", "ListPodSandbox").items)

    def containers(self) -> list[Any]:
        """The runtime's containers, including ended ones (Container)."""
        return list(self._ask("RuntimeService", "ListContainers").containers)

    def status(self, container: str) -> Any:
        """Everything the runtime knows about a container (ContainerStatusResponse)."""
        return self._ask("RuntimeService", "ContainerStatus", container_id=container, verbose=True)

    def images(self) -> list[Any]:
        """The runtime's images (Image)."""
        return list(self._ask("ImageService", "ListImages").images)

    def _ask(self, service: str, method: str, **fields: Any) -> Any:
        import grpc

        known = messages()
        call = self._channel.unary_unary(
            f"/{self._package}.{service}/{method}",
            request_serializer=known[f"{method}Request"].SerializeToString,
            response_deserializer=known[f"{method}Response"].FromString,
        )
        try:
            return call(known[f"{method}Request"](**fields), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            unknown = error.code() is grpc.StatusCode.UNIMPLEMENTED
            raise CriError(f"{self._socket} does not answer: {error.details()}", unknown=unknown) from None


# For all answers on one non-blocking connection: a thousand containers are about 1 MiB.
_MOST_STREAMED = 8 << 20
_PART = 1 << 16
# RFC 9113: 3.4 the preface, 6 frames and their flags, 6.5.2 settings.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 1
_END_HEADERS, _PADDED = 4, 8
_TABLE_SIZE, _ENABLE_PUSH, _WINDOW = 1, 2, 4
_FRAME = struct.Struct(">I B I")
# A message is preceded by a flag (compressed or not) and its length.
_MESSAGE = struct.Struct(">B I")


class CriConnection:
    """A non-blocking connection to a runtime; answers arrive in any order. Raises OSError when nothing listens.

    Response headers are not parsed: an answer without a message is a refusal."""

    def __init__(self, path: Path, package: str = PACKAGES[0]) -> None:
        self._package = package
        self._asked: dict[int, str] = {}
        self._answers: dict[int, bytearray] = {}
        self._waiting = bytearray()
        self._left = _MOST_STREAMED
        self._next = 1
        self.ended = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        settings = ((_TABLE_SIZE, 0), (_ENABLE_PUSH, 0), (_WINDOW, _MOST_STREAMED))
        try:
            self._socket.setblocking(False)
            self._socket.connect(os.fspath(path))
            self._socket.sendall(
                _PREFACE
                + _frame(_SETTINGS, 0, 0, b"".join(struct.pack(">HI", *each) for each in settings))
                + _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _MOST_STREAMED))
            )
        except OSError:
            self._socket.close()
            raise

    def ask(self, method: str, **fields: Any) -> int:
        """Send a request to the runtime service; returns its number. Raises OSError."""
        number, self._next = self._next, self._next + 2
        question = messages()[f"{method}Request"](**fields).SerializeToString()
        headers = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", f"/{self._package}.RuntimeService/{method}".encode()),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
        self._socket.sendall(
            _frame(_HEADERS, _END_HEADERS, number, b"".join(_literal(*each) for each in headers))
            + _frame(_DATA, _END_STREAM, number, _MESSAGE.pack(0, len(question)) + question)
        )
        self._asked[number], self._answers[number] = method, bytearray()
        return number

    def receive(self) -> dict[int, Any]:
        """The answers that are complete by now, by request number; None for a refused request."""
        done: dict[int, Any] = {}
        while not self.ended:
            try:
                part = self._socket.recv(_PART)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            self._left -= len(part)
            self.ended = not part or self._left < 0
            self._waiting += part
            for kind, flags, number, body in self._frames():
                self._take(kind, flags, number, body)
                if self._is_over(kind, flags, number):
                    done[number] = self._parsed(number)
        if self.ended:
            done |= {number: self._parsed(number) for number in list(self._asked)}
        return done

    def close(self) -> None:
        self._socket.close()

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """The complete frames received: type, flags, stream and content."""
        while len(self._waiting) >= _FRAME.size:
            head, flags, stream = _FRAME.unpack_from(self._waiting)
            end = _FRAME.size + (head >> 8)
            if len(self._waiting) < end:
                return
            body = bytes(self._waiting[_FRAME.size : end])
            del self._waiting[:end]
            yield head & 0xFF, flags, stream & 0x7FFFFFFF, body

    def _take(self, kind: int, flags: int, number: int, body: bytes) -> None:
        if kind == _DATA and number in self._answers:
            padding = body[0] if flags & _PADDED and body else 0
            self._answers[number] += body[1 : len(body) - padding] if flags & _PADDED else body
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            try:
                self._socket.sendall(_frame(kind, _ACK, 0, body if kind == _PING else b""))
            except OSError:
                self.ended = True
        elif kind == _GOAWAY:
            self.ended = True

    def _is_over(self, kind: int, flags: int, number: int) -> bool:
        ends = kind == _RST_STREAM or (kind in (_DATA, _HEADERS) and bool(flags & _END_STREAM))
        return ends and number in self._asked

    def _parsed(self, number: int) -> Any | None:
        from google.protobuf.message import DecodeError

        method, content = self._asked.pop(number), bytes(self._answers.pop(number))
        if len(content) < _MESSAGE.size:
            return None
        compressed, length = _MESSAGE.unpack_from(content)
        if compressed or len(content) < _MESSAGE.size + length:
            return None
        try:
            return messages()[f"{method}Response"].FromString(content[_MESSAGE.size : _MESSAGE.size + length])
        except DecodeError:
            return None


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return _FRAME.pack(len(body) << 8 | kind, flags, stream) + body


def _literal(name: bytes, value: bytes) -> bytes:
    """A header field that is not indexed (RFC 7541, 6.2.2); lengths below 127 take one byte."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
