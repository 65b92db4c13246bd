"""Where functions without a name start and end, by what a program carries for unwinding its stack.

`.eh_frame_hdr` lists where functions start; the entry in `.eh_frame` that it points to says how long each is.
Stripping leaves both. One frame a function instead of one an instruction keeps stacks of stripped programs few.
"""

import struct

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.parser.elf import MAX_SYMBOLS, ElfFile, Section, Segment
from exhume.collect.symbols.parser.open_file import Read
from exhume.collect.symbols.parser.table import U64

# The version, and how numbers are written: the place of .eh_frame, the count, and the pairs (four bytes each,
# signed, counted from the header). Linkers write nothing else.
_KNOWN_HEADER = bytes([1, 0x1B, 0x03, 0x3B])
_HEADER_SIZE = 12
_ENTRY_SIZE = 16
_WINDOW = 1 << 20
_FAR = 1 << 56  # no address or distance in a sound file comes near this

Numbers = npt.NDArray[np.int32]


def read_outlines(elf: ElfFile, read: Read) -> tuple[U64, U64]:
    """Where functions start and end, as sorted addresses. They don't overlap; those of unknown length are left out."""
    nothing = np.empty(0, np.uint64), np.empty(0, np.uint64)
    header, frames = elf.place(b".eh_frame_hdr"), elf.place(b".eh_frame")
    if header is None or frames is None or max(header.address, abs(header.address - frames.address)) > _FAR:
        return nothing
    content = read(header.offset, _HEADER_SIZE)
    if len(content) != _HEADER_SIZE or content[:4] != _KNOWN_HEADER:
        return nothing
    count = struct.unpack_from("<I", content, 8)[0]
    if count > MAX_SYMBOLS:
        return nothing
    content = read(header.offset + _HEADER_SIZE, min(count * 8, header.size - _HEADER_SIZE))
    pairs = np.frombuffer(content, "<i4", len(content) // 8 * 2).reshape(-1, 2)
    starts, entries = pairs[:, 0], pairs[:, 1]  # both count from the header
    if np.any(starts[:-1] > starts[1:]):
        return nothing
    return _inside(elf.code, header.address, starts, _lengths(read, header, frames, starts, entries))


def _lengths(read: Read, header: Section, frames: Section, starts: Numbers, entries: Numbers) -> Numbers:
    """How long functions are, by their entries in .eh_frame; 0 where that is not known.

    An entry is taken at its word only when it gives the start that the list gives, as a distance in four bytes.
    That also shows that the length has four bytes: after a distance in eight, what stands there would be its upper
    half, and so zero or larger than any function.
    """
    lengths = np.zeros(len(starts), np.int32)
    shift = header.address - frames.address
    for begin in range(0, frames.size, _WINDOW):
        content = read(frames.offset + begin, min(_WINDOW + _ENTRY_SIZE, frames.size - begin))
        words = np.frombuffer(content, "<i4", len(content) // 4)
        # Most files are read in one go; there are few windows in any.
        which = np.flatnonzero((entries >= begin - shift) & (entries < begin - shift + _WINDOW))
        at = entries[which] + np.int64(shift - begin)
        whole = (at % 4 == 0) & (at <= len(content) - _ENTRY_SIZE)
        which, at = which[whole], at[whole]
        word = at // 4
        length = words[word + 3]
        sound = at + words[word + 2] + (begin + 8 - shift) == starts[which]
        sound &= (words[word + 1] != 0) & (length > 0)
        lengths[which[sound]] = length[sound]
        if len(content) < _WINDOW:
            break
    return lengths


def _inside(code: tuple[Segment, ...], base: int, starts: Numbers, lengths: Numbers) -> tuple[U64, U64]:
    """Those that start in loaded code; cut off where it or the function ends, or where the next one starts."""
    limit = np.zeros(len(starts), np.int64)
    for segment in code:
        if segment.vaddr + segment.size > _FAR:
            continue
        first = segment.vaddr - base
        limit[(starts >= first) & (starts < first + segment.size)] = first + segment.size
    limit[:-1] = np.minimum(limit[:-1], starts[1:])
    ends = np.minimum(limit, starts + lengths.astype(np.int64))
    wanted = (lengths > 0) & (ends > starts)
    return (starts[wanted] + np.int64(base)).astype(np.uint64), (ends[wanted] + base).astype(np.uint64)
