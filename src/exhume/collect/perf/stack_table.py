"""Symbolized stacks: raw callchains in, stack ids out; each stack and frame is written once per segment.

The same callchain is sampled over and over, so chains are identified by a key and only new ones are resolved. Two
generations bound the memory: when the young generation is full it becomes the old one, and entries that are still in
use move back up.
"""

from collections.abc import Iterable
from weakref import WeakValueDictionary

import numpy as np

from exhume.collect.perf.idle import is_idle
from exhume.collect.perf.records import CONTEXT_FIRST, CONTEXT_KERNEL, CONTEXT_USER
from exhume.collect.symbols.frame import Frame, stack_id
from exhume.collect.symbols.mappings import AddressSpace
from exhume.collect.symbols.symbolizer import UNKNOWN_FRAME, Symbolizer
from exhume.model.tables import Columns

GENERATION = 12_000
KERNEL_ADDRESSES = 50_000
_MARKER = int(CONTEXT_FIRST)


class Stack:
    """A symbolized stack, root first. `idle` stacks are counted instead of stored; a stack with `patience` will likely
    have more names within that many ticks."""

    __slots__ = ("__weakref__", "frames", "id", "idle", "patience", "settled")

    def __init__(self, frames: tuple[Frame, ...], *, idle: bool) -> None:
        self.frames = frames
        self.idle = idle
        self.settled = all(frame.settled for frame in frames)
        self.patience = 0 if self.settled else max(frame.patience for frame in frames)
        # Most stacks with patience are never written.
        self.id = 0 if self.patience else stack_id(frames)


class Chain:
    """A raw callchain, split into its kernel and user part, leaf first. A partly resolved chain has its `stack`, the
    frames of the user addresses that are `named`, and the modules that it `awaits`. The user part of a chain in
    `excess` is not resolved."""

    __slots__ = ("awaits", "excess", "kernel", "named", "space", "stack", "user")

    def __init__(self, addresses: list[int], space: AddressSpace | None) -> None:
        self.space = space
        self.named: dict[int, Frame] | None = None
        self.stack: Stack | None = None
        self.awaits: set[str] = set()
        self.excess = False
        self.kernel: list[int] = []
        self.user: list[int] = []
        part: list[int] | None = self.kernel
        running = True
        for address in addresses:
            if address >= _MARKER:
                part = self.kernel if address == CONTEXT_KERNEL else self.user if address == CONTEXT_USER else None
                running = True
                continue
            if part is not None and address:
                # A bogus frame pointer may yield a zero, which is not a frame. All addresses but the first of a part
                # are return addresses: the call is the instruction before.
                part.append(address if running else address - 1)
            running = False


class StackTable:
    """All stacks in use, and which of them the current segment already has."""

    def __init__(self, symbolizer: Symbolizer) -> None:
        self._symbolizer = symbolizer
        self._young: dict[int, Stack] = {}
        self._old: dict[int, Stack] = {}
        self._by_id: WeakValueDictionary[int, Stack] = WeakValueDictionary()
        self._kernel: dict[int, Frame] = {}
        self._written_stacks: set[int] = set()
        self._written_frames: set[int] = set()
        self._new: list[Stack] = []

    def find(self, keys: Iterable[int]) -> list[Stack | None]:
        """The stacks of known callchains."""
        keys = list(keys)
        found = list(map(self._young.get, keys))
        if None in found and self._old:
            for place, key in enumerate(keys):
                if found[place] is None and (stack := self._old.get(key)) is not None:
                    found[place] = self._young[key] = stack
        return found

    def resolve(self, chains: dict[int, Chain], idle_keys: set[int]) -> dict[int, Stack]:
        """Symbolize new callchains, by key. `idle_keys` are those of the idle task."""
        changed = self._symbolizer.take_changed()
        resolved: dict[int, Stack] = {}
        open_chains: dict[int, Chain] = {}
        for key, chain in chains.items():
            if chain.stack is not None and chain.awaits.isdisjoint(changed):
                resolved[key] = chain.stack
            else:
                open_chains[key] = chain
        self._resolve_kernel(open_chains.values())
        user = self._resolve_user(open_chains.values())
        kernel = self._kernel
        for key, chain in open_chains.items():
            names = user.get(id(chain.space), {})
            if chain.named is not None:
                names = {**chain.named, **{each: names[each] for each in chain.user if each in names}}
            frames = [kernel[address] for address in chain.kernel]
            idle = key in idle_keys and is_idle(frames)
            if chain.excess and chain.user:
                frames.append(UNKNOWN_FRAME)
            else:
                frames.extend(names[address] for address in chain.user if address in names)
            frames.reverse()
            named = Stack(tuple(frames), idle=idle)
            resolved[key] = stack = named if named.patience else self._shared(named)
            if named.settled and not chain.excess:
                self._young[key] = stack
            elif named.patience:
                found = {address: names[address] for address in chain.user if address in names}
                chain.named = {address: frame for address, frame in found.items() if not frame.patience}
                chain.awaits = {frame.module for frame in found.values() if frame.patience}
                chain.stack = stack
        if len(self._young) > GENERATION:
            self._old, self._young = self._young, {}
        return resolved

    def _shared(self, stack: Stack) -> Stack:
        known = self._by_id.get(stack.id)
        if known is not None and known.idle == stack.idle:
            return known
        self._by_id[stack.id] = stack
        return stack

    def _resolve_kernel(self, chains: Iterable[Chain]) -> None:
        if len(self._kernel) > KERNEL_ADDRESSES:
            self._kernel.clear()
        known = self._kernel
        unknown = {address for chain in chains for address in chain.kernel if address not in known}
        if unknown:
            addresses = sorted(unknown)
            frames = self._symbolizer.kernel(np.array(addresses, dtype=np.uint64))
            known.update(zip(addresses, frames, strict=True))

    def _resolve_user(self, chains: Iterable[Chain]) -> dict[int, dict[int, Frame]]:
        wanted: dict[int, tuple[AddressSpace, set[int]]] = {}
        for chain in chains:
            if chain.user and chain.space is not None and not chain.excess:
                new = chain.user if chain.named is None else [each for each in chain.user if each not in chain.named]
                wanted.setdefault(id(chain.space), (chain.space, set()))[1].update(new)
        batch = [(space, np.array(sorted(addresses), dtype=np.uint64)) for space, addresses in wanted.values()]
        named = self._symbolizer.users(batch)
        return {
            key: dict(zip(addresses.tolist(), frames, strict=True))
            for key, (_, addresses), frames in zip(wanted, batch, named, strict=True)
        }

    def write(self, stacks: Iterable[Stack]) -> None:
        """Write stacks that rows of this segment refer to."""
        for stack in stacks:
            stack.id = stack.id or stack_id(stack.frames)
            if stack.id not in self._written_stacks:
                self._written_stacks.add(stack.id)
                self._new.append(stack)

    def take_rows(self) -> dict[str, Columns]:
        """Stacks and frames that the current segment does not have yet."""
        if not self._new:
            return {}
        stacks, self._new = self._new, []
        fresh: dict[int, Frame] = {}
        for stack in stacks:
            for frame in stack.frames:
                if frame.id not in self._written_frames:
                    fresh[frame.id] = frame
        self._written_frames.update(fresh)
        rows: dict[str, Columns] = {
            "stacks": {
                "stack": [stack.id for stack in stacks],
                "frames": [[frame.id for frame in stack.frames] for stack in stacks],
            }
        }
        if fresh:
            frames = fresh.values()
            rows["frames"] = {
                "frame": list(fresh),
                "kind": [frame.kind for frame in frames],
                "module": [frame.module for frame in frames],
                "name": [frame.name for frame in frames],
            }
        return rows

    def begin_segment(self) -> None:
        """Start a new segment, which must be complete by itself: everything is written again."""
        self._written_stacks.clear()
        self._written_frames.clear()

    def forget(self) -> None:
        """Release memory; everything in use is resolved again."""
        self._young.clear()
        self._old.clear()
        self._kernel.clear()
