"""Convert callchains to stacks. Each chain is named in two parts, the kernel part and the user part.

Kernel addresses mean the same in every process, user addresses depend on the mappings of the process. A part is named
once for all processes that have it, even in a fork storm, where every process has its libraries at other addresses;
only parts with different names make another stack.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.records import CONTEXT_FIRST, CONTEXT_USER, row_keys
from exhume.collect.symbols.frame import Frame
from exhume.interop.importers.form import UNKNOWN_FRAME, I64Array, StackBook, U64Array
from exhume.interop.importers.perf_data.header import Header
from exhume.interop.importers.perf_data.records import Chains, HeldSamples, Samples, distinct, ragged
from exhume.interop.importers.perf_data.symbols import SymbolPlaces, Symbols
from exhume.interop.importers.perf_data.tasks import Image, MappingStore, TaskDecoder

# Maximum number of distinct stacks, and of parts of them, that are held at a time.
_MOST_STACKS, _MOST_PARTS = 150_000, 600_000
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_Images = tuple[list[Image], I64Array]
_NO_IMAGES: _Images = ([], np.zeros(0, np.int64))


class StackNames:
    """Names the callchains of one file; its stacks go to `book`."""

    def __init__(self, header: Header, decoder: TaskDecoder, mappings: MappingStore, places: SymbolPlaces) -> None:
        self._header = header
        self._decoder = decoder
        self._mappings = mappings
        self.symbols = Symbols(header, decoder.kernel_maps, places)
        self.book = StackBook()
        # Parts by the key of their addresses, and by that of their frames; the first part is empty.
        self._known: dict[int, int] = {}
        self._named: dict[int, int] = {}
        self._parts: list[tuple[Frame, ...]] = [()]
        self._stacks: dict[int, int] = {}
        self._frames: list[Frame] = [UNKNOWN_FRAME]
        self._frame_places: dict[int, int] = {UNKNOWN_FRAME.id: 0}
        self._build_ids: dict[str, bytes] = {}
        self._build_ids_seen = 0

    @property
    def is_full(self) -> bool:
        """Whether so much is held that it has to be dropped."""
        return len(self.book.stacks) > _MOST_STACKS or max(len(self._known), len(self._stacks)) > _MOST_PARTS

    def forget(self, held: list[HeldSamples]) -> list[HeldSamples]:
        """Drop all stacks and all parts except those of the held samples, which are returned with the new numbers of
        their parts."""
        used = np.unique(np.concatenate([np.zeros(1, np.int64), *(samples.head for samples in held)]))
        self._parts = [self._parts[number] for number in used.tolist()]
        self.book = StackBook()
        for table in (self._known, self._named, self._stacks, self._frame_places):
            table.clear()
        self._frames = [UNKNOWN_FRAME]
        self._frame_places[UNKNOWN_FRAME.id] = 0
        return [replace(samples, head=np.searchsorted(used, samples.head)) for samples in held]

    def split(self, samples: Samples) -> HeldSamples:
        """Return samples with the kernel part of each chain named. The rest, from the user context marker on, is set
        aside until it is known what the process had mapped."""
        first, depth = samples.first, samples.depth
        marks = np.flatnonzero(samples.addresses == np.uint64(CONTEXT_USER))
        owner = np.searchsorted(first, marks, side="right") - 1
        fresh = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
        cut = depth.copy()
        cut[owner[fresh]] = marks[fresh] - first[owner[fresh]]
        begins = np.stack([first, first + cut], axis=1)
        sizes = np.stack([cut, depth - cut], axis=1)
        filled = np.flatnonzero(sizes.ravel())
        keys = np.zeros(2 * len(samples), np.uint64)
        nothing = np.zeros(len(filled), np.uint64)
        keys[filled] = row_keys(samples.addresses, begins.ravel()[filled], sizes.ravel()[filled], nothing)
        head, tail = np.zeros(len(samples), np.int64), np.full(len(samples), -1, np.int64)
        heads, tails = np.flatnonzero(sizes[:, 0]), np.flatnonzero(sizes[:, 1])

        def chains(place: int, chosen: I64Array) -> Chains:
            each = sizes[chosen, place]
            addresses = samples.addresses[ragged(begins[chosen, place], each)]
            return Chains(addresses, np.cumsum(each) - each, each, keys[place::2][chosen])

        head[heads] = self._parts_of(keys[0::2][heads], lambda new: self._resolve(chains(0, heads[new]), _NO_IMAGES))
        found = distinct(keys[1::2][tails])
        tail[tails] = found.which
        return HeldSamples(
            *(samples.time, samples.cpu, samples.pid, samples.tid, samples.period),
            *(head, tail, chains(1, tails[found.first])),
        )

    def stacks(self, samples: HeldSamples, images: list[Image], image_of: I64Array) -> I64Array:
        """The index of each sample's stack in the book."""
        tail = np.zeros(len(samples), np.int64)
        has = np.flatnonzero(samples.tail >= 0)
        rows, owners = samples.tail[has], image_of[has]
        # The last one is for samples of processes about which nothing is known.
        salts = np.array([*(image.salt + 1 for image in images), 0], np.uint64)
        keys = (samples.tails.keys[rows] ^ salts[owners]) * _MIX
        keys ^= keys >> _SHIFT

        def resolved(new: I64Array) -> I64Array:
            return self._resolve(samples.tails.select(rows[new]), (images, owners[new]))

        tail[has] = self._parts_of(keys, resolved)
        idle = samples.pid == 0
        found = distinct((samples.head << 33 | tail << 1 | idle).astype(np.uint64))
        places = [self._stacks.get(pair, -1) for pair in found.values.tolist()]
        for at, (place, pair) in enumerate(zip(places, found.values.tolist(), strict=True)):
            if place < 0:
                chain = self._parts[pair >> 33] + self._parts[pair >> 1 & 0xFFFFFFFF]
                places[at] = self._stacks[pair] = self.book.add(chain, idle_task=bool(pair & 1))
        return np.array(places, np.int64)[found.which]

    def _parts_of(self, keys: U64Array, resolve: Callable[[I64Array], I64Array]) -> I64Array:
        """The number of the part for each key. `resolve` names the parts at some indices if they are new."""
        found = distinct(keys)
        known = self._known
        parts = np.array([known.get(key, -1) for key in found.values.tolist()], np.int64)
        new = np.flatnonzero(parts < 0)
        if len(new):
            parts[new] = resolve(found.first[new])
            known.update(zip(found.values[new].tolist(), parts[new].tolist(), strict=True))
        return parts[found.which]

    def _resolve(self, chains: Chains, images: _Images) -> I64Array:
        """Name chains and return the numbers of their parts."""
        addresses = chains.addresses
        markers = addresses >= CONTEXT_FIRST
        anchors = np.where(markers, np.arange(len(addresses)), 0)
        anchors[chains.first] = chains.first
        context = addresses[np.maximum.accumulate(anchors)]
        # An address after a context marker or at the start of a chain is an instruction pointer; all others are return
        # addresses, so the call is the instruction before.
        running = np.zeros(len(addresses), np.bool_)
        running[1:] = markers[:-1]
        running[chains.first] = True
        user = (context == np.uint64(CONTEXT_USER)) & ~markers
        kernel = ~user & ~markers & (addresses >= np.uint64(1 << 63))
        frames = np.zeros(len(addresses), np.int64)
        wanted = distinct((addresses - (~running).astype(np.uint64))[kernel])
        if len(wanted.values):
            frames[kernel] = self._placed(self.symbols.kernel(wanted.values))[wanted.which]
        at = np.flatnonzero(user)
        if len(at) and images[0]:
            image_of = np.repeat(images[1], chains.depth)[at]
            frames[at] = self._user_frames(addresses[at], running[at], images[0], image_of)
        return self._interned(frames, (user | kernel) & (addresses != 0), chains.depth)

    def _user_frames(
        self, addresses: U64Array, running: npt.NDArray[np.bool_], images: list[Image], image_of: I64Array
    ) -> I64Array:
        """The indices of the frames of user addresses; that of an unknown frame if nothing is mapped."""
        frames = np.zeros(len(addresses), np.int64)
        file_of, offset = self._mappings.locate(images, image_of, addresses)
        offset -= (~running).astype(np.uint64)
        order = np.argsort(file_of, kind="stable")
        order = order[np.searchsorted(file_of[order], 0) :]
        cuts = np.flatnonzero(np.diff(file_of[order])) + 1
        for chosen in np.split(order, cuts) if len(order) else ():
            file = self._decoder.files[int(file_of[chosen[0]])]
            if file.maybe_jit:
                frames[chosen] = self._compiled(offset[chosen], images, image_of[chosen])
                continue
            wanted = distinct(offset[chosen])
            named = self.symbols.user(file, self._build_id(file.path), wanted.values)
            frames[chosen] = self._placed(named)[wanted.which]
        return frames

    def _compiled(self, addresses: U64Array, images: list[Image], image_of: I64Array) -> I64Array:
        """The frames of code compiled by a runtime, which belongs to one process."""
        frames = np.zeros(len(addresses), np.int64)
        pids = np.array([image.pid for image in images], np.int64)[image_of]
        for pid in np.unique(pids).tolist():
            chosen = np.flatnonzero(pids == pid)
            frames[chosen] = self._placed(self.symbols.compiled(pid, addresses[chosen]))
        return frames

    def _interned(self, frames: I64Array, shown: npt.NDArray[np.bool_], depth: I64Array) -> I64Array:
        """The numbers of parts, by their frames; frames that are not shown are left out."""
        count = np.bincount(np.repeat(np.arange(len(depth)), depth)[shown], minlength=len(depth))
        frames = frames[shown]
        filled = np.flatnonzero(count)
        result = np.zeros(len(depth), np.int64)
        if not len(filled):
            return result
        count = count[filled]
        first = np.cumsum(count) - count
        found = distinct(row_keys(frames.astype(np.uint64), first, count, np.zeros(len(filled), np.uint64)))
        numbers = [self._named.get(key, -1) for key in found.values.tolist()]
        for place, number in enumerate(numbers):
            if number < 0:
                at = int(found.first[place])
                places = frames[first[at] : first[at] + count[at]].tolist()
                numbers[place] = self._named[int(found.values[place])] = len(self._parts)
                self._parts.append(tuple(map(self._frames.__getitem__, places)))
        result[filled] = np.array(numbers, np.int64)[found.which]
        return result

    def _build_id(self, path: str) -> bytes:
        known = self._decoder.build_ids.get(path)
        if known is not None:
            return known
        # In pipe mode, more of them come with the records.
        more = self._header.build_ids[self._build_ids_seen :]
        self._build_ids_seen += len(more)
        self._build_ids |= {each.path: each.build_id for each in more if not each.kernel}
        return self._build_ids.get(path, b"")

    def _placed(self, frames: list[Frame]) -> I64Array:
        """The indices of frames in the list of all frames."""
        places = np.empty(len(frames), np.int64)
        for at, frame in enumerate(frames):
            place = self._frame_places.get(frame.id)
            if place is None:
                place = self._frame_places[frame.id] = len(self._frames)
                self._frames.append(frame)
            places[at] = place
        return places
