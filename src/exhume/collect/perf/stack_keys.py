"""Stack keys: callchains of the same function stack get the same key, whatever their addresses.

The sampled instruction address differs from sample to sample within one function, and every process maps its libraries
at other addresses. So an address contributes its function to the key or, if that is unknown, its offset in the file.
Callers in the kernel contribute their address: there are few, and they are the same for all processes. So nearly all
callchains of a busy node are known, even in a fork storm, and only new ones need symbolization.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.records import CONTEXT_FIRST, CONTEXT_USER, I64Array, RawSamples, U64Array, group_indices
from exhume.collect.symbols.mappings import AddressSpace, MappedFile
from exhume.collect.symbols.symbolizer import Symbolizer

# An address and its process number in one word: no user address is longer on x86_64 or aarch64 (longer ones are only
# handed out on request).
_ADDRESS_BITS = np.uint64(48)
_ADDRESS_MASK = np.uint64((1 << 48) - 1)
# Odd multipliers keep the three kinds of parts apart.
_OFFSET = np.uint64(0xD6E8FEB86659FD93)
_USER_FUNCTION = np.uint64(0xA0761D6478BD642F)
_KERNEL_FUNCTION = np.uint64(0xE7037ED1A0B428DB)
_UNMAPPED = np.uint64(1)
# The lowest bit of an owner id: it belongs to one process only.
_OWN = np.uint64(1)


@dataclass(frozen=True, slots=True)
class Located:
    """User addresses of some samples that lie in a mapping: their positions in the address array, the row of the
    mapping, and the offset in its file."""

    at: I64Array
    row: I64Array
    offset: U64Array


class MappingTable:
    """The mappings of many processes in one sorted table."""

    def __init__(self, spaces: Sequence[tuple[AddressSpace, int]]) -> None:
        layouts = [space.layout for space, _ in spaces]
        starts = _column([layout.starts for layout in layouts])
        # Only the legacy vsyscall page lies above that, and it does not matter.
        low = starts <= _ADDRESS_MASK
        lengths = np.array([len(layout.starts) for layout in layouts], dtype=np.int64)
        space_of = np.repeat(np.arange(len(layouts)), lengths)[low]
        high = space_of.astype(np.uint64) << _ADDRESS_BITS
        self._starts = high + starts[low]
        self._ends = high + _column([layout.ends for layout in layouts])[low]
        # JIT-compiled code belongs to its process only.
        numbers = _column([layout.numbers for layout in layouts])[low]
        salts = np.array([salt << 1 | 1 for _, salt in spaces], dtype=np.uint64)
        self.owner_ids: U64Array = np.where(numbers & _OWN, salts[space_of], numbers)
        # Anonymous memory has no file offsets, so the address itself is used.
        shifts = (starts - _column([layout.offsets for layout in layouts]))[low]
        self._shifts = np.where(self.owner_ids & _OWN, np.uint64(0), shifts)
        self._layouts = layouts
        self._space_of = space_of
        self._place = np.flatnonzero(low) - (np.cumsum(lengths) - lengths)[space_of]

    def file(self, row: int) -> MappedFile:
        """The file that a row maps."""
        return self._layouts[int(self._space_of[row])].files[int(self._place[row])]

    def locate(self, samples: RawSamples, at: I64Array, space_of: npt.NDArray[np.int64]) -> Located:
        """Find the user addresses at some positions of the chains. `space_of` is the index of each sample's space in
        the sequence of spaces, -1 for none."""
        numbers = np.repeat(space_of, samples.depth)[at]
        addresses = samples.addresses[at]
        inside = (numbers >= 0) & (addresses <= _ADDRESS_MASK)
        at, numbers, addresses = at[inside], numbers[inside], addresses[inside]
        if not len(self._starts):
            at = at[:0]
            return Located(at, at, at.astype(np.uint64))
        wanted = (numbers.astype(np.uint64) << _ADDRESS_BITS) + addresses
        row = np.searchsorted(self._starts, wanted, side="right") - 1
        mapped = (row >= 0) & (wanted < self._ends[row])
        row = row[mapped]
        return Located(at[mapped], row, addresses[mapped] - self._shifts[row])


def key_parts(
    samples: RawSamples, table: MappingTable, space_of: npt.NDArray[np.int64], symbolizer: Symbolizer
) -> U64Array:
    """The part of the stack key for each address of the chains."""
    parts = samples.addresses.copy()
    markers = parts >= CONTEXT_FIRST
    # The address after a marker is an instruction pointer: where the kernel was running, or where user code was left.
    running = np.zeros(len(parts), dtype=np.bool_)
    running[1:] = markers[:-1] & ~markers[1:]
    # Decided by the last marker rather than by the address: a bogus frame pointer can yield any number.
    anchors = np.where(markers, np.arange(len(parts)), 0)
    anchors[samples.first] = samples.first
    last_marker = np.maximum.accumulate(anchors)
    user = (parts[last_marker] == np.uint64(CONTEXT_USER)) & ~markers
    kernel_at = np.flatnonzero(running & ~user)
    functions = symbolizer.kernel_functions(parts[kernel_at])
    known = functions >= 0
    parts[kernel_at[known]] = functions[known].astype(np.uint64) * _KERNEL_FUNCTION
    parts[user] = _UNMAPPED
    located = table.locate(samples, np.flatnonzero(user), space_of)
    parts[located.at] = table.owner_ids[located.row] * _OFFSET + located.offset
    # All others are return addresses: the call is the instruction before.
    offsets = located.offset - (~running[located.at]).astype(np.uint64)
    owner_ids = table.owner_ids[located.row]
    shared = np.flatnonzero((owner_ids & _OWN) == 0)
    for group in (shared[part] for part in group_indices(owner_ids[shared])):
        number, functions = symbolizer.file_functions(table.file(int(located.row[group[0]])), offsets[group])
        known = functions >= 0
        ids = np.uint64(number << 32) + functions[known].astype(np.uint64)
        parts[located.at[group[known]]] = ids * _USER_FUNCTION
    return parts


def _column(parts: "list[array[int]]") -> U64Array:
    """Concatenate the columns of many layouts."""
    whole = array("Q")
    for part in parts:
        whole.extend(part)
    return np.frombuffer(whole, dtype=np.uint64) if whole else np.zeros(0, dtype=np.uint64)
