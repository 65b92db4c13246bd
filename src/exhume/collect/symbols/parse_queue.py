"""Jobs that touch files of watched processes: queued by the tick, run by a thread, the opener and the parser.

The tick never waits for them. A dead NFS server or FUSE daemon blocks the process that opens or reads its files: that
process is abandoned, and the device is left alone until it exits. Owners take turns, and none gets more of the
recorder's time than its share; the excess is deferred.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from exhume.collect.symbols.file_reader import FileReader
from exhume.collect.symbols.opener_process import OpenerProcess, ParserProcess
from exhume.collect.symbols.owners import UNKNOWN_OWNER, Owner, RefusalLog
from exhume.collect.symbols.parser.open_file import DEFERRED, FAILED, TIMEOUT, UNREADABLE, FileRefused
from exhume.collect.symbols.parser.wire import BadReply

T = TypeVar("T")
_log = logging.getLogger(__name__)

# Deadline per file in seconds: to open it, and again for each reply about it.
DEADLINE_S = 3.0
# CPU seconds: the burst, and the refill per second; for all owners together and for each one. Together with the cost of
# the tick both stay below the recorder's budget (8% of a core), even when fully spent. A recorder that just started
# knows no file of the node yet.
_CPU_BURST_S, _CPU_RATE = 1.0, 0.03
_OWNER_CPU_BURST_S, _OWNER_CPU_RATE = 0.5, 0.01
_STARTING_S, _STARTING_CPU_S, _STARTING_OWNER_CPU_S = 30.0, 3.0, 1.0
# After startup, files are read for at most a fifth of the time, so that the rest of a share is not spent at once. The
# longest pause between two files keeps owners from waiting for each other.
_PAUSE, _LONGEST_PAUSE_S = 4.0, 0.5
# Seconds for which an owner may hold up the queue.
_OWNER_WAIT_BURST_S, _OWNER_WAIT_RATE = 4.0, 0.3
_MAX_QUEUED = 1024
_MAX_QUEUED_OF_OWNER = 256
# Abandoned processes: the CPU cost of replacing one, and how many there may be in total and per owner.
_REPLACE_CPU_S = 0.2
_MAX_BLOCKED = 16
_MAX_BLOCKED_BY_OWNER = 2
_MAX_OWNERS = 256
# A parser without work is stopped, since it uses memory. Starting one takes a tenth of a second of CPU time.
_IDLE_S = 60.0
_CLOSE_S = 1.0
# How long the process that was killed last may take to exit.
_END_S = 0.3


class _Bucket:
    """A token bucket in seconds. The last withdrawal may overdraw it, and it may start with more than its burst."""

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, burst: float, rate: float, now: float, first: float | None = None) -> None:
        self._burst, self._rate = burst, rate
        self._level, self._at = burst if first is None else first, now

    def level(self, now: float) -> float:
        if self._level < self._burst:
            self._level = min(self._burst, self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level

    def take(self, seconds: float) -> None:
        self._level -= seconds


class _Task(Generic[T]):
    """A job and its outcome: a result or a refusal."""

    __slots__ = ("device", "done", "job", "owner", "refusal", "result")

    def __init__(
        self, owner: Owner, device: Hashable, job: Callable[[FileReader], T], done: Callable[[T | FileRefused], None]
    ) -> None:
        self.owner, self.device, self.job, self.done = owner, device, job, done
        self.result: list[T] = []
        self.refusal: FileRefused | None = None


class _Blocked:
    """Processes that were killed for not answering and may not exit: the owner they worked for, and the device."""

    __slots__ = ("device", "owner", "processes")

    def __init__(self, owner: Owner, device: Hashable, processes: list[OpenerProcess | ParserProcess]) -> None:
        self.owner, self.device, self.processes = owner, device, processes

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Whether all of them have exited, or do so within some seconds; they are then released."""
        if not all(process.has_ended(seconds) for process in self.processes):
            return False
        self.close()
        return True

    def close(self) -> None:
        for process in self.processes:
            if isinstance(process, OpenerProcess):
                process.reap()
            process.close()


class ParseQueue:
    """Runs jobs one after the other; `poll` delivers the outcomes."""

    def __init__(
        self,
        refusals: RefusalLog | None = None,
        deadline_s: float = DEADLINE_S,
        clock: Callable[[], float] = time.monotonic,
        opener: OpenerProcess | None = None,
    ) -> None:
        self._refusals = refusals or RefusalLog()
        self._deadline_s = deadline_s
        self._clock = clock
        self._changed = threading.Condition()
        self._queued: OrderedDict[Owner, deque[_Task[Any]]] = OrderedDict()
        self._finished: list[_Task[Any]] = []
        self._reader = FileReader(self._refusals, deadline_s, opener)
        self._thread: threading.Thread | None = None
        # The job in progress.
        self._task: _Task[Any] | None = None
        self._closed = False
        self._blocked: list[_Blocked] = []
        self._began = clock()
        self._all = _Bucket(_CPU_BURST_S, _CPU_RATE, self._began, _STARTING_CPU_S)
        # Whether to skip the pauses.
        self._hurry = False
        # The last measured cost of the processes, and whether they have been idle since.
        self._cost, self._rested = (0.0, 0), False
        self._shares: dict[Owner, tuple[_Bucket, _Bucket]] = {}

    def affords(self, owner: Owner) -> bool:
        """Whether the owner has some of its share left."""
        now = self._clock()
        return self._all.level(now) > 0 and all(bucket.level(now) > 0 for bucket in self._share(owner))

    def submit(
        self, owner: Owner, device: Hashable, job: Callable[[FileReader], T], done: Callable[[T | FileRefused], None]
    ) -> None:
        """Queue a job. `poll` calls `done` with the result, or with the reason for a refusal; `done` is called at once
        if the job is not even queued.

        `device` is the unit that stops answering as a whole: a network filesystem, or one file of a disk.
        """
        with self._changed:
            refusal = self._refusal(owner, device)
            if refusal is None:
                self._queued.setdefault(owner, deque()).append(_Task(owner, device, job, done))
                self._rested = False
                if self._thread is None:
                    self._start()
                self._changed.notify_all()
        if refusal is not None:
            done(refusal)

    def _start(self) -> None:
        # A daemon thread, so that nothing it does keeps the recorder from exiting.
        self._thread = threading.Thread(target=self._work, name="symbol-files", daemon=True)
        self._thread.start()

    def _refusal(self, owner: Owner, device: Hashable) -> FileRefused | None:
        self._blocked = [each for each in self._blocked if not each.has_ended()]
        of_owner = sum(each.owner == owner for each in self._blocked)
        if (
            any(each.device == device for each in self._blocked)
            or of_owner >= _MAX_BLOCKED_BY_OWNER
            or len(self._blocked) >= _MAX_BLOCKED
        ):
            return FileRefused(TIMEOUT, "an earlier read has not returned")
        queued = sum(len(each) for each in self._queued.values())
        full = queued >= _MAX_QUEUED or len(self._queued.get(owner, ())) >= _MAX_QUEUED_OF_OWNER
        return FileRefused(DEFERRED) if full or not self.affords(owner) else None

    def poll(self) -> None:
        """Call back for every finished job."""
        with self._changed:
            finished, self._finished = self._finished, []
        for task in finished:
            task.done(task.refusal if task.refusal is not None else task.result.pop())

    def wait(self, seconds: float) -> None:
        """Wait until all queued jobs are done, but no longer than the timeout, and `poll`."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._queued and self._task is None, max(seconds, 0.0))
            self._hurry = False
        self.poll()

    @property
    def parser(self) -> ParserProcess | None:
        return self._reader.parser

    @property
    def cost(self) -> tuple[float, int]:
        """CPU time used so far to open and parse files, in seconds, and the current memory of both
        processes, in KiB."""
        with self._changed:
            if not self._rested:
                self._cost = self._reader.cost
                self._rested = self._task is None and not self._queued
            return self._cost

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._queued.clear()
            self._reader.abandon()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
        self._reader.close()
        for number, blocked in enumerate(self._blocked):
            if not blocked.has_ended(0.0 if number else _END_S):
                _log.warning(
                    "a file system that processes of %s use does not answer: process %s, which opened or read a file "
                    "for the recorder, ends when it does, or when its connection is aborted "
                    "(/sys/fs/fuse/connections/*/abort, umount -f)",
                    blocked.owner,
                    ", ".join(str(process.pid) for process in blocked.processes if not process.has_ended()),
                )
                blocked.close()

    # Everything below runs in the thread.

    def _work(self) -> None:
        try:
            while (task := self._next_task()) is not None:
                self._do(task)
                del task  # otherwise its file and result would be kept until the next one
        finally:
            # Also after an unexpected error: the next job then gets a new thread.
            with self._changed:
                self._reader.close()
                self._thread = None
                if self._queued:
                    self._start()

    def _next_task(self) -> _Task[Any] | None:
        """The next job; owners take turns. None at the end."""
        with self._changed:
            idle = not self._changed.wait_for(lambda: self._queued or self._closed, _IDLE_S)
        if idle:
            self._reader.stop_parser()
            _Blocked(UNKNOWN_OWNER, None, self._reader.take_left()).close()
        with self._changed:
            self._rested = False
            self._changed.wait_for(lambda: self._queued or self._closed)
            if self._closed:
                return None
            owner, tasks = self._queued.popitem(last=False)
            task = tasks.popleft()
            if tasks:
                self._queued[owner] = tasks
            if not self.affords(owner):
                task.refusal = FileRefused(DEFERRED)
            self._task = task
            return task

    def _do(self, task: _Task[Any]) -> None:
        began, began_cpu = time.monotonic(), self._cpu_s()
        try:
            if task.refusal is None:
                # This refusal stays when the job raises an exception that no file should cause: it ends the thread,
                # which prints it.
                task.refusal = FileRefused(FAILED, "the recorder failed to read it")
                try:
                    task.result.append(task.job(self._reader))
                finally:
                    self._reader.release()
                task.refusal = None
        except FileRefused as refusal:
            # A new exception without the traceback, which would keep the file's content alive.
            task.refusal = FileRefused(refusal.code, refusal.detail)
        except BadReply as error:
            self._reader.drop_parser()
            task.refusal = FileRefused(FAILED, f"the parser sent what makes no sense: {error}")
        except OSError as error:
            task.refusal = FileRefused(UNREADABLE, error.strerror or str(error))
        finally:
            self._finish(task, self._cpu_s() - began_cpu, time.monotonic() - began)

    def _finish(self, task: _Task[Any], cpu_s: float, waited_s: float) -> None:
        left = self._reader.take_left()
        with self._changed:
            if left:
                cpu_s += _REPLACE_CPU_S
                self._blocked.append(_Blocked(task.owner, task.device, left))
            self._charge(task.owner, cpu_s, waited_s)
            self._finished.append(task)
            self._task = None
            self._changed.notify_all()
            if not self._is_starting():
                pause = min(cpu_s * _PAUSE, _LONGEST_PAUSE_S)
                self._changed.wait_for(lambda: self._hurry or self._closed, pause)

    def _cpu_s(self) -> float:
        return time.thread_time() + self._reader.cpu_s

    def _is_starting(self) -> bool:
        return self._clock() - self._began < _STARTING_S

    def _share(self, owner: Owner) -> tuple[_Bucket, _Bucket]:
        share = self._shares.get(owner)
        if share is None:
            if len(self._shares) >= _MAX_OWNERS:
                self._shares.pop(next(iter(self._shares)))
            now = self._clock()
            first = _STARTING_OWNER_CPU_S if self._is_starting() else None
            share = self._shares[owner] = (
                _Bucket(_OWNER_CPU_BURST_S, _OWNER_CPU_RATE, now, first),
                _Bucket(_OWNER_WAIT_BURST_S, _OWNER_WAIT_RATE, now),
            )
        return share

    def _charge(self, owner: Owner, cpu_s: float, waited_s: float) -> None:
        cpu, wait = self._share(owner)
        self._all.take(cpu_s)
        cpu.take(cpu_s)
        wait.take(waited_s)
