"""The server's side of the worker pool: jobs wait in two queues, short and long, and each worker runs one at a time.

The server process parses requests and writes responses; it loads neither numpy nor pyarrow. With more than one worker,
the first takes short jobs only and the others prefer long ones, so neither kind can block the other. Background jobs
have a queue of their own, which is served when the others are empty. Equal requests share a job, and a job without
clients is cancelled.
"""

import asyncio
import pickle
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from exhume.model.errors import ExhumeError
from exhume.present.web.params import QueryParams, Refusal
from exhume.present.web.schemas import CLIENT_CLOSED_REQUEST, Reply, json_reply
from exhume.present.web.source import Source
from exhume.present.web.worker import LENGTH, RECORDING_PAGE, STATE, Template

if TYPE_CHECKING:
    from exhume.store.read.index import Skipped

# A job whose worker was killed is retried once, by a fresh worker.
_ATTEMPTS = 2
# Maximum number of pending jobs: beyond this, the last client would have timed out before its job ran.
MAX_JOBS = 200
# The header in which a client names its request, so that it can look up the progress.
REQUEST_NAME = "x-exhume-request"
_MAX_NAME = 64
# Background jobs start after no request has arrived for IDLE_S, so that a job does not start between two clicks and
# delay the second. After MAX_DEFERRED_S a background job runs even before waiting requests, which may never stop
# coming.
IDLE_S, MAX_DEFERRED_S = 0.5, 15.0


class Cancelled(ExhumeError):
    """The client closed the connection, or the server is shutting down."""


class Job:
    """A handler's name and parameters, and the future result."""

    def __init__(self, name: str, params: QueryParams, result: "asyncio.Future[Any]") -> None:
        self.name = name
        self.params = params
        self.result = result
        # Retrieve the exception of a dropped job, so that asyncio does not log it as never retrieved.
        result.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.clients = 0
        self.attempts = 0
        #: The shared state of the worker that runs the job.
        self.state: memoryview[int] | None = None

    def fail(self, error: ExhumeError) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class JobPool(ABC):
    """Base class of pools that answer requests by running jobs."""

    def __init__(self) -> None:
        self._shared: dict[tuple[str, QueryParams], Job] = {}
        self._named: dict[str, Job] = {}

    def start(self) -> None:  # noqa: B027
        """Start running jobs."""

    @abstractmethod
    def submit(self, name: str, params: QueryParams) -> Job:
        """Queue a handler for a waiting client."""

    def submit_background(self, name: str, params: QueryParams) -> Job:
        """Queue a handler that no client waits for."""
        return self.submit(name, params)

    def cancel(self, job: Job) -> None:  # noqa: B027
        """Cancel a job, as far as possible."""

    def stop(self) -> None:  # noqa: B027
        """Cancel all jobs and run no more."""

    async def respond(self, request: Request, handler: str, params: QueryParams) -> Response:
        """The response of a handler; 499 if the client closes the connection first."""
        key = (handler, params)
        job = self._shared.get(key)
        if job is None:
            if len(self._shared) >= MAX_JOBS:
                raise Refusal(503, "too many requests wait for an answer: try again in a few seconds")
            job = self._shared[key] = self.submit(handler, params)
        job.clients += 1
        name = request.headers.get(REQUEST_NAME, "")[:_MAX_NAME]
        if name:
            self._named[name] = job
        disconnect = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({job.result, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            return response(job.result.result()) if job.result.done() else Response(status_code=CLIENT_CLOSED_REQUEST)
        except Cancelled:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        finally:
            disconnect.cancel()
            if self._named.get(name) is job:
                del self._named[name]
            job.clients -= 1
            if not job.clients:
                del self._shared[key]
                if not job.result.done():
                    self.cancel(job)

    def progress(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Segments read and segments in total (0 if unknown), over all requests in flight with these names."""
        return {name: self.progress_of(self._named[name]) for name in names if name in self._named}

    def progress_of(self, job: Job) -> tuple[int, int]:
        """The progress of one job."""
        return 0, 0


class WorkerPool(JobPool):
    """Forked workers, which are added as the template forks them."""

    def __init__(self, template: Template) -> None:
        super().__init__()
        self._control = template.control
        self._states = template.states
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._short: deque[Job] = deque()
        self._long: deque[Job] = deque()
        #: Each with the time from which it is no longer deferred.
        self._background: deque[tuple[float, Job]] = deque()
        self._requested_at = float("-inf")
        self._queued = asyncio.Event()
        self._running: set[Job] = set()
        self._damaged: list[Skipped] = []
        self.on_failure: Callable[[], None] = lambda: None
        self.failed = False

    def start(self) -> None:
        """Accept workers as the template forks them."""
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control.fileno(), self._accept)

    def submit(self, name: str, params: QueryParams) -> Job:
        job = Job(name, params, asyncio.get_running_loop().create_future())
        (self._long if params.long else self._short).append(job)
        self._requested_at = time.monotonic()
        self._queued.set()
        return job

    def submit_background(self, name: str, params: QueryParams) -> Job:
        job = Job(name, params, asyncio.get_running_loop().create_future())
        self._background.append((time.monotonic() + MAX_DEFERRED_S, job))
        self._queued.set()
        return job

    def progress_of(self, job: Job) -> tuple[int, int]:
        return (0, 0) if job.state is None else (job.state[1], job.state[2])

    def cancel(self, job: Job) -> None:
        """Drop a waiting job; a running one ends before it opens its next file."""
        for queue in (self._short, self._long):
            with suppress(ValueError):
                queue.remove(job)
        if job.state is not None:
            job.state[0] = 1
        job.fail(Cancelled("cancelled"))

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        for job in [*self._waiting(), *self._running]:
            self.cancel(job)

    def _waiting(self) -> list[Job]:
        return [*self._short, *self._long, *(job for _, job in self._background)]

    def _accept(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        except BlockingIOError:
            return
        if message:
            channel = socket.socket(fileno=descriptors[0])
            channel.setblocking(False)
            self._workers[message[0]] = asyncio.create_task(self._feed(message[0], channel))
            return
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self.failed = True
        for job in self._waiting():
            job.fail(ExhumeError("the workers have ended; start the server again"))
        self.on_failure()

    async def _feed(self, number: int, channel: socket.socket) -> None:
        """Send jobs to a worker, one after the other, until the worker ends."""
        known_damaged = 0
        with channel:
            while True:
                job = await self._next(number)
                job.state = self._states[number * STATE : (number + 1) * STATE]
                job.state[0] = job.state[1] = job.state[2] = 0
                self._running.add(job)
                message = pickle.dumps((job.name, job.params, self._damaged[known_damaged:]), pickle.HIGHEST_PROTOCOL)
                known_damaged = len(self._damaged)
                try:
                    await asyncio.get_running_loop().sock_sendall(channel, LENGTH.pack(len(message)) + message)
                    result, damaged = pickle.loads(await _receive(channel))
                except (ConnectionError, EOFError) as error:
                    # A connection reset means the worker ended, to be replaced, before it took the job; that attempt
                    # does not count.
                    self._retry(job, counts=isinstance(error, EOFError))
                    return
                finally:
                    job.state = None
                    self._running.remove(job)
                self._damaged += [each for each in damaged if each not in self._damaged]
                if not job.result.done():
                    job.result.set_result(result)

    async def _next(self, number: int) -> Job:
        while True:
            queue = self._short if number == 0 or not self._long else self._long
            deferral_s = self._deferral_s() if number else None
            if deferral_s == 0:
                return self._background.popleft()[1]
            if queue:
                return queue.popleft()
            self._queued.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(deferral_s):
                    await self._queued.wait()

    def _deferral_s(self) -> float | None:
        """How long the first background job still has to wait if no request arrives; None if there is none."""
        if not self._background:
            return None
        allowed_at = self._background[0][0]
        if not self._short and not self._long:
            allowed_at = min(allowed_at, self._requested_at + IDLE_S)
        return max(0.0, allowed_at - time.monotonic())

    def _retry(self, job: Job, *, counts: bool) -> None:
        job.attempts += counts
        if job.result.done():
            return
        if job.attempts < _ATTEMPTS:
            (self._long if job.params.long else self._short).appendleft(job)
            self._queued.set()
        else:
            detail = "the worker ended twice while it answered: choose a shorter time, or see the server's log"
            job.result.set_result(json_reply({"detail": detail}, 500))


class ThreadPool(JobPool):
    """Runs jobs to completion in a thread of this process: for tests, and for programs that cannot fork."""

    def __init__(self, source: Source, package: str = RECORDING_PAGE) -> None:
        super().__init__()
        self._handlers = import_module(f"{package}.handlers")
        self._handle = self._handlers.open_handle(source)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="job")

    def submit(self, name: str, params: QueryParams) -> Job:
        loop = asyncio.get_running_loop()
        return Job(name, params, loop.run_in_executor(self._thread, self._handlers.execute, self._handle, name, params))


def response(reply: Reply) -> Response:
    """Convert a reply to a Starlette response."""
    return Response(reply.body, reply.status, dict(reply.headers), reply.media_type)


async def _receive(channel: socket.socket) -> bytearray:
    """Read one message. Raises EOFError if the channel is closed before."""
    (size,) = LENGTH.unpack(await _read(channel, LENGTH.size))
    return await _read(channel, size)


async def _read(channel: socket.socket, size: int) -> bytearray:
    data, done = bytearray(size), 0
    while done < size:
        part = await asyncio.get_running_loop().sock_recv_into(channel, memoryview(data)[done:])
        if not part:
            raise EOFError
        done += part
    return data


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
