"""Reads of untrusted files on a thread, with a deadline for each and an allowance for each owner.

A dead NFS server or FUSE daemon blocks any thread that touches its files, and parsing takes time that the owner of a
file decides on. The recorder waits for neither longer than the deadline. A thread that does not come back is left
behind, its device is left alone until it does, and no owner gets more of the recorder's time than its allowance: what
is beyond is deferred.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

from exhume.collect.symbols.file_budget import DEFERRED, FAILED, TIMEOUT, UNREADABLE, FileRefused
from exhume.collect.symbols.frame import readable
from exhume.model.process import give_back
from exhume.procfs.host import Host
from exhume.procfs.pid_status import status_values

T = TypeVar("T")

DEADLINE_S = 0.6
# Seconds of CPU: at once, and for each second that passes.
_CPU_BURST_S, _CPU_RATE = 2.0, 0.06
_OWNER_CPU_BURST_S, _OWNER_CPU_RATE = 1.0, 0.03
# Seconds that the recorder waits, in deadlines: a tick takes this much longer at most.
_WAIT_BURST, _WAIT_RATE = 1.5, 0.75
_OWNER_WAIT_BURST, _OWNER_WAIT_RATE = 1.0, 0.3
# Less is not worth beginning with: what takes longer would never be done.
_SHORTEST_WAIT = 0.25
_MAX_STUCK = 16
_MAX_STUCK_OF_OWNER = 2
_MAX_OWNERS = 256


class _Bucket:
    """A token bucket in seconds. It may be overdrawn by the last that is taken."""

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self._burst, self._rate = burst, rate
        self._level, self._at = burst, now

    def level(self, now: float) -> float:
        self._level = min(self._burst, self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level

    def take(self, seconds: float) -> None:
        self._level -= seconds


class _Share:
    """The CPU time and the waiting time that one owner, or all of them, may still cause."""

    __slots__ = ("cpu", "wait")

    def __init__(self, cpu: _Bucket, wait: _Bucket) -> None:
        self.cpu, self.wait = cpu, wait


class _Task(Generic[T]):
    """A job, and what became of it."""

    __slots__ = ("cpu_s", "done", "error", "job", "owner", "result")

    def __init__(self, job: Callable[[], T], owner: int) -> None:
        self.job = job
        self.owner = owner
        self.done = threading.Event()
        self.result: list[T] = []
        self.error: FileRefused | None = None
        self.cpu_s = 0.0

    def run(self) -> None:
        """Raises what no file should cause; the thread ends by it, and prints it."""
        began = time.thread_time()
        try:
            self.result.append(self.job())
        except FileRefused as refusal:
            # Without its traceback, which would keep what was read of the file.
            self.error = FileRefused(refusal.code, refusal.detail)
        except OSError as error:
            self.error = FileRefused(UNREADABLE, error.strerror or str(error))
        finally:
            self.cpu_s = time.thread_time() - began
            self.done.set()


class FileWorker:
    """Runs jobs that touch files of watched processes."""

    def __init__(self, deadline_s: float = DEADLINE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._deadline_s = deadline_s
        self._clock = clock
        self._tasks: SimpleQueue[_Task[object] | None] | None = None
        self._stuck: dict[Hashable, _Task[object]] = {}
        now = clock()
        self._all = _Share(
            _Bucket(_CPU_BURST_S, _CPU_RATE, now),
            _Bucket(_WAIT_BURST * deadline_s, _WAIT_RATE * deadline_s, now),
        )
        self._owners: dict[int, _Share] = {}

    def affords(self, owner: int) -> bool:
        """Whether a job for this owner would be run now."""
        return self._wait_left(owner) > 0

    def run(self, device: Hashable, owner: int, job: Callable[[], T]) -> T:
        """What the job returns. Raises FileRefused when it does, when it can't read, when its device does not answer
        or when its owner had its share.

        `device` is what stops answering as a whole: a network filesystem, or one file of a disk.
        """
        self._forget_returned()
        stuck_of_owner = sum(task.owner == owner for task in self._stuck.values())
        if device in self._stuck or stuck_of_owner >= _MAX_STUCK_OF_OWNER or len(self._stuck) >= _MAX_STUCK:
            raise FileRefused(TIMEOUT, "an earlier read has not returned")
        wait = self._wait_left(owner)
        if wait <= 0:
            raise FileRefused(DEFERRED)
        task = _Task(job, owner)
        if self._tasks is None:
            self._tasks = _start_thread()
        began = self._clock()
        self._tasks.put(task)  # type: ignore[arg-type]
        task.done.wait(wait)
        self._charge(owner, task.cpu_s, self._clock() - began)
        if not task.done.is_set():
            # The thread ends when it comes back; the next job gets another.
            self._stuck[device] = task  # type: ignore[assignment]
            self._tasks.put(None)
            self._tasks = None
            raise FileRefused(TIMEOUT, f"no answer within {wait:.1f} s")
        if task.error is not None:
            raise task.error
        if not task.result:
            self._tasks = None
            raise FileRefused(FAILED, "the reader failed")
        return task.result[0]

    def _forget_returned(self) -> None:
        returned = [device for device, task in self._stuck.items() if task.done.is_set()]
        for device in returned:
            del self._stuck[device]
        if returned:
            give_back()

    def _share(self, owner: int) -> _Share:
        share = self._owners.get(owner)
        if share is None:
            if len(self._owners) >= _MAX_OWNERS:
                self._owners.pop(next(iter(self._owners)))
            now, deadline = self._clock(), self._deadline_s
            share = self._owners[owner] = _Share(
                _Bucket(_OWNER_CPU_BURST_S, _OWNER_CPU_RATE, now),
                _Bucket(_OWNER_WAIT_BURST * deadline, _OWNER_WAIT_RATE * deadline, now),
            )
        return share

    def _wait_left(self, owner: int) -> float:
        """How long may be waited for a job of this owner; 0 when it had its share."""
        now = self._clock()
        shares = (self._all, self._share(owner))
        wait = min(self._deadline_s, *(share.wait.level(now) for share in shares))
        if wait < _SHORTEST_WAIT * self._deadline_s or any(share.cpu.level(now) <= 0 for share in shares):
            return 0.0
        return wait

    def _charge(self, owner: int, cpu_s: float, waited_s: float) -> None:
        for share in (self._all, self._share(owner)):
            share.cpu.take(cpu_s)
            share.wait.take(waited_s)


def _start_thread() -> "SimpleQueue[_Task[object] | None]":
    tasks: SimpleQueue[_Task[object] | None] = SimpleQueue()

    def work() -> None:
        while (task := tasks.get()) is not None:
            task.run()
            del task  # or its file and result would be kept until the next one

    # A daemon, so that a thread that never returns doesn't keep the recorder from ending.
    threading.Thread(target=work, name="symbol-files", daemon=True).start()
    return tasks


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
            return next(iter(status_values(file.read(), b"Uid")), UNKNOWN_OWNER)
    except OSError:
        return UNKNOWN_OWNER
