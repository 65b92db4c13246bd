"""A worker pool at work, reported as JSON: a program of its own, since forking wants a process with one thread."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from starlette.requests import Request

import exhume.present.web.pool as pool_module
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.params import QueryParams
from exhume.present.web.pool import Cancelled, Job, WorkerPool
from exhume.present.web.schemas import Reply
from exhume.present.web.worker import Template
from exhume.store.read.index import Segment
from exhume.store.read.progress import track
from exhume.store.read.reader import Request as Rows
from exhume.store.read.reader import read_segment

# For so long reads a job that is not cancelled; and so long may anything else take.
PATIENCE_S = 60.0
HANDLERS = "exhume.present.web.handlers.testing"


class PathParams(QueryParams):
    path: str
    count: int = 0


class LongParams(PathParams):
    long = True


def read_for_long(handle: RecordingHandle, _: QueryParams) -> Reply:
    """Read far more files than a client would wait for."""
    segment = handle.recording().segments[0]
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        read_segment(segment, Rows("cpu"))
    return Reply(b"to the end")


def cache_for_long(handle: RecordingHandle, params: QueryParams) -> Reply:
    """The same through the cache, whose threads read."""

    def load(segment: Segment) -> int:
        read_for_long(handle, params)
        return 0

    handle.cache.get(handle.recording().segments, "for long", load)
    return Reply(b"to the end")


def pid(_: RecordingHandle, __: QueryParams) -> Reply:
    return Reply(str(os.getpid()).encode())


def together(_: RecordingHandle, params: PathParams) -> Reply:
    """The worker's pid, once so many workers run this at the same time."""
    meeting = Path(params.path)
    meeting.mkdir(exist_ok=True)
    (meeting / str(os.getpid())).touch()
    until = time.monotonic() + PATIENCE_S / 2
    while len(list(meeting.iterdir())) < params.count and time.monotonic() < until:
        time.sleep(0.01)
    return Reply(str(os.getpid()).encode())


def stop_after_three(_: RecordingHandle, params: PathParams) -> Reply:
    """Three of five segments are read; the rest when this file exists."""
    for number in track(range(5)):
        while number == 3 and not Path(params.path).exists():
            time.sleep(0.01)
    return Reply(b"to the end")


def wait_for(_: RecordingHandle, params: PathParams) -> Reply:
    until = time.monotonic() + PATIENCE_S / 2
    while not Path(params.path).exists() and time.monotonic() < until:
        time.sleep(0.01)
    return Reply(b"")


def append(_: RecordingHandle, params: PathParams) -> Reply:
    # Longer than a busy machine keeps the other worker waiting.
    time.sleep(0.02)
    with Path(params.path).open("a") as file:
        file.write(f"{params.count}\n")
    return Reply(b"")


def allocate(_: RecordingHandle, __: QueryParams) -> Reply:
    return Reply(np.ones(8 << 30, np.uint8).tobytes())


def crash(_: RecordingHandle, __: QueryParams) -> Reply:
    os.abort()


def request(stays_s: float, name: bytes = b"") -> Request:
    """A request of a client that disconnects after a time, and names it."""
    headers = [(b"x-exhume-request", name)] if name else []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(stays_s)
        return {"type": "http.disconnect"}

    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""}, receive)


async def cancelled(pool: WorkerPool, work: Path) -> dict[str, Any]:
    began = time.monotonic()
    # A second client of the same answer stays a little longer: the job is cancelled with the last one.
    answers = await asyncio.gather(
        pool.respond(request(0.3), "testing.read_for_long", QueryParams()),
        pool.respond(request(1.0), "testing.read_for_long", QueryParams()),
        pool.respond(request(0.5), "testing.cache_for_long", QueryParams()),
    )
    left_after = time.monotonic() - began
    # No worker is still busy with it: as many jobs as there are workers run at once.
    count = len(pool._workers)
    params = PathParams(path=str(work / "meeting"), count=count)
    replies = [await job.result for job in [pool.submit("testing.together", params) for _ in range(count)]]
    pids = {int(reply.body) for reply in replies}
    blocking = [pool.submit("testing.wait_for", PathParams(path=str(work / "free"))) for _ in range(count)]
    waiting = pool.submit("testing.append", PathParams(path=str(work / "never"), count=1))
    pool.cancel(waiting)
    (work / "free").touch()
    for job in blocking:
        await job.result
    return {
        "statuses": [answer.status_code for answer in answers],
        "left_after": left_after,
        "freed_after": time.monotonic() - began,
        "workers": count,
        "answered_by": len(pids - {os.getpid()}),
        "never_begun": isinstance(waiting.result.exception(), Cancelled) and not (work / "never").exists(),
    }


async def progress(pool: WorkerPool, work: Path) -> list[Any]:
    """The progress of a job while it runs, and afterwards."""
    params = PathParams(path=str(work / "go-on"))
    answer = asyncio.ensure_future(pool.respond(request(PATIENCE_S, name=b"mine"), "testing.stop_after_three", params))
    until = time.monotonic() + PATIENCE_S
    found: dict[str, tuple[int, int]] = {}
    while found.get("mine") != (3, 5) and time.monotonic() < until:
        await asyncio.sleep(0.01)
        found = pool.progress(["mine", "unknown"])
    (work / "go-on").touch()
    return [found, bytes((await answer).body).decode(), pool.progress(["mine"])]


async def queues(pool: WorkerPool, work: Path) -> dict[str, Any]:
    """Short jobs pass long ones that wait; a long one runs while short ones come without end."""
    hold = LongParams(path=str(work / "hold"))
    blocked: list[Job] = [pool.submit("testing.wait_for", hold) for _ in range(2 * len(pool._workers))]
    short = await pool.submit("testing.pid", QueryParams()).result
    short_passed = short.status == 200 and not any(job.result.done() for job in blocked)
    (work / "hold").touch()
    for job in blocked:
        await job.result
    order = work / "order"
    later: list[Job] = []

    def submit_next(_: object = None) -> None:
        if len(later) < 150:
            later.append(pool.submit("testing.append", PathParams(path=str(order), count=0)))
            later[-1].result.add_done_callback(submit_next)

    for _ in range(5):
        submit_next()
    long = [pool.submit("testing.append", LongParams(path=str(order), count=1)) for _ in range(12)]
    for job in long:
        await job.result
    while len(later) < 150 or not later[-1].result.done():
        await asyncio.sleep(0.01)
    numbers = order.read_text().split()
    return {"short_passed": short_passed, "last_long": max(i for i, each in enumerate(numbers) if each == "1")}


async def background(pool: WorkerPool, work: Path) -> list[int]:
    """How many of the requests that waited before it ran after a background job: one that is deferred, and one that
    waited for too long."""
    found = []
    for number, deferred_s in enumerate((PATIENCE_S, 0.0)):
        pool_module.MAX_DEFERRED_S = deferred_s
        hold, order = work / f"hold-{number}", work / f"background-{number}"
        holding = [pool.submit("testing.wait_for", PathParams(path=str(hold))) for _ in pool._workers]
        waiting = [pool.submit("testing.append", PathParams(path=str(order), count=0)) for _ in range(20)]
        waiting.append(pool.submit_background("testing.append", PathParams(path=str(order), count=1)))
        hold.touch()
        for job in [*holding, *waiting]:
            await job.result
        numbers = order.read_text().split()
        found.append(len(numbers) - 1 - numbers.index("1"))
    return found


async def failures(pool: WorkerPool) -> dict[str, Any]:
    refused = await pool.respond(request(PATIENCE_S), "testing.allocate", QueryParams())
    crashed = await pool.respond(request(PATIENCE_S), "testing.crash", QueryParams())
    os.kill(int((await pool.submit("testing.pid", QueryParams()).result).body), signal.SIGKILL)
    answers = [await pool.respond(request(PATIENCE_S), "testing.pid", QueryParams()) for _ in range(4)]
    return {
        "too_large": refused.status_code,
        "crashed": crashed.status_code,
        "after_kill": [answer.status_code for answer in answers],
    }


async def report(template: Template, work: Path) -> dict[str, Any]:
    pool = WorkerPool(template)
    pool.start()
    # Jobs wait for the first worker, and then there are all of them.
    await pool.submit("testing.pid", QueryParams()).result
    until = time.monotonic() + PATIENCE_S
    while len(pool._workers) < min(4, max(2, len(os.sched_getaffinity(0)))) and time.monotonic() < until:
        await asyncio.sleep(0.01)
    found = await cancelled(pool, work)
    found["progress"] = await progress(pool, work)
    found |= await queues(pool, work)
    found["behind_background"] = await background(pool, work)
    return found | await failures(pool)


def main() -> None:
    testing = ModuleType(HANDLERS)
    handlers = (read_for_long, cache_for_long, pid, together, stop_after_three, wait_for, append, allocate, crash)
    for handler in handlers:
        setattr(testing, handler.__name__, handler)
    # Workers find it by the name of a handler's module.
    sys.modules[HANDLERS] = testing
    template = Template.fork(Path(sys.argv[1]))
    try:
        print(json.dumps(asyncio.run(report(template, Path(sys.argv[2])))))
    finally:
        template.stop()


if __name__ == "__main__":
    main()
