"""perf.data files written by hand, for what no perf at hand writes: damage, and machines that are elsewhere."""

import io
import struct
from collections.abc import Iterator

import pyarrow as pa

# IP, TID, TIME, CALLCHAIN, CPU, PERIOD; a trailer behind every other record.
_SAMPLE_TYPE = 1 | 2 | 4 | 32 | 128 | 256
_FLAGS = 1 << 8 | 1 << 9 | 1 << 10 | 1 << 13 | 1 << 18 | 1 << 23
PID = 4242
_CONTEXT_KERNEL, _CONTEXT_USER = 2**64 - 128, 2**64 - 512


_STACK_USER = 1 << 13


def _attr(size: int = 128, rate: int = 100, sample_type: int = _SAMPLE_TYPE) -> bytes:
    # cpu-clock, in samples a second.
    return struct.pack("<IIQQQQQ", 1, size, 0, rate, sample_type, 0, _FLAGS).ljust(size, b"\0")


def _record(kind: int, body: bytes, misc: int = 0) -> bytes:
    body = body.ljust(len(body) + 7 & ~7, b"\0")
    return struct.pack("<IHH", kind, misc, len(body) + 8) + body


def task_trailer(pid: int, time: int, cpu: int) -> bytes:
    """What follows each record but a sample: who, when and where."""
    return struct.pack("<IIQII", pid, pid, time, cpu, 0)


def _sample(time: int, cpu: int, chain: list[int], *, pid: int = PID, copied: bytes | None = None) -> bytes:
    """A sample; `copied` is the part of the stack that was copied for unwinding."""
    head = struct.pack("<QIIQIIQQ", chain[1], pid, pid, time, cpu, 0, 10**7, len(chain))
    tail = b"" if copied is None else struct.pack("<Q", len(copied)) + copied + struct.pack("<Q", len(copied))
    return _record(9, head + struct.pack(f"<{len(chain)}Q", *chain) + tail, 1)


def _mapping(pid: int, start: int, size: int, path: bytes) -> bytes:
    path = path.ljust(len(path) + 8 & ~7, b"\0")
    inode = 77 if path.startswith(b"/usr") else 0
    fields = struct.pack("<IIQQQIIQQII", pid, pid, start, size, 0, 8, 1, inode, 0, 5, 2)
    return _record(10, fields + path + task_trailer(pid, 6, 0))


def _records(samples: int, path: bytes = b"/usr/bin/tool", copied: bytes | None = None) -> list[bytes]:
    pid = PID
    records = [
        _record(
            1, struct.pack("<iIQQQ", -1, 0, 2**64 - 2**31, 1 << 30, 2**64 - 2**31) + b"[kernel.kallsyms]_text\0\0", 1
        ),
        _record(3, struct.pack("<II", pid, pid) + b"tool\0\0\0\0" + task_trailer(pid, 6, 0)),
        _record(7, struct.pack("<IIIIQ", pid, 1, pid, 1, 5) + task_trailer(pid, 5, 0)),
        _mapping(pid, 0x400000, 0x1000, path),
    ]
    for number in range(samples):
        chain = [_CONTEXT_KERNEL, 2**64 - 2**31 + 16 * number, _CONTEXT_USER, 0x400010 + number, 0x400100]
        records.append(_sample(10**9 + number * 10**7, number % 2, chain, copied=copied))
        if number % 10 == 9:
            records.append(_record(68, b""))
    records.append(_record(2, struct.pack("<QQ", 1, 3) + task_trailer(pid, 2 * 10**9, 0)))
    records.append(_record(4, struct.pack("<IIIIQ", pid, 1, pid, 1, 2 * 10**9) + task_trailer(pid, 2 * 10**9, 0)))
    return records


def perf_file(
    samples: int,
    *,
    compressed: bool = False,
    pipe: bool = False,
    path: bytes = b"/usr/bin/tool",
    copied: bytes | None = None,
) -> bytes:
    """A recording of one process, whose code is in a file of that path; it loses three records."""
    records = _records(samples, path, copied)
    attr = _attr(sample_type=_SAMPLE_TYPE | (0 if copied is None else _STACK_USER))
    if compressed:
        # One frame that is flushed and never ended.
        records = [part for parts in _packed([b"".join(records)]) for part in parts]
    data = b"".join(records)
    if pipe:
        return struct.pack("<8sQ", b"PERFILE2", 16) + _record(64, attr + struct.pack("<QQ", 1, 2)) + data
    return _file(data, attr)


def rounds_file(rounds: int, samples: int) -> bytes:
    """A compressed recording of two cores: perf goes from buffer to buffer, and of the second one it sees half a round
    more than of the first; then it marks the round."""
    step = 10**6
    pushed = []
    for number in range(rounds):
        buffers = []
        for cpu, (begin, end) in enumerate(((number - 0.5, number + 0.5), (number, number + 1))):
            times = [10**9 + int((begin + (end - begin) * at / samples) * step) + cpu for at in range(samples)]
            chain = [_CONTEXT_KERNEL, 2**64 - 2**31]
            buffers += [_sample(time, cpu, chain) for time in times]
        pushed.append(b"".join(buffers))
    return _file(b"".join(b"".join(parts) + _record(68, b"") for parts in _packed(pushed)), _attr())


def _packed(pieces: list[bytes]) -> Iterator[list[bytes]]:
    """Pieces of one zstd frame, which is flushed behind each, as compressed records."""
    written = io.BytesIO()
    with pa.CompressedOutputStream(pa.PythonFile(written, "w"), "zstd") as stream:
        for piece in pieces:
            begin = written.tell()
            stream.write(piece)
            stream.flush()
            packed = written.getvalue()[begin:]
            parts = [packed[at : at + 60_000] for at in range(0, len(packed), 60_000)]
            yield [struct.pack("<IHH", 81, 0, len(part) + 8) + part for part in parts]


def _file(data: bytes, attr: bytes) -> bytes:
    """Records with a header that says where they are."""
    ids = struct.pack("<QQ", 1, 2)
    attrs_at = 104 + len(ids)
    attrs = attr + struct.pack("<QQ", 104, len(ids))
    data_at = attrs_at + len(attrs)
    features = {3: b"elsewhere", 4: b"5.4.0", 6: b"x86_64"}
    bits = sum(1 << number for number in features)
    at = data_at + len(data) + 16 * len(features)
    sections, contents = b"", b""
    for text in features.values():
        content = struct.pack("<I", 16) + text.ljust(16, b"\0")
        sections += struct.pack("<QQ", at + len(contents), len(content))
        contents += content
    header = struct.pack(
        "<8sQQQQQQQQ4Q", b"PERFILE2", 104, len(attrs), attrs_at, len(attrs), data_at, len(data), 0, 0, bits, 0, 0, 0
    )
    return header + ids + attrs + data + sections + contents
