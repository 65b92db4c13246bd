"""The text that perf script prints: a line for each sample, the frames of its stack below it.

tools/perf/builtin-script.c, perf_sample__fprintf_start and process_event: fields that were not asked for with -F are
left out, the others always come in one order: comm, pid/tid, [cpu], misc, time, period, event; frames are address,
symbol+offset, (file). Most stacks repeat: they are taken as whole texts, and only new ones are taken apart.
"""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.frame import KERNEL, USER, Frame
from exhume.collect.symbols.kernel import KERNEL_MODULE
from exhume.collect.symbols.parser.open_file import readable
from exhume.interop.importers.files import InputFile, chunks
from exhume.interop.importers.form import (
    UNKNOWN_FRAME,
    I64Array,
    NoWallTime,
    ReadOptions,
    SampleBatch,
    StackBook,
    Unreadable,
)
from exhume.interop.importers.spool import Intake
from exhume.model.clock import NANOS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The time tells the fields apart: a name may have blanks and digits, and all but the last number before the core are
# part of it.
_HEADER = re.compile(
    rb" *(?:(?P<comm>\S.*?) +)??(?:(?P<pid>-?\d+)(?:/(?P<tid>-?\d+) *)? +)?"
    rb"(?:\[(?P<cpu>\d+)\] +)?(?:[KUHGgcTDMSs]{1,5} +)?"
    rb"(?:(?P<s>\d+)\.(?P<f>\d{9}|\d{6}):|(?P<tod>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d{6,9}):?)(?: +|$)"
    rb"(?:(?P<period>\d+) +)?(?:(?P<event>\S+):(?: +(?P<rest>.*)|$|\s*$))?",
)
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
_HELD_TEXTS = 500_000


def looks_like_script(head: bytes) -> bool:
    """Whether some lines are samples of perf script, and none of the others are of another format."""
    lines = [line for line in head.split(b"\n")[:-1] if line.strip() and not line.startswith(b"#")][:400]
    return any(_HEADER.match(line) for line in lines if line[:1] != b"\t")


def first_boot_time(head: bytes) -> int | None:
    """The time since boot of the first sample; None where samples have wall time, or there are none."""
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
        self._stacks: dict[tuple[bytes, bool], int] = {}
        self._frames: dict[bytes, Frame | None] = {}
        self._event: bytes | None = None
        self._rates: dict[bytes, int] = {}
        self._rate_hz = 0
        self._others: Counter[str] = Counter()
        self._has_cpu = self._has_tgid = True
        self._wall_days: dict[bytes, int] = {}

    def read(self, file: IO[bytes]) -> None:
        """Raises Unreadable where nothing can be imported."""
        rest = b""
        at = 0
        for offset, chunk in chunks(file):
            text = rest + chunk
            at = offset - len(rest)
            # Samples end with an empty line, where they have stacks.
            cut = text.rfind(b"\n\n") + 2
            if cut < 2:
                cut = text.rfind(b"\n") + 1 if b"\n\t" not in text else 0
            rest = text[cut:]
            if len(rest) > 64 << 20:
                raise Unreadable("a sample of more than 64 MB", at + cut)
            self._take(text[:cut], at)
            at += cut
        self._take(rest, at)
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

    def _take(self, text: bytes, offset: int) -> None:
        rows: list[tuple[Any, ...]] = []
        header = _HEADER.match
        at = 0
        for sample in text.split(b"\n\n"):
            begin, at = at, at + len(sample) + 2
            sample = sample.lstrip(b"\n")  # noqa: PLW2901
            head, _, stack = sample.partition(b"\n")
            if head.startswith(b"#"):
                head, stack = self._comments(sample)
            if not head:
                continue
            match = header(head)
            if match is None or (stack and stack[:1] != b"\t" and not _is_frame(stack)):
                self._odd(sample, offset + begin, rows)
                continue
            rows.append((match, stack if stack else match["rest"] or b""))
        if rows:
            self._hand_over(rows)

    def _comments(self, sample: bytes) -> tuple[bytes, bytes]:
        """What is behind the lines of a header, which say where the samples come from."""
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

    def _odd(self, sample: bytes, offset: int, rows: list[tuple[Any, ...]]) -> None:
        """Lines that are not one sample with its stack: many samples without stacks, or what makes no sense."""
        current: re.Match[bytes] | None = None
        frames: list[bytes] = []
        unknown = 0
        for line in sample.split(b"\n"):
            match = None if line[:1] == b"\t" else _HEADER.match(line)
            if match is not None:
                if current is not None:
                    rows.append((current, b"\n".join(frames) or current["rest"] or b""))
                current, frames = match, []
            elif line[:1].isspace() and current is not None:
                frames.append(line)
            elif line.strip() and not line.startswith((b"#", b"PERF_RECORD")):
                unknown += 1
        if current is not None:
            rows.append((current, b"\n".join(frames) or current["rest"] or b""))
        if unknown:
            self._left_out.add("lines that are not perf script's", offset, unknown)

    def _hand_over(self, rows: list[tuple[Any, ...]]) -> None:
        if self._event is None:
            self._event = self._chosen([match["event"] or b"" for match, _ in rows], self._wanted)
        time, cpu, pid, tid, comm, stack, period = (list[int]() for _ in range(7))
        stacks, comms = self._stacks, self._comm_places
        event = self._event
        for match, text in rows:
            name, number, thread, core, seconds, fraction, tod, weight, kind, _ = match.groups()
            if (kind or b"") != event:
                self._others[(kind or b"").decode("utf-8", "replace")] += 1
                continue
            if seconds is not None:
                time.append(int(seconds) * NANOS + int(fraction) * (1 if len(fraction) == 9 else 1000))
            else:
                time.append(self._of_day(tod))
            cpu.append(-1 if core is None else int(core))
            number = -1 if number is None else int(number)
            pid.append(number)
            tid.append(number if thread is None else int(thread))
            self._has_tgid &= thread is not None
            place = comms.get(name)
            if place is None:
                place = self._comm_place(name)
            comm.append(place)
            key = (text, number == 0)
            place = stacks.get(key)
            if place is None:
                place = self._stack_place(key)
            stack.append(place)
            period.append(0 if weight is None else int(weight))
        if not time:
            return
        if len(stacks) > _HELD_TEXTS:
            stacks.clear()
            self._frames.clear()
        is_boot = rows[0][0]["s"] is not None
        if is_boot and self._offset is None:
            raise NoWallTime("does not say when it was recorded; give the time of its first sample with --start")
        times = np.array(time, np.int64) + (self._offset if is_boot and self._offset is not None else 0)
        cores = np.array(cpu, np.int64)
        self._has_cpu &= bool((cores >= 0).all())
        cores = np.clip(cores, 0, 65_535)
        numbers = [np.clip(np.array(each, np.int64), -(2**31), 2**31 - 1) for each in (pid, tid)]
        weights = self._weights(times, cores, np.array(period, np.float64))
        columns = (*numbers, np.array(comm, np.int64), np.array(stack, np.int64), weights)
        self._spool.add_samples(SampleBatch(times, cores, *columns), self.book, self.comms)

    def _weights(self, time: I64Array, cpu: I64Array, period: npt.NDArray[np.float64]) -> I64Array:
        """The CPU time that each sample stands for, in microseconds."""
        event = (self._event or b"").split(b":")[0]
        if event in _CLOCKS and (period > 0).all():
            self._rate_hz = self._rate_hz or round(1e9 / float(np.median(period)))
            return np.clip(period / 1000, 0, 2**32 - 1).astype(np.int64)
        if not self._rate_hz:
            self._rate_hz = self._rates.get(event, 0)
        if not self._rate_hz:
            # The pause between two samples of a busy core.
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
        """Wall time of a date and time, which perf prints in the zone that it runs in."""
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

    def _stack_place(self, key: tuple[bytes, bool]) -> int:
        text, idle_task = key
        known = self._frames
        chain: list[Frame] = []
        for line in text.split(b"\n"):
            frame = known[line] if line in known else self._frame(line)
            if frame is not None:
                chain.append(frame)
        place = self._stacks[key] = self.book.add(chain, idle_task=idle_task)
        return place

    def _frame(self, line: bytes) -> Frame | None:
        """The frame of a line; None for one that has none, such as the place in the source of the line before."""
        if len(self._frames) > _HELD_TEXTS:
            self._frames.clear()
        frame = self._parsed(line)
        self._frames[line] = frame
        return frame

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
    """Whether the first of some lines is one of a stack, rather than another sample: both may begin with blanks."""
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
    """A module of the kernel as the recorder names it."""
    name = file.rsplit(b"/", 1)[-1]
    if b".ko" in name:
        return f"[{readable(name.split(b'.ko')[0])}]"
    if name.startswith(b"[") and not name.startswith((b"[kernel", b"[guest")):
        return readable(name)
    return KERNEL_MODULE


def read_script(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read the text of perf script into a spool. Raises Unreadable."""
    with file.open_unpacked() as content:
        ScriptReader(intake, options).read(content)
