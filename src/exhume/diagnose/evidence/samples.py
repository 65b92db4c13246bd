"""The stack samples of a window, in columns: which stacks contain a function, and whose time that was."""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import pyarrow as pa

from exhume.diagnose.evidence.rows import Floats, Ints, Mask
from exhume.model.clock import Window
from exhume.store.read.recording import Recording
from exhume.store.read.stacks import ResolvedStacks, StackNames

# Compilers clone functions and add a suffix to the clone's name; it is the same function.
_CLONE = re.compile(r"\.(?:isra|constprop|part|cold|llvm|lto_priv|localalias|cfi_jt|cfi|__uniq)(?:\.\d+)*")
KERNEL = "kernel"


def plain_name(function: str) -> str:
    """Return a function's name without compiler suffixes."""
    return _CLONE.sub("", function)


@dataclass(frozen=True, slots=True)
class Names:
    """Kernel functions to look for in stacks: exact names, or prefixes if they end in `*`."""

    whole: frozenset[str]
    beginnings: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> "Names":
        names = list(names)
        whole = frozenset(name for name in names if not name.endswith("*"))
        return cls(whole, tuple(name[:-1] for name in names if name.endswith("*")))

    def __contains__(self, function: object) -> bool:
        if not isinstance(function, str):
            return False
        name = plain_name(function)
        return name in self.whole or (bool(self.beginnings) and name.startswith(self.beginnings))


class Samples:
    """Samples, one row each: wall time (ns), core, process, thread name, stack and the CPU time it stands for (us)."""

    def __init__(self, rows: pa.Table, stacks: ResolvedStacks, stack_index: Ints) -> None:
        self.wall: Ints = rows.column("wall").to_numpy().astype(np.int64)
        self.cpu: Ints = rows.column("cpu").to_numpy().astype(np.int64)
        self.pid: Ints = rows.column("pid").to_numpy().astype(np.int64)
        self.weight: Floats = rows.column("weight_us").to_numpy().astype(np.float64)
        self.comm, comms = _encoded(rows.column("comm"))
        self.comms: list[str] = comms.to_pylist()
        self.stack = stack_index
        self._stacks = stacks
        # Every cause asks for the same few windows, and several causes for the same functions.
        self._within: dict[Window, Mask] = {}
        self._holding: dict[Names, Mask] = {}
        self._totals: dict[Window, float] = {}

    @classmethod
    def read(
        cls, recording: Recording, window: Window, also: Window | None = None, cpus: Collection[int] | None = None
    ) -> "Samples":
        """Read the samples of one or two windows, on some cores. What can't be read is missing: the recording notes
        it."""
        columns = ["cpu", "pid", "comm", "stack", "weight_us", "wall"]
        windows = [each for each in (also, window) if each is not None and not each.empty]
        parts = [recording.read("samples", each, columns, cpus) for each in windows or [window]]
        rows = pa.concat_tables([part for part in parts if part.num_rows] or parts[:1])
        codes, ids = _encoded(rows.column("stack"))
        names = StackNames()
        for each in windows:
            names.add(ids.to_numpy(), lambda table, each=each: recording.read(table, each))  # type: ignore[misc]
        return cls(rows, names.resolve(ids.to_numpy()), codes)

    def __len__(self) -> int:
        return len(self.wall)

    @property
    def functions(self) -> list[str]:
        """The function name of every frame in the stacks."""
        return self._stacks.frames.names

    def time(self, chosen: Mask | Ints) -> float:
        """The CPU time (us) of the chosen samples, given as a mask or as indices."""
        return float(self.weight[chosen].sum())

    def within(self, window: Window) -> Mask:
        """Mask of the samples in a window. Callers must not modify it."""
        if window not in self._within:
            self._within[window] = _fixed((self.wall >= window.since) & (self.wall < window.until))
        return self._within[window]

    def time_within(self, window: Window) -> float:
        """The CPU time (us) of the samples in a window."""
        if window not in self._totals:
            self._totals[window] = self.time(self.within(window))
        return self._totals[window]

    def holding(self, names: Names) -> Mask:
        """Mask of the samples whose stack contains one of these kernel functions. Callers must not modify it."""
        if names not in self._holding:
            hits = (self._kernel_frames & self._named(names))[self._stacks.indexes]
            stacks = np.zeros(len(self._stacks.offsets) - 1, np.bool_)
            stacks[self._stack_of_place[hits]] = True
            self._holding[names] = _fixed(stacks[self.stack])
        return self._holding[names]

    def of_comms(self, wanted: Collection[str]) -> Mask:
        """Mask of the samples of threads with these names."""
        return np.isin(self.comm, [i for i, comm in enumerate(self.comms) if comm in wanted])

    @cached_property
    def in_kernel(self) -> Mask:
        """Mask of the samples taken in the kernel."""
        # A stack without frames (the recorder writes none) was not taken in the kernel.
        lengths = np.diff(self._stacks.offsets)
        if not lengths.any():
            return np.zeros(len(self), np.bool_)
        leaves = self._stacks.indexes[np.maximum(self._stacks.offsets[1:] - 1, 0)]
        return (self._kernel_frames[leaves] & (lengths > 0))[self.stack]

    def nearest(self, mask: Mask, names: Names) -> str | None:
        """Of these functions, the one with most of the masked time; in each stack, the one nearest to the leaf
        counts."""
        hits = self._kernel_frames & self._named(names)
        weights: dict[str, float] = {}
        for stack, weight in self._weight_of_stacks(mask):
            for frame in reversed(self._frame_indexes(stack).tolist()):
                if hits[frame]:
                    name = plain_name(self.functions[frame])
                    weights[name] = weights.get(name, 0.0) + weight
                    break
        return max(weights, key=lambda name: weights[name]) if weights else None

    def inclusive(self, mask: Mask) -> list[tuple[str, float]]:
        """Kernel functions by the masked inclusive time (us), the largest first."""
        weights = np.zeros(len(self.functions))
        for stack, weight in self._weight_of_stacks(mask):
            weights[np.unique(self._frame_indexes(stack))] += weight
        weights[~self._kernel_frames] = 0
        return self._by_name(weights)

    def main_path(self, mask: Mask, least: float) -> tuple[list[str], list[str]]:
        """The path of the stack with most of the masked time, root first, and those of its functions whose inclusive
        time is at least this fraction of all the masked time."""
        stacks = np.bincount(self.stack[mask], self.weight[mask])
        path = [plain_name(self.functions[i]) for i in self._frame_indexes(int(np.argmax(stacks))).tolist()]
        held, total = dict(self.inclusive(mask)), self.time(mask)
        return path, [name for name in path if held.get(name, 0.0) >= least * total]

    def adjacent(self, mask: Mask, names: Names, *, called: bool) -> list[tuple[str, float]]:
        """Callees (`called`) or callers of these kernel functions by masked time (us), the largest first. In a chain of
        such functions, the callee of the innermost or the caller of the outermost counts."""
        hits = self._kernel_frames & self._named(names)
        weights = np.zeros(len(self.functions))
        step = 1 if called else -1
        for stack, weight in self._weight_of_stacks(mask):
            frames = self._frame_indexes(stack).tolist()
            chain = [place for place, frame in enumerate(frames) if hits[frame]]
            # Start a chain at the function nearest to the leaf (for callees) or nearest to the root (for callers).
            if not chain:
                continue
            place = chain[0] if called else chain[-1]
            while 0 <= place < len(frames) and hits[frames[place]]:
                place += step
            if 0 <= place < len(frames):
                weights[frames[place]] += weight
        return self._by_name(weights)

    def _by_name(self, weights: Floats) -> list[tuple[str, float]]:
        sums: dict[str, float] = {}
        for frame in np.flatnonzero(weights).tolist():
            name = plain_name(self.functions[frame])
            sums[name] = sums.get(name, 0.0) + float(weights[frame])
        return sorted(sums.items(), key=lambda each: -each[1])

    def _weight_of_stacks(self, mask: Mask) -> list[tuple[int, float]]:
        weights = np.bincount(self.stack[mask], self.weight[mask])
        return [(stack, float(weights[stack])) for stack in np.flatnonzero(weights).tolist()]

    def _frame_indexes(self, stack: int) -> Ints:
        return self._stacks.indexes[self._stacks.offsets[stack] : self._stacks.offsets[stack + 1]]

    def _named(self, names: Names) -> Mask:
        mask = np.zeros(len(self.functions), np.bool_)
        for name in names.whole:
            mask[self._frames_named.get(name, [])] = True
        for beginning in names.beginnings:
            # Names with the same prefix are adjacent in sorted order.
            for name in islice(self._names_in_order, bisect_left(self._names_in_order, beginning), None):
                if not name.startswith(beginning):
                    break
                mask[self._frames_named[name]] = True
        return mask

    @cached_property
    def _names_in_order(self) -> list[str]:
        return sorted(self._frames_named)

    @cached_property
    def _stack_of_place(self) -> Ints:
        """For every frame of every stack, the index of the stack."""
        return np.repeat(np.arange(len(self._stacks.offsets) - 1), np.diff(self._stacks.offsets))

    @cached_property
    def _frames_named(self) -> dict[str, list[int]]:
        """Frames by plain function name: every cause looks up names."""
        found: dict[str, list[int]] = {}
        for frame, name in enumerate(self.functions):
            found.setdefault(plain_name(name), []).append(frame)
        return found

    @cached_property
    def _kernel_frames(self) -> Mask:
        kinds = self._stacks.frames.kinds
        return np.fromiter((kind == KERNEL for kind in kinds), np.bool_, len(kinds))


def _fixed(mask: Mask) -> Mask:
    mask.flags.writeable = False
    return mask


def _encoded(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Encode a column as integers and the values that they stand for."""
    whole = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    encoded = whole.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary
