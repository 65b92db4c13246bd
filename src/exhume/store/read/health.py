"""The recorder's state in a small file of fixed size, and the verdict on it. Standard library only: probes read it
every few seconds, and loading Arrow alone would take ten times as long as loading everything here.

`D/live/health.json` is rewritten in place with each tick: a line of JSON, a line with its CRC-32, and padding with
blanks. A reader that gets a half-written file retries.
"""

import json
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from exhume.model.clock import NANOS
from exhume.model.facts import MissingSource
from exhume.model.ownership import trusted_users
from exhume.store.format.names import HEALTH_NAME, LIVE_DIRECTORY

HEALTH_VERSION = 1
# The file's size. Its blocks are allocated from the first tick on, so that it can be written even on a full disk.
HEALTH_BYTES = 16 << 10
# How long a loss affects the verdict.
LOSSES_NS = 300 * NANOS
# A tick takes a second; on a starved node even the recorder may be a few seconds late.
MAX_AGE_NS = 5 * NANOS
# Kinds of losses that report a change in the recorder but lose nothing.
HARMLESS_LOSSES = frozenset(("rate-raised", "memory-released"))
_TRIES, _PAUSE_S = 5, 0.004
_LONGEST_TEXT = 240
_JSON = json.JSONEncoder(separators=(",", ":"))


class UnreadableHealth(ValueError):
    """The file's content was not written by a recorder."""


@dataclass(frozen=True, slots=True)
class RecorderHealth:
    """A recorder's state after its last tick. Times are in nanoseconds: `began` and `tick` of CLOCK_MONOTONIC, `wall`
    the wall time of `tick`. `cpu` is its share of one core over the last minute; `losses` counts those of the last
    `LOSSES_NS` by kind."""

    pid: int
    boot_id: str
    exhume_version: str
    began: int
    tick: int
    wall: int
    rate_hz: int
    requested_rate_hz: int
    cpu: float
    rss_bytes: int
    losses: Mapping[str, int] = field(default_factory=dict)
    sources_missing: Sequence[MissingSource] = ()

    def encode(self) -> bytes:
        """Serialise to the file's content, which always has the same size."""
        known = {name: getattr(self, name) for name in _KNOWN} | {"losses": dict(self.losses)}
        head = _JSON.encode({"version": HEALTH_VERSION, **known})[:-1]
        missing = list(_missing_texts(tuple(self.sources_missing)))
        line = _line(head, missing)
        while len(line) > HEALTH_BYTES - 16 and missing:
            missing.pop()
            line = _line(head, missing)
        return line.ljust(HEALTH_BYTES)

    @classmethod
    def decode(cls, content: bytes) -> "RecorderHealth":
        """Parse the file's content. Raises UnreadableHealth."""
        try:
            line, checksum, _ = content[:HEALTH_BYTES].split(b"\n", 2)
            if int(checksum, 16) != zlib.crc32(line):
                raise UnreadableHealth("its checksum is wrong")
            known = json.loads(line)
            if known.pop("version") != HEALTH_VERSION:
                raise UnreadableHealth("it has another version")
            missing = [MissingSource.from_stored(each) for each in known.pop("sources_missing")]
            losses = {str(kind): int(count) for kind, count in known.pop("losses").items()}
            values: dict[str, Any] = {name: str(known.pop(name)) for name in ("boot_id", "exhume_version")}
            values["cpu"] = float(known.pop("cpu"))
            values.update((name, int(value)) for name, value in known.items())
            return cls(**values, losses=losses, sources_missing=missing)
        except UnreadableHealth:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise UnreadableHealth("it is damaged") from error


_KNOWN = tuple(each.name for each in fields(RecorderHealth) if each.name not in ("losses", "sources_missing"))


@lru_cache(maxsize=4)
def _missing_texts(missing: tuple[MissingSource, ...]) -> tuple[str, ...]:
    """Each source as JSON. Cached: they stay the same from tick to tick."""
    cut = ({name: text[:_LONGEST_TEXT] for name, text in asdict(each).items()} for each in missing)
    return tuple(_JSON.encode(entry) for entry in cut)


def _line(head: str, missing: Sequence[str]) -> bytes:
    line = f'{head},"sources_missing":[{",".join(missing)}]}}'.encode()
    return line + b"\n%08x\n" % zlib.crc32(line)


def read_health(directory: Path) -> RecorderHealth | None:
    """Read what a directory's last recorder wrote; None if there is no file. Raises UnreadableHealth and OSError."""
    path = directory / LIVE_DIRECTORY / HEALTH_NAME
    for attempt in range(_TRIES):
        try:
            return RecorderHealth.decode(_content(path))
        except FileNotFoundError:
            return None
        except UnreadableHealth:
            # The recorder may be in the middle of writing it.
            if attempt == _TRIES - 1:
                raise
            time.sleep(_PAUSE_S)
    return None


def _content(path: Path) -> bytes:
    """At most HEALTH_BYTES of the file; symlinks are not followed and a FIFO does not block."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(fd, HEALTH_BYTES)
    finally:
        os.close(fd)


class State(Enum):
    """The result of a probe; the order is that of the exit codes."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The verdict on a recording. `age_ns` is the time since the last tick; None if it can't be known: there was no
    tick yet, or it was in an earlier boot. `problems` are codes: late, no-tick, losses."""

    state: State
    recording: bool
    health: RecorderHealth | None
    age_ns: int | None
    losses: Mapping[str, int]
    problems: tuple[str, ...]


def judge(
    health: RecorderHealth | None,
    *,
    recording: bool,
    recorder: int | None,
    boot_id: str,
    now: int,
    max_age_ns: int = MAX_AGE_NS,
    allow_losses: bool = False,
) -> HealthReport:
    """The verdict at the monotonic time `now`. `recorder` is the pid of the process that holds the directory, None if
    it can't be read. A recorder removes an earlier recorder's file before its first tick; a file that it failed to
    remove says nothing about it."""
    if health is not None and recording and (recorder not in (None, health.pid) or health.tick > now):
        health = None
    # Not by the boot id alone: a container's /proc may show a different one from the recorder's.
    comparable = health is not None and (recording or health.boot_id == boot_id)
    age = max(0, now - health.tick) if health is not None and comparable else None
    losses = health.losses if health is not None and comparable else {}
    if not recording:
        return HealthReport(State.STOPPED, False, health, age, losses, ())
    problems = []
    if age is None:
        problems.append("no-tick")
    elif age > max_age_ns:
        problems.append("late")
    if not allow_losses and losses.keys() - HARMLESS_LOSSES:
        problems.append("losses")
    state = State.DEGRADED if problems else State.HEALTHY
    return HealthReport(state, True, health, age, losses, tuple(problems))


def recorder_pid(lock: Path) -> int | None:
    """The pid in a lock file; None if it can't be read or holds none."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(fd, 32).strip() if os.fstat(fd).st_uid in trusted_users() else b""
    finally:
        os.close(fd)
    return int(text) if text.isdigit() else None
