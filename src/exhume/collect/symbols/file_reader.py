"""Read files of watched processes through the opener and the parser, on behalf of a job.

Either process may be missing, exit, or be blocked by a filesystem. The job is then refused, and the next job gets new
processes. Nothing here waits past a deadline.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from exhume.collect.symbols.mappings import AddressSpace, Mapping
from exhume.collect.symbols.opener_process import (
    START_S,
    Arrays,
    OpenerProcess,
    ParserProcess,
    ProcessFailed,
    ProcessTimeout,
)
from exhume.collect.symbols.owners import RefusalLog
from exhume.collect.symbols.parser.open_file import DEFERRED, FAILED, TIMEOUT, FileRefused, Identity
from exhume.model.process import share_priority
from exhume.procfs.host import Host

# Processes that map a file, each with its mapping of the file. Never empty.
Views = Sequence[tuple[AddressSpace, Mapping]]

_RESTART_FIRST_S, _RESTART_AT_MOST_S = 1.0, 60.0
# A process whose connection was closed exits within this time, even on a starved machine.
_ENDING_S = 0.2


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file that the opener holds open until the job is over. `path` is relative to `root`, the root directory of a
    process."""

    number: int
    identity: Identity
    uid: int
    path: str
    root: str


class FileReader:
    """Opens files and has them parsed. Used by one thread; another thread may call `abandon`."""

    def __init__(
        self,
        refusals: RefusalLog,
        deadline_s: float,
        opener: OpenerProcess | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refusals = refusals
        self._deadline_s = deadline_s
        self._clock = clock
        # The initial opener, if the caller already started one.
        self.opener = opener
        self._opener_is_new = True
        self.parser: ParserProcess | None = None
        # Numbers of the files that the opener holds.
        self._held: set[int] = set()
        self._ended_cpu_s = 0.0
        self._abandoned = False
        # Back-off after several failures in a row: no process is started before this time.
        self._restart_at, self._backoff_s = 0.0, 0.0
        # Processes that were killed but may still be blocked in the kernel.
        self._left: list[OpenerProcess | ParserProcess] = []

    @property
    def cost(self) -> tuple[float, int]:
        """CPU time used by both processes so far, in seconds, and their current memory, in KiB."""
        processes = [each for each in (self.opener, self.parser) if each is not None]
        return (
            self._ended_cpu_s + sum(each.cpu_s for each in processes),
            sum(each.private_kb for each in processes),
        )

    @property
    def cpu_s(self) -> float:
        return self._ended_cpu_s + sum(each.cpu_s for each in (self.opener, self.parser) if each is not None)

    def open_mapped(self, host: Host, views: Views) -> HeldFile | None:
        """Open the mapped file through any of the processes that make it reachable."""
        requested = [
            (space.pid, space.lineage, mapping.start, mapping.end, mapping.offset, mapping.file.key)
            for space, mapping in views
        ]
        return self._opened("open-mapped", proc=str(host.proc), views=requested)[0]

    def open_regular(self, places: list[tuple[str, str]], *, follow: bool = True) -> list[HeldFile | None]:
        """Open the regular file at each place: the root directory of a process, and a path below it."""
        return self._opened("open", places=places, follow=follow) if places else []

    def identities(self, paths: list[str]) -> list[Identity | None]:
        """The current identity of the file at each path."""
        found = self._call("identities", paths=paths)["identities"]
        return [None if each is None else (each[0], each[1], each[2], each[3]) for each in found]

    def ask(self, request: dict[str, Any], files: Sequence[HeldFile], *, keep: bool = False) -> Arrays:
        """The parser's reply to a request about open files. The files are closed afterwards unless the caller keeps
        them."""
        if self.parser is None:
            self.parser = self._start_parser()
        numbers = [file.number for file in files]
        handed = self._call("parse", request=request, files=numbers, keep=keep)
        if not keep:
            self._held.difference_update(numbers)
        try:
            if handed["error"]:
                raise ProcessFailed("the parser ended")
            reply = self.parser.reply(self._deadline_s)
        except ProcessTimeout as failure:
            self.stop_parser()
            raise FileRefused(TIMEOUT, str(failure)) from failure
        except ProcessFailed as failure:
            raise FileRefused(FAILED, f"{failure}{self.drop_parser(_ENDING_S)}") from failure
        self._backoff_s = 0.0
        return reply

    def release(self) -> None:
        """Close the files that the job opened; the job is over."""
        if self._held:
            self._held.clear()
            self._call("close")

    def take_left(self) -> "list[OpenerProcess | ParserProcess]":
        """Processes killed since the last call; the caller takes over closing them."""
        left, self._left = self._left, []
        return left

    def drop_parser(self, ends_within: float = 0.0) -> str:
        """Stop a parser that is no longer usable. Returns its exit status if it exits by itself within some seconds."""
        self._failed()
        return self.stop_parser(ends_within)

    def stop_parser(self, ends_within: float = 0.0) -> str:
        """Stop the parser, if there is one. Returns its exit status if it exits by itself within some seconds."""
        parser, self.parser = self.parser, None
        if parser is None or self.opener is None:
            return ""
        try:
            ended = self.opener.call("stop-parser", self._deadline_s + ends_within, ends_within=ends_within)
        except ProcessFailed:
            self.parser = parser
            self._leave()
            return ""
        if "cpu_s" not in ended:
            self._left.append(parser)
            return ""
        self._ended_cpu_s += ended["cpu_s"]
        parser.close()
        return str(ended["cause"])

    def abandon(self) -> None:
        """Kill both processes, and wake the thread that waits for them."""
        self._abandoned = True
        for each in (self.parser, self.opener):
            if each is not None:
                each.kill()

    def close(self) -> None:
        """Stop both processes without waiting for one that is blocked."""
        parser, self.parser = self.parser, None
        opener, self.opener = self.opener, None
        if parser is not None:
            self._ended_cpu_s += parser.cpu_s
            parser.kill()
            parser.close()
        if opener is not None:
            self._ended_cpu_s += opener.cpu_s
            opener.end()

    def _opened(self, do: str, **arguments: Any) -> list[HeldFile | None]:
        found = self._call(do, **arguments)["files"]
        files = [None if each is None else HeldFile(**{**each, "identity": tuple(each["identity"])}) for each in found]
        self._held.update(file.number for file in files if file is not None)
        return files

    def _call(self, do: str, **arguments: Any) -> dict[str, Any]:
        opener = self.opener
        if opener is None:
            opener = self.opener = self._start_opener()
        seconds = self._deadline_s
        if self._opener_is_new:
            # The first reply includes the startup time. A forked opener was started before this process raised its
            # priority, so pass the priority on now: names matter most on a starved machine.
            seconds += START_S
            share_priority(opener.pid)
        try:
            reply = opener.call(do, seconds, **arguments)
        except ProcessFailed as failure:
            self._leave()
            if isinstance(failure, ProcessTimeout):
                raise FileRefused(TIMEOUT, str(failure)) from failure
            self._failed()
            raise FileRefused(FAILED, str(failure)) from failure
        self._opener_is_new = False
        return reply

    def _start_opener(self) -> OpenerProcess:
        self._check_restart()
        try:
            opener = OpenerProcess.spawn()
        except ProcessFailed as failure:
            self._failed()
            raise FileRefused(FAILED, f"the process that opens files can't be started: {failure}") from failure
        self._opener_is_new = True
        return opener

    def _start_parser(self) -> ParserProcess:
        if self.opener is None:
            self.opener = self._start_opener()
        self._check_restart()
        try:
            parser = self.opener.start_parser()
        except ProcessFailed as failure:
            self._failed()
            self._leave()
            raise FileRefused(FAILED, f"the parser can't be started: {failure}") from failure
        # The parser is in the opener's session.
        share_priority(parser.pid)
        if parser.unconfined:
            lacking = ", ".join(parser.unconfined)
            self._refusals.fact(
                "symbols-unconfined",
                f"the parser of programs' symbols runs less confined than it should: the kernel refused {lacking}",
            )
        return parser

    def _check_restart(self) -> None:
        if self._abandoned or self._clock() < self._restart_at:
            raise FileRefused(DEFERRED)

    def _failed(self) -> None:
        self._restart_at = self._clock() + self._backoff_s
        self._backoff_s = min(max(self._backoff_s * 2, _RESTART_FIRST_S), _RESTART_AT_MOST_S)

    def _leave(self) -> None:
        """Abandon both processes: the opener does not answer, or has exited."""
        parser, self.parser = self.parser, None
        opener, self.opener = self.opener, None
        self._held.clear()
        for each in (parser, opener):
            if each is not None:
                self._ended_cpu_s += each.cpu_s
                each.kill()
                self._left.append(each)
