"""Files that were made to cost their reader time or memory: refused in time, with the reason, and nothing else."""

import errno
import os
import random
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests import crafted_elf
from tests.collect.symbols.settled import file_frames
from tests.collect.symbols.symbol_programs import SOURCE, Compile, mapped

from exhume.collect.symbols.files import FileSymbols
from exhume.collect.symbols.locate import open_regular
from exhume.collect.symbols.owners import Owner, RefusalLog, owner_of
from exhume.collect.symbols.parse_queue import ParseQueue
from exhume.collect.symbols.parser.open_file import FAILED, OVER_BUDGET, UNREADABLE, FileBudget, FileRefused
from exhume.collect.symbols.parser.program import load_names, load_outlines, load_program, pack_program, unpack_program
from exhume.collect.symbols.parser.table import _MAX_ALIASES
from exhume.procfs.host import Host

pytestmark = pytest.mark.slow

# What a file may cost: CPU time with a margin for a busy machine, and memory while it is read.
MOST_CPU_S = 1.5
MOST_BYTES = 110 << 20


@pytest.mark.parametrize("kind", crafted_elf.KINDS)
def test_a_crafted_file_is_refused_within_bounds(compile_c: Compile, tmp_path: Path, kind: str) -> None:
    path = crafted_elf.write(kind, compile_c(SOURCE, "-s"), tmp_path / kind)
    log = RefusalLog()
    symbols = FileSymbols(Host(), refusals=log)
    file_frames(symbols, mapped(compile_c(SOURCE, name="sound")), [0x1000])
    parser = symbols.queue.parser
    assert parser is not None
    before, most_before = parser.cpu_s, most_memory(parser.pid)
    ours, began = most_memory(os.getpid()), time.process_time()
    frames = file_frames(symbols, mapped(path), [0x1000, 0x1040])
    assert time.process_time() - began < 0.5
    assert most_memory(os.getpid()) - ours < 8 << 20  # nothing of it reached the recorder
    kinds = [row.kind for row in log.take()]
    assert [frame.name for frame in frames] == [f"{kind}+0x1000", f"{kind}+0x1040"]
    assert len(kinds) == 1 and kinds[0] in ("symbols-over-budget", "symbols-malformed")
    assert symbols.queue.parser is parser  # it refused by itself
    assert parser.cpu_s - before < MOST_CPU_S
    assert most_memory(parser.pid) - most_before < MOST_BYTES


def most_memory(pid: int) -> int:
    """The high-water mark of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) << 10


def test_a_segment_that_reaches_beyond_64_bits_is_refused(compile_c: Compile) -> None:
    program = compile_c(SOURCE)
    content = bytearray(program.read_bytes())
    at, size, count = struct.unpack_from("<Q", content, 32)[0], *struct.unpack_from("<HH", content, 54)
    for header in range(at, at + size * count, size):
        kind, flags = struct.unpack_from("<II", content, header)
        if kind == 1 and flags & 1:
            struct.pack_into("<Q", content, header + 8, 2**64 - 16)
    program.write_bytes(content)
    log = RefusalLog()
    frames = file_frames(FileSymbols(Host(), refusals=log), mapped(program), [0x1000])
    assert [frame.name for frame in frames] == ["program+0x1000"]
    assert [row.kind for row in log.take()] == ["symbols-malformed"]


def test_a_refusal_names_the_file_and_its_owner_and_is_not_repeated_soon(compile_c: Compile, tmp_path: Path) -> None:
    now = 1000.0
    path = crafted_elf.write("endless_sections", compile_c(SOURCE), tmp_path / "crafted")
    log = RefusalLog()
    symbols = FileSymbols(Host(), clock=lambda: now, refusals=log)
    file_frames(symbols, mapped(path), [0x1000])
    (row,) = log.take()
    assert str(path) in row.text and f"uid {os.getuid()}" in row.text and row.count == 1
    for later, rows in ((30, 0), (61, 1)):
        now = 1000.0 + later
        file_frames(symbols, mapped(path), [0x1000])
        assert len(log.take()) == rows


def test_a_function_with_countless_names_is_named_in_time(compile_c: Compile, tmp_path: Path) -> None:
    strings = b"\0" + b"name_of_it\0" * 20_000
    made = crafted_elf.with_sections(
        compile_c(SOURCE, "-s").read_bytes(),
        [
            crafted_elf.Section(".text", flags=crafted_elf.CODE, address=0x1000, size=0x1000),
            crafted_elf.Section(
                ".symtab", crafted_elf.SYMTAB, crafted_elf.symbols(*[(1, 0x1000, 64)] * 300_000), link=3
            ),
            crafted_elf.Section(".strtab", crafted_elf.STRTAB, strings),
        ],
    )
    path = tmp_path / "aliases"
    path.write_bytes(made)
    with opened(path) as file:
        program, _ = load_program(file)
        began = time.thread_time()
        (index,) = program.find(np.array([0x1010], np.uint64)).tolist()
        assert load_names(file, [program.lookup(index)]) == [b"name_of_it"]
        assert time.thread_time() - began < 0.1
    assert _MAX_ALIASES <= 64


def opened(path: Path):
    file = open_regular(str(path))
    assert file is not None
    return file


def test_a_budget_counts_bytes_entries_and_time() -> None:
    now = [0.0]
    budget = FileBudget(max_bytes=100, max_entries=10, cpu_s=1.0, clock=lambda: now[0])
    read = budget.reading(lambda offset, size: b"x" * size, file_size=60)
    assert len(read(50, 1 << 62)) == 10 and read(61, 5) == b""
    assert len(read(0, 60)) == 60
    with pytest.raises(FileRefused) as refused:
        read(0, 31)
    assert refused.value.code == OVER_BUDGET
    budget.count(10)
    with pytest.raises(FileRefused):
        budget.count()
    budget = FileBudget(cpu_s=1.0, clock=lambda: now[0])
    budget.count()
    now[0] = 1.1
    with pytest.raises(FileRefused):
        budget.count()


def test_no_owner_takes_all_the_time_and_what_is_deferred_is_named_later(compile_c: Compile, tmp_path: Path) -> None:
    """A second's work for many files of one owner: the rest waits, another owner's file does not."""
    now = [1000.0]
    log = RefusalLog()
    queue = ParseQueue(log, deadline_s=60.0, clock=lambda: now[0])
    symbols = FileSymbols(Host(), clock=lambda: now[0], queue=queue, refusals=log)
    program = compile_c(SOURCE)
    owner = owner_of(Host(), os.getpid())
    others = owner._replace(cgroup="/another"), owner._replace(uid=owner.uid + 1)

    def busy(_: object) -> None:
        began = time.thread_time()
        while time.thread_time() - began < 0.3:
            pass

    while queue.affords(owner):
        queue.submit(owner, "device", busy, lambda _: None)
        queue.wait(60.0)
    assert all(queue.affords(other) for other in others)
    offset = 0x1100
    (frame,) = file_frames(symbols, mapped(program), [offset])
    assert frame.deferred and not frame.patience and frame.name == f"program+0x{offset:x}"
    (row,) = log.take()
    assert (row.kind, row.count) == ("symbols-deferred", 1)
    assert f"uid {owner.uid}" in row.text and owner.cgroup in row.text
    now[0] += 60.0
    assert not file_frames(symbols, mapped(program), [offset])[0].deferred
    assert log.take() == []
    queue.close()


def test_many_costly_files_of_one_owner_take_no_more_than_its_share(compile_c: Compile, tmp_path: Path) -> None:
    program = compile_c(SOURCE, "-s")
    paths = [crafted_elf.write("endless_symtab", program, tmp_path / f"costly{i}") for i in range(40)]
    log = RefusalLog()
    symbols = FileSymbols(Host(), refusals=log)
    for path in paths:
        symbols.frames(mapped(path), [0x1000])
    symbols.queue.wait(60.0)
    # A second of CPU, what the last file takes beyond it, and the start of the parser.
    assert symbols.queue.cost[0] < 3.0
    deferred = sum(symbols.frames(mapped(path), [0x1000])[0].deferred for path in paths)
    assert 10 <= deferred < 40
    rows = [row for row in log.take() if row.kind == "symbols-deferred"]
    assert [row.count for row in rows] == [2 * deferred]  # and again just now


def refused_with(queue: ParseQueue, job: Callable[[], object]) -> object:
    results: list[object] = []
    queue.submit(Owner(0, "/"), "device", lambda _: job(), results.append)
    queue.wait(60.0)
    (result,) = results
    return result.code if isinstance(result, FileRefused) else result


def test_an_error_of_the_disk_and_a_fault_of_the_reader_cost_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_disk() -> None:
        raise OSError(errno.EIO, "Input/output error")

    def fault() -> None:
        raise AttributeError

    printed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    queue = ParseQueue(deadline_s=60.0)
    assert refused_with(queue, broken_disk) == UNREADABLE
    assert refused_with(queue, fault) == FAILED
    assert refused_with(queue, lambda: "fine") == "fine"
    assert len(printed) == 1
    queue.close()


def mutate(random_: random.Random, content: bytearray) -> None:
    """Change a few bytes, mostly in the headers, and mostly to numbers at the edge of something."""
    edges = (0, 1, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, len(content), len(content) - 8)
    sections = struct.unpack_from("<Q", content, 40)[0]
    for _ in range(random_.randint(1, 6)):
        place = random_.choice((64, 600, 0, 0))
        at = random_.randrange(sections, len(content)) if not place and sections < len(content) else 0
        at = at or random_.randrange(16, place or len(content))
        width, pattern = random_.choice(((1, "<B"), (2, "<H"), (4, "<I"), (8, "<Q")))
        value = random_.choice(edges) if random_.random() < 0.7 else random_.getrandbits(64)
        if at + width <= len(content):
            struct.pack_into(pattern, content, at, value % 2 ** (8 * width))
    if random_.random() < 0.1:
        del content[random_.randrange(64, len(content)) :]


def test_mutated_files_are_read_or_refused_in_time(compile_c: Compile, tmp_path: Path) -> None:
    """For three seconds, or EXHUME_FUZZ_SECONDS; a failure prints the seed of its file."""
    until = time.monotonic() + float(os.environ.get("EXHUME_FUZZ_SECONDS", "3"))
    whole = compile_c(SOURCE, name="whole").read_bytes()
    stripped = compile_c(SOURCE, "-s", name="stripped").read_bytes()
    packed = crafted_elf._with_strings(stripped, 64)
    sources = (whole, stripped, packed)
    offsets = np.array([0, 0x40, 0x1000, 0x1100, 0x2000, 2**63, 2**64 - 1], np.uint64)
    path = tmp_path / "mutated"
    first = int(os.environ.get("EXHUME_FUZZ_SEED", "1"))
    seed = first
    while time.monotonic() < until or seed == first:
        random_ = random.Random(seed)
        content = bytearray(sources[seed % len(sources)])
        mutate(random_, content)
        path.write_bytes(content)
        began = time.thread_time()
        try:
            with opened(path) as file:
                program, _ = load_program(file)
                program.outline(*load_outlines(file))
                found = {index for index in program.find(offsets).tolist() if index >= 0}
                load_names(file, [program.lookup(index) for index in found if program.has_name(index)])
                assert all(program.start(index) >= 0 for index in found)
                unpack_program(pack_program(program, 0))
        except FileRefused:
            pass
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        assert time.thread_time() - began < MOST_CPU_S, f"seed {seed}"
        seed += 1
