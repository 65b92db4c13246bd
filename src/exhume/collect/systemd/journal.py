"""The history of units from the journal: starts, ends, failures and log lines."""

import json
import os
import selectors
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from exhume.collect.containers.runs import age_pattern
from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.facts import AROUND_START
from exhume.model.audit import Exit, History
from exhume.model.process import usual_priority

_PART = 1 << 16
_MOST_COMPLAINTS = 1 << 12
# The output must be the same everywhere, and no pager may wait for a key.
_ENVIRONMENT = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "", "SYSTEMD_LOG_LEVEL": "err"}
_PROGRAM = "journalctl"
_PATIENCE_S = 20.0
_MOST_BYTES = 48 << 20
_LOG_BYTES, _LOG_LINES = 1 << 20, 5
_HOUR_S = 3600.0
_LAST_EXITS = 10
_LAST_RESTARTS = 2000
# Rates over a shorter time are meaningless.
_LEAST_HOURS = 1 / 60
_LONGEST_LINE = 500

# systemd's message IDs (sd-messages.h).
_STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
_STARTED = "39f53479d3a045ac8e11786248231fbf"
_START_FAILED = "be02cf6855d2428ba40df7e9d022f03d"
_FAILED = "d9b373ed55a64feb8242e02dbe79a49c"
_ENDED_WELL = "7ad2d189f7e94e70a38c781354912448"
_EXITED = "98e322203f7a4ed290d09fe03c09fe15"
_RESTARTS = "5eb03494b6584870a536b337290809b3"
_MESSAGES = (_STARTING, _STARTED, _START_FAILED, _FAILED, _ENDED_WELL, _EXITED, _RESTARTS)
_FIELDS = "MESSAGE_ID,UNIT,JOB_TYPE,JOB_RESULT,UNIT_RESULT,EXIT_CODE,EXIT_STATUS,COMMAND,INVOCATION_ID"
# Results of a job that say nothing about the unit itself.
_NO_START = ("dependency", "canceled", "skipped", "once", "collected")


@dataclass(slots=True)
class Past:
    """The journal's record of one unit; times are wall nanoseconds. `blocked` is when a dependency kept it from
    starting, None if it was started since; `older_end` is the end of a run that began before the journal does;
    `restarted_at` are the restarts that systemd logged as such."""

    exits: list[Exit] = field(default_factory=list)
    lasted_s: list[float] = field(default_factory=list)
    failed_at: list[int] = field(default_factory=list)
    blocked: int | None = None
    running_since: int | None = None
    is_starting: bool = False
    older_end: int | None = None
    last_result: str = ""
    restarted_at: list[int] = field(default_factory=list)
    started_at: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Journal:
    """The past of every unit in the journal, how many hours the journal reaches back, and its blind spots."""

    pasts: dict[str, Past] = field(default_factory=dict)
    hours: float = 0.0
    blind_spots: list[str] = field(default_factory=list)

    def history(self, name: str) -> History | None:
        """The history of a unit; None when nothing is known about the past."""
        if not self.hours:
            return None
        past = self.pasts.get(name, Past())
        # A start by a timer, a path or another unit is not logged as a restart; then all starts after the first count
        # as restarts.
        again = past.restarted_at or past.started_at[1:]
        lasted = list(past.lasted_s)
        if past.older_end is not None:
            # A run that had begun before the journal does lasted at least from there on.
            lasted.append(past.older_end / 1e9 - (time.time() - self.hours * _HOUR_S))
        return History(
            source="journal",
            hours=round(self.hours, 3),
            starts=len(past.started_at),
            failures=len(past.failed_at),
            restarts_per_hour=round(len(past.restarted_at) / max(self.hours, _LEAST_HOURS), 2),
            exits=tuple(reversed(past.exits[-_LAST_EXITS:])),
            age_pattern=age_pattern(past.lasted_s),
            longest_s=round(max(lasted), 1) if lasted else None,
            failing_s=round(time.time() - past.failed_at[0] / 1e9, 1) if past.failed_at else None,
            last_result=past.last_result,
            restarted_at=tuple(again[-_LAST_RESTARTS:]),
        )


def read_journal(root: NodeRoot, hours: float, names: Collection[str] = ()) -> Journal:
    """Read the last `hours`, for all units or only for the named ones."""
    since = time.time() - hours * _HOUR_S
    matches = ["_PID=1", *(f"MESSAGE_ID={each}" for each in _MESSAGES), *(f"UNIT={name}" for name in names)]
    fields = f"--output-fields={_FIELDS}"
    try:
        first = _ask(root, f"--since=@{since:.0f}", "--output-fields=MESSAGE_ID", most_lines=1)
        # Newest first, so that a limit cuts off the oldest.
        output = _ask(root, f"--since=@{since:.0f}", "--reverse", fields, *matches)
    except FileNotFoundError:
        return Journal(blind_spots=["the past of units is not known: journalctl is not installed here"])
    oldest = next((_moment(entry) for entry in _entries(first.lines)), None)
    if oldest is None:
        reason = first.complaint.splitlines()[-1] if first.complaint else "it is empty, or can't be read by this user"
        return Journal(blind_spots=[f"the past of units is not known: the journal has nothing ({reason})"])
    blind_spots = []
    if not output.whole:
        oldest = next((_moment(entry) for entry in _entries(reversed(output.lines))), oldest)
        since_then = time.strftime("%Y-%m-%d %H:%M", time.localtime(oldest / 1e9))
        blind_spots.append(f"there is too much in the journal: the past of units is known since {since_then} only")
    covered = max(0.0, time.time() - oldest / 1e9) / _HOUR_S
    pasts: dict[str, Past] = defaultdict(Past)
    for entry in _entries(reversed(output.lines)):
        if isinstance(entry.get("UNIT"), str):
            _add(pasts[entry["UNIT"]], entry)
    return Journal(dict(pasts), min(hours, covered), blind_spots)


def unit_history(root: NodeRoot, names: Collection[str], hours: float) -> dict[str, History]:
    """The history of these units; units without any known history are left out."""
    journal = read_journal(root, hours, names)
    return {name: past for name in names if (past := journal.history(name)) is not None}


def unit_log(root: NodeRoot, name: str) -> tuple[str, ...]:
    """The last lines that the unit wrote itself; if there are none, the last lines from systemd about it."""
    said_of = (f"UNIT={name}", "_PID=1")
    # Warnings and errors say more than the fact that it was restarted.
    for match in ((f"_SYSTEMD_UNIT={name}",), ("--priority=notice", *said_of), said_of):
        try:
            output = _ask(root, f"--lines={_LOG_LINES}", "--output-fields=MESSAGE", *match, most_bytes=_LOG_BYTES)
        except FileNotFoundError:
            return ()
        messages = tuple(_line(entry.get("MESSAGE")) for entry in _entries(output.lines))
        if messages:
            return messages[-_LOG_LINES:]
    return ()


@dataclass(frozen=True, slots=True)
class _Output:
    """The lines that journalctl printed, whether these are all of them, and its error output."""

    lines: list[bytes]
    whole: bool
    complaint: str


def _ask(root: NodeRoot, *args: str, most_bytes: int = _MOST_BYTES, most_lines: int | None = None) -> _Output:
    """Run journalctl; stop it when its output exceeds these limits. Raises FileNotFoundError when it is not installed.

    The arguments are passed to the program directly, without a shell.
    """
    where = () if root.is_here else (f"--root={root.path}",)
    with subprocess.Popen(
        [_PROGRAM, "--no-pager", "--quiet", "--output=json", *where, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_ENVIRONMENT},
    ) as child:
        usual_priority(child.pid)
        try:
            output, complaint, whole = _listen(child, most_bytes, most_lines)
        finally:
            child.kill()
    *lines, rest = output.split(b"\n")
    if whole and rest:
        lines.append(rest)
    return _Output(lines[:most_lines], whole, complaint.decode(errors="replace").strip())


def _listen(child: subprocess.Popen[bytes], most_bytes: int, most_lines: int | None) -> tuple[bytes, bytes, bool]:
    assert child.stdout is not None
    assert child.stderr is not None
    output, complaints = bytearray(), bytearray()
    deadline = time.monotonic() + _PATIENCE_S
    # Not select(), which does not support descriptors above 1,023.
    with selectors.PollSelector() as streams:
        streams.register(child.stdout, selectors.EVENT_READ, output)
        streams.register(child.stderr, selectors.EVENT_READ, complaints)
        while streams.get_map():
            ready = streams.select(max(0.0, deadline - time.monotonic()))
            for key, _ in ready:
                part = os.read(key.fd, _PART)
                key.data.extend(part)
                if not part:
                    streams.unregister(key.fileobj)
            del complaints[_MOST_COMPLAINTS:]
            enough = most_lines is not None and output.count(b"\n") >= most_lines
            if not ready or len(output) > most_bytes or enough:
                return bytes(output), bytes(complaints), False
    return bytes(output), bytes(complaints), True


def _entries(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and str(entry.get("__REALTIME_TIMESTAMP", "")).isdigit():
            yield entry


def _moment(entry: dict[str, Any]) -> int:
    return int(entry["__REALTIME_TIMESTAMP"]) * 1000


def _line(message: object) -> str:
    """A message may be a string, a list of byte values if it is not UTF-8, several of them, or null if it
    is too long."""
    if isinstance(message, list):
        if all(isinstance(each, int) for each in message):
            message = bytes(message).decode(errors="replace")
        else:
            message = _line(message[0]) if message else ""
    text = message if isinstance(message, str) else ""
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"


def _add(past: Past, entry: dict[str, Any]) -> None:
    kind, moment = entry.get("MESSAGE_ID"), _moment(entry)
    if kind == _STARTING:
        past.running_since, past.is_starting = moment, True
    elif kind == _STARTED:
        # A start that a condition prevented is logged as started too, but has no invocation ID.
        if entry.get("JOB_RESULT", "done") == "done" and entry.get("INVOCATION_ID"):
            past.started_at.append(moment)
            past.blocked = None
            # A oneshot unit is logged as started when it is already over.
            past.running_since = past.running_since if past.is_starting else moment
            past.is_starting = False
    elif kind == _START_FAILED:
        if entry.get("JOB_TYPE") not in ("start", "restart", None):
            return
        if entry.get("JOB_RESULT") == "dependency":
            past.blocked = moment
        elif entry.get("JOB_RESULT") not in _NO_START:
            past.started_at.append(moment)
            past.blocked = None
    elif kind == _FAILED:
        past.failed_at.append(moment)
        past.last_result = str(entry.get("UNIT_RESULT") or "")
        _ended(past, moment)
        past.is_starting = False
    elif kind == _EXITED:
        command = entry.get("COMMAND")
        if command in ("ExecStart", None):
            past.exits.append(_exit(entry, moment))
            _ended(past, moment)
        elif command in AROUND_START:
            end = replace(_exit(entry, moment), command=str(command))
            past.exits += [end] if end.code or end.signal else []
    elif kind == _ENDED_WELL:
        _ended(past, moment)
    elif kind == _RESTARTS:
        past.restarted_at.append(moment)


def _ended(past: Past, moment: int) -> None:
    if past.running_since is None and not past.started_at and not past.lasted_s and past.older_end is None:
        past.older_end = moment
    if past.running_since is not None:
        past.lasted_s.append((moment - past.running_since) / 1e9)
        past.running_since = None


def _exit(entry: dict[str, Any], moment: int) -> Exit:
    status = str(entry.get("EXIT_STATUS", ""))
    number = int(status) if status.isdigit() else None
    if entry.get("EXIT_CODE") == "exited":
        return Exit(moment, code=number)
    names = {each.name.removeprefix("SIG"): each.value for each in signal.Signals}
    return Exit(moment, signal=names.get(status.removeprefix("SIG")) if number is None else number)
