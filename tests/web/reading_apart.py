"""Readers at work in processes of their own, told as JSON: a program, since forking wants a process with one thread."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from exhume.present.web.answering import Answering
from exhume.present.web.opened import Opened, opened_at
from exhume.store.read.index import Segment
from exhume.store.read.progress import GivenUp, counted
from exhume.store.read.reader import Request as Rows
from exhume.store.read.reader import read_segment

# So long reads whoever is not told that nobody waits any more; and so long may anything else take.
PATIENCE_S = 60.0


def read_for_long(directory: Path) -> Response:
    """Far more files than anybody would wait for."""
    segment = opened_at(directory).recording().segments[0]
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        read_segment(segment, Rows("cpu"))
    return PlainTextResponse("to the end")


def remember_for_long(directory: Path) -> Response:
    """The same for what is remembered by segment, which threads of the process read."""
    opened = opened_at(directory)

    def read(segments: Sequence[Segment]) -> list[int]:
        read_for_long(directory)
        return [0] * len(segments)

    opened.memory.answers(opened.recording().segments, "for long", read)
    return PlainTextResponse("to the end")


def whose(_: Path) -> Response:
    return PlainTextResponse(str(os.getpid()))


def together(_: Path, meeting: Path, count: int) -> Response:
    """Who answers, once so many are at it at the same time."""
    meeting.mkdir(exist_ok=True)
    (meeting / str(os.getpid())).touch()
    until = time.monotonic() + PATIENCE_S / 2
    while len(list(meeting.iterdir())) < count and time.monotonic() < until:
        time.sleep(0.01)
    return PlainTextResponse(str(os.getpid()))


def stop_after_three(go_on: Path) -> Response:
    """Three of five are read; the rest when this file is there."""
    for number in counted(range(5)):
        while number == 3 and not go_on.exists():
            time.sleep(0.01)
    return PlainTextResponse("to the end")


def stopping(_: Path, go_on: Path) -> Response:
    return stop_after_three(go_on)


async def how_far(answering: Answering, go_on: Path) -> list[Any]:
    """What is told of a question while it is being worked at, and afterwards."""
    answer = asyncio.ensure_future(answering.apart(asking(PATIENCE_S, name=b"mine"), stopping, go_on))
    until = time.monotonic() + PATIENCE_S
    told: dict[str, tuple[int, int]] = {}
    while told.get("mine") != (3, 5) and time.monotonic() < until:
        await asyncio.sleep(0.01)
        told = answering.progress(["mine", "of nobody"])
    go_on.touch()
    return [told, (await answer).body.decode(), answering.progress(["mine"])]


def asking(stays_s: float, name: bytes = b"") -> Request:
    """A request of somebody who waits for so long, and gives it a name."""

    headers = [(b"x-exhume-ask", name)] if name else []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(stays_s)
        return {"type": "http.disconnect"}

    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""}, receive)


async def tell(opened: Opened) -> dict[str, Any]:
    answering = Answering(opened)
    began = time.monotonic()
    short = answering.apart(asking(0.3), read_for_long)
    remembering = answering.apart(asking(0.5), remember_for_long)
    # Somebody else asks the same, and stays a little longer: it is given up when the last one went.
    statuses = [
        answer.status_code
        for answer in await asyncio.gather(short, answering.apart(asking(1.0), read_for_long), remembering)
    ]
    left_after = time.monotonic() - began
    # Not a single process is still busy with it: as many questions as there are processes are answered by all of them
    # at once.
    count = len(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())
    meeting = Path(sys.argv[2]).with_name("meeting")
    asks = [opened.readers.ask() for _ in range(count)]
    futures = [opened.readers.submit(ask, together, opened.directory, meeting, count) for ask in asks]
    pids = {int(future.result(PATIENCE_S).body) for future in futures}
    ask = opened.readers.ask()
    ask.give_up()
    never = opened.readers.submit(ask, whose, opened.directory)
    told = {
        "statuses": statuses,
        "left_after": left_after,
        "processes": count,
        "answered_by": len(pids - {os.getpid()}),
        "freed_after": time.monotonic() - began,
        "never_begun": isinstance(never.exception(PATIENCE_S), GivenUp),
    }
    told["how_far"] = await how_far(answering, Path(sys.argv[2]))
    os.kill(min(pids), signal.SIGKILL)
    answer = await answering.apart(asking(PATIENCE_S), whose)
    told["answered_after_a_kill"] = int(answer.body) > 0
    return told


def main() -> None:
    opened = Opened(Path(sys.argv[1]))
    opened.read_ahead()
    opened.start_readers()
    print(json.dumps(asyncio.run(tell(opened))))
    opened.readers.stop()


if __name__ == "__main__":
    main()
