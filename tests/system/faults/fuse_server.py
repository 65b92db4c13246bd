"""A file system in user space that stops to answer, spoken directly over /dev/fuse: no library is needed.

    python fuse_server.py MOUNTPOINT NAME FILE OPERATION

It holds one executable file, NAME, with the content of FILE. A lookup of any other name is never answered. It prints
`ready` when it is mounted; after a line on its standard input it does not answer the operation any more (lookup, open,
read, flush or release). Layouts and numbers are those of include/uapi/linux/fuse.h, for version 7.31 of the protocol.
"""

import ctypes
import errno
import os
import select
import struct
import sys
from pathlib import Path

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, OPENDIR = 1, 2, 3, 14, 15, 18, 25, 26, 27
IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
ROOT, FILE = 1, 2
OPERATIONS = {"lookup": LOOKUP, "open": OPEN, "read": READ, "flush": FLUSH, "release": RELEASE}
# The kernel wants room for its largest write and a header (fs/fuse/dev.c, fuse_dev_do_read).
REQUEST_BYTES = 1 << 18
LARGEST_READ = 1 << 17


def attributes(node: int, size: int) -> bytes:
    mode = 0o040755 if node == ROOT else 0o100755
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode: int, node: int, body: bytes, name: bytes, content: bytes) -> bytes | int | None:
    """The body of the answer, or an errno; None: none is given."""
    size = len(content) if node == FILE else 0
    match opcode:
        case 26:
            return struct.pack("<IIIIHHIIHH8I", 7, 31, LARGEST_READ, 0, 12, 9, LARGEST_READ, 1, 32, 0, *[0] * 8)
        case 1 if body.rstrip(b"\0") == name:
            # Valid for no time: each open looks it up again.
            return struct.pack("<4Q2I", FILE, 0, 0, 0, 0, 0) + attributes(FILE, len(content))
        case 1:
            return None
        case 3:
            return struct.pack("<Q2I", 0, 0, 0) + attributes(node, size)
        case 14 | 27:
            return struct.pack("<Q2I", 0, 0, 0)
        case 15:
            _, offset, length = struct.unpack_from("<QQI", body)
            return content[offset : offset + length]
        case 18 | 25:
            return b""
        case _:
            return errno.ENOSYS


def serve(device: int, name: bytes, content: bytes, unanswered: int) -> None:
    """Answer until there is a line on the standard input; then read requests, and keep those of one operation."""
    answering = True
    while True:
        ready, _, _ = select.select([device, *([0] if answering else [])], [], [])
        if 0 in ready:
            answering = not os.read(0, 100)
        if device not in ready:
            continue
        request = os.read(device, REQUEST_BYTES)
        _, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
        kept = opcode == unanswered and not answering
        given = None if kept else answer(opcode, node, request[IN_HEADER.size :], name, content)
        # No answer belongs to a forget.
        if given is None or opcode == FORGET:
            continue
        error, body = (-given, b"") if isinstance(given, int) else (0, given)
        os.write(device, OUT_HEADER.pack(OUT_HEADER.size + len(body), error, unique) + body)


def main() -> None:
    mountpoint, name, file, operation = sys.argv[1:]
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"exhume-test", os.fsencode(mountpoint), b"fuse", 0, options.encode()):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    content = Path(file).read_bytes()
    print("ready", flush=True)
    serve(device, name.encode(), content, OPERATIONS[operation])


if __name__ == "__main__":
    main()
