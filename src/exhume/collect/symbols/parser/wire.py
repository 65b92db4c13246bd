"""The messages between the recorder and its parser process.

A request is JSON, with the files to read as file descriptors. A reply is a set of named arrays. The process that sends
it has read data that an attacker may control, so each length, type and offset in it is checked before use.
"""

import json
import socket
import struct
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.parser.open_file import FAILED, MALFORMED, NOT_ELF, OVER_BUDGET, UNREADABLE, FileRefused

Arrays = Mapping[str, npt.NDArray[Any]]

# The largest table that is kept of a file has 700,000 functions of 12 bytes.
MAX_REPLY = 24 << 20
_AT_ONCE = 64 << 10
MAX_FILES = 8
_MAX_ARRAYS = 32
_MAX_DETAIL = 200
_REFUSALS = (NOT_ELF, MALFORMED, OVER_BUDGET, UNREADABLE, FAILED)

_MAGIC = b"EXHP"
_HEADER = struct.Struct("<4sIQ")  # magic, number of arrays, bytes after this header
_ENTRY = struct.Struct("<12s4sQ")  # name, type, elements
_LENGTH = struct.Struct("<I")
_TYPES: dict[bytes, np.dtype[Any]] = {b"<u1": np.dtype("u1"), b"<u4": np.dtype("<u4"), b"<u8": np.dtype("<u8")}
_CODES = {np.dtype("u1"): b"<u1", np.dtype("<u4"): b"<u4", np.dtype("<u8"): b"<u8"}

HEADER_SIZE = _HEADER.size


class BadReply(Exception):
    """A reply that no intact parser sends: the process may be compromised."""


def text(content: bytes) -> npt.NDArray[np.uint8]:
    """Bytes as an array."""
    return np.frombuffer(content, np.uint8)


def encode_reply(arrays: Arrays) -> bytes:
    """Encode a reply. Raises FileRefused when it is too large."""
    entries = [_ENTRY.pack(name.encode(), _CODES[array.dtype], len(array)) for name, array in arrays.items()]
    size = sum(map(len, entries)) + sum(array.nbytes for array in arrays.values())
    if size > MAX_REPLY:
        raise FileRefused(OVER_BUDGET, f"its tables take {size >> 20} MiB")
    return b"".join([_HEADER.pack(_MAGIC, len(entries), size), *entries, *(a.tobytes() for a in arrays.values())])


def encode_refusal(refusal: FileRefused) -> bytes:
    return encode_reply({"refusal": text(refusal.code.encode()), "detail": text(refusal.detail.encode()[:_MAX_DETAIL])})


def body_size(header: bytes | bytearray) -> int:
    """The number of bytes after the header of a reply. Raises BadReply."""
    magic, count, size = _HEADER.unpack(header)
    if magic != _MAGIC or count > _MAX_ARRAYS or size > MAX_REPLY:
        raise BadReply("its header")
    return int(size)


def decode_reply(header: bytes | bytearray, body: bytes | bytearray) -> dict[str, npt.NDArray[Any]]:
    """Decode the arrays of a reply, which share its memory. Raises BadReply, or the FileRefused that it contains."""
    count = _HEADER.unpack(header)[1]
    at = count * _ENTRY.size
    if at > len(body):
        raise BadReply("its list of arrays")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for number in range(count):
        raw, code, length = _ENTRY.unpack_from(body, number * _ENTRY.size)
        dtype = _TYPES.get(code.rstrip(b"\0"))
        if dtype is None or length > (len(body) - at) // dtype.itemsize:
            raise BadReply("the type or length of an array")
        arrays[raw.rstrip(b"\0").decode("ascii", "replace")] = np.frombuffer(body, dtype, length, at)
        at += length * dtype.itemsize
    if at != len(body):
        raise BadReply("its length")
    if "refusal" in arrays:
        code = arrays["refusal"].tobytes()
        known = next((each for each in _REFUSALS if each.encode() == code), None)
        if known is None:
            raise BadReply("the reason of a refusal")
        detail = arrays["detail"].tobytes() if "detail" in arrays else b""
        raise FileRefused(known, detail[:_MAX_DETAIL].decode("utf-8", "replace"))
    return arrays


def column(arrays: Arrays, name: str, *types: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
    """A required array with one of these types. Raises BadReply."""
    array = arrays.get(name)
    if array is None or array.dtype.type not in types:
        raise BadReply(f"the array {name}")
    return array


def pieces(arrays: Arrays, lengths: str, content: str) -> list[bytes]:
    """Texts that were concatenated. Raises BadReply."""
    sizes = column(arrays, lengths, np.uint32).tolist()
    blob = column(arrays, content, np.uint8).tobytes()
    if sum(sizes) != len(blob):
        raise BadReply(f"the lengths in {lengths}")
    return [blob[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def joined(texts: list[bytes]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
    """Lengths and content, as `pieces` reads them."""
    return np.array([len(each) for each in texts], np.uint32), text(b"".join(texts))


def send_request(connection: socket.socket, request: dict[str, Any], files: list[int]) -> None:
    content = json.dumps(request).encode()
    content = _LENGTH.pack(len(content)) + content
    sent = socket.send_fds(connection, [content], files)
    if sent < len(content):
        connection.sendall(content[sent:])


def receive_request(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Receive a request and its files; None when the recorder has exited."""
    # The sender waits for the reply, so no data of another request follows.
    content, files, _, _ = socket.recv_fds(connection, _AT_ONCE, MAX_FILES)
    if len(content) < _LENGTH.size:
        return None
    rest = _LENGTH.size + _LENGTH.unpack_from(content)[0] - len(content)
    if rest > 0:
        content += connection.recv(rest, socket.MSG_WAITALL)
    request: dict[str, Any] = json.loads(memoryview(content)[_LENGTH.size :].tobytes())
    return request, files
