"""Jobs that touch files of watched processes: queued by the tick, done by a thread and the parser process.

The tick never waits for them. A dead NFS server or FUSE daemon blocks any thread that opens its files, so a thread that
does not come back is left behind, with its parser, and its device is left alone until it does. Owners take turns, and
none gets more of the recorder's time than its share: what is beyond is deferred.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from exhume.collect.symbols.owners import Owner, RefusalLog
from exhume.collect.symbols.parser.open_file import DEFERRED, FAILED, TIMEOUT, UNREADABLE, FileRefused
from exhume.collect.symbols.parser.wire import BadReply
from exhume.collect.symbols.parser_process import START_S, ParserFailed, ParserProcess, refusal_of

T = TypeVar("T")
_log = logging.getLogger(__name__)

# Seconds for one file: to open it, and again for each reply about it.
DEADLINE_S = 3.0
# Seconds of CPU: at once, and for each second that passes; for all owners and for each.
_CPU_BURST_S, _CPU_RATE = 3.0, 0.06
_OWNER_CPU_BURST_S, _OWNER_CPU_RATE = 1.0, 0.03
# Seconds that the queue was held up by an owner.
_OWNER_WAIT_BURST_S, _OWNER_WAIT_RATE = 4.0, 0.3
_MAX_QUEUED = 1024
_MAX_QUEUED_OF_OWNER = 256
_MAX_STUCK = 16
_MAX_STUCK_OF_OWNER = 2
_MAX_OWNERS = 256
# A parser without work is ended: it takes memory. Starting one takes a tenth of a second of CPU time.
_IDLE_S = 60.0
_CLOSE_S = 1.0
_RESTART_FIRST_S, _RESTART_AT_MOST_S = 1.0, 60.0

Ask = Callable[[dict[str, Any], list[int]], dict[str, npt.NDArray[Any]]]


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


class _Task(Generic[T]):
    """A job, and what became of it: a result or a refusal."""

    __slots__ = ("device", "done", "job", "owner", "refusal", "result")

    def __init__(
        self, owner: Owner, device: Hashable, job: Callable[[Ask], T], done: Callable[[T | FileRefused], None]
    ) -> None:
        self.owner, self.device, self.job, self.done = owner, device, job, done
        self.result: list[T] = []
        self.refusal: FileRefused | None = None


class ParseQueue:
    """Runs jobs one after the other; `poll` hands over what came of them."""

    def __init__(
        self,
        refusals: RefusalLog | None = None,
        deadline_s: float = DEADLINE_S,
        clock: Callable[[], float] = time.monotonic,
        parser: ParserProcess | None = None,
    ) -> None:
        self._refusals = refusals or RefusalLog()
        self._deadline_s = deadline_s
        self._clock = clock
        self._changed = threading.Condition()
        self._queued: OrderedDict[Owner, deque[_Task[Any]]] = OrderedDict()
        self._finished: list[_Task[Any]] = []
        self._lane: _Lane | None = None
        self._stuck: list[_Lane] = []
        self._all = _Bucket(_CPU_BURST_S, _CPU_RATE, clock())
        self._shares: dict[Owner, tuple[_Bucket, _Bucket]] = {}
        self._cpu_s = 0.0
        # The first one, where it was made before anything else.
        self._first = parser
        # When a parser may be started again, after several in a row that failed.
        self._restart_at, self._backoff_s = 0.0, 0.0

    def affords(self, owner: Owner) -> bool:
        """Whether the owner has some of its share left."""
        now = self._clock()
        return self._all.level(now) > 0 and all(bucket.level(now) > 0 for bucket in self._share(owner))

    def submit(
        self, owner: Owner, device: Hashable, job: Callable[[Ask], T], done: Callable[[T | FileRefused], None]
    ) -> None:
        """Queue a job. `done` is called from `poll` with its result, or with why it was refused; at once where it is
        not even queued.

        `device` is what stops answering as a whole: a network filesystem, or one file of a disk.
        """
        with self._changed:
            refusal = self._refusal(owner, device)
            if refusal is None:
                self._queued.setdefault(owner, deque()).append(_Task(owner, device, job, done))
                if self._lane is None:
                    self._lane = _Lane(self)
                self._changed.notify_all()
        if refusal is not None:
            done(refusal)

    def _refusal(self, owner: Owner, device: Hashable) -> FileRefused | None:
        self._stuck = [lane for lane in self._stuck if lane.is_stuck]
        stuck = [lane.task for lane in self._stuck if lane.task is not None]
        of_owner = sum(task.owner == owner for task in stuck)
        if any(task.device == device for task in stuck) or of_owner >= _MAX_STUCK_OF_OWNER or len(stuck) >= _MAX_STUCK:
            return FileRefused(TIMEOUT, "an earlier read has not returned")
        queued = sum(len(each) for each in self._queued.values())
        full = queued >= _MAX_QUEUED or len(self._queued.get(owner, ())) >= _MAX_QUEUED_OF_OWNER
        return FileRefused(DEFERRED) if full or not self.affords(owner) else None

    def poll(self) -> None:
        """Call back for everything that is finished, and leave behind a thread that does not return."""
        with self._changed:
            lane = self._lane
            if lane is not None and lane.is_late:
                assert lane.task is not None
                lane.leave()
                self._stuck.append(lane)
                self._lane = _Lane(self) if self._queued else None
                task = lane.task
                self._charge(task.owner, 0.0, self._deadline_s)
                refused = _Task(task.owner, task.device, task.job, task.done)
                refused.refusal = FileRefused(TIMEOUT, "its filesystem does not answer")
                self._finished.append(refused)
            finished, self._finished = self._finished, []
        for task in finished:
            task.done(task.refusal if task.refusal is not None else task.result.pop())

    def wait(self, seconds: float) -> None:
        """Wait until everything is done that was queued, for so long at most, and `poll`."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with self._changed:
                lane = self._lane
                if lane is None or (not self._queued and lane.task is None) or lane.is_late:
                    break
                self._changed.wait(min(left, 0.2))
        self.poll()

    @property
    def parser(self) -> ParserProcess | None:
        return self._lane.parser if self._lane is not None else None

    @property
    def cost(self) -> tuple[float, int]:
        """The CPU time that parsers took so far, in seconds, and the memory that one has now, in KiB."""
        parser = self.parser
        return (self._cpu_s, 0) if parser is None else (self._cpu_s + parser.cpu_s, parser.private_kb)

    def close(self) -> None:
        with self._changed:
            self._queued.clear()
            lane, self._lane = self._lane, None
            for each in (lane, *self._stuck):
                if each is not None:
                    each.leave()
            stuck = {lane.task.owner for lane in self._stuck if lane.task is not None}
            self._changed.notify_all()
        for owner in stuck:
            # Not even SIGKILL ends a thread whose request the server of a FUSE mount has read and does not answer
            # (fs/fuse/dev.c, request_wait_answer).
            _log.warning(
                "a file system that processes of %s use does not answer: this process ends when it does, or when its "
                "connection is aborted (/sys/fs/fuse/connections/*/abort, umount -f)",
                owner,
            )
        if lane is not None:
            lane.thread.join(_CLOSE_S)
        if self._first is not None:
            self._first.close()

    # What follows is called by lanes, from their threads.

    def next_task(self, lane: "_Lane") -> _Task[Any] | None:
        """The next job; each owner in its turn. None when the lane was left behind."""
        with self._changed:
            while not self._queued and not lane.left:
                if not self._changed.wait(_IDLE_S):
                    lane.close_parser()
            if lane.left:
                return None
            owner, tasks = self._queued.popitem(last=False)
            task = tasks.popleft()
            if tasks:
                self._queued[owner] = tasks
            if not self.affords(owner):
                task.refusal = FileRefused(DEFERRED)
            lane.begin(task)
            return task

    def finish(self, lane: "_Lane", task: _Task[Any], cpu_s: float, waited_s: float) -> None:
        with self._changed:
            if not lane.left:
                self._charge(task.owner, cpu_s, waited_s)
                self._finished.append(task)
            lane.task = None
            self._changed.notify_all()

    def start_parser(self) -> ParserProcess:
        """Raises FileRefused."""
        if time.monotonic() < self._restart_at:
            raise FileRefused(DEFERRED)
        parser, self._first = self._first, None
        try:
            if parser is None:
                parser = ParserProcess.spawn()
            else:
                parser.wait_started()
        except ParserFailed as failure:
            self.parser_failed()
            raise FileRefused(FAILED, f"the parser can't be started: {failure}") from failure
        if parser.unconfined:
            lacking = ", ".join(parser.unconfined)
            self._refusals.fact(
                "symbols-unconfined",
                f"the parser of programs' symbols runs less confined than it should: the kernel refused {lacking}",
            )
        return parser

    def parser_failed(self) -> None:
        self._restart_at = time.monotonic() + self._backoff_s
        self._backoff_s = min(max(self._backoff_s * 2, _RESTART_FIRST_S), _RESTART_AT_MOST_S)

    def parser_answered(self) -> None:
        self._backoff_s = 0.0

    def parser_ended(self, cpu_s: float) -> None:
        self._cpu_s += cpu_s

    def lane_ended(self, lane: "_Lane") -> None:
        """A thread ended by an unexpected error; the next job gets another."""
        with self._changed:
            if self._lane is lane:
                self._lane = _Lane(self) if self._queued else None

    @property
    def deadline_s(self) -> float:
        return self._deadline_s

    def _share(self, owner: Owner) -> tuple[_Bucket, _Bucket]:
        share = self._shares.get(owner)
        if share is None:
            if len(self._shares) >= _MAX_OWNERS:
                self._shares.pop(next(iter(self._shares)))
            now = self._clock()
            share = self._shares[owner] = (
                _Bucket(_OWNER_CPU_BURST_S, _OWNER_CPU_RATE, now),
                _Bucket(_OWNER_WAIT_BURST_S, _OWNER_WAIT_RATE, now),
            )
        return share

    def _charge(self, owner: Owner, cpu_s: float, waited_s: float) -> None:
        cpu, wait = self._share(owner)
        self._all.take(cpu_s)
        cpu.take(cpu_s)
        wait.take(waited_s)


class _Lane:
    """A thread that does jobs, and its parser. The kernel ends the parser when the thread ends (PR_SET_PDEATHSIG)."""

    def __init__(self, queue: ParseQueue) -> None:
        self._queue = queue
        self.parser: ParserProcess | None = None
        self.task: _Task[Any] | None = None
        self.left = False
        self._late_at = 0.0
        self._ended_cpu_s = 0.0
        # A daemon, so that a thread that never returns doesn't keep the recorder from ending.
        self.thread = threading.Thread(target=self._work, name="symbol-files", daemon=True)
        self.thread.start()

    @property
    def is_late(self) -> bool:
        return self.task is not None and time.monotonic() > self._late_at

    @property
    def is_stuck(self) -> bool:
        return self.left and self.task is not None

    def begin(self, task: _Task[Any]) -> None:
        self.task = task
        self._late_at = time.monotonic() + self._queue.deadline_s

    def leave(self) -> None:
        """The thread is to end when it comes back; its parser does now."""
        self.left = True
        if self.parser is not None:
            self.parser.kill()

    def close_parser(self) -> None:
        parser, self.parser = self.parser, None
        if parser is not None:
            cpu_s = parser.close()
            self._ended_cpu_s += cpu_s
            self._queue.parser_ended(cpu_s)

    def _work(self) -> None:
        try:
            while (task := self._queue.next_task(self)) is not None:
                self._do(task)
                del task  # or its file and result would be kept until the next one
            self.close_parser()
        finally:
            self._queue.lane_ended(self)

    def _do(self, task: _Task[Any]) -> None:
        began, began_cpu = time.monotonic(), self._cpu_s()
        try:
            if task.refusal is None:
                # Stays where the job raises what no file should cause: the thread ends by it, and prints it.
                task.refusal = FileRefused(FAILED, "the recorder failed to read it")
                task.result.append(task.job(self._ask))
                task.refusal = None
        except FileRefused as refusal:
            # Without its traceback, which would keep what was read of the file.
            task.refusal = FileRefused(refusal.code, refusal.detail)
        except BadReply as error:
            self._fail()
            task.refusal = FileRefused(FAILED, f"the parser sent what makes no sense: {error}")
        except OSError as error:
            task.refusal = FileRefused(UNREADABLE, error.strerror or str(error))
        finally:
            self._queue.finish(self, task, self._cpu_s() - began_cpu, time.monotonic() - began)

    def _ask(self, request: dict[str, Any], files: list[int]) -> dict[str, npt.NDArray[Any]]:
        if self.parser is None:
            self._late_at += START_S
            self.parser = self._queue.start_parser()
        self._late_at = time.monotonic() + 2 * self._queue.deadline_s
        try:
            reply = self.parser.ask(request, files, self._queue.deadline_s)
        except ParserFailed as failure:
            self._fail()
            raise refusal_of(failure) from failure
        self._queue.parser_answered()
        return reply

    def _fail(self) -> None:
        self._queue.parser_failed()
        self.close_parser()

    def _cpu_s(self) -> float:
        return time.thread_time() + self._ended_cpu_s + (self.parser.cpu_s if self.parser is not None else 0.0)
