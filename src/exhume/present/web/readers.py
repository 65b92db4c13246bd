"""Processes that work answers out: each core is used, and Python's lock is nobody's bottleneck.

They are forked while the server has a single thread, with its rights (by then those of an ordinary user). Questions
take turns, some pieces of work in each: one that reads many hours does not hold up those that read seconds. What nobody
waits for any more is not begun, or ends before the next file.
"""

import ctypes
import heapq
import itertools
import mmap
import os
import signal
import struct
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context
from typing import Any

from exhume.store.read.progress import GivenUp, ask_before_each_file, tell_reading

_PR_SET_PDEATHSIG = 1
_SLOTS = 4096
# Of each question, as the process that works at it tells: segments read, segments to read.
_COUNTS = struct.Struct("=II")
# So many pieces of one question are worked at in a turn; the rest waits until the others had theirs.
_IN_A_TURN = 8
# So many pieces of others are begun before the next turn of a question, and no more: where new questions come without
# end, a long one still gets on.
_BETWEEN_TURNS = 32
_MOST_PROCESSES = 4
# While processes are no more, threads work: decoding leaves Python's lock for most of its time.
_THREADS = 2


@dataclass(eq=False, slots=True)
class Ask:
    """One question on its way: a byte that all processes see tells whether it is wanted. Its turn comes when so many
    pieces were begun, of whichever questions."""

    slot: int
    flags: mmap.mmap
    counts: mmap.mmap
    #: Segments that are read for it by several processes: done, and all of them.
    done: int = 0
    segments: int = 0
    pieces: int = 0
    turn: int = 0
    long: bool = False

    def give_up(self) -> None:
        # The first is shared by those that found none free: they are worked at to their end.
        if self.slot:
            self.flags[self.slot] = 1

    @property
    def given_up(self) -> bool:
        return bool(self.flags[self.slot])

    @property
    def progress(self) -> tuple[int, int]:
        """Segments that were read, of how many. (0, 0) where that is not known (yet)."""
        if self.segments or not self.slot:
            return self.done, self.segments
        done, segments = _COUNTS.unpack_from(self.counts, self.slot * _COUNTS.size)
        return int(done), int(segments)

    def wait_for(self, coming: "list[Future[Any]]") -> None:
        """Count segments that processes read for it."""
        self.segments += len(coming)
        for each in coming:
            each.add_done_callback(self._one_more)

    def _one_more(self, _: "Future[Any]") -> None:
        self.done += 1


@dataclass(order=True, slots=True)
class _Piece:
    rank: tuple[int, int]
    ask: Ask = field(compare=False)
    work: Callable[..., Any] = field(compare=False)
    words: tuple[Any, ...] = field(compare=False)
    future: "Future[Any]" = field(compare=False)


class Readers:
    """Runs work in processes, or in threads of this one where `start` was not called or a process was killed."""

    def __init__(self) -> None:
        self._flags = mmap.mmap(-1, _SLOTS)
        self._counts = mmap.mmap(-1, _SLOTS * _COUNTS.size)
        self._free_slots = list(range(_SLOTS - 1, 0, -1))
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: list[_Piece] = []
        self._begun = 0
        self._busy = self._busy_long = 0
        self._count = _THREADS
        self._processes: ProcessPoolExecutor | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="reading")

    def start(self) -> None:
        """Fork the processes. To be called while there are no other threads."""
        self._count = 1 + min(_MOST_PROCESSES, max(_THREADS, len(os.sched_getaffinity(0))))
        try:
            processes = ProcessPoolExecutor(
                self._count,
                mp_context=get_context("fork"),
                initializer=_begin,
                initargs=(os.getpid(), self._flags, self._counts),
            )
            # The first piece of work forks them all.
            processes.submit(os.getpid)
        except OSError:
            # No more processes or no shared memory for this user: threads do it.
            return
        self._processes = processes

    @property
    def count(self) -> int:
        """How many pieces are worked at together."""
        return self._count

    @property
    def apart(self) -> bool:
        """Whether work is done in other processes."""
        return self._processes is not None

    def ask(self, *, long: bool = False) -> Ask:
        """A new question; `end` has to follow. Of long ones, one process fewer than there are works at a time."""
        with self._lock:
            slot = self._free_slots.pop() if self._free_slots else 0
        self._flags[slot] = 0
        _COUNTS.pack_into(self._counts, slot * _COUNTS.size, 0, 0)
        return Ask(slot, self._flags, self._counts, long=long)

    def end(self, ask: Ask) -> None:
        """All futures of the question are done, or nobody looks at them."""
        with self._lock:
            if ask.slot:
                self._free_slots.append(ask.slot)

    def submit(self, ask: Ask, work: Callable[..., Any], *words: Any) -> "Future[Any]":
        """Work for a question. The future raises GivenUp where the question was given up."""
        future: Future[Any] = Future()
        with self._lock:
            if ask.pieces % _IN_A_TURN == 0:
                ask.turn = max(ask.turn + _BETWEEN_TURNS, self._begun) if ask.pieces else self._begun
            ask.pieces += 1
            heapq.heappush(self._waiting, _Piece((ask.turn, next(self._numbers)), ask, work, words, future))
        self._go_on()
        return future

    def want_all(self) -> None:
        """Begin (again) to work."""
        self._flags[:] = bytes(_SLOTS)

    def give_up_all(self) -> None:
        """Nobody waits for anything any more."""
        self._flags[:] = b"\1" * _SLOTS
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for piece in waiting:
            if piece.future.set_running_or_notify_cancel():
                piece.future.set_exception(GivenUp("the server ends"))

    def stop(self) -> None:
        """Give everything up, and end the processes: they only read, and nobody waits for what they read."""
        self.give_up_all()
        if self._processes is not None:
            self._processes.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _go_on(self) -> None:
        while (piece := self._next()) is not None:
            # Begun now: whoever waited can't take it back any more.
            if not piece.future.set_running_or_notify_cancel():
                self._freed(piece)
            elif piece.ask.given_up:
                self._finished(piece, None)
            else:
                self._run(piece)

    def _next(self) -> _Piece | None:
        """The next piece whose turn it is; it counts as being worked at."""
        with self._lock:
            if self._busy >= self._count:
                return None
            passed = []
            found = None
            while self._waiting and found is None:
                piece = heapq.heappop(self._waiting)
                if piece.ask.long and self._busy_long >= self._count - 1:
                    passed.append(piece)
                else:
                    found = piece
            for piece in passed:
                heapq.heappush(self._waiting, piece)
            if found is not None:
                self._busy += 1
                self._busy_long += found.ask.long
                self._begun += 1
            return found

    def _run(self, piece: _Piece) -> None:
        processes = self._processes
        if processes is not None:
            try:
                working = processes.submit(_work, piece.ask.slot, piece.work, piece.words)
            except BrokenExecutor:
                # Killed, or no memory for it.
                self._processes = None
                working = self._threads.submit(piece.work, *piece.words)
        else:
            working = self._threads.submit(piece.work, *piece.words)
        working.add_done_callback(lambda done: self._finished(piece, done))

    def _finished(self, piece: _Piece, done: "Future[Any] | None") -> None:
        self._freed(piece)
        if done is None or done.cancelled():
            piece.future.set_exception(GivenUp("nobody waits for this answer any more"))
        elif isinstance(error := done.exception(), BrokenExecutor):
            # Killed, or no memory for it: done again, by threads.
            self._processes = None
            self._again(piece)
        elif error is not None:
            piece.future.set_exception(error)
        else:
            piece.future.set_result(done.result())
        self._go_on()

    def _freed(self, piece: _Piece) -> None:
        with self._lock:
            self._busy -= 1
            self._busy_long -= piece.ask.long

    def _again(self, piece: _Piece) -> None:
        with self._lock:
            self._busy += 1
            self._busy_long += piece.ask.long
        self._run(piece)


def _begin(parent: int, flags: mmap.mmap, counts: mmap.mmap) -> None:
    """A process begins: it ends with the server, also when that is killed, and leaves Ctrl-C to it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _Process.flags, _Process.counts = flags, counts


class _Process:
    """What a process was given when it was forked."""

    flags: mmap.mmap | None = None
    counts: mmap.mmap | None = None


def _work(slot: int, work: Callable[..., Any], words: tuple[Any, ...]) -> Any:
    flags, counts = _Process.flags, _Process.counts
    assert flags is not None and counts is not None
    ask_before_each_file(lambda: bool(flags[slot]))

    def further(done: int, segments: int) -> None:
        before = _COUNTS.unpack_from(counts, slot * _COUNTS.size)
        _COUNTS.pack_into(counts, slot * _COUNTS.size, before[0] + done, before[1] + segments)

    tell_reading(further)
    return work(*words)
