"""The server's side of the worker pool: jobs wait in two queues, short and long, and run one per worker.

The server process parses requests and writes answers; it loads neither numpy nor pyarrow. With more than one worker
the first takes short jobs only, and the others take long ones first: neither kind can hold up the other.
"""

import asyncio
import mmap
import pickle
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from exhume.model.errors import ExhumeError
from exhume.present.web.params import QueryParams
from exhume.present.web.reply import problem
from exhume.present.web.worker import LENGTH, STATE, Template

if TYPE_CHECKING:
    from exhume.store.read.index import Skipped

# A job whose worker was killed is tried once more, by a fresh one.
_ATTEMPTS = 2


class Cancelled(ExhumeError):
    """The client closed the connection, or the server ends."""


class Job:
    """A handler's name and its parameters, on their way to a result."""

    def __init__(self, name: str, params: QueryParams, *, long: bool) -> None:
        self.name = name
        self.params = params
        self.long = long
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # A job that is dropped has an exception that no caller looks at.
        self.result.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.attempts = 0
        self.progress: Callable[[], tuple[int, int]] = _no_progress


def _no_progress() -> tuple[int, int]:
    return 0, 0


class JobPool(Protocol):
    """Runs jobs: WorkerPool in processes, ThreadPool in this one."""

    def start(self) -> None: ...
    def submit(self, name: str, params: QueryParams, *, long: bool = False) -> Job: ...
    def cancel(self, job: Job) -> None: ...
    def cancel_all(self) -> None: ...


class WorkerPool:
    """Forked workers, which join as the template forks them."""

    def __init__(self, template: Template) -> None:
        self._control = template.control
        self._states = template.states
        self._workers: dict[int, _Worker] = {}
        self._short: deque[Job] = deque()
        self._long: deque[Job] = deque()
        self._damaged: list[Skipped] = []
        self.on_failure: Callable[[], None] = lambda: None
        self.failed = False

    def start(self) -> None:
        """Take workers as the template forks them."""
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control.fileno(), self._accept)

    def submit(self, name: str, params: QueryParams, *, long: bool = False) -> Job:
        job = Job(name, params, long=long)
        (self._long if long else self._short).append(job)
        self._dispatch()
        return job

    def cancel(self, job: Job) -> None:
        """Drop a job that waits; one that runs ends before it opens its next file."""
        for queue in (self._short, self._long):
            with suppress(ValueError):
                queue.remove(job)
        for worker in self._workers.values():
            if worker.job is job:
                worker.set_cancelled()
        _fail(job, Cancelled("cancelled"))

    def cancel_all(self) -> None:
        for job in [*self._short, *self._long, *(worker.job for worker in self._workers.values() if worker.job)]:
            self.cancel(job)

    def _accept(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        except BlockingIOError:
            return
        if not message:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self.failed = True
            for job in [*self._short, *self._long]:
                _fail(job, ExhumeError("the workers have ended; start the server again"))
            self.on_failure()
            return
        number = message[0]
        worker = _Worker(number, socket.socket(fileno=descriptors[0]), self._states, self._ended)
        previous = self._workers.get(number)
        if previous is not None:
            previous.close()
        self._workers[number] = worker
        self._dispatch()

    def _dispatch(self) -> None:
        for number, worker in sorted(self._workers.items()):
            if worker.job is not None:
                continue
            queue = self._short if number == 0 or not self._long else self._long
            if queue:
                worker.run(queue.popleft(), self._damaged)

    def _ended(self, worker: "_Worker", job: Job | None, message: Any | None) -> None:
        """A worker replied, or ended without (None)."""
        if message is not None:
            result, damaged = message
            self._damaged += [each for each in damaged if each not in self._damaged]
            if job is not None and not job.result.done():
                job.result.set_result(result)
        else:
            if self._workers.get(worker.number) is worker:
                del self._workers[worker.number]
            if job is not None and not job.result.done():
                self._retry(job)
        self._dispatch()

    def _retry(self, job: Job) -> None:
        if job.attempts < _ATTEMPTS:
            (self._long if job.long else self._short).appendleft(job)
        else:
            detail = "the worker ended twice while it answered: choose a shorter time, or see the server's log"
            job.result.set_result(problem(500, detail))


class _Worker(asyncio.Protocol):
    """The connection to one worker."""

    def __init__(
        self,
        number: int,
        channel: socket.socket,
        states: mmap.mmap,
        ended: Callable[["_Worker", Job | None, Any | None], None],
    ) -> None:
        self.number = number
        self.job: Job | None = None
        self._states = states
        self._offset = number * STATE.size
        self._ended = ended
        self._received = bytearray()
        self._known_damaged = 0
        self._transport: asyncio.Transport | None = None
        self._waiting: bytes | None = None
        channel.setblocking(False)
        loop = asyncio.get_running_loop()
        self._connecting = loop.create_task(loop.create_connection(lambda: self, sock=channel))

    def run(self, job: Job, damaged: "list[Skipped]") -> None:
        self.job = job
        job.attempts += 1
        job.progress = self._progress
        STATE.pack_into(self._states, self._offset, 0, 0, 0)
        message = pickle.dumps((job.name, job.params, damaged[self._known_damaged :]), pickle.HIGHEST_PROTOCOL)
        self._known_damaged = len(damaged)
        data = LENGTH.pack(len(message)) + message
        if self._transport is None:
            self._waiting = data
        else:
            self._transport.write(data)

    def set_cancelled(self) -> None:
        _, done, total = STATE.unpack_from(self._states, self._offset)
        STATE.pack_into(self._states, self._offset, 1, done, total)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _progress(self) -> tuple[int, int]:
        _, done, total = STATE.unpack_from(self._states, self._offset)
        return done, total

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._waiting is not None:
            transport.write(self._waiting)
            self._waiting = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < LENGTH.size:
            return
        (size,) = LENGTH.unpack_from(self._received)
        if len(self._received) < LENGTH.size + size:
            return
        message = pickle.loads(memoryview(self._received)[LENGTH.size : LENGTH.size + size])
        self._received = bytearray()
        self._finish(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(None)

    def _finish(self, message: Any | None) -> None:
        job, self.job = self.job, None
        if job is not None:
            job.progress = _no_progress
        self._ended(self, job, message)


class ThreadPool:
    """Runs jobs in two threads of this process: for tests, and programs that can't fork."""

    def __init__(self, directory: Path) -> None:
        from exhume.present.web.handle import RecordingHandle

        self.handle = RecordingHandle(directory)
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="job")

    def start(self) -> None:
        """Threads start with their first job."""

    def submit(self, name: str, params: QueryParams, *, long: bool = False) -> Job:
        from exhume.present.web.handlers import execute

        job = Job(name, params, long=long)
        running = asyncio.get_running_loop().run_in_executor(self._threads, execute, self.handle, name, params)
        running.add_done_callback(lambda done: _copy(done, job))
        return job

    def cancel(self, job: Job) -> None:
        _fail(job, Cancelled("cancelled"))

    def cancel_all(self) -> None:
        """Jobs of threads run to their end."""


def _copy(done: "asyncio.Future[Any]", job: Job) -> None:
    if job.result.done() or done.cancelled():
        return
    error = done.exception()
    if error is not None:
        job.result.set_exception(error)
    else:
        job.result.set_result(done.result())


def _fail(job: Job, error: ExhumeError) -> None:
    if not job.result.done():
        job.result.set_exception(error)
