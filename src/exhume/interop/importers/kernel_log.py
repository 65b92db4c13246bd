"""Import kernel logs: dmesg in all of its time formats, journalctl (short, short-iso, json), syslog.

sys-utils/dmesg.c of util-linux (print_record), src/shared/logs-show.c of systemd. Lines are classified by the
recorder's signatures, so that what starves a core is an incident here too.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from exhume.collect.sources.kmsg import LogLine, describe_line, join_halves
from exhume.collect.sources.kmsg_signatures import recognise
from exhume.interop.importers.files import InputFile, chunks
from exhume.interop.importers.form import LeftOutLog, NoWallTime, ReadOptions, Unreadable
from exhume.interop.importers.spool import Intake
from exhume.model.clock import NANOS
from exhume.model.tables import KERNEL_LOG, Events
from exhume.procfs.kmsg import LogRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = {
    name: place + 1
    for place, name in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"))
}
# dmesg: priority, boot time or wall time, delta, caller.
_PREFIX = r"(?:<\d{1,4}>|[a-z]+ *:[a-z]+ *: )?"
_BOOT = re.compile(_PREFIX + r"\[ *(\d{1,10})\.(\d{6})(?: <[ +]*\d+\.\d+>)?\](?:\[ *[TC]\d+\])? ?(.*)", re.DOTALL)
_CTIME = re.compile(
    _PREFIX + r"\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})"
    r"(?: <[ +]*\d+\.\d+>)?\]?(?:\[ *[TC]\d+\])? ?(.*)",
    re.DOTALL,
)
_ISO = re.compile(
    _PREFIX
    + r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?: <[ +]*\d+\.\d+>)? (.*)",
    re.DOTALL,
)
_RELATIVE = re.compile(_PREFIX + r"\[([A-Z][a-z]{2}) ?(\d{1,2}) (\d\d):(\d\d)\] ?(.*)", re.DOTALL)
_DELTA = re.compile(_PREFIX + r"\[(?: *\+|<) *(\d{1,10})\.(\d{6})>?\] ?(.*)", re.DOTALL)
_SHORT = re.compile(
    r"(?:<\d{1,4}>)?([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))? (\S+) (.*)", re.DOTALL
)
# After the time in syslog and journal lines: the host, the program, and often the kernel's own timestamp.
_PROGRAM = re.compile(r"([\w.-]+) ([\w./-]+)(?:\[\d+\])?: (.*)", re.DOTALL)
_OF_PROGRAM = re.compile(r"^\S+ [\w.-]+ (?:kernel|[\w./-]+\[\d+\]): ", re.MULTILINE)
_STAMPED = re.compile(r"\[ *(\d{1,10})\.(\d{6})\] ?(.*)", re.DOTALL)
_NOT_LINES = ("-- ", "# ")


class Line(NamedTuple):
    """A line of the kernel log. At least one of its times is known: `wall` and `boot` are nanoseconds."""

    wall: int | None
    boot: int | None
    text: str
    host: str = ""


def looks_like_log(head: str) -> bool:
    """Whether most of some lines are log lines, and some of them come from the kernel."""
    if head.lstrip().startswith("{"):
        return '"dmesg"' in head[:200] or '"__REALTIME_TIMESTAMP"' in head
    lines = [line for line in head.split("\n")[:-1] if line.strip() and not line.startswith(_NOT_LINES)][:200]
    parsed = [
        line for line in lines if any(form.match(line) for form in (_BOOT, _CTIME, _ISO, _RELATIVE, _DELTA, _SHORT))
    ]
    return bool(lines) and len(parsed) * 2 > len(lines)


class LogParser:
    """Parses the lines of one file that begins with `head`. Its modification time gives the year of times without one;
    `zone` is the zone of times without one. Times may be deltas."""

    def __init__(self, head: str, modified_ns: int, zone: tzinfo | None) -> None:
        self._modified = datetime.fromtimestamp(modified_ns // NANOS, zone or UTC)
        # syslog and the journal have lines of every program; dmesg has no program names.
        self._names_programs = _OF_PROGRAM.search(head) is not None
        self._zone = zone
        self._last: int | None = None

    def parse(self, line: str) -> Line | None:
        """Parse a line of the kernel; None for any other line. Raises ValueError for an impossible time."""
        if match := _BOOT.match(line):
            return Line(None, int(match[1]) * NANOS + int(match[2]) * 1000, match[3])
        if match := _CTIME.match(line):
            month, day, hour, minute, second, year = match.groups()[:6]
            day_of = (int(year), _MONTHS[month], int(day))
            return Line(self._wall(day_of, f"{hour}:{minute}:{second}"), None, match[7])
        if match := _ISO.match(line):
            year, month, day, hour, minute, second, fraction, zone, rest = match.groups()
            clock = f"{hour}:{minute}:{second}"
            wall = self._wall((int(year), int(month), int(day)), clock, fraction, zone)
            return self._from_program(wall, rest) if self._names_programs else Line(wall, None, rest)
        if match := _RELATIVE.match(line):
            wall = self._in_year(match[1], match[2], f"{match[3]}:{match[4]}:00")
            self._last = wall
            return Line(wall, None, match[5])
        if match := _DELTA.match(line):
            if self._last is None:
                return None
            self._last += int(match[1]) * NANOS + int(match[2]) * 1000
            return Line(self._last, None, match[3])
        if match := _SHORT.match(line):
            month, day, hour, minute, second, fraction, host, rest = match.groups()
            wall = self._in_year(month, day, f"{hour}:{minute}:{second}", fraction)
            return self._from_program(wall, f"{host} {rest}")
        return None

    def _from_program(self, wall: int, rest: str) -> Line | None:
        """Parse the rest of a line after its time: a host, a program and the text."""
        program = _PROGRAM.match(rest)
        if program is None or program[2] != "kernel":
            return None
        stamped = _STAMPED.match(program[3])
        if stamped is None:
            return Line(wall, None, program[3], program[1])
        boot = int(stamped[1]) * NANOS + int(stamped[2]) * 1000
        return Line(wall, boot, stamped[3], program[1])

    def _in_year(self, month: str, day: str, clock: str, fraction: str | None = None) -> int:
        """A time without a year: the latest such time before the file was written."""
        year = self._modified.year
        late = int((self._modified - _EPOCH).total_seconds() + 86_400) * NANOS
        wall = self._wall((year, _MONTHS[month], int(day)), clock, fraction)
        return wall if wall <= late else self._wall((year - 1, _MONTHS[month], int(day)), clock, fraction)

    def _wall(self, day: tuple[int, int, int], clock: str, fraction: str | None = None, zone: str | None = None) -> int:
        hour, minute, second = map(int, clock.split(":"))
        moment = datetime(*day, hour, minute, min(second, 59))
        if zone is not None:
            moment = datetime.fromisoformat(f"{moment.isoformat()}{zone}")
        else:
            moment = moment.replace(tzinfo=self._zone) if self._zone is not None else moment.astimezone()
        nanos = int((fraction or "0").ljust(9, "0"))
        return (moment - _EPOCH) // timedelta(seconds=1) * NANOS + nanos


def _json_lines(text: str) -> Iterator[Line | None]:
    """Parse the entries of journalctl -o json, one per line."""
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if entry.get("_TRANSPORT", "kernel") != "kernel":
                continue
            message = entry["MESSAGE"]
            text = bytes(message).decode("utf-8", "replace") if isinstance(message, list) else str(message)
            boot = entry.get("_SOURCE_MONOTONIC_TIMESTAMP")
            wall = int(entry["__REALTIME_TIMESTAMP"]) * 1000
            yield Line(wall, None if boot is None else int(boot) * 1000, text, str(entry.get("_HOSTNAME", "")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # Not JSON, not an object, or without the fields of an entry.
            yield None


_MOST_JSON = 64 << 20


def _dmesg_json(content: bytes) -> Iterator[Line]:
    try:
        for entry in json.loads(content)["dmesg"]:
            yield Line(None, round(float(entry["time"]) * 1e6) * 1000, str(entry["msg"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(f"not the JSON of dmesg: {error}") from error


def _lines(file: InputFile, left_out: LeftOutLog, zone: tzinfo | None) -> Iterator[Line]:
    if file.head.lstrip().startswith(b"{") and b'"__REALTIME_TIMESTAMP"' not in file.head:
        yield from _dmesg_json(file.read_all(_MOST_JSON))
        return
    with file.open_unpacked() as content:
        parser = LogParser(file.head.decode("utf-8", "replace"), file.mtime_ns, zone)
        for offset, chunk in chunks(content):
            text = chunk.decode("utf-8", "replace")
            if file.head.lstrip().startswith(b"{"):
                for line in _json_lines(text):
                    if line is None:
                        left_out.add("not an entry of the journal", offset)
                    else:
                        yield line
                continue
            for raw in text.split("\n"):
                if not raw.strip() or raw.startswith(_NOT_LINES):
                    continue
                try:
                    line = parser.parse(raw)
                except (ValueError, KeyError, OverflowError):
                    left_out.add("a line with an impossible time", offset)
                    continue
                if line is not None:
                    yield line


def first_boot_time(file: InputFile) -> int | None:
    """The time since boot of the first line; None if lines have wall time."""
    for line in _lines_of_head(file):
        return line.boot if line.wall is None else None
    return None


def _lines_of_head(file: InputFile) -> Iterator[Line]:
    if file.head.lstrip().startswith(b"{") and b'"dmesg"' in file.head[:200]:
        time = re.search(rb'"time":\s*(\d{1,10}\.\d{1,9})', file.head)
        if time is not None:
            yield Line(None, round(float(time[1]) * 1e6) * 1000, "")
        return
    head = file.head.decode("utf-8", "replace")
    parser = LogParser(head, file.mtime_ns, UTC)
    for raw in head.split("\n"):
        try:
            line = parser.parse(raw)
        except (ValueError, KeyError, OverflowError):
            continue
        if line is not None:
            yield line


def read_log(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read a log into a spool. Raises Unreadable."""
    rows: list[Events] = []
    before: LogLine | None = None
    offset = options.offset
    for line in _lines(file, intake.left_out, options.zone):
        if line.wall is None and offset is None:
            raise NoWallTime("its lines only have time since boot; give the time of the first one with --start")
        wall = line.wall if line.wall is not None else (line.boot or 0) + (offset or 0)
        intake.summary.origin.node = intake.summary.origin.node or line.host
        record = LogRecord(None, (line.boot if line.boot is not None else wall) // 1000, False, line.text)
        known = recognise(line.text)
        text = line.text
        if before is not None and before.row is not None and (joined := join_halves(before, record, known)):
            text, known = joined
            before.row.update(describe_line(text, known))
            before = LogLine(record._replace(text=text), before.row, known is not None)
            continue
        if before is not None and before.row is not None:
            rows.append(Events(**before.row))
        if len(rows) >= 10_000:
            intake.spool.add_events(rows)
            rows = []
        stamp = None if line.boot is None else line.boot // 1000
        row = {"time": wall, "source": KERNEL_LOG, "kernel_us": stamp, **describe_line(text, known)}
        before = LogLine(record, row, known is not None)
    if before is not None and before.row is not None:
        rows.append(Events(**before.row))
    intake.spool.add_events(rows)
