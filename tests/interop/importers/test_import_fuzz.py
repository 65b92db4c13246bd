"""Whatever is in a file: an import ends with an error or with what is left out, in bounded time and memory.

Longer with EXHUME_FUZZ_SECONDS (for each kind of file); another sequence with EXHUME_FUZZ_SEED.
"""

import contextlib
import gzip
import json
import os
import random
import resource
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.interop.importers.made_up import START, mpstat_text, pprof_bytes, put, script
from tests.interop.importers.perf_file import perf_file
from tests.parts import address_space, examples, quick

from exhume.interop.importers.files import InputFile
from exhume.interop.importers.form import FileSummary, ReadOptions, Unreadable
from exhume.interop.importers.formats import recognise
from exhume.interop.importers.importer import ImportRequest, import_files
from exhume.interop.importers.spool import Intake, Spool
from exhume.model.clock import NANOS

SECONDS = float(os.environ.get("EXHUME_FUZZ_SECONDS", "0"))
SEED = os.environ.get("EXHUME_FUZZ_SEED", "20261117")
# Of each kind of file, at least.
CASES = 100
LONGEST_S = 10.0
MOST_BYTES = 600 << 20
SPEEDSCOPE = {
    "$schema": "https://www.speedscope.app/file-format-schema.json",
    "shared": {"frames": [{"name": "main"}, {"name": "work"}]},
    "profiles": [
        {"type": "sampled", "unit": "seconds", "startValue": 0, "samples": [[0], [0, 1]], "weights": [1, 2]},
        {
            "type": "evented",
            "unit": "none",
            "startValue": 0,
            "events": [{"type": "O", "frame": 0, "at": 0}, {"type": "C", "frame": 0, "at": 3}],
        },
    ],
}
SEEDS = {
    "perf.data": perf_file(samples=40),
    "perf.data -z": perf_file(samples=40, compressed=True),
    "perf.data pipe": perf_file(samples=40, pipe=True),
    "perf script": script(range(2)).encode(),
    "perf script.gz": gzip.compress(script(range(2)).encode()),
    "perf script.zst": pa.compress(script(range(2)).encode(), "zstd", asbytes=True),
    "mpstat": mpstat_text(range(3), {0: (1.0, 2.0, 3.0), 1: (1.0, 2.0, 3.0)}).encode(),
    "sadf": json.dumps(
        {
            "sysstat": {
                "hosts": [
                    {
                        "nodename": "n",
                        "date": "2026-03-01",
                        "statistics": [
                            {
                                "timestamp": {"date": "2026-03-01", "time": "03:00:01", "utc": 1, "interval": 1},
                                "cpu-load": [{"cpu": "0", "usr": 1.0}],
                            }
                        ],
                    }
                ]
            }
        }
    ).encode(),
    "dmesg": b"[   12.345678] usb 1-1: new device\n[   13.345678] BUG: soft lockup - CPU#3 stuck for 22s! [a:7]\n",
    "journal": b'{"__REALTIME_TIMESTAMP":"1772334000000000","MESSAGE":"x"}\n' * 3,
    "syslog": b"Mar  1 03:00:00 n kernel: [  1.000000] x\n" * 3,
    "folded": b"a;b;c 12\na;b 7\n",
    "pprof": pprof_bytes({("a", "b"): 3}, period_ns=10**7, since=START, nanos=NANOS),
    "pprof.gz": gzip.compress(pprof_bytes({("a", "b"): 3}, period_ns=10**7, since=START, nanos=NANOS)),
    "speedscope": json.dumps(SPEEDSCOPE).encode(),
}
INTERESTING = (
    b"\0",
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"9" * 30,
    b"-1",
    b"\n\n",
    b"\t",
    b"{" * 50,
    b"[" * 50,
    b"1e999",
    b"NaN",
)


def read(tmp_path: Path, content: bytes) -> FileSummary:
    """Recognise and read one file; anything but Unreadable and OverflowError is a failure."""
    file = InputFile(put(tmp_path, "file", content))
    summary = FileSummary("file")
    form = recognise(file).format
    intake = Intake(Spool(tmp_path / "spool", 60), summary)
    form.read(file, intake, ReadOptions(offset=START, start=START, cache=tmp_path))
    return summary


def survives(tmp_path: Path, content: bytes) -> None:
    began = time.thread_time()
    with contextlib.suppress(Unreadable, OverflowError):
        read(tmp_path, content)
    assert time.thread_time() - began < LONGEST_S


@pytest.fixture(autouse=True)
def bounded_memory():
    """A parser that asks for more gets MemoryError, which fails the test."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + MOST_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", SEEDS)
def test_seeds_are_read(tmp_path, name):
    read(tmp_path, SEEDS[name])


@pytest.mark.parametrize("name", SEEDS)
def test_cut_off_anywhere(tmp_path, name):
    content = SEEDS[name]
    step = max(1, len(content) // (15 if quick() else 60))
    for end in range(0, len(content), step):
        survives(tmp_path, content[:end])


@pytest.mark.parametrize("name", SEEDS)
def test_mutated(tmp_path, name):
    began = time.monotonic()
    case = 0
    while case < (CASES // 5 if quick() else CASES) or time.monotonic() - began < SECONDS:
        case += 1
        # A failure's case can be repeated by its number alone.
        chance = random.Random(f"{SEED} {name} {case}")
        content = bytearray(SEEDS[name])
        for _ in range(chance.choice((1, 1, 2, 4, 16))):
            at = chance.randrange(len(content))
            match chance.randrange(5):
                case 0:
                    content[at] ^= 1 << chance.randrange(8)
                case 1:
                    content[at : at + 4] = chance.choice(INTERESTING)
                case 2:
                    size = chance.choice((1, 2, 4, 8))
                    content[at : at + size] = chance.randbytes(size)
                case 3:
                    del content[at : at + chance.randrange(64)]
                case 4:
                    content[at:at] = content[at : at + chance.randrange(256)]
            content = content or bytearray(b"x")
        survives(tmp_path, bytes(content))


@examples(100)
@given(
    st.binary(max_size=2000),
    st.sampled_from((b"", b"PERFILE2", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b'{"', b"[ ", b"\n\x02")),
)
def test_any_bytes(tmp_path_factory, content, begin):
    survives(tmp_path_factory.mktemp("any"), begin + content)


def test_damaged_content_leaks_no_memory(tmp_path):
    content = bytearray(SEEDS["perf script.zst"])
    content[len(content) // 2 : len(content) // 2 + 8] = b"\xff" * 8
    survives(tmp_path, bytes(content))
    before = address_space()
    for _ in range(50):
        survives(tmp_path, bytes(content))
    # Each read asks for a piece of 1 MB.
    assert address_space() - before < 10 << 20


def test_a_small_file_takes_no_large_buffer(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + (32 << 20), limit[1]))
    read(tmp_path, SEEDS["pprof"])
    read(tmp_path, SEEDS["speedscope"])


def test_endless_nesting(tmp_path):
    for content in (
        b'{"$schema":"speedscope","profiles":' + b"[" * 200_000,
        b'{"dmesg":' + b'{"a":' * 200_000,
        b'{"sysstat":{"hosts":' + b"[" * 200_000,
    ):
        survives(tmp_path, content)
    # Groups of protocol buffers.
    survives(tmp_path, b"\x0a\x00" + b"\x0b" * 100_000)


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_decompression_bombs(tmp_path, packing):
    for content in (bytes(80 << 20), b"a 1/1 [000] 1.000000: 1 cpu-clock: \n\n" * (1 << 19)):
        packed = gzip.compress(content, 9) if packing == "gzip" else pa.compress(content, "zstd", asbytes=True)
        del content
        path = put(tmp_path, f"bomb.{packing}", packed)
        began = time.process_time()
        result = import_files(ImportRequest((str(path),), tmp_path / "r", START, processes=1))
        assert result.files[0].error is not None
        assert time.process_time() - began < LONGEST_S


def test_huge_lengths_in_perf_data(tmp_path):
    content = SEEDS["perf.data"]
    for at in range(8, 104, 8):
        for value in (0, 1, 2**31, 2**63 - 1, 2**64 - 1):
            survives(tmp_path, content[:at] + value.to_bytes(8, "little") + content[at + 8 :])
