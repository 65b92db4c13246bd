"""The vdso: code that the kernel maps into every process, and that no file holds. Ours is everyone's."""

import os

import numpy as np

from exhume.collect.host import Host
from exhume.collect.perf.symbols.elf import ElfFile, NotElf
from exhume.collect.perf.symbols.frame import USER, Frame, make_frame, readable
from exhume.collect.perf.symbols.program import Program
from exhume.collect.perf.symbols.space import Mapping, parse_maps
from exhume.collect.perf.symbols.table import FunctionTable

VDSO = "[vdso]"


class VdsoSymbols:
    """Looks up offsets in the vdso, read from our own memory."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._size = 0
        self._program: Program | None = None
        self._loaded = False

    def frame(self, mapping: Mapping, offset: int) -> Frame:
        """The frame at an offset. A vdso of another size is not ours (a 32-bit process) and stays nameless."""
        if not self._loaded:
            self._load()
            self._loaded = True
        if self._program is not None and mapping.end - mapping.start == self._size and mapping.start >= 1 << 32:
            index = int(self._program.find(np.array([offset], np.uint64))[0])
            if index >= 0:
                return make_frame(USER, VDSO, readable(self._program.name(index, None)))
        return make_frame(USER, VDSO, f"{VDSO}+0x{offset:x}")

    def _load(self) -> None:
        try:
            with open(f"{self._host.proc}/self/maps", "rb") as maps:  # noqa: PTH123
                ours = next(mapping for mapping in parse_maps(maps.read()) if mapping.file.path == VDSO)
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
        except NotElf:
            return
        self._size = len(image)
        self._program = Program(elf.code, FunctionTable(symbols), elf.strings(strings), strings)
