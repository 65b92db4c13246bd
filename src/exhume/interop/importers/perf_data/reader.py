"""Convert a perf.data file to samples with symbol names, in order of time and within bounded memory."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from exhume.collect.perf.attr import SampleType
from exhume.interop.importers.files import InputFile
from exhume.interop.importers.form import FileSummary, I64Array, NoWallTime, ReadOptions, SampleBatch, Unreadable
from exhume.interop.importers.perf_data.header import (
    Event,
    Header,
    build_id_record,
    parse_attr,
    read_header,
)
from exhume.interop.importers.perf_data.records import (
    TIME_LIMIT,
    Block,
    HeldSamples,
    Kind,
    Layout,
    RecordReader,
    Samples,
    decode_samples,
)
from exhume.interop.importers.perf_data.stacks import StackNames
from exhume.interop.importers.perf_data.symbols import SymbolPlaces
from exhume.interop.importers.perf_data.tasks import Exit, Fork, Maps, Rename, TaskDecoder, Tasks
from exhume.interop.importers.spool import Intake, Spool
from exhume.model.tables import Losses

# Number of rounds through its buffers after which perf has written everything older than what was read before: one
# whole round between two FINISHED_ROUND records.
_ROUNDS = 2
# The number of blocks to use instead if there are no such records.
_MOST_BLOCKS = 24
_EVER = 1 << 64
# A file and its size.
_Part = tuple[IO[bytes], int]


class _Stream:
    """The records of one file, in file order. Once `safe` is set, no following record is older than that."""

    def __init__(self, reader: RecordReader, most_blocks: int) -> None:
        self._blocks = reader.blocks()
        self._most_blocks = most_blocks
        self._seen_ns = 0
        self._rounds = 0
        self._history: deque[tuple[int, int]] = deque()
        self.safe = 0

    def next(self) -> Block | None:
        block = next(self._blocks, None)
        if block is None:
            self.safe = _EVER
        return block

    def note(self, block: Block, newest: int) -> None:
        """Note the time of the newest sample in a block."""
        self._seen_ns = max(self._seen_ns, newest)
        self._rounds += block.rounds
        history = self._history
        history.append((self._seen_ns, self._rounds))
        while history and (history[0][1] <= self._rounds - _ROUNDS or len(history) > self._most_blocks + 1):
            self.safe = history.popleft()[0]


class PerfDataReader:
    """Reads one file into a spool. `recording` is that file: there may be perf maps of compiled code next to it."""

    def __init__(self, intake: Intake, options: ReadOptions, recording: InputFile | None = None) -> None:
        self._recording = recording
        self._spool = intake.spool
        self._summary = intake.summary
        self._left_out = intake.left_out
        self._options = options
        self._decoder = TaskDecoder()
        self._tasks = Tasks(self._decoder)
        self._header = Header()
        self._names: StackNames | None = None
        self._chosen: Event | None = None
        self._layout: Layout | None = None
        self._layouts: list[Layout] = []
        self._event_of: dict[int, int] = {}
        self._samples: list[HeldSamples] = []
        self._renames: list[Rename] = []
        self._forks: list[Fork] = []
        self._exits: list[Exit] = []
        self._maps: list[Maps] = []
        self._seen_ns = 0
        self._weight_us = 0
        self._counts: Counter[str] = Counter()
        self._copied_stacks = 0

    @property
    def comms(self) -> list[str]:
        return self._decoder.comms

    def probe(
        self, file: IO[bytes], size: int, parts: Sequence[_Part] = ()
    ) -> tuple[int | None, int, int | None, float]:
        """Return the first sample time of a file on its own clock, its duration as far as the header has it, the offset
        to wall time if known, and about how many samples it has per second. Raises Unreadable."""
        readers = self._readers(file, size, parts)
        header = self._header
        first, length = header.first_time, header.last_time - header.first_time
        if not first or header.is_pipe:
            first = min(filter(None, map(self._first_time, readers)), default=0)
        rate = max((event.rate_hz for event in header.events if not event.is_dummy), default=0)
        offset = None if header.clock is None else header.clock[1] - header.clock[0]
        return first or None, max(length, 0), offset, float(rate * max(1, header.cores))

    def _first_time(self, reader: RecordReader) -> int:
        """The earliest of the first samples of a file; 0 if there are none."""
        for block in reader.blocks():
            self._describe(block)
            samples = self._decoded(block) if self._layout is not None or self._prepare(block) else None
            if samples is not None and len(samples):
                return int(samples.time.min())
        return 0

    def _readers(self, file: IO[bytes], size: int, parts: Sequence[_Part]) -> list[RecordReader]:
        """Readers for a file and, if it is the first of a directory, for its parts, once its header is known. Raises
        Unreadable."""

        def at(offset: int, length: int) -> bytes:
            if offset >= size:
                return b""
            file.seek(offset)
            # Of the file's own size at most: a read makes room for all that is requested.
            return file.read(min(length, size - offset))

        self._header = read_header(at, size)
        start, end = self._header.data
        file.seek(min(start, size))
        readers = [RecordReader(file, start, end, self._left_out.add)]
        if self._header.is_directory:
            if not parts:
                raise Unreadable("the first file of a directory of perf record --threads; the others are not there")
            readers += [RecordReader(part, 0, length, self._left_out.add) for part, length in parts]
        return readers

    def read(self, file: IO[bytes], size: int, parts: Sequence[_Part] = ()) -> None:
        """Read a file with its parts. Raises Unreadable if nothing in it can be imported."""
        readers = self._readers(file, size, parts)
        for text in self._header.malformed:
            self._left_out.add(text)
        streams = [_Stream(reader, max(1, _MOST_BLOCKS // len(readers))) for reader in readers]
        safe = 0
        while safe < _EVER:
            # The stream that is furthest behind.
            stream = min(streams, key=_safe_of)
            block = stream.next()
            if block is not None:
                self._take(block, stream)
            safe, before = min(map(_safe_of, streams)), safe
            if before < safe < _EVER:
                self._flush(safe)
        self._flush(None)
        if self._names is not None:
            self._spool.finish(self._names.book, self.comms)
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
            if self._copied_stacks:
                text = f"those of {self._copied_stacks:,} samples were copied for unwinding (--call-graph dwarf), "
                self._summary.missing.append(("user stacks", f"{text}which is not done", "record with --call-graph fp"))
            if SampleType.CALLCHAIN not in self._chosen.sample_type:
                self._summary.missing.append(("stacks", "only the function that ran was recorded", "record with -g"))
        symbols = None if self._names is None else self._names.symbols
        if symbols is not None and not symbols.kernel_is_named:
            remedy = "give the kernel's symbols of that machine with --kallsyms"
            self._summary.missing.append(("kernel symbols", "no list of this kernel's symbols was found", remedy))
        if symbols is not None and symbols.nameless:
            count = len(symbols.nameless)
            text = f"{count} program files of that machine are not here: their functions have no names"
            self._summary.missing.append(("user symbols", text, "perf archive there, or import on that machine"))
        self._summary.others = {name: count for name, count in self._counts.items() if name}

    def _place(self, event: Event) -> int:
        return next(place for place, each in enumerate(self._header.events) if each is event)

    def _take(self, block: Block, stream: _Stream) -> None:
        self._describe(block)
        if self._layout is None and not self._prepare(block):
            return
        assert self._layout is not None
        # Decode mappings first, as the kernel's own are needed for symbol names.
        self._maps += self._decoder.maps(block, self._layout)
        newest = self._take_samples(block)
        self._take_losses(block)
        self._renames += self._decoder.renames(block, self._layout)
        self._forks += self._decoder.forks(block, self._layout)
        self._exits += self._decoder.exits(block, self._layout)
        stream.note(block, newest)

    def _describe(self, block: Block) -> None:
        """Take in the records that describe others, which pipe mode has instead of a header."""
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
        """Determine the layout of the records; False while no event is known."""
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

    def _take_samples(self, block: Block) -> int:
        """Hold the samples of a block; return the time of the newest, 0 if there is none."""
        samples = self._decoded(block)
        if samples is None or not len(samples):
            return 0
        if self._names is None:
            places = SymbolPlaces(self._options.cache, self._options.kallsyms, self._recording)
            self._names = StackNames(self._header, self._decoder, self._tasks.mappings, places)
        newest = int(samples.time.max())
        self._seen_ns = max(self._seen_ns, newest)
        self._samples.append(self._names.split(samples))
        return newest

    def _decoded(self, block: Block) -> Samples | None:
        """Decode the samples of the chosen event."""
        at = block.of(Kind.SAMPLE)
        if not len(at) or self._chosen is None:
            return None
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
                # tools/perf/util/evlist.c, evlist__event2evsel: records that perf synthesized have no id.
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
        odd = (samples.time == 0) | (samples.time >= np.uint64(TIME_LIMIT))
        if odd.any():
            self._left_out.add("samples without a possible time", None, int(odd.sum()))
            samples = samples.select(np.flatnonzero(~odd))
        if self._header.cores:
            inside = samples.cpu < self._header.cores
            if not inside.all():
                self._left_out.add("samples of a core that the machine does not have", None, int((~inside).sum()))
                samples = samples.select(np.flatnonzero(inside))
        if SampleType.STACK_USER in self._chosen.sample_type:
            self._copied_stacks += len(samples)
        return samples

    def _take_losses(self, block: Block) -> None:
        """Records that the kernel could not write because perf did not read its buffers in time."""
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
                time = time if 0 < time < TIME_LIMIT else self._seen_ns
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
        """Hand over everything up to a time of the file's clock."""
        if not self._samples:
            if until is None:
                self._apply_tasks(None)
            return
        ready, later = self._samples, list[HeldSamples]()
        if until is not None:
            behind = [each.time > np.uint64(until) for each in ready]
            later = [each.select(late) for each, late in zip(ready, behind, strict=True) if late.any()]
            ready = [each.select(~late) for each, late in zip(ready, behind, strict=True) if not late.all()]
        self._samples = later
        self._apply_tasks(until)
        if ready:
            samples = HeldSamples.concatenate(ready)
            self._emit(samples.select(np.argsort(samples.time, kind="stable")))

    def _apply_tasks(self, until: int | None) -> None:
        limit = _EVER if until is None else until
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

    def _emit(self, samples: HeldSamples) -> None:
        assert self._names is not None
        offset = self._offset()
        comm = self._tasks.names_of(samples)
        stack = self._names.stacks(samples, *self._tasks.images_of(samples))
        for pid in np.unique(samples.pid).tolist():
            parent, began = self._tasks.parents.get(pid, (None, None))
            start = began + offset if began else None
            self._spool.note_process(pid, parent, start, self._tasks.name_of(pid))
        time = samples.time.astype(np.int64) + offset
        weight = self._weights(samples)
        batch = SampleBatch(time, samples.cpu, samples.pid, samples.tid, comm, stack, weight)
        self._spool.add_samples(batch, self._names.book, self.comms)
        if self._names.is_full:
            # By now they have been written to disk in another form.
            self._spool.finish(self._names.book, self.comms)
            self._samples = self._names.forget(self._samples)

    def _weights(self, samples: HeldSamples) -> I64Array:
        """The CPU time in microseconds that each sample stands for."""
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
            # For a fixed number of cycles or the like: the interval between two samples of a busy core.
            order = np.lexsort((samples.time, samples.cpu))
            pause = np.diff(samples.time[order].astype(np.int64))[np.diff(samples.cpu[order]) == 0]
            self._weight_us = int(np.quantile(pause, 0.25)) // 1000 if len(pause) else 0
        return np.full(len(samples), min(self._weight_us, 2**32 - 1), np.int64)


def _split(changes: list[Any], limit: int) -> tuple[list[Any], list[Any]]:
    """Split changes into those up to a time, and those after it."""
    return [each for each in changes if each.time <= limit], [each for each in changes if each.time > limit]


def _safe_of(stream: _Stream) -> int:
    return stream.safe


@contextmanager
def _opened(file: InputFile) -> Iterator[tuple[IO[bytes], int, list[_Part]]]:
    with ExitStack() as opened:
        parts = [(opened.enter_context(part.open()), part.size) for part in file.parts]
        yield opened.enter_context(file.open()), file.size, parts


def probe_perf_data(file: InputFile) -> tuple[int | None, int, int | None, float]:
    """Return what `PerfDataReader.probe` finds in a file. Raises Unreadable."""
    reader = PerfDataReader(Intake(Spool(Path(), 60), FileSummary("")), ReadOptions(offset=0))
    with _opened(file) as content:
        return reader.probe(*content)


def read_perf_data(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read a perf.data file into a spool. Raises Unreadable."""
    with _opened(file) as content:
        PerfDataReader(intake, options, file).read(*content)
