"""The worker side of the pool: a template process that loads the handlers once, and the workers that it forks.

Workers share the template's memory pages. A worker that ends, for whatever reason, is replaced by a new fork of the
template, which is single-threaded and has opened nothing.
"""

import gc
import mmap
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Self

from exhume.model.process import end_with, give_back
from exhume.present.web.source import Source

#: The default package whose `handlers` module runs the jobs. Such a module has `load`, `load_deferred`, `open_handle`,
#: `execute` and `TOO_LARGE`.
RECORDING_PAGE = "exhume.present.web"
#: Integers per worker in shared memory: job cancelled, segments read, segments in total.
STATE = 3
LENGTH = struct.Struct("=Q")
# What a job may allocate in addition to the loaded program (RLIMIT_DATA counts private writable memory, mm/mmap.c,
# may_expand_vm, since Linux 4.7). A job that needs more is answered with 413.
JOB_BYTES = 1 << 30
# A worker whose anonymous memory has grown by TRIM_BYTES returns free pages after its job; one that still holds more
# than RECYCLE_BYTES is replaced.
TRIM_BYTES, RECYCLE_BYTES = 8 << 20, 160 << 20
IDLE_S = 0.3
MAX_WORKERS = 4
# Minimum interval between restarts: a worker that ends sooner than this is not replaced before.
_MIN_LIFE_S = 1.0


def shared_states(workers: int) -> "memoryview[int]":
    """Memory that the workers share with the server."""
    return memoryview(mmap.mmap(-1, workers * STATE * 4)).cast("I")


@dataclass(frozen=True, slots=True)
class Template:
    """The template process, as seen by the server: `control` receives the channel of each forked worker."""

    pid: int
    control: socket.socket
    states: "memoryview[int]"

    @classmethod
    def fork(cls, source: Source, close: socket.socket | None = None, package: str = RECORDING_PAGE) -> Self:
        """Fork the template; call this while the process is single-threaded. `source` is what the handlers of
        `package` read, `close` is a socket that the template must not keep open."""
        count = min(MAX_WORKERS, max(2, len(os.sched_getaffinity(0))))
        states = shared_states(count)
        ours, theirs = socket.socketpair()
        server = os.getpid()
        pid = os.fork()
        if pid:
            theirs.close()
            return cls(pid, ours, states)
        try:
            ours.close()
            if close is not None:
                close.close()
            if not end_with(server):
                os._exit(0)
            _run_template(theirs, source, states, count, package)
        finally:
            _exit_child()

    def stop(self) -> None:
        """Kill the template and its workers, which only read."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.control.close()


def _run_template(control: socket.socket, source: Source, states: "memoryview[int]", count: int, package: str) -> None:
    """Load the handlers, fork the workers, and replace those that end; never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    handlers = import_module(f"{package}.handlers")
    handlers.load()
    started: dict[int, tuple[int, float]] = {}
    # The first worker starts at once; the others, which also take long jobs, start when the diagnosis is loaded too.
    for number in range(count):
        if number == 1:
            handlers.load_deferred()
        # Exclude the objects loaded so far from garbage collection, which would scan them and thereby copy their shared
        # pages.
        gc.freeze()
        started[_fork_worker(control, source, states, number, handlers)] = number, time.monotonic()
    while True:
        pid, _ = os.wait()
        number, since = started.pop(pid)
        time.sleep(max(0.0, _MIN_LIFE_S - (time.monotonic() - since)))
        started[_fork_worker(control, source, states, number, handlers)] = number, time.monotonic()


def _fork_worker(control: socket.socket, source: Source, states: "memoryview[int]", number: int, handlers: Any) -> int:
    template = os.getpid()
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        ours.close()
        socket.send_fds(control, [bytes([number])], [theirs.fileno()])
        theirs.close()
        return pid
    theirs.close()
    control.close()
    try:
        if not end_with(template):
            os._exit(0)
        _run_worker(ours, source, states[number * STATE : (number + 1) * STATE], handlers)
    finally:
        _exit_child()


def _run_worker(channel: socket.socket, source: Source, state: "memoryview[int]", handlers: Any) -> None:
    """Run jobs one after the other until the server closes the channel."""
    from exhume.store.read.progress import set_cancel_check, set_progress_callback

    def progress(done: int, total: int) -> None:
        state[1] += done
        state[2] += total

    data = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or data + JOB_BYTES < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (data + JOB_BYTES, hard))
    handle = handlers.open_handle(source)
    warming = handle.warm_up()
    held = 0
    while (message := receive(channel)) is not None:
        name, params, damaged = message
        handle.note_damaged(damaged)
        before = len(handle.damaged())
        set_cancel_check(lambda: bool(state[0]))
        set_progress_callback(progress)
        exhausted = False
        try:
            result = handlers.execute(handle, name, params)
        except MemoryError:
            # Replied to after this block, when the handler's frames and what they hold have been freed.
            result, exhausted = handlers.TOO_LARGE, True
        try:
            send(channel, (result, handle.damaged()[before:]))
        except (BrokenPipeError, ConnectionResetError):
            # The server ended during the job.
            break
        if exhausted:
            os._exit(0)
        if _anonymous_bytes() > held + TRIM_BYTES:
            _return_free_pages()
            held = _anonymous_bytes()
            if held > RECYCLE_BYTES:
                os._exit(0)
        if not select.select([channel], [], [], IDLE_S)[0]:
            set_cancel_check(None)
            set_progress_callback(None)
            # A job that arrives waits for one step.
            for _ in warming:
                if select.select([channel], [], [], 0)[0]:
                    break
            _return_free_pages()
    os._exit(0)


def send(channel: socket.socket, message: Any) -> None:
    """Write one message."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    channel.sendall(LENGTH.pack(len(data)))
    channel.sendall(data)


def receive(channel: socket.socket) -> Any | None:
    """Read one message; None at end of file."""
    head = channel.recv(LENGTH.size, socket.MSG_WAITALL)
    return pickle.loads(channel.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL)) if head else None


def _exit_child() -> NoReturn:
    """Exit a forked process without running the parent's exit handlers; an error is printed."""
    error = sys.exception()
    if error is not None:
        traceback.print_exception(error)
        sys.stderr.flush()
    os._exit(1)


def _anonymous_bytes() -> int:
    resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return (resident - shared) * resource.getpagesize()


def _return_free_pages() -> None:
    """Return free memory of both allocators to the kernel."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    give_back()
