"""Incidents get their causes in the background, the newest first, so that the page has them before anybody asks. Files
that can't be read are found there, too; and first the processes that answer are made ready."""

import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from exhume.model.errors import ExhumeError
from exhume.model.finding import Finding
from exhume.model.window import Window
from exhume.present.incidents_view import Moment, moments_of
from exhume.present.web.diagnosed import diagnosed, told
from exhume.present.web.opened import Opened, opened_at
from exhume.present.web.warming import warm

LOOK_EVERY_S = 2.0
# A page that opens first wants its pictures: getting ready and explaining wait until they are likely drawn.
READY_S, FIRST_LOOK_S = 1.0, 2.0
# So many diagnoses are kept as they are told; those of older incidents are worked out again when somebody asks.
_MOST_TOLD = 200


@dataclass(frozen=True, slots=True)
class Known:
    """What a moment turned out to be; no finding where nothing explains it."""

    marks: int
    finding: Finding | None
    #: The whole diagnosis on the wire, so that one click shows the chain at once.
    told: bytes | None = None


def moment_id(moment: Moment) -> str:
    """A name that stays while the moment still grows."""
    first = moment.marks[0]
    return f"{first.wall // 1_000_000}-{first.cpu if first.cpu is not None else 'x'}"


class Explaining:
    """A thread that diagnoses one incident after the other."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._known: dict[str, Known] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="explaining", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5)

    def known(self, moment: Moment) -> Known | None:
        """What was found out; None while it waits, or when marks came since."""
        found = self._known.get(moment_id(moment))
        return found if found is not None and found.marks == len(moment.marks) else None

    def moments(self) -> list[Moment]:
        """Every marked moment, in its order."""
        return moments_of(self._opened.marks())

    def moment(self, name: str) -> Moment | None:
        """The moment of this name, where there is one."""
        return next((moment for moment in self.moments() if moment_id(moment) == name), None)

    def _run(self) -> None:
        if not self._stop.wait(READY_S):
            warm(self._opened)
        self._stop.wait(FIRST_LOOK_S)
        while not self._stop.is_set():
            # Nothing is recorded yet, or it was removed: looked at again later.
            with suppress(ExhumeError):
                self._opened.look_at_files(self._stop)
                self._look()
            self._stop.wait(LOOK_EVERY_S)

    def _look(self) -> None:
        waiting = [moment for moment in self.moments() if self.known(moment) is None]
        if not waiting:
            return
        span = self._opened.span()
        for moment in reversed(waiting):
            if self._stop.is_set():
                return
            window = moment.window.clamp(span)
            finding, answer = (None, None) if window.empty else self._explained(window, moment.at)
            self._known[moment_id(moment)] = Known(len(moment.marks), finding, answer)
            self._forget_answers()

    def _explained(self, window: Window, at: int) -> tuple[Finding | None, bytes]:
        readers = self._opened.readers
        ask = readers.ask(long=True)
        try:
            found: tuple[Finding | None, bytes] = readers.submit(
                ask, _cause_of, self._opened.directory, window, at
            ).result()
            return found
        finally:
            readers.end(ask)

    def _forget_answers(self) -> None:
        kept = [name for name, known in self._known.items() if known.told is not None]
        for name in kept[:-_MOST_TOLD]:
            self._known[name] = replace(self._known[name], told=None)


def _cause_of(directory: Path, window: Window, at: int) -> tuple[Finding | None, bytes]:
    found = diagnosed(opened_at(directory).recording(), window, at)
    return (found.findings[0] if found.findings else None), told(found)
