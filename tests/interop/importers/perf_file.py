"""perf.data files written by hand, for what no perf at hand writes: damage, and machines that are elsewhere."""

import io
import struct

import pyarrow as pa

# IP, TID, TIME, CALLCHAIN, CPU, PERIOD; a trailer behind every other record.
_SAMPLE_TYPE = 1 | 2 | 4 | 32 | 128 | 256
_FLAGS = 1 << 8 | 1 << 9 | 1 << 10 | 1 << 13 | 1 << 18 | 1 << 23
_CONTEXT_KERNEL, _CONTEXT_USER = 2**64 - 128, 2**64 - 512


def _attr(size: int = 128, rate: int = 100) -> bytes:
    # cpu-clock, in samples a second.
    return struct.pack("<IIQQQQQ", 1, size, 0, rate, _SAMPLE_TYPE, 0, _FLAGS).ljust(size, b"\0")


def _record(kind: int, body: bytes, misc: int = 0) -> bytes:
    body = body.ljust(len(body) + 7 & ~7, b"\0")
    return struct.pack("<IHH", kind, misc, len(body) + 8) + body


def _trailer(pid: int, time: int, cpu: int) -> bytes:
    return struct.pack("<IIQII", pid, pid, time, cpu, 0)


def _records(samples: int) -> list[bytes]:
    pid = 4242
    path = b"/usr/bin/tool\0\0\0"
    records = [
        _record(
            1, struct.pack("<iIQQQ", -1, 0, 2**64 - 2**31, 1 << 30, 2**64 - 2**31) + b"[kernel.kallsyms]_text\0\0", 1
        ),
        _record(3, struct.pack("<II", pid, pid) + b"tool\0\0\0\0" + _trailer(pid, 6, 0)),
        _record(7, struct.pack("<IIIIQ", pid, 1, pid, 1, 5) + _trailer(pid, 5, 0)),
        _record(
            10,
            struct.pack("<IIQQQIIQQII", pid, pid, 0x400000, 0x1000, 0, 8, 1, 77, 0, 5, 2) + path + _trailer(pid, 6, 0),
        ),
    ]
    for number in range(samples):
        chain = [_CONTEXT_KERNEL, 2**64 - 2**31 + 16 * number, _CONTEXT_USER, 0x400010 + number, 0x400100]
        head = struct.pack("<QIIQIIQQ", chain[1], pid, pid, 10**9 + number * 10**7, number % 2, 0, 10**7, len(chain))
        records.append(_record(9, head + struct.pack(f"<{len(chain)}Q", *chain), 1))
        if number % 10 == 9:
            records.append(_record(68, b""))
    records.append(_record(2, struct.pack("<QQ", 1, 3) + _trailer(pid, 2 * 10**9, 0)))
    records.append(_record(4, struct.pack("<IIIIQ", pid, 1, pid, 1, 2 * 10**9) + _trailer(pid, 2 * 10**9, 0)))
    return records


def perf_file(samples: int, *, compressed: bool = False, pipe: bool = False) -> bytes:
    """A recording of one process; it loses three records."""
    records = _records(samples)
    if compressed:
        # One frame that is flushed and never ended.
        written = io.BytesIO()
        with pa.CompressedOutputStream(pa.PythonFile(written, "w"), "zstd") as stream:
            stream.write(b"".join(records))
            stream.flush()
            packed = written.getvalue()
        parts = [packed[at : at + 60_000] for at in range(0, len(packed), 60_000)]
        records = [struct.pack("<IHH", 81, 0, len(part) + 8) + part for part in parts]
    data = b"".join(records)
    if pipe:
        attr = _record(64, _attr() + struct.pack("<QQ", 1, 2))
        return struct.pack("<8sQ", b"PERFILE2", 16) + attr + data
    ids = struct.pack("<QQ", 1, 2)
    attrs_at = 104 + len(ids)
    attrs = _attr() + struct.pack("<QQ", 104, len(ids))
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
