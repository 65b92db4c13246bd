"""Files whose symbols were not read: what is reported of them, bounded in rows and by owner."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from exhume.collect.host import Host
from exhume.collect.perf.symbols.file_budget import DEFERRED, FileRefused
from exhume.collect.perf.symbols.frame import readable

# Rows that name a file, for each tick; the rest is counted by owner.
_MAX_NAMED = 16
_MAX_PATH = 400
# The owner of a process that is gone.
UNKNOWN_OWNER = -1


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row of losses to be: `kind` is the code of the refusal."""

    kind: str
    count: int
    text: str


class RefusalLog:
    """Collects the refusals of a tick."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], Refusal] = {}
        self._counted: Counter[tuple[str, int]] = Counter()

    def note(self, refusal: FileRefused, path: str, pid: int, owner: int) -> None:
        """A file was refused, while it was read for a process of this owner."""
        kind = f"symbols-{refusal.code}"
        if refusal.code == DEFERRED or len(self._named) >= _MAX_NAMED:
            self._counted[kind, owner] += 1
            return
        name = readable(path.encode("utf-8", "surrogateescape"))[:_MAX_PATH]
        text = f"{name}, mapped by process {pid} of {_owner_text(owner)}, has no function names: {refusal.detail}"
        self._named[kind, path] = Refusal(kind, 1, text)

    def take(self) -> list[Refusal]:
        """What was refused since this was last called."""
        if not self._named and not self._counted:
            return []
        rows = list(self._named.values())
        rows.extend(
            Refusal(kind, count, f"{count} files mapped by {_owner_text(owner)} were not read for their function names")
            for (kind, owner), count in self._counted.most_common(_MAX_NAMED)
        )
        self._named.clear()
        self._counted.clear()
        return rows


def _owner_text(owner: int) -> str:
    return "processes that are gone" if owner == UNKNOWN_OWNER else f"uid {owner}"


class Owners:
    """The users of processes, kept for a second: a tick asks about the same few again and again."""

    def __init__(self, host: Host, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._clock = clock
        self._known: dict[int, int] = {}
        self._since = clock()

    def of(self, pid: int) -> int:
        now = self._clock()
        if now - self._since >= 1.0:
            self._known.clear()
            self._since = now
        owner = self._known.get(pid)
        if owner is None:
            owner = self._known[pid] = owner_of(self._host, pid)
        return owner


def owner_of(host: Host, pid: int) -> int:
    """The real user of a process: what it runs as may be another's (setuid), and /proc/PID belongs to root when the
    process is not dumpable."""
    try:
        with open(f"{host.proc}/{pid}/status", "rb") as file:  # noqa: PTH123
            status = file.read()
        return int(status.partition(b"\nUid:")[2].split(None, 1)[0])
    except (OSError, ValueError, IndexError):
        return UNKNOWN_OWNER
