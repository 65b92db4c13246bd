"""Kernel symbols: /proc/kallsyms as two arrays and a string, a few megabytes for hundreds of thousands of symbols.

The text is read in chunks and parsed with numpy, so loading costs tens of milliseconds and never holds more than one
chunk.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.frame import KERNEL, USER, Frame, make_frame
from exhume.collect.symbols.mappings import Mapping, executable_mappings
from exhume.collect.symbols.parser.elf import ElfFile
from exhume.collect.symbols.parser.open_file import FileRefused, readable
from exhume.collect.symbols.parser.program import ElfNames, Program
from exhume.collect.symbols.parser.table import FunctionTable
from exhume.model.facts import MissingSource
from exhume.model.process import give_back
from exhume.procfs.host import Host

VDSO = "[vdso]"


class VdsoSymbols:
    """Looks up offsets in the vDSO, read from our own memory."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._size = 0
        self._program: Program | None = None
        self._loaded = False
        self._frames: dict[int, Frame] = {}  # by offset: at most as many as the vDSO has bytes, a page or two

    def frame(self, mapping: Mapping, offset: int) -> Frame:
        """The frame at an offset. A vDSO of another size is not ours (a 32-bit process) and stays nameless."""
        if not self._loaded:
            self._load()
            self._loaded = True
        if self._program is None or mapping.end - mapping.start != self._size or mapping.start < 1 << 32:
            return make_frame(USER, VDSO, f"{VDSO}+0x{offset:x}")
        frame = self._frames.get(offset)
        if frame is None:
            frame = self._frames[offset] = self._named(self._program, offset)
        return frame

    def _named(self, program: Program, offset: int) -> Frame:
        index = int(program.find(np.array([offset], np.uint64))[0])
        name = readable(program.name(index, None)) if index >= 0 else f"{VDSO}+0x{offset:x}"
        return make_frame(USER, VDSO, name)

    def _load(self) -> None:
        try:
            with open(f"{self._host.proc}/self/maps", "rb") as maps:  # noqa: PTH123
                mappings = executable_mappings(maps.read().splitlines())
                ours = next(mapping for mapping in mappings if mapping.file.path == VDSO)
            fd = os.open(f"{self._host.proc}/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, StopIteration):
            return
        try:
            image = os.pread(fd, ours.end - ours.start, ours.start)
        except OSError:
            return
        finally:
            os.close(fd)

        def read(offset: int, size: int) -> bytes:
            return image[offset : offset + size]

        try:
            elf = ElfFile(read)
            symbols, strings = elf.functions()
        except FileRefused:
            return
        self._size = len(image)
        self._program = Program(elf.code, [ElfNames(FunctionTable.of(symbols), elf.strings(strings), strings)])


KERNEL_MODULE = "[kernel]"
BPF_MODULE = "[bpf]"

_CHUNK = 256 << 10
_NO_NAME = np.uint32(2**32 - 1)
_DATA = np.uint32(2**32 - 1)
_PAGE = np.uint64(4096)
# kallsyms has no sizes. The last function before data or another module extends to the end of the following page (as in
# perf), a BPF program no further than this.
_BPF_REACH = np.uint64(64 << 10)
# On kernels with call-depth tracking the padding before each function has a symbol of its own. It is never executed,
# but the address just before a function that was interrupted at its first instruction lies in it. The padding is
# attributed to the function, which also halves the memory.
_PADDING = b"__pfx_"
# Symbols of the linker script (include/asm-generic/vmlinux.lds.h) rather than functions: __cpuidle_text_start,
# __sched_text_end. Where sections are not padded, a function begins at the same address.
_SECTION_MARKS = (b"_text_start", b"_text_end")

_NEWLINE, _TAB = 10, 9
_HEX = np.zeros(256, np.uint8)
for _digit in range(16):
    _HEX[ord(f"{_digit:x}")] = _digit
_TEXT = np.zeros(256, np.bool_)
_TEXT[list(b"tTwW")] = True


@dataclass(slots=True)
class KernelTable:
    """Sorted addresses, each with the offset of its name, or with no name where nameless memory begins."""

    addresses: npt.NDArray[np.uint64]
    names: npt.NDArray[np.uint32]
    blob: bytes
    hidden: bool

    def find(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        """The index of the function that contains each address; -1 where none is known."""
        at = np.searchsorted(self.addresses, addresses, side="right") - 1
        if len(self.names):
            at[self.names[at] == _NO_NAME] = -1
        return at

    def symbol(self, index: int) -> tuple[str, str]:
        """The module and name of a function."""
        start = int(self.names[index])
        name, _, module = self.blob[start : self.blob.index(b"\n", start)].partition(b"\t")
        return (readable(module) if module else KERNEL_MODULE), readable(name)

    @property
    def nbytes(self) -> int:
        return self.addresses.nbytes + self.names.nbytes + len(self.blob)


@dataclass(slots=True)
class _Lines:
    """The symbols in one chunk of text. `region` is 0 for core kernel code, a hash of the module name for module code,
    and _DATA for data; `marks` flags section symbols."""

    addresses: npt.NDArray[np.uint64]
    names: npt.NDArray[np.uint32]
    regions: npt.NDArray[np.uint32]
    marks: npt.NDArray[np.bool_]
    blob: bytes


def kallsyms_hidden(path: str) -> bool:
    """Whether kptr_restrict zeroes the addresses for us, judged by the first page. Raises OSError without kallsyms."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        lines = os.read(fd, 4096).splitlines()
    finally:
        os.close(fd)
    # On some kernels per-CPU symbols come first, and one of them is at address zero, so all addresses must be zero.
    return bool(lines) and not any(line.split(b" ", 1)[0].strip(b"0") for line in lines)


def load_kallsyms(path: str) -> KernelTable:
    """Read kallsyms. Raises OSError when it is missing. Sets `hidden` when kptr_restrict zeroes all addresses."""
    parts: list[_Lines] = []
    size = 0
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pending = b""
        while content := _read_chunk(fd, pending):
            cut = content.rfind(b"\n") + 1
            if not cut:
                break
            lines = _parse(content[:cut], size)
            pending = content[cut:]
            if not parts and not lines.addresses.any():
                return KernelTable(np.empty(0, np.uint64), np.empty(0, np.uint32), b"", hidden=True)
            size += len(lines.blob)
            parts.append(lines)
    finally:
        os.close(fd)
    return _assemble(parts)


def _read_chunk(fd: int, pending: bytes) -> bytes:
    """The rest of the last chunk plus new text; the kernel returns one page per read."""
    pieces = [pending]
    size = 0
    while size < _CHUNK and (piece := os.read(fd, _CHUNK)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces) if size else b""


def _parse(content: bytes, blob_offset: int) -> _Lines:
    text = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    starts = np.append(0, ends[:-1] + 1)
    width = content.index(b" ")
    whole = ends - starts > width + 3
    starts, ends = starts[whole], ends[whole]
    addresses = _hexadecimal(text, starts, width)
    names_at = starts + width + 3
    code = _TEXT[text[starts + width + 1]]
    named = code & ~_begins_with(text, names_at, _PADDING)
    begin, end = names_at[named], ends[named] + 1
    # Alternating edges of gaps and names.
    edges = np.zeros(2 * len(begin) + 2, np.intp)
    edges[1:-1:2], edges[2:-1:2], edges[-1] = begin, end, len(text)
    inside = np.zeros(len(edges) - 1, np.bool_)
    inside[1::2] = True
    blob = text[np.repeat(inside, np.diff(edges))].tobytes()
    names = np.full(len(starts), _NO_NAME, np.uint32)
    lengths = end - begin
    names[named] = blob_offset + np.cumsum(lengths) - lengths
    marks = np.zeros(len(starts), np.bool_)
    for suffix in _SECTION_MARKS:
        marks |= _begins_with(text, ends - len(suffix), suffix)
    return _Lines(addresses, names, np.where(code, _regions(text, ends), _DATA), marks, blob)


def _hexadecimal(text: npt.NDArray[np.uint8], at: npt.NDArray[np.intp], width: int) -> npt.NDArray[np.uint64]:
    """The hexadecimal numbers of a given length at some positions; the lower 64 bits of each."""
    digits = np.zeros((len(at), 16), np.uint8)
    kept = np.arange(max(0, width - 16), width)
    digits[:, 16 - len(kept) :] = _HEX[text[at[:, None] + kept]]
    return (digits[:, 0::2] << 4 | digits[:, 1::2]).view(">u8")[:, 0].astype(np.uint64)


def _begins_with(text: npt.NDArray[np.uint8], at: npt.NDArray[np.intp], prefix: bytes) -> npt.NDArray[np.bool_]:
    last = len(text) - 1
    left = np.arange(len(at))
    for i, char in enumerate(prefix):
        # Few candidates are left after the first characters.
        left = left[text[np.minimum(at[left] + i, last)] == char]
    matches = np.zeros(len(at), np.bool_)
    matches[left] = True
    return matches


def _regions(text: npt.NDArray[np.uint8], ends: npt.NDArray[np.intp]) -> npt.NDArray[np.uint32]:
    """A hash of each line's module, from the length and both ends of its name; 0 for the kernel itself."""
    tabs = np.append(-1, np.flatnonzero(text == _TAB))
    regions = np.zeros(len(ends), np.uint32)
    tab = tabs[np.searchsorted(tabs, ends) - 1]  # the last tab before each line's end...
    lines = np.flatnonzero(tab > np.append(-1, ends[:-1]))  # ...if it is in that line
    first, last = tab[lines] + 1, ends[lines]
    mixed = (last - first).astype(np.uint32)
    for i in range(1, 5):
        head, tail = np.minimum(first + i, last), np.maximum(last - i - 1, first)
        mixed = mixed * np.uint32(31) + text[head]
        mixed = mixed * np.uint32(31) + text[tail]
    regions[lines] = np.clip(mixed, 1, _DATA - 1)
    return regions


_BPF_REGION = _regions(np.frombuffer(f"x\t{BPF_MODULE}\n".encode(), np.uint8), np.array([len(BPF_MODULE) + 2]))[0]


def _assemble(parts: list[_Lines]) -> KernelTable:
    if not parts:
        return KernelTable(np.empty(0, np.uint64), np.empty(0, np.uint32), b"", hidden=False)
    addresses = np.concatenate([part.addresses for part in parts])
    names = np.concatenate([part.names for part in parts])
    regions = np.concatenate([part.regions for part in parts])
    marks = np.concatenate([part.marks for part in parts])
    blob = b"".join(part.blob for part in parts)
    parts.clear()
    # Per-CPU symbols are offsets near zero rather than addresses.
    order = np.argsort(addresses, kind="stable")
    order = order[np.searchsorted(addresses[order], np.uint64(1 << 63)) :]
    addresses, names, regions, marks = addresses[order], names[order], regions[order], marks[order]
    # Of several functions at one address the last one listed wins, as in perf; a function wins over a section symbol,
    # and both win over data.
    named = names != _NO_NAME
    group = np.cumsum(np.append(True, addresses[1:] != addresses[:-1])) - 1
    keep = np.zeros(int(group[-1]) + 1 if len(group) else 0, np.intp)
    keep[group] = np.arange(len(addresses))
    for better in (named, named & ~marks):
        keep[group[better]] = np.flatnonzero(better)
    addresses, names, regions = addresses[keep], names[keep], regions[keep]
    padding = np.flatnonzero((names[:-1] == _NO_NAME) & (regions[:-1] != _DATA) & (names[1:] != _NO_NAME))
    addresses[padding + 1] = addresses[padding]
    addresses, names, regions = (np.delete(each, padding) for each in (addresses, names, regions))
    addresses, names = _with_region_ends(addresses, names, regions)
    # Nameless memory needs a single entry, where it begins.
    keep_mark = np.append(True, (names[1:] != _NO_NAME) | (names[:-1] != _NO_NAME)) if len(names) else slice(None)
    return KernelTable(addresses[keep_mark], names[keep_mark], blob, hidden=False)


def _with_region_ends(
    addresses: npt.NDArray[np.uint64], names: npt.NDArray[np.uint32], regions: npt.NDArray[np.uint32]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Add end markers: the latest possible end of each stretch of code and of each BPF program."""
    bpf = regions == _BPF_REGION
    last = np.append(regions[1:] != regions[:-1], True) | bpf
    last &= names != _NO_NAME
    at = np.flatnonzero(last)
    reach = np.where(bpf[at], addresses[at] + _BPF_REACH, (addresses[at] + _PAGE + _PAGE - 1) & ~(_PAGE - 1))
    following = np.append(addresses[1:], np.uint64(2**64 - 1))[at]
    at, reach = at[reach < following], reach[reach < following]
    return np.insert(addresses, at + 1, reach), np.insert(names, at + 1, _NO_NAME)


# A load costs a tenth of a second of CPU. Each load that resolves nothing new doubles the delay before the next one, up
# to an hour, unless modules were loaded.
_RELOAD_AFTER_S, _RELOAD_AFTER_AT_MOST_S = 60.0, 3600.0
_MAX_UNKNOWN = 4096


class KernelSymbols:
    """Functions of the kernel, its modules and BPF programs."""

    def __init__(self, host: Host, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._clock = clock
        self._table: KernelTable | None = None
        self._loaded_at = 0.0
        self._changed = False
        self._reload_after_s = _RELOAD_AFTER_S
        self._modules: list[tuple[bytes, ...]] = []
        self._frames: dict[int, Frame] = {}
        self._unknown: set[int] = set()
        self.generation = 0
        self.missing: MissingSource | None = self._look_for_names()

    @property
    def nbytes(self) -> int:
        return self._table.nbytes if self._table else 0

    def changed(self) -> None:
        """Note that a module or BPF program was loaded or unloaded: the table may now give wrong names."""
        self._changed = True

    def functions(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        """The function number of each address, -1 for none. Numbers change with the generation."""
        return self._fresh_table().find(addresses)

    def frames(self, addresses: npt.NDArray[np.uint64]) -> list[Frame]:
        """A frame for each address."""
        table = self._fresh_table()
        at = table.find(addresses)
        if self._worth_reloading(addresses, at):
            before = self._named(table, at)
            table = self._load()
            at = table.find(addresses)
            unchanged = self._named(table, at) == before
            self._reload_after_s = (
                min(self._reload_after_s * 2, _RELOAD_AFTER_AT_MOST_S) if unchanged else _RELOAD_AFTER_S
            )
            if len(self._unknown) > _MAX_UNKNOWN:
                self._unknown.clear()
            self._unknown.update(addresses[at < 0].tolist())
        frames = self._frames
        result: list[Frame] = []
        for index, address in zip(at.tolist(), addresses.tolist(), strict=True):
            if index < 0:
                result.append(make_frame(KERNEL, KERNEL_MODULE, f"0x{address:x}"))
                continue
            frame = frames.get(index)
            if frame is None:
                frame = frames[index] = make_frame(KERNEL, *table.symbol(index))
            result.append(frame)
        return result

    def _fresh_table(self) -> KernelTable:
        if self._table is None or (self._changed and self._age() > 1.0):
            return self._load()
        return self._table

    def _worth_reloading(self, addresses: npt.NDArray[np.uint64], at: npt.NDArray[np.intp]) -> bool:
        """Whether an address is unknown that the last load did not already fail to find, or lies in a BPF program,
        which may have been replaced by another."""
        age = self._age()
        if age <= _RELOAD_AFTER_S or (age <= self._reload_after_s and self._loaded_modules() == self._modules):
            return False
        if not self._unknown.issuperset(addresses[at < 0].tolist()):
            return True
        frames = self._frames
        return any((frame := frames.get(index)) and frame.module == BPF_MODULE for index in at[at >= 0].tolist())

    @staticmethod
    def _named(table: KernelTable, at: npt.NDArray[np.intp]) -> list[tuple[str, str] | None]:
        return [table.symbol(index) if index >= 0 else None for index in at.tolist()]

    def _loaded_modules(self) -> list[tuple[bytes, ...]]:
        """Names and addresses of the loaded modules, without their reference counts. perf has no record of a module
        load: perf_event_ksymbol covers only BPF and trampolines."""
        try:
            with open(f"{self._host.proc}/modules", "rb") as modules:  # noqa: PTH123
                # kernel/module/procfs.c, m_show: name, size, references, users, state, address.
                return [tuple(line.split()[0:6:5]) for line in modules]
        except OSError:
            return []

    def _age(self) -> float:
        return self._clock() - self._loaded_at

    def _load(self) -> KernelTable:
        # Drop the old table first: two at once would double the peak memory.
        self._table = None
        self._frames.clear()
        self._changed = False
        self._modules = self._loaded_modules()
        try:
            table = load_kallsyms(f"{self._host.proc}/kallsyms")
        except OSError:
            table = KernelTable(np.empty(0, np.uint64), np.empty(0, np.uint32), b"", hidden=False)
        self.missing = self._look_for_names()
        give_back()
        self._table = table
        self.generation += 1
        self._loaded_at = self._clock()
        return table

    def _look_for_names(self) -> MissingSource | None:
        """Report what is missing for kernel names: look at the first symbols now, before any name is needed."""
        try:
            hidden = kallsyms_hidden(f"{self._host.proc}/kallsyms")
        except OSError as error:
            reason = f"kallsyms can't be read ({error.strerror})"
            return MissingSource("kernel symbols", reason, "needs a kernel with CONFIG_KALLSYMS")
        return MissingSource("kernel symbols", "the kernel hides its addresses", self._remedy()) if hidden else None

    def _remedy(self) -> str:
        try:
            with open(f"{self._host.proc}/sys/kernel/kptr_restrict", "rb") as setting:  # noqa: PTH123
                restrict = setting.read().strip()
        except OSError:
            restrict = b""
        if restrict == b"2":
            return "set kernel.kptr_restrict to 1 and run with CAP_SYSLOG"
        return "run with CAP_SYSLOG, or set kernel.kptr_restrict and kernel.perf_event_paranoid to 0"
