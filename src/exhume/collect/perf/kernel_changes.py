"""Code that came to the kernel or left it: BPF programs, trampolines.

A container runtime loads a BPF program for every container, and reading the kernel's symbols anew costs a tenth of a
second of CPU. So what changed is only remembered; it matters when a sample lies in it.
"""

import numpy as np

from exhume.collect.perf.records import Records, RecordType, U64Array

_LOW = np.uint64(0xFFFFFFFF)
# Beyond this, where they lie in all stands for each of them.
_RANGES_KEPT = 4096


class KernelChanges:
    """The address ranges that changed since the kernel's symbols were last read."""

    def __init__(self) -> None:
        self._starts: U64Array = np.zeros(0, dtype=np.uint64)
        self._ends: U64Array = np.zeros(0, dtype=np.uint64)

    def note(self, records: Records) -> None:
        """Take in what the kernel told of its own code."""
        at = records.of(RecordType.KSYMBOL)
        if not len(at):
            return
        starts = records.words[at + 1]
        # An address near the end of all must not wrap into an end before its start.
        ends = np.maximum(starts + (records.words[at + 2] & _LOW), starts)
        starts, ends = np.concatenate([self._starts, starts]), np.concatenate([self._ends, ends])
        order = np.argsort(starts)
        # Ranges may overlap: each ends where the farthest of those before it does.
        self._starts, self._ends = starts[order], np.maximum.accumulate(ends[order])
        if len(self._starts) > _RANGES_KEPT:
            self._starts, self._ends = self._starts[:1], self._ends[-1:]

    def touched(self, addresses: U64Array) -> bool:
        """Whether an address lies in code that changed; if so, all changes are taken as seen to."""
        if not len(self._starts):
            return False
        near = addresses[(addresses >= self._starts[0]) & (addresses <= self._ends[-1])]
        if not len(near):
            return False
        # A return address may lie just behind the end.
        inside = near <= self._ends[np.searchsorted(self._starts, near, side="right") - 1]
        if not inside.any():
            return False
        self._starts, self._ends = self._starts[:0], self._ends[:0]
        return True
