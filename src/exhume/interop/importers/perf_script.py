"""Import the text output of perf script: a line for each sample, followed by the frames of its stack.

tools/perf/builtin-script.c, perf_sample__fprintf_start and process_event: fields that -F doesn't request are left out,
the others always have the same order: comm, pid/tid, [cpu], misc, time, period, event; frames are address,
symbol+offset, (file). Most stacks repeat: a stack is looked up by its whole text, and only new ones are parsed.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import IO

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.frame import KERNEL, USER, Frame
from exhume.collect.symbols.kernel import KERNEL_MODULE
from exhume.collect.symbols.parser.open_file import readable
from exhume.interop.importers.files import MAX_LINE, InputFile, chunks
from exhume.interop.importers.form import (
    UNKNOWN_FRAME,
    I64Array,
    LeftOutLog,
    NoWallTime,
    ReadOptions,
    SampleBatch,
    StackBook,
    Unreadable,
)
from exhume.interop.importers.spool import Intake
from exhume.model.clock import NANOS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The time delimits the fields: a name may contain blanks and digits, and everything but the last number before the core
# is part of the name.
_HEADER = re.compile(
    rb" *(?:(?P<comm>\S.*?) +)??(?:(?P<pid>-?\d{1,18})(?:/(?P<tid>-?\d{1,18}) *)? +)?"
    rb"(?:\[(?P<cpu>\d{1,18})\] +)?(?:[KUHGgcTDMSs]{1,5} +)?"
    rb"(?:(?P<s>\d{1,18})\.(?P<f>\d{9}|\d{6}):|(?P<tod>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d{6,9}):?)(?: +|$)"
    rb"(?:(?P<period>\d{1,20}) +)?(?:(?P<event>\S+):(?: +(?P<rest>.*)|$|\s*$))?",
)
# perf's default fields; matches all first lines of a text at once.
_USUAL = re.compile(
    rb"^ *(\S.*?) +(-?\d{1,18})(?:/(-?\d{1,18}) *)? +\[(\d{1,18})\] +(\d{1,18})\.(\d{9}|\d{6}): +"
    rb"(?:(\d{1,20}) +)?(\S+): *$",
    re.MULTILINE,
)
_ADDRESS = re.compile(rb"\t *([0-9a-f]{1,16}) (?!\[unknown\])(.*)")
_FRAME = re.compile(
    rb"\s*(?:(?P<ip>[0-9a-f]{1,16}) )?(?P<name>.*?)(?:\+0x[0-9a-f]+)?"
    rb"(?: \((?P<file>[^()]*(?:\([^()]*\))?[^()]*)\))?\s*$"
)
_COMMENT = re.compile(rb"# (hostname|os release|arch|nrcpus avail|nrcpus online) : (.*)")
_FREQUENCY = re.compile(rb"# event : name = ([^,]+),.*?\{ sample_period, sample_freq \} = (\d+).*")
_CPU_TIME = (b"cpu-clock", b"task-clock", b"cycles", b"cpu-cycles")
_CLOCKS = (b"cpu-clock", b"task-clock")
_NOT_MODULES = (b"[vdso]", b"[vsyscall]", b"[unknown]", b"[heap]", b"[stack]", b"[uprobes]")
_KERNEL_ADDRESS = 1 << 63
# Limits of the caches for stack texts and frame lines.
_HELD_BYTES, _HELD_LINES = 48 << 20, 200_000
# A sample: thread name, process, thread, core, time, period, event, stack.
_Row = tuple[bytes | None, int, int, int, int, int, bytes, bytes]


def looks_like_script(head: bytes) -> bool:
    """Whether some lines are samples of perf script, and no line has another format."""
    lines = [line for line in head.split(b"\n")[:-1] if line.strip() and not line.startswith(b"#")][:400]
    return any(_HEADER.match(line) for line in lines if line[:1] != b"\t")


def first_boot_time(head: bytes) -> int | None:
    """The time since boot of the first sample; None if samples have wall time, or if there are none."""
    for line in head.split(b"\n"):
        match = None if line.startswith(b"#") else _HEADER.match(line)
        if match and match["s"] is not None:
            return int(match["s"]) * NANOS + int(match["f"].ljust(9, b"0"))
        if match:
            return None
    return None


class ScriptReader:
    """Reads one text into a spool."""

    def __init__(self, intake: Intake, options: ReadOptions) -> None:
        self._spool = intake.spool
        self._summary = intake.summary
        self._left_out = intake.left_out
        self._offset = options.offset
        self._zone = options.zone
        self._wanted = None if options.event is None else options.event.encode()
        self.book = StackBook()
        self.comms: list[str] = []
        self._comm_places: dict[bytes | None, int] = {}
        # Stacks by their text and by their frames, separately for the idle task; frames by their line, and by the text
        # after the address, with -1 for a line without a frame.
        self._texts: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        self._text_bytes = 0
        self._chains: tuple[dict[tuple[int, ...], int], dict[tuple[int, ...], int]] = ({}, {})
        self._lines: dict[bytes, int] = {}
        self._symbols: dict[tuple[bytes, bool], int] = {}
        self._frames: list[Frame] = []
        self._frame_places: dict[int, int] = {}
        self._event: bytes | None = None
        self._rates: dict[bytes, int] = {}
        self._rate_hz = 0
        self._others: Counter[str] = Counter()
        self._has_cpu = self._has_tgid = self._is_boot = True
        self._wall_days: dict[bytes, int] = {}

    def read(self, file: IO[bytes], begin: int = 0) -> None:
        """Read a text, or the part of one that begins at an offset. Raises Unreadable if nothing can be imported."""
        for at, text in self._samples(file):
            self._hand_over(self._rows(text, begin + at))
        self._spool.finish(self.book, self.comms)
        self._summary.others = dict(self._others)
        self._summary.origin.event = (self._event or b"").decode("utf-8", "replace")
        self._summary.origin.rate_hz = self._rate_hz
        if not self._has_cpu:
            self._summary.missing.append(
                ("cores", "samples carry no core: all of them are on core 0", "perf script -F +cpu")
            )
        if not self._has_tgid:
            reason = "samples name threads, not the processes that they belong to"
            self._summary.missing.append(("processes", reason, "perf script -F +pid"))

    def learn(self, file: IO[bytes]) -> None:
        """Determine from the beginning of a text what holds for all of it: the event and its sampling rate."""
        at, text = next(self._samples(file), (0, b""))
        left_out, self._left_out = self._left_out, LeftOutLog()
        rows = self._of_event(self._rows(text, at))
        self._left_out = left_out
        self._others.clear()
        if rows:
            _, _, _, cores, times, periods, _, _ = zip(*rows, strict=True)
            self._weights(np.array(cores, np.int64), np.array(times, np.int64), np.array(periods, np.float64))
        self._has_tgid = True

    @staticmethod
    def _samples(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield chunks of whole samples, each with its offset."""
        rest = b""
        at = 0
        for offset, chunk in chunks(file):
            text = rest + chunk
            at = offset - len(rest)
            # Samples with stacks end with an empty line.
            cut = text.rfind(b"\n\n") + 2
            if cut < 2:
                cut = text.rfind(b"\n") + 1 if b"\n\t" not in text else 0
            rest = text[cut:]
            if len(rest) > 64 << 20:
                raise Unreadable("a sample of more than 64 MB", at + cut)
            yield at, text[:cut]
            at += cut
        yield at, rest

    def _rows(self, text: bytes, offset: int) -> list[_Row]:
        """Parse the samples in a text."""
        if not text:
            return []
        samples = text.removesuffix(b"\n\n").split(b"\n\n")
        parts = [sample.partition(b"\n") for sample in samples]
        stacks = [stack for _, _, stack in parts]
        found = _USUAL.findall(b"\n".join([head for head, _, _ in parts]))
        if len(found) == len(parts) and all(stack[:1] == b"\t" for stack in stacks):
            names, pids, tids, cores, seconds, fractions, periods, events = zip(*found, strict=True)
            self._has_tgid &= all(tids)
            numbers = list(map(int, pids))
            nanos = [
                int(second) * NANOS + int(fraction) * (1 if len(fraction) == 9 else 1000)
                for second, fraction in zip(seconds, fractions, strict=True)
            ]
            threads = [int(tid) if tid else pid for tid, pid in zip(tids, numbers, strict=True)]
            weights = [int(period or b"0") for period in periods]
            return list(zip(names, numbers, threads, map(int, cores), nanos, weights, events, stacks, strict=True))
        rows: list[_Row] = []
        at = offset
        for sample in samples:
            begin, at = at, at + len(sample) + 2
            self._take_any(sample, begin, rows)
        return rows

    def _take_any(self, sample: bytes, offset: int, rows: list[_Row]) -> None:
        """Parse a sample with any fields, or whatever else is between two empty lines."""
        sample = sample.lstrip(b"\n")
        head, _, stack = sample.partition(b"\n")
        if head.startswith(b"#"):
            head, stack = self._comments(sample)
        if not head:
            return
        match = _HEADER.match(head)
        if match is None or (stack and stack[:1] != b"\t" and not _is_frame(stack)):
            self._odd(sample, offset, rows)
        else:
            rows.append(self._row(match, stack))

    def _row(self, match: re.Match[bytes], stack: bytes) -> _Row:
        name, number, thread, core, seconds, fraction, day, weight, event, rest = match.groups()
        self._is_boot = seconds is not None
        if seconds is not None:
            time = int(seconds) * NANOS + int(fraction) * (1 if len(fraction) == 9 else 1000)
        else:
            time = self._of_day(day)
        pid = -1 if number is None else int(number)
        self._has_tgid &= thread is not None
        return (
            *(name, pid, pid if thread is None else int(thread), -1 if core is None else int(core)),
            *(time, 0 if weight is None else int(weight), event or b"", stack or rest or b""),
        )

    def _comments(self, sample: bytes) -> tuple[bytes, bytes]:
        """Return what follows the lines of a header, which says where the samples come from."""
        lines = sample.split(b"\n")
        place = 0
        for place, line in enumerate(lines):  # noqa: B007
            if not line.startswith(b"#"):
                break
            self._take_comment(line)
        else:
            return b"", b""
        return lines[place], b"\n".join(lines[place + 1 :])

    def _take_comment(self, line: bytes) -> None:
        origin = self._summary.origin
        if match := _COMMENT.match(line):
            name, value = match[1], match[2].decode("utf-8", "replace").strip()
            if name == b"hostname":
                origin.node = value
            elif name == b"os release":
                origin.kernel = value
            elif name == b"arch":
                origin.arch = value
            elif value.isdigit():
                origin.cores = max(origin.cores, min(int(value), 65_535))
        elif b", freq = 1" in line and (match := _FREQUENCY.match(line)):
            self._rates[match[1].split(b":")[0]] = int(match[2])

    def _odd(self, sample: bytes, offset: int, rows: list[_Row]) -> None:
        """Handle lines that are not one sample with its stack: many samples without stacks, or lines that make no
        sense."""
        current: re.Match[bytes] | None = None
        frames: list[bytes] = []
        unknown = 0
        for line in sample.split(b"\n"):
            match = None if line[:1] == b"\t" else _HEADER.match(line)
            if match is not None:
                if current is not None:
                    rows.append(self._row(current, b"\n".join(frames)))
                current, frames = match, []
            elif line[:1].isspace() and current is not None:
                frames.append(line)
            elif line.strip() and not line.startswith((b"#", b"PERF_RECORD")):
                unknown += 1
        if current is not None:
            rows.append(self._row(current, b"\n".join(frames)))
        if unknown:
            self._left_out.add("lines that are not perf script's", offset, unknown)

    def _of_event(self, rows: list[_Row]) -> list[_Row]:
        """Keep the samples of the chosen event and count the others."""
        if self._event is None and rows:
            self._event = self._chosen([row[6] for row in rows], self._wanted)
        kept = [row for row in rows if row[6] == self._event]
        if len(kept) < len(rows):
            self._others.update(row[6].decode("utf-8", "replace") for row in rows if row[6] != self._event)
        return kept

    def _hand_over(self, rows: list[_Row]) -> None:
        rows = self._of_event(rows)
        if not rows:
            return
        if self._is_boot and self._offset is None:
            raise NoWallTime("does not say when it was recorded; give the time of its first sample with --start")
        names, pids, tids, cores, times, periods, _, texts = zip(*rows, strict=True)
        places = self._comm_places
        comm = [places[name] if name in places else self._comm_place(name) for name in names]
        busy, idle = self._texts
        stack = [(busy if pid else idle).get(text, -1) for pid, text in zip(pids, texts, strict=True)]
        for at, place in enumerate(stack):
            if place < 0:
                stack[at] = self._stack_place(texts[at], pids[at] == 0)
        if self._text_bytes > _HELD_BYTES:
            busy.clear()
            idle.clear()
            self._text_bytes = 0
        time = np.array(times, np.int64) + (self._offset if self._is_boot and self._offset is not None else 0)
        cpu = np.array(cores, np.int64)
        self._has_cpu &= bool((cpu >= 0).all())
        cpu = np.clip(cpu, 0, 65_535)
        numbers = [np.clip(np.array(each, np.int64), -(2**31), 2**31 - 1) for each in (pids, tids)]
        weights = self._weights(cpu, time, np.array(periods, np.float64))
        columns = (*numbers, np.array(comm, np.int64), np.array(stack, np.int64), weights)
        self._spool.add_samples(SampleBatch(time, cpu, *columns), self.book, self.comms)

    def _weights(self, cpu: I64Array, time: I64Array, period: npt.NDArray[np.float64]) -> I64Array:
        """The CPU time in microseconds that each sample stands for."""
        event = (self._event or b"").split(b":")[0]
        if event in _CLOCKS and (period > 0).all():
            self._rate_hz = self._rate_hz or round(1e9 / float(np.median(period)))
            return np.clip(period / 1000, 0, 2**32 - 1).astype(np.int64)
        if not self._rate_hz:
            self._rate_hz = self._rates.get(event, 0)
        if not self._rate_hz:
            # The interval between two samples of a busy core.
            order = np.lexsort((time, cpu))
            pause = np.diff(time[order])[np.diff(cpu[order]) == 0]
            pause = pause[pause > 0]
            self._rate_hz = max(1, round(1e9 / float(np.quantile(pause, 0.25)))) if len(pause) else 1
        return np.full(len(time), round(1e6 / self._rate_hz), np.int64)

    @staticmethod
    def _chosen(events: list[bytes], wanted: bytes | None) -> bytes:
        known = dict.fromkeys(events)
        if wanted is not None:
            found = [name for name in known if wanted in (name, name.split(b":")[0])]
            if not found:
                names = b", ".join(known).decode("utf-8", "replace")
                raise Unreadable(f"has no event {wanted.decode()}; it begins with {names}")
            return found[0]
        return next((name for name in known if name.split(b":")[0] in _CPU_TIME), events[0])

    def _comm_place(self, name: bytes | None) -> int:
        place = self._comm_places[name] = len(self.comms)
        self.comms.append(readable((name or b"").strip()))
        return place

    def _of_day(self, text: bytes) -> int:
        """Wall time of a date and time, which perf prints in its local time zone."""
        second = text[:19]
        base = self._wall_days.get(second)
        if base is None:
            try:
                moment = datetime.fromisoformat(second.decode())
            except ValueError as error:
                raise Unreadable(f"an impossible time: {second.decode()}") from error
            aware = moment.replace(tzinfo=self._zone) if self._zone is not None else moment.astimezone()
            base = self._wall_days[second] = (aware - _EPOCH) // timedelta(seconds=1) * NANOS
            if len(self._wall_days) > 10_000:
                self._wall_days.clear()
        return base + int(text[20:].ljust(9, b"0"))

    def _stack_place(self, text: bytes, idle_task: bool) -> int:
        """The index of a stack whose text is new. Its frames often are not new: every process has its own addresses."""
        place = self._texts[idle_task].get(text)
        if place is not None:
            return place
        known, chains = self._lines, self._chains[idle_task]
        chain = tuple([known[line] if line in known else self._line(line) for line in text.split(b"\n")])
        place = chains.get(chain)
        if place is None:
            frames = [self._frames[number] for number in chain if number >= 0]
            place = chains[chain] = self.book.add(frames, idle_task=idle_task)
        self._texts[idle_task][text] = place
        self._text_bytes += len(text)
        return place

    def _line(self, line: bytes) -> int:
        """The frame number of a new line; -1 for a line without a frame, such as the source location of the line
        before. Except for functions without a name, it doesn't depend on where the code was loaded."""
        if len(self._lines) > _HELD_LINES:
            self._lines.clear()
        match = _ADDRESS.fullmatch(line)
        key = (match[2], int(match[1], 16) >= _KERNEL_ADDRESS) if match is not None else None
        number = None if key is None else self._symbols.get(key)
        if number is None:
            frame = self._parsed(line)
            number = -1 if frame is None else self._number(frame)
            if key is not None and len(self._symbols) < _HELD_LINES:
                self._symbols[key] = number
        self._lines[line] = number
        return number

    def _number(self, frame: Frame) -> int:
        number = self._frame_places.get(frame.id)
        if number is None:
            number = self._frame_places[frame.id] = len(self._frames)
            self._frames.append(frame)
        return number

    def _parsed(self, line: bytes) -> Frame | None:
        match = _FRAME.match(line)
        if match is None or not match["name"]:
            return None
        ip, name, file = match["ip"], match["name"], match["file"]
        if ip is None and (line[:1] != b"\t" or (file is None and b" " in name)):
            # A source line (perf script -F +srcline), or the details of a tracepoint.
            return None
        address = int(ip, 16) if ip is not None else 0
        file = file or b""
        inlined = file == b"inlined"
        in_kernel = _is_kernel(file, address) if not inlined else address >= _KERNEL_ADDRESS
        if name == b"[unknown]":
            if not file or file == b"[unknown]":
                return UNKNOWN_FRAME if not in_kernel else self.book.frame(KERNEL, KERNEL_MODULE, f"0x{address:x}")
            if in_kernel:
                return self.book.frame(KERNEL, _module(file), f"0x{address:x}")
            base = readable(file.rsplit(b"/", 1)[-1])
            return self.book.frame(USER, readable(file), f"{base}+0x{address:x}" if ip is not None else base)
        text = readable(name)
        if "@" in text[1:] and not text.endswith("@plt"):
            text = text[0] + text[1:].partition("@")[0]
        if in_kernel:
            return self.book.frame(KERNEL, KERNEL_MODULE if inlined else _module(file), text)
        return self.book.frame(USER, "[unknown]" if inlined or not file else readable(file), text)


def _is_frame(lines: bytes) -> bool:
    """Whether the first line belongs to a stack rather than being another sample: both may begin with blanks."""
    line = lines.partition(b"\n")[0]
    return line[:1].isspace() and _HEADER.match(line) is None


def _is_kernel(file: bytes, address: int) -> bool:
    if address >= _KERNEL_ADDRESS and file not in (b"[vsyscall]",):
        return True
    if file.startswith((b"[kernel", b"[guest.kernel")) or file.endswith(
        (b"/vmlinux", b".ko", b".ko.xz", b".ko.zst", b".ko.gz")
    ):
        return True
    return file.startswith(b"[") and file.endswith(b"]") and file not in _NOT_MODULES and not file.startswith(b"[anon")


def _module(file: bytes) -> str:
    """A kernel module, named as by the recorder."""
    name = file.rsplit(b"/", 1)[-1]
    if b".ko" in name:
        return f"[{readable(name.split(b'.ko')[0])}]"
    if name.startswith(b"[") and not name.startswith((b"[kernel", b"[guest")):
        return readable(name)
    return KERNEL_MODULE


def read_script(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read the text of perf script, or the part given by the file's span, into a spool. Raises Unreadable."""
    reader = ScriptReader(intake, options)
    if file.span is not None:
        with file.open() as content:
            reader.learn(content)
    with file.open_unpacked() as content:
        reader.read(content, file.span[0] if file.span is not None else 0)


def cut_points(file: InputFile, parts: int) -> list[int]:
    """Offsets between samples that cut a text into about equal parts; empty for a compressed text."""
    found: list[int] = []
    if file.packing:
        return found
    with file.open() as content:
        for number in range(1, parts):
            begin = file.size * number // parts
            content.seek(begin)
            place = content.read(MAX_LINE).find(b"\n\n")
            if place >= 0 and begin + place + 2 < file.size:
                found.append(begin + place + 2)
    return sorted(set(found))
