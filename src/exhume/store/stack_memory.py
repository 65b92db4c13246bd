"""The names of stacks, remembered between questions: for a reader that answers many."""

import threading
from collections.abc import Callable, Hashable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exhume.store.grouping import grouped
from exhume.store.stacks import UNKNOWN_FRAME, FrameTable, Ids, Ints, ResolvedStacks, StackNames, ranges

UNTOLD = ("", "", UNKNOWN_FRAME)
# So many stacks take some 60 MB.
MOST_REMEMBERED = 200_000
_MOST_QUESTIONS = 8
_NO_STACKS = pa.array([], pa.uint64())


class _Known:
    """Stacks by their hash, and the frames that they consist of. Equal hashes are equal everywhere."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._stacks: dict[int, int] = {}
        self._lengths: list[Ints] = []
        self._indexes: list[Ints] = []
        self._frames: dict[int, int] = {}
        self._named: list[tuple[str, str, str]] = []
        # A frame that its segment did not tell: another segment may.
        self.whole = True

    def __len__(self) -> int:
        return len(self._stacks)

    def missing(self, stacks: Ids) -> Ids:
        return np.array([stack for stack in stacks.tolist() if stack not in self._stacks], np.uint64)

    def learn(self, stacks: Ids, lengths: Ints, frame_ids: Ids, indexes: Ints, told: pa.Table | None) -> None:
        """Stacks, the number of frames of each, and those frames as indexes into `frame_ids`, which `told` names."""
        new = np.array([place for place, frame in enumerate(frame_ids.tolist()) if frame not in self._frames], np.int64)
        names = _names_of(pa.array(frame_ids[new]), told)
        self.whole &= UNTOLD not in names
        for frame, name in zip(frame_ids[new].tolist(), names, strict=True):
            self._frames[frame] = len(self._named)
            self._named.append(name)
        places = np.array([self._frames[frame] for frame in frame_ids.tolist()], np.int64)
        before = len(self._lengths[0]) if self._lengths else 0
        self._stacks.update(zip(stacks.tolist(), range(before, before + len(stacks)), strict=True))
        self._lengths = [np.concatenate([*self._lengths, lengths])]
        self._indexes = [np.concatenate([*self._indexes, places[indexes]])]

    def resolve(self, stacks: Ids) -> ResolvedStacks:
        rows = np.array([self._stacks.get(stack, -1) for stack in stacks.tolist()], np.int64)
        told = rows >= 0
        rows = rows[told]
        nothing = np.zeros(0, np.int64)
        every_length, every_index = (each[0] if each else nothing for each in (self._lengths, self._indexes))
        lengths = np.ones(len(stacks), np.int64)
        lengths[told] = every_length[rows]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        starts = np.cumsum(every_length) - every_length
        used, members = grouped(every_index[ranges(starts[rows], lengths[told])])
        named = [self._named[place] for place in used.tolist()]
        indexes = np.full(int(offsets[-1]), len(named), np.int64)
        indexes[ranges(offsets[:-1][told], lengths[told])] = members
        unknown = int(len(stacks) - told.sum())
        columns = zip(*named, *([UNTOLD] if unknown else []), strict=True)
        kinds, modules, names = (list(column) for column in columns) if named or unknown else ([], [], [])
        return ResolvedStacks(FrameTable(kinds, modules, names), offsets, indexes, unknown)


class StackMemory:
    """What was learnt of stacks, for questions to come: a node runs the same code minute after minute."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._known = _Known()
        self._decided: dict[Hashable, tuple[pa.Array, pa.Array]] = {}

    def known(self) -> _Known:
        """To look up and to add to. Begun anew when it grew large; who uses the old one may go on with it."""
        if len(self._known) > self._most or not self._known.whole:
            self._known = _Known()
        return self._known

    def decided(self, question: Hashable) -> tuple[pa.Array, pa.Array]:
        """The stacks that a question was put about, and those of them that the answer was yes for."""
        return self._decided.get(question, (_NO_STACKS, _NO_STACKS))

    def decide(self, question: Hashable, asked: pa.Array, kept: pa.Array) -> None:
        """Remember the answer about more stacks."""
        known = self._decided.pop(question, (_NO_STACKS, _NO_STACKS))
        if len(known[0]) > self._most:
            known = (_NO_STACKS, _NO_STACKS)
        self._decided[question] = (pa.concat_arrays([known[0], asked]), pa.concat_arrays([known[1], kept]))
        while len(self._decided) > _MOST_QUESTIONS:
            self._decided.pop(next(iter(self._decided)), None)


class RememberedNames:
    """As StackNames; what is in the memory need not be read again."""

    def __init__(self, memory: StackMemory) -> None:
        self._known = memory.known()

    @property
    def whole(self) -> bool:
        """Whether every frame that was met was told."""
        return self._known.whole

    def add(self, stacks: Ids, read: Callable[[str], pa.Table | None]) -> None:
        """Learn the stacks that are not known yet from a segment's tables."""
        with self._known.lock:
            wanted = self._known.missing(stacks)
        table = read("stacks") if len(wanted) else None
        if table is None:
            return
        # The segment's tables are decoded now: whatever they tell need not be read again.
        with self._known.lock:
            wanted = self._known.missing(table.column("stack").to_numpy())
        rows = pc.index_in(pa.array(wanted), value_set=table.column("stack")).drop_null()
        if not len(rows):
            return
        found = table.take(rows)
        lists = found.column("frames").combine_chunks()
        flat = lists.flatten().dictionary_encode()
        told = read("frames")
        with self._known.lock:
            # Somebody else may have learnt them meanwhile.
            if not len(self._known.missing(wanted)):
                return
            self._known.learn(
                found.column("stack").to_numpy(),
                pc.list_value_length(lists).to_numpy().astype(np.int64),
                flat.dictionary.to_numpy(),
                flat.indices.to_numpy().astype(np.int64),
                told,
            )

    def resolve(self, stacks: Ids) -> ResolvedStacks:
        """The stacks, each given once, with their frames named; one that nobody told is a single unknown frame."""
        with self._known.lock:
            return self._known.resolve(stacks)


def _names_of(frames: pa.Array, told: pa.Table | None) -> list[tuple[str, str, str]]:
    """Kind, module and name of the frames; the ones that were not told are unknown."""
    if told is None:
        return [UNTOLD] * len(frames)
    found = told.take(pc.index_in(frames, value_set=told.column("frame")))
    kinds, modules = (pc.fill_null(found.column(name), "").to_pylist() for name in ("kind", "module"))
    return list(zip(kinds, modules, pc.fill_null(found.column("name"), UNKNOWN_FRAME).to_pylist(), strict=True))


def names_with(memory: StackMemory | None) -> StackNames | RememberedNames:
    """Names for one question; with a memory, for those to come as well."""
    return StackNames() if memory is None else RememberedNames(memory)
