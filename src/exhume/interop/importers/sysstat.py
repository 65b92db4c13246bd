"""Import core metrics of sysstat: mpstat -P ALL as text or JSON, sadf -j -- -P ALL, and sadc files by running sadf.

mpstat.c, write_json_cpu_stats and write_plain_cpu_stats; sadf_misc.c, print_json_timestamp. A timestamp marks the end
of its interval.
"""

import io
import json
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from exhume.interop.importers.files import InputFile, chunks
from exhume.interop.importers.form import LeftOutLog, ReadOptions, Unreadable
from exhume.interop.importers.spool import Intake, Spool
from exhume.model.clock import MILLIS, NANOS

SADC_MAGIC = b"\x96\xd5"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_CORES = 65_535
_SADF_S = 600
# Names in sadf's short form, its long form, and mpstat's JSON; the %-names of text output come last.
_STATES = {
    **{"usr": "user", "user": "user", "nice": "nice", "sys": "system", "system": "system", "iowait": "iowait"},
    **{"irq": "irq", "soft": "softirq", "steal": "steal", "guest": "guest", "gnice": "guest", "idle": "idle"},
}
_COLUMNS = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest", "idle")
_BANNER = re.compile(r"Linux (\S+) \((.*?)\)\s+(\S+)\s+_(\S+)_\s+\((\d+) CPU\)")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d):(\d\d)(?:\s*([AP]M))?")
_TEXT_ROW = re.compile(r"(\d{1,2}:\d\d:\d\d(?: [AP]M)?)\s+(all|CPU|\d+)\s+(.*)")
_JSON_TIME = re.compile(r'"timestamp":\s*(?:"([^"]*)"|\{([^}]*)\})')
_JSON_CORE = re.compile(r'\{"cpu":\s*"(\d+)",([^}]*)\}')
_JSON_VALUE = re.compile(r'"([a-z]+)":\s*(\d+(?:\.\d+)?)')
_JSON_TEXT = re.compile(r'"(nodename|release|machine|date|file-date|timezone)":\s*"([^"]*)"')
_JSON_CPUS = re.compile(r'"number-of-cpus":\s*(\d+)')


class Moment(NamedTuple):
    """The metrics of all cores over an interval: its end, its length if given, and rows of core and shares in
    percent."""

    end: int
    span_ns: int | None
    rows: list[tuple[int, dict[str, float]]]


def looks_like_mpstat(head: str) -> bool:
    return _BANNER.match(head.lstrip()) is not None and re.search(r"\bCPU +%usr|\bCPU +%user", head) is not None


def looks_like_json(head: str) -> bool:
    return '"sysstat"' in head[:300] and '"hosts"' in head[:600]


class _Dates:
    """Wall times of moments with only a time of day: each is later than the one before."""

    def __init__(self, zone: tzinfo | None) -> None:
        self.day: date | None = None
        self.zone = zone
        self._last = -1

    def set_day(self, text: str) -> None:
        """Set the day. Raises ValueError if the text is not a date."""
        if match := re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", text):
            self.day = date(*map(int, match.groups()))
        elif match := re.fullmatch(r"(\d\d)/(\d\d)/(\d\d|\d{4})", text):
            month, day, year = map(int, match.groups())
            self.day = date(year + 2000 if year < 100 else year, month, day)
        elif match := re.fullmatch(r"(\d\d)\.(\d\d)\.(\d\d|\d{4})", text):
            day, month, year = map(int, match.groups())
            self.day = date(year + 2000 if year < 100 else year, month, day)
        else:
            raise ValueError(f"{text!r} is not a date")

    def wall(self, text: str) -> int:
        match = _CLOCK.fullmatch(text.strip())
        if match is None or self.day is None:
            raise ValueError(f"{text!r} is not a time of day, or no date is known")
        hour, minute, second = (int(part) for part in match.groups()[:3])
        if match[4]:
            hour = hour % 12 + (12 if match[4] == "PM" else 0)
        moment = datetime(self.day.year, self.day.month, self.day.day, hour, minute, min(second, 59))
        seconds = hour * 3600 + minute * 60 + second
        if seconds < self._last - 3600:
            self.day += timedelta(days=1)
            moment += timedelta(days=1)
        self._last = seconds
        return wall_of(moment, self.zone)


def wall_of(moment: datetime, zone: tzinfo | None) -> int:
    """Wall nanoseconds of a local time; None means this machine's time zone."""
    aware = moment.replace(tzinfo=zone) if zone is not None else moment.astimezone()
    return (aware - _EPOCH) // timedelta(seconds=1) * NANOS


def read_text(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read the default text output of mpstat. Raises Unreadable."""
    _put(intake.spool, _text_moments(file, intake, _Dates(options.zone)))


def _text_moments(file: InputFile, intake: Intake, dates: _Dates) -> Iterator[Moment]:
    names: list[str] = []
    now, rows = "", list[tuple[int, dict[str, float]]]()
    with file.open_unpacked() as content:
        for offset, chunk in chunks(content):
            for line in chunk.decode("utf-8", "replace").split("\n"):
                if banner := _BANNER.match(line):
                    intake.summary.origin.kernel, intake.summary.origin.node, _, intake.summary.origin.arch, cores = (
                        banner.groups()
                    )
                    intake.summary.origin.cores = min(int(cores), _MOST_CORES)
                    try:
                        dates.set_day(banner[3])
                    except ValueError as error:
                        raise Unreadable(f"{error}; run mpstat with S_TIME_FORMAT=ISO", offset) from error
                    continue
                row = _TEXT_ROW.match(line)
                if row is None:
                    if line.strip() and not line.startswith("Average"):
                        intake.left_out.add("a line that is not mpstat's", offset)
                    continue
                time, core, rest = row.groups()
                if core == "CPU":
                    names = [name.removeprefix("%") for name in rest.split()]
                    continue
                if time != now or (rows and core.isdigit() and int(core) <= rows[-1][0]):
                    if rows:
                        yield _moment(dates, now, rows, intake.left_out, offset)
                    now, rows = time, []
                if core == "all":
                    continue
                try:
                    values = dict(zip(names, map(float, rest.replace(",", ".").split()), strict=True))
                except ValueError:
                    intake.left_out.add("a row of mpstat that is cut off", offset)
                    continue
                if not all(map(math.isfinite, values.values())):
                    intake.left_out.add("a row of mpstat with a share that is not a number", offset)
                    continue
                rows.append((int(core), values))
    if rows:
        yield _moment(dates, now, rows, intake.left_out, 0)


def _moment(
    dates: _Dates, text: str, rows: list[tuple[int, dict[str, float]]], left_out: LeftOutLog, offset: int
) -> Moment:
    try:
        return Moment(dates.wall(text), None, rows)
    except ValueError as error:
        left_out.add(str(error), offset)
        return Moment(0, None, [])


def read_json(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read JSON of mpstat or sadf. Raises Unreadable."""
    _put(intake.spool, _json_moments(file, intake, _Dates(options.zone)))


def _json_moments(file: InputFile, intake: Intake, dates: _Dates) -> Iterator[Moment]:
    """Parse line by line: days of many cores don't fit in memory as objects, and a file may still be growing."""
    end: int | None = None
    span: int | None = None
    rows: list[tuple[int, dict[str, float]]] = []
    with file.open_unpacked() as content:
        for offset, chunk in chunks(_Objects(content)):
            for line in chunk.decode("utf-8", "replace").split("\n"):
                for name, value in _JSON_TEXT.findall(line) if '{"cpu"' not in line else ():
                    _describe(intake, dates, name, value, offset)
                if cpus := _JSON_CPUS.search(line):
                    intake.summary.origin.cores = min(int(cpus[1]), _MOST_CORES)
                if time := _JSON_TIME.search(line):
                    if end is not None and rows:
                        yield Moment(end, span, rows)
                    rows = []
                    end, span = _json_end(time, dates, intake.left_out, offset)
                for core in _JSON_CORE.finditer(line):
                    values = {name: float(value) for name, value in _JSON_VALUE.findall(core[2])}
                    if int(core[1]) < _MOST_CORES and end is not None:
                        rows.append((int(core[1]), values))
    if end is not None and rows:
        yield Moment(end, span, rows)


class _Objects(io.RawIOBase):
    """A file view in which every JSON object begins a line, so that a file without line breaks can be read in
    chunks."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        return content.replace(b'{"cpu"', b'\n{"cpu"').replace(b'"timestamp"', b'\n"timestamp"')


def _describe(intake: Intake, dates: _Dates, name: str, value: str, offset: int) -> None:
    if name == "nodename":
        intake.summary.origin.node = value
    elif name == "release":
        intake.summary.origin.kernel = value
    elif name == "machine":
        intake.summary.origin.arch = value
    elif name in ("date", "file-date") and dates.day is None:
        try:
            dates.set_day(value)
        except ValueError as error:
            intake.left_out.add(f"{error}; run mpstat with S_TIME_FORMAT=ISO", offset)


def _json_end(time: "re.Match[str]", dates: _Dates, left_out: LeftOutLog, offset: int) -> tuple[int | None, int | None]:
    try:
        if time[1] is not None:
            return dates.wall(time[1]), None
        fields = json.loads("{" + time[2] + "}")
        moment = datetime.fromisoformat(f"{fields['date']}T{fields['time']}")
        zone = UTC if fields.get("utc") else dates.zone
        interval = int(fields.get("interval", 0))
        return wall_of(moment, zone), interval * NANOS if 0 < interval < 86_400 else None
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        left_out.add(f"a timestamp that makes no sense: {error}", offset)
        return None, None


def read_sadc(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read a binary file of sadc by running sadf. Raises Unreadable if no sadf can read it."""
    sadf = shutil.which("sadf")
    if sadf is None:
        raise Unreadable("a binary file of sysstat; install sysstat, or convert it there with sadf -j FILE -- -P ALL")
    with tempfile.NamedTemporaryFile(suffix=".json") as shown:
        command = [sadf, "-j", str(file.path), "--", "-u", "ALL", "-P", "ALL"]
        try:
            ended = subprocess.run(
                command, stdout=shown, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=_SADF_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise Unreadable(f"sadf took more than {_SADF_S} s") from error
        if ended.returncode:
            message = ended.stderr.decode("utf-8", "replace").strip().split("\n")[0]
            raise Unreadable(f"sadf can't read it: {message or ended.returncode}")
        read_json(InputFile(Path(shown.name), file.name), intake, options)


# Number of rows per batch.
_ROWS = 50_000


def _put(spool: Spool, moments: Iterator[Moment]) -> None:
    """Add rows to the table cpu. An interval without a length begins at the end of the one before; the first is as long
    as the second."""
    parts: list[dict[str, npt.NDArray[np.int64]]] = []
    first: Moment | None = None
    last: int | None = None
    for moment in moments:
        if not moment.rows:
            continue
        span = moment.span_ns or 0
        if not span and last is not None and 0 < moment.end - last < 3600 * NANOS:
            span = moment.end - last
        if span and first is not None:
            parts.append(_columns(first, span))
            first = None
        if span:
            parts.append(_columns(moment, span))
        elif last is None:
            first = moment
        last = moment.end
        if sum(len(part["time"]) for part in parts[-1:]) * len(parts) > _ROWS:
            _hand_over(spool, parts)
    if first is not None:
        parts.append(_columns(first, NANOS))
    _hand_over(spool, parts)


def _hand_over(spool: Spool, parts: list[dict[str, npt.NDArray[np.int64]]]) -> None:
    if parts:
        spool.add_cores({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        parts.clear()


def _columns(moment: Moment, span: int) -> dict[str, npt.NDArray[np.int64]]:
    cores = np.array([core for core, _ in moment.rows], np.int64)
    shares = {name: np.zeros(len(cores)) for name in _COLUMNS}
    for place, (_, values) in enumerate(moment.rows):
        for name, value in values.items():
            state = _STATES.get(name)
            if state is not None:
                shares[state][place] += value
    permille = {name: np.clip(np.round(values * 10), 0, 1000).astype(np.int64) for name, values in shares.items()}
    return {
        "time": np.full(len(cores), moment.end - span, np.int64),
        "cpu": cores,
        "span_ms": np.full(len(cores), span // MILLIS, np.int64),
        **permille,
    }
