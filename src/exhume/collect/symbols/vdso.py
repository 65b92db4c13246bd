"""The vdso: code that the kernel maps into every process and that no file holds; the recorder's own serves for all."""

import os

import numpy as np

from exhume.collect.symbols.frame import USER, Frame, make_frame
from exhume.collect.symbols.mappings import Mapping, executable_mappings
from exhume.collect.symbols.parser.elf import ElfFile
from exhume.collect.symbols.parser.open_file import FileRefused, readable
from exhume.collect.symbols.parser.program import ElfNames, Program
from exhume.collect.symbols.parser.table import FunctionTable
from exhume.procfs.host import Host

VDSO = "[vdso]"


class VdsoSymbols:
    """Looks up offsets in the vdso, read from our own memory."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._size = 0
        self._program: Program | None = None
        self._loaded = False
        self._frames: dict[int, Frame] = {}  # by offset: at most as many as the vdso has bytes, a page or two

    def frame(self, mapping: Mapping, offset: int) -> Frame:
        """The frame at an offset. A vdso of another size is not ours (a 32-bit process) and stays nameless."""
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
