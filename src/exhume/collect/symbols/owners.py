"""The owner of a process: its user and its cgroup. The recorder's time and memory are shared out by owner, and what
exceeds a share is counted by owner, so a loss names its cause."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from exhume.collect.containers.identity import identify
from exhume.collect.processes import cgroup_path, read_start
from exhume.collect.symbols.parser.open_file import DEFERRED, FileRefused, readable
from exhume.procfs.host import Host
from exhume.procfs.pid_status import status_values

# Rows that name a file or an owner, per tick and kind; the rest is only counted.
_MAX_NAMED = 16
_MAX_PATH = 400
_MAX_KNOWN = 4096
_KNOWN_S = 5.0


class Owner(NamedTuple):
    """The real user of a process, and the cgroup that it is charged to."""

    uid: int
    cgroup: str

    def __str__(self) -> str:
        if self == UNKNOWN_OWNER:
            return "processes that are gone"
        return f"uid {self.uid} in cgroup {readable(self.cgroup.encode())[:_MAX_PATH]}"


UNKNOWN_OWNER = Owner(-1, "")


def accounted_cgroup(path: str) -> str:
    """The container, service or scope that a cgroup belongs to. Cgroups below it are created by its own processes: if
    each had a share, they could take any number of shares."""
    parts = path.split("/")
    for end in range(2, len(parts)):
        above = "/".join(parts[:end])
        identity = identify(above)
        if parts[end - 1].endswith((".service", ".scope")) or (identity is not None and identity.container):
            return above
    return path


def owner_of(host: Host, pid: int) -> Owner:
    """The real user: the effective user may differ (setuid), and /proc/PID belongs to root when the process is not
    dumpable."""
    uids = status_values(read_start(f"{host.proc}/{pid}/status") or b"", b"Uid")
    groups = read_start(f"{host.proc}/{pid}/cgroup")
    return Owner(uids[0], _cgroup(groups) if groups else "/") if uids else UNKNOWN_OWNER


@lru_cache(maxsize=1024)
def _cgroup(groups: bytes) -> str:
    return accounted_cgroup(cgroup_path(groups) or "/")


def fair_level(counts: Iterable[int], most: int) -> int:
    """The most that each of several owners may have so that all together stay within `most`; owners below that keep all
    (max-min fairness)."""
    ordered = sorted(counts)
    for place, count in enumerate(ordered):
        share = most // (len(ordered) - place)
        if count > share:
            return share
        most -= count
    return ordered[-1] if ordered else 0


class Owners:
    """The owners of processes, cached for some seconds: ticks ask about the same few again and again."""

    def __init__(self, host: Host, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._clock = clock
        self._known: dict[int, Owner] = {}
        self._since = clock()

    def of(self, pid: int, lineage: tuple[int, ...] = ()) -> Owner:
        """The owner of a process, or of its nearest living ancestor."""
        now = self._clock()
        if now - self._since >= _KNOWN_S or len(self._known) > _MAX_KNOWN:
            self._known.clear()
            self._since = now
        for each in (pid, *lineage):
            owner = self._known.get(each)
            if owner is None:
                owner = self._known[each] = owner_of(self._host, each)
            if owner != UNKNOWN_OWNER:
                return owner
        return UNKNOWN_OWNER


@dataclass(frozen=True, slots=True)
class Refusal:
    """A future row of the losses table."""

    kind: str
    count: int
    text: str


class RefusalLog:
    """Collects what was refused in a tick: files, and whatever exceeds the share of an owner."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], Refusal] = {}
        self._counted: Counter[tuple[str, Owner, str]] = Counter()
        self._facts: set[str] = set()

    def note(self, refusal: FileRefused, path: str, pid: int, owner: Owner) -> None:
        """Record that a file was refused while it was read for a process of this owner."""
        kind = f"symbols-{refusal.code}"
        if refusal.code == DEFERRED or len(self._named) >= _MAX_NAMED:
            self.count(kind, owner, 1, "files mapped by {} were not read for their function names")
            return
        name = readable(path.encode("utf-8", "surrogateescape"))[:_MAX_PATH]
        detail = readable(refusal.detail.encode("utf-8", "replace"))
        text = f"{name}, mapped by process {pid} of {owner}, has no function names: {detail}"
        self._named[kind, path] = Refusal(kind, 1, text)

    def count(self, kind: str, owner: Owner, count: int, text: str) -> None:
        """Count something that exceeds the share of an owner; the text has {} for the owner."""
        self._counted[kind, owner, text] += count

    def fact(self, kind: str, text: str) -> None:
        """Record a fact about the recorder, reported once."""
        if kind not in self._facts:
            self._facts.add(kind)
            self._named[kind, ""] = Refusal(kind, 1, text)

    def take(self) -> list[Refusal]:
        """What was refused since the last call."""
        if not self._named and not self._counted:
            return []
        rows = list(self._named.values())
        rows.extend(
            Refusal(kind, count, f"{count} {text.format(owner)}")
            for (kind, owner, text), count in self._counted.most_common(_MAX_NAMED)
        )
        self._named.clear()
        self._counted.clear()
        return rows
