"""From a perf.data file to samples with names, in the order of time and a bounded amount of memory."""

from collections import Counter, deque
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.attr import SampleType
from exhume.collect.perf.records import CONTEXT_FIRST, CONTEXT_USER, RawSamples, row_keys, unique
from exhume.collect.perf.stack_keys import MappingTable
from exhume.collect.symbols.frame import Frame
from exhume.interop.importers.files import InputFile
from exhume.interop.importers.form import (
    UNKNOWN_FRAME,
    I64Array,
    NoWallTime,
    ReadOptions,
    SampleBatch,
    StackBook,
    Unreadable,
)
from exhume.interop.importers.perf_data.header import (
    Event,
    Header,
    build_id_record,
    parse_attr,
    read_header,
)
from exhume.interop.importers.perf_data.records import (
    Block,
    Kind,
    Layout,
    RecordReader,
    Samples,
    decode_samples,
)
from exhume.interop.importers.perf_data.symbols import SymbolPlaces, Symbols
from exhume.interop.importers.perf_data.tasks import Exit, Fork, Image, Maps, Rename, TaskDecoder, Tasks
from exhume.interop.importers.spool import Intake
from exhume.model.tables import Losses

# How many times perf has to go through its buffers before everything older than what was read before is there. One
# whole round between two marks would do; compressed records come out a little behind the marks.
_ROUNDS, _ROUNDS_COMPRESSED = 2, 3
# Where there are no marks: as many blocks.
_MOST_BLOCKS = 24
# Different stacks that are held at once.
_MOST_STACKS = 150_000
_Images = tuple[list[Image], I64Array]
_DWARF = "user stacks were copied for unwinding (--call-graph dwarf), which is not done"


class PerfDataReader:
    """Reads one file into a spool."""

    def __init__(self, intake: Intake, options: ReadOptions) -> None:
        self._spool = intake.spool
        self._summary = intake.summary
        self._left_out = intake.left_out
        self._options = options
        self.book = StackBook()
        self._decoder = TaskDecoder()
        self._tasks = Tasks(self._decoder)
        self._header = Header()
        self._symbols: Symbols | None = None
        self._chosen: Event | None = None
        self._layout: Layout | None = None
        self._layouts: list[Layout] = []
        self._event_of: dict[int, int] = {}
        self._samples: list[Samples] = []
        self._renames: list[Rename] = []
        self._forks: list[Fork] = []
        self._exits: list[Exit] = []
        self._maps: list[Maps] = []
        self._seen_ns = 0
        self._history: deque[tuple[int, int]] = deque()
        self._rounds = 0
        self._known: dict[int, int] = {}
        self._weight_us = 0
        self._build_ids: dict[str, bytes] = {}
        self._counts: Counter[str] = Counter()
        self._frames: list[Frame] = [UNKNOWN_FRAME]
        self._frame_places: dict[int, int] = {UNKNOWN_FRAME.id: 0}

    @property
    def comms(self) -> list[str]:
        return self._decoder.comms

    def probe(self, file: IO[bytes], size: int) -> tuple[int | None, int, int | None, float]:
        """The first sample of a file on its own clock, its duration as far as the header has it, what to add for wall
        time where that is known, and about how many samples there are a second. Raises Unreadable."""
        reader = self._open(file, size)
        header = self._header
        first, length = header.first_time, header.last_time - header.first_time
        for block in reader.blocks() if not first or header.is_pipe else ():
            self._describe(block)
            if self._layout is not None or self._prepare(block):
                self._take_samples(block)
            if self._samples:
                first = int(self._samples[0].time.min())
                break
        rate = max((event.rate_hz for event in header.events if not event.is_dummy), default=0)
        offset = None if header.clock is None else header.clock[1] - header.clock[0]
        return first or None, max(length, 0), offset, float(rate * max(1, header.cores))

    def _open(self, file: IO[bytes], size: int) -> RecordReader:
        def at(offset: int, length: int) -> bytes:
            if offset >= size:
                return b""
            file.seek(offset)
            return file.read(length)

        self._header = read_header(at, size)
        start, end = self._header.data
        file.seek(min(start, size))
        return RecordReader(file, start, end, self._left_out.add)

    def read(self, file: IO[bytes], size: int) -> None:
        """Raises Unreadable where nothing of the file can be imported."""
        reader = self._open(file, size)
        for text in self._header.malformed:
            self._left_out.add(text)
        for block in reader.blocks():
            self._take(block, _ROUNDS_COMPRESSED if reader.compressed else _ROUNDS)
        self._flush(None)
        self._spool.finish(self.book, self.comms)
        self._summarize()

    def _summarize(self) -> None:
        header, origin = self._header, self._summary.origin
        origin.node, origin.kernel, origin.arch = header.hostname, header.release, header.arch
        origin.cores = header.cores
        if self._chosen is not None:
            origin.event = self._chosen.name
            origin.rate_hz = self._chosen.rate_hz or (round(1e6 / self._weight_us) if self._weight_us else 0)
            if self._layout is not None and not self._layouts[self._place(self._chosen)].has_cpu:
                self._summary.missing.append(
                    ("cores", "samples carry no core: all of them are on core 0", "perf record -a")
                )
            if SampleType.STACK_USER in self._chosen.sample_type:
                self._summary.missing.append(("user stacks", _DWARF, "record with --call-graph fp"))
            if SampleType.CALLCHAIN not in self._chosen.sample_type:
                self._summary.missing.append(("stacks", "only the function that ran was recorded", "record with -g"))
        if self._symbols is not None and not self._symbols.kernel_is_named:
            remedy = "give the kernel's symbols of that machine with --kallsyms"
            self._summary.missing.append(("kernel symbols", "no list of this kernel's symbols was found", remedy))
        if self._symbols is not None and self._symbols.nameless:
            count = len(self._symbols.nameless)
            text = f"{count} program files of that machine are not here: their functions have no names"
            self._summary.missing.append(("user symbols", text, "perf archive there, or import on that machine"))
        self._summary.others = {name: count for name, count in self._counts.items() if name}

    def _place(self, event: Event) -> int:
        return next(place for place, each in enumerate(self._header.events) if each is event)

    def _take(self, block: Block, rounds: int) -> None:
        self._describe(block)
        if self._layout is None and not self._prepare(block):
            return
        assert self._layout is not None
        self._take_samples(block)
        self._take_losses(block)
        self._renames += self._decoder.renames(block, self._layout)
        self._forks += self._decoder.forks(block, self._layout)
        self._exits += self._decoder.exits(block, self._layout)
        self._maps += self._decoder.maps(block, self._layout)
        self._rounds += block.rounds
        self._history.append((self._seen_ns, self._rounds))
        safe = None
        while self._history and (self._history[0][1] <= self._rounds - rounds or len(self._history) > _MOST_BLOCKS + 1):
            safe = self._history.popleft()[0]
        if safe:
            self._flush(safe)

    def _describe(self, block: Block) -> None:
        """Take in the records that say what others mean, which pipe mode has in place of a header."""
        for at in block.of(Kind.HEADER_ATTR).tolist() if self._header.is_pipe else ():
            size = int(block.sizes(np.array([at]))[0]) * 8
            attr = block.data[at * 8 + 8 : at * 8 + size]
            length = int.from_bytes(attr[4:8], "little")
            if 64 <= length <= len(attr):
                event = parse_attr(attr)
                event.ids = np.frombuffer(attr[length : length + (len(attr) - length) // 8 * 8], "<u8").tolist()
                self._header.events.append(event)
                self._layout = None
        for at in block.of(Kind.HEADER_FEATURE).tolist():
            size = int(block.sizes(np.array([at]))[0]) * 8
            self._header.add_feature(int(block.words[at + 1]), block.data[at * 8 + 16 : at * 8 + size])
        for at in block.of(Kind.BUILD_ID).tolist():
            size, misc = int(block.sizes(np.array([at]))[0]) * 8, int(block.misc(np.array([at]))[0])
            content = block.data[at * 8 : at * 8 + size]
            self._header.build_ids.append(build_id_record(misc, content[12:36], content[36:]))

    def _prepare(self, block: Block) -> bool:
        """Find out how records are laid out; False while no event is known."""
        events = self._header.events
        if not events:
            if len(block.of(Kind.SAMPLE)):
                raise Unreadable("samples before any event is described")
            return False
        self._layouts = [Layout(event) for event in events]
        self._event_of = {number: place for place, event in enumerate(events) for number in event.ids}
        tracking = next((event for event in events if event.flags >> 9 & 1), events[0])
        self._layout = self._layouts[self._place(tracking)]
        real = [event for event in events if not event.is_dummy]
        if self._options.event is not None:
            wanted = self._options.event
            named = [event for event in real if wanted in (event.name, event.name.split(":")[0])]
            if not named:
                names = ", ".join(dict.fromkeys(event.name for event in real))
                raise Unreadable(f"has no event {wanted}; it has {names}")
            self._chosen = named[0]
        elif real:
            self._chosen = next((event for event in real if event.counts_cpu_time), real[0])
        shapes = {(event.sample_type, event.read_format) for event in real}
        if len(shapes) > 1 and not all(SampleType.IDENTIFIER in event.sample_type for event in real):
            raise Unreadable("its events have different fields, and samples don't say which event they are of")
        if self._chosen is not None and not self._layouts[self._place(self._chosen)].has_time:
            raise Unreadable("samples carry no time; record with --timestamp")
        return True

    def _take_samples(self, block: Block) -> None:
        at = block.of(Kind.SAMPLE)
        if not len(at) or self._chosen is None:
            return
        chosen = self._place(self._chosen)
        layout = self._layouts[chosen]
        whole = block.sizes(at) >= layout.least_words()
        if not whole.all():
            self._left_out.add("damaged samples", None, int(np.count_nonzero(~whole)))
            at = at[whole]
        ids = layout.word(block, at, SampleType.IDENTIFIER)
        ids = layout.word(block, at, SampleType.ID) if ids is None else ids
        if ids is not None and len(self._header.events) > 1:
            places = np.full(len(at), -1, np.int64)
            for number in np.unique(ids).tolist():
                # tools/perf/util/evlist.c, evlist__event2evsel: what perf itself made has no id.
                places[ids == number] = self._event_of.get(number, -1) if number else chosen
            for place, count in Counter(places[places != chosen].tolist()).items():
                if place < 0:
                    self._left_out.add("samples of an event that the header does not have", None, count)
                elif not self._header.events[place].is_dummy:
                    self._counts[self._header.events[place].name] += count
            at = at[places == chosen]
        samples, damaged = decode_samples(block, at, layout)
        if damaged:
            self._left_out.add("damaged samples", None, damaged)
        odd = (samples.time == 0) | (samples.time >= np.uint64(1 << 62))
        if odd.any():
            self._left_out.add("samples without a possible time", None, int(odd.sum()))
            samples = samples.select(np.flatnonzero(~odd))
        if self._header.cores:
            inside = samples.cpu < self._header.cores
            if not inside.all():
                self._left_out.add("samples of a core that the machine does not have", None, int((~inside).sum()))
                samples = samples.select(np.flatnonzero(inside))
        if len(samples):
            self._seen_ns = max(self._seen_ns, int(samples.time.max()))
            self._samples.append(samples)

    def _take_losses(self, block: Block) -> None:
        """Records that the kernel could not write, because perf did not read its buffers in time."""
        assert self._layout is not None
        losses = []
        for kind, word in ((Kind.LOST, 2), (Kind.LOST_SAMPLES, 1)):
            at = block.of(kind)
            times = self._layout.trailer(block, at, SampleType.TIME)
            cpus = self._layout.trailer(block, at, SampleType.CPU)
            for place in range(len(at)):
                count = min(int(block.words[at[place] + word]), 2**32 - 1)
                time = int(times[place]) if times is not None else 0
                cpu = None if cpus is None else int(cpus[place]) & 0xFFFF
                time = time if 0 < time < 1 << 62 else self._seen_ns
                losses.append(
                    Losses(time + self._offset(), "stacks", "lost-samples", count, "lost by perf record", cpu)
                )
        self._spool.add_losses(losses)

    def _offset(self) -> int:
        """Wall time minus the file's clock. Raises NoWallTime."""
        if self._header.clock is not None:
            return self._header.clock[1] - self._header.clock[0]
        if self._options.offset is None:
            raise NoWallTime("does not say when it was recorded; give the time of its first sample with --start")
        return self._options.offset

    def _flush(self, until: int | None) -> None:
        """Hand over everything up to a moment in the file's clock."""
        if not self._samples:
            if until is None:
                self._apply_tasks(None)
            return
        samples = Samples.concatenate(self._samples)
        self._samples = []
        if until is not None:
            later = samples.time > np.uint64(until)
            if later.any():
                self._samples = [samples.select(np.flatnonzero(later))]
            samples = samples.select(np.flatnonzero(~later))
        self._apply_tasks(until)
        if len(samples):
            self._emit(samples.select(np.argsort(samples.time, kind="stable")))

    def _apply_tasks(self, until: int | None) -> None:
        limit = 1 << 64 if until is None else until
        now, self._renames = _split(self._renames, limit)
        forks, self._forks = _split(self._forks, limit)
        exits, self._exits = _split(self._exits, limit)
        maps = Maps.concatenate(self._maps) if self._maps else None
        self._maps = []
        if maps is not None and until is not None:
            later = maps.time > np.uint64(until)
            if later.any():
                self._maps = [maps.select(later)]
                maps = maps.select(~later)
        self._tasks.apply(now, forks, exits, maps)
        born = np.array([each.time for each in forks if not each.made_up and each.time], np.int64)
        if len(born) and (self._header.clock is not None or self._options.offset is not None):
            self._spool.add_forks(born + self._offset())

    def _emit(self, samples: Samples) -> None:
        offset = self._offset()
        comm = self._tasks.names_of(samples)
        images, image_of = self._tasks.images_of(samples)
        stack = self._stacks(samples, images, image_of)
        for pid in np.unique(samples.pid).tolist():
            parent, began = self._tasks.parents.get(pid, (None, None))
            start = began + offset if began else None
            self._spool.note_process(pid, parent, start, self._tasks.name_of(pid))
        time = samples.time.astype(np.int64) + offset
        weight = self._weights(samples)
        batch = SampleBatch(time, samples.cpu, samples.pid, samples.tid, comm, stack, weight)
        self._spool.add_samples(batch, self.book, self.comms)
        if len(self.book.stacks) > _MOST_STACKS or len(self._known) > 4 * _MOST_STACKS:
            # In another form they are on the disk by now.
            self._spool.finish(self.book, self.comms)
            self.book = StackBook()
            self._known.clear()

    def _weights(self, samples: Samples) -> I64Array:
        """The CPU time that each sample stands for, in microseconds."""
        event = self._chosen
        assert event is not None
        if event.counts_nanoseconds and SampleType.PERIOD in event.sample_type:
            weights: I64Array = np.clip(samples.period // np.uint64(1000), 0, 2**32 - 1).astype(np.int64)
            return weights
        if event.counts_nanoseconds and not event.rate_hz:
            self._weight_us = event.sample_period // 1000
        elif event.rate_hz:
            self._weight_us = round(1e6 / event.rate_hz)
        elif not self._weight_us:
            # A fixed number of cycles or the like: the pause between two samples of a busy core.
            order = np.lexsort((samples.time, samples.cpu))
            pause = np.diff(samples.time[order].astype(np.int64))[np.diff(samples.cpu[order]) == 0]
            self._weight_us = int(np.quantile(pause, 0.25)) // 1000 if len(pause) else 0
        return np.full(len(samples), min(self._weight_us, 2**32 - 1), np.int64)

    def _stacks(self, samples: Samples, images: list[Image], image_of: I64Array) -> I64Array:
        """The place of each sample's stack. The same callchain is sampled over and over: only new ones are named."""
        if not len(samples.addresses):
            return np.full(len(samples), self.book.add([], idle_task=False), np.int64)
        empty = samples.depth == 0
        first = np.minimum(samples.first, len(samples.addresses) - 1)
        user = np.logical_or.reduceat(samples.addresses == np.uint64(CONTEXT_USER), first) & ~empty
        salts = np.array([0, *(image.salt for image in images)], np.uint64)
        idle = samples.pid == 0
        salt = salts[np.where(user, image_of, -1) + 1] * np.uint64(4) + idle + 2 * (user & (image_of < 0))
        whole = np.flatnonzero(~empty)
        keys = np.zeros(len(samples), np.uint64)
        depth = samples.depth[whole]
        keys[whole] = row_keys(samples.addresses, samples.first[whole], depth, salt[whole].astype(np.uint64))
        distinct, index, which = unique(keys)
        places = np.array([self._known.get(key, -1) for key in distinct.tolist()], np.int64)
        new = np.flatnonzero(places < 0)
        if len(new):
            chosen = index[new]
            places[new] = self._resolve(samples.select(chosen), images, np.where(user, image_of, -1)[chosen])
            self._known.update(zip(distinct[new].tolist(), places[new].tolist(), strict=True))
        return places[which]

    def _resolve(self, samples: Samples, images: list[Image], image_of: I64Array) -> list[int]:
        """Name callchains, and return the places of their stacks."""
        if self._symbols is None:
            self._symbols = Symbols(
                self._header, self._decoder.kernel_maps, SymbolPlaces(self._options.cache, self._options.kallsyms)
            )
        addresses = samples.addresses
        markers = addresses >= CONTEXT_FIRST
        anchors = np.where(markers, np.arange(len(addresses)), 0)
        filled = samples.depth > 0
        anchors[samples.first[filled]] = samples.first[filled]
        context = addresses[np.maximum.accumulate(anchors)]
        # What follows a marker, or begins a chain, was running; all others are return addresses: the call is the
        # instruction before.
        running = np.zeros(len(addresses), np.bool_)
        running[1:] = markers[:-1]
        running[samples.first[filled]] = True
        user = (context == np.uint64(CONTEXT_USER)) & ~markers
        kernel = ~user & ~markers & (addresses >= np.uint64(1 << 63))
        frames = np.zeros(len(addresses), np.int64)
        lookup = addresses - (~running).astype(np.uint64)
        wanted, back = np.unique(lookup[kernel], return_inverse=True)
        if len(wanted):
            frames[kernel] = self._placed(self._symbols.kernel(wanted))[back]
        places, named = self._name_user(samples, running, user, (images, image_of))
        frames[places] = named
        shown = (user | kernel) & (addresses != 0)
        result = []
        bounds = zip(samples.first.tolist(), samples.depth.tolist(), samples.pid.tolist(), strict=True)
        frame_of, known = frames.tolist(), self._frames
        visible = shown.tolist()
        for begin, depth, pid in bounds:
            chain = [known[frame_of[at]] for at in range(begin, begin + depth) if visible[at]]
            result.append(self.book.add(chain, idle_task=pid == 0))
        return result

    def _name_user(
        self, samples: Samples, running: npt.NDArray[np.bool_], user: npt.NDArray[np.bool_], images: _Images
    ) -> tuple[I64Array, I64Array]:
        """Where in the chains user addresses have names, and those as places among the frames."""
        spaces, image_of = images
        at = np.flatnonzero(user)
        assert self._symbols is not None
        used = np.unique(image_of[image_of >= 0])
        if not len(used) or not len(at):
            return at[:0], at[:0]
        number = np.full(len(spaces) + 1, -1, np.int64)
        number[used] = np.arange(len(used))
        table = MappingTable([(spaces[place].space, spaces[place].salt) for place in used.tolist()])
        raw = RawSamples(
            *(samples.time, samples.cpu.astype(np.uint16), samples.pid.astype(np.int32), samples.tid.astype(np.int32)),
            *(samples.addresses, samples.first, samples.depth),
        )
        located = table.locate(raw, at, number[image_of])
        offsets = located.offset - (~running[located.at]).astype(np.uint64)
        rows, which = np.unique(located.row, return_inverse=True)
        files = [table.file(row) for row in rows.tolist()]
        order = {file.number: place for place, file in enumerate(files)}
        file_of = np.array([order[file.number] for file in files], np.int64)[which] if files else which
        frames = np.zeros(len(located.at), np.int64)
        for place in np.unique(file_of).tolist():
            chosen = np.flatnonzero(file_of == place)
            wanted, back = np.unique(offsets[chosen], return_inverse=True)
            named = self._symbols.user(files[place], self._build_id(files[place].path), wanted)
            frames[chosen] = self._placed(named)[back]
        return located.at, frames

    def _build_id(self, path: str) -> bytes:
        known = self._decoder.build_ids.get(path)
        if known is not None:
            return known
        if len(self._build_ids) != len(self._header.build_ids):
            self._build_ids = {each.path: each.build_id for each in self._header.build_ids if not each.kernel}
        return self._build_ids.get(path, b"")

    def _placed(self, frames: list[Frame]) -> I64Array:
        """The places of frames in the list of all."""
        places = np.empty(len(frames), np.int64)
        for at, frame in enumerate(frames):
            place = self._frame_places.get(frame.id)
            if place is None:
                place = self._frame_places[frame.id] = len(self._frames)
                self._frames.append(frame)
            places[at] = place
        return places


def _split(changes: list[Any], limit: int) -> tuple[list[Any], list[Any]]:
    """Those up to a time, and those behind it."""
    return [each for each in changes if each.time <= limit], [each for each in changes if each.time > limit]


def read_perf_data(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read a perf.data file into a spool. Raises Unreadable."""
    with file.open() as content:
        PerfDataReader(intake, options).read(content, file.size)
