"""Answers on their way: equal questions at the same time are one, and what nobody waits for any more is given up."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from exhume.model.errors import RecordingError
from exhume.present.web.opened import Opened, opened_at
from exhume.present.web.readers import Ask
from exhume.store.read.index import Skipped
from exhume.store.read.progress import GivenUp

NOBODY_WAITS = 499
# Who wants to know how far an answer is gives the question a name, and asks for it by that.
ASKED_AS = "x-exhume-ask"
_LONGEST_NAME = 64
# Answers as they were sent, while no segment comes or goes: people look at the same overview.
MOST_BYTES = 32 << 20
_MOST_OF_ONE = 2 << 20
_LONG_MS = 300_000


@dataclass(eq=False, slots=True)
class _Working:
    """A question that is being worked at, and how many wait for it."""

    ask: Ask
    task: "asyncio.Task[Response]"
    waiting: int = field(default=0)


class Answering:
    """Has questions worked out, by the processes or in a thread of this one."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._working: dict[Any, _Working] = {}
        self._named: dict[str, _Working] = {}
        self._sent: OrderedDict[Any, Response] = OrderedDict()
        self._bytes = 0
        self._segments: object = None

    async def apart(self, request: Request, work: Callable[..., Response], *words: Any, long: bool = False) -> Response:
        """The answer of `work`, which is given the recording's directory and the words, in a process of its own."""

        async def begin(ask: Ask) -> Response:
            directory = self._opened.directory
            working = self._opened.readers.submit(ask, _noting_damage, work, directory, words)
            answer, damaged = await asyncio.wrap_future(working)
            if damaged:
                self._opened.recording().note_damaged(damaged)
            answered: Response = answer
            return answered

        return await self._answered(request, (work, words), begin, long)

    async def here(self, request: Request, work: Callable[..., Response], *words: Any, long: bool = False) -> Response:
        """The answer of `work`, which is given the opened recording, its question and the words, in a thread: for work
        that puts together what was remembered."""

        def begin(ask: Ask) -> Awaitable[Response]:
            return run_in_threadpool(work, self._opened, ask, *words)

        return await self._answered(request, (work, words), begin, long)

    def progress(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """How far the questions of these names are: segments read, and all of them. Answered ones are not told."""
        return {name: self._named[name].ask.progress for name in names if name in self._named}

    def is_long(self, since: int | None, until: int | None) -> bool:
        """Whether a question about this time reads much."""
        return since is None or until is None or until - since > _LONG_MS

    async def _answered(
        self, request: Request, question: Any, begin: Callable[[Ask], Awaitable[Response]], long: bool
    ) -> Response:
        lasting = self._lasts()
        if lasting and question in self._sent:
            self._sent.move_to_end(question)
            return self._sent[question]
        working = self._working.get(question)
        if working is None:
            ask = self._opened.readers.ask(long=long)
            working = _Working(ask, asyncio.ensure_future(self._worked(question, ask, begin, lasting)))
            self._working[question] = working
            # Where nobody waits any more, nobody wants to know how it ended.
            working.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        working.waiting += 1
        name = request.headers.get(ASKED_AS, "")[:_LONGEST_NAME]
        if name:
            self._named[name] = working
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({working.task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not working.task.done():
                return Response(status_code=NOBODY_WAITS)
            return working.task.result()
        except GivenUp:
            return Response(status_code=NOBODY_WAITS)
        finally:
            gone.cancel()
            if self._named.get(name) is working:
                del self._named[name]
            working.waiting -= 1
            if not working.waiting and not working.task.done():
                working.ask.give_up()
                self._forget(question, working)

    async def _worked(
        self, question: Any, ask: Ask, begin: Callable[[Ask], Awaitable[Response]], lasting: bool
    ) -> Response:
        try:
            answer = await begin(ask)
        finally:
            self._opened.readers.end(ask)
            working = self._working.get(question)
            if working is not None and working.ask is ask:
                self._forget(question, working)
        if lasting:
            self._remember(question, answer)
        return answer

    def _forget(self, question: Any, working: _Working) -> None:
        if self._working.get(question) is working:
            del self._working[question]

    def _lasts(self) -> bool:
        """Whether an answer holds until a segment comes or goes."""
        try:
            recording = self._opened.recording()
        except RecordingError:
            return False
        if recording.segments is not self._segments:
            self._segments = recording.segments
            self._sent.clear()
            self._bytes = 0
        return recording.sealed

    def _remember(self, question: Any, answer: Response) -> None:
        if question in self._sent or len(answer.body) > _MOST_OF_ONE or answer.status_code != 200:
            return
        self._sent[question] = answer
        self._bytes += len(answer.body)
        while self._bytes > MOST_BYTES:
            _, oldest = self._sent.popitem(last=False)
            self._bytes -= len(oldest.body)


def _noting_damage(
    work: Callable[..., Response], directory: Path, words: tuple[Any, ...]
) -> tuple[Response, list[Skipped]]:
    """The answer, and the files that this process met and could not read."""
    answer = work(directory, *words)
    return answer, opened_at(directory).recording().damaged


async def _gone(request: Request) -> None:
    """Returns when whoever asked went away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
