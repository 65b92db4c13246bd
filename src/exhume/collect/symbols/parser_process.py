"""The recorder's end of the parser process: starts it, asks it about open files, and ends it when it takes too long."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import time
from typing import Any

import numpy.typing as npt

from exhume.collect.symbols.parser.open_file import FAILED, TIMEOUT, FileRefused
from exhume.collect.symbols.parser.server import serve
from exhume.collect.symbols.parser.wire import (
    HEADER_SIZE,
    BadReply,
    body_size,
    decode_reply,
    receive_request,
    send_request,
)
from exhume.model.isolation import isolated_environment, isolated_python

_MODULE = "exhume.collect.symbols.parser.server"
# On a starved machine a process takes seconds to start.
START_S = 20.0
# One thread is enough, and each has a stack and buffers.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class ParserFailed(Exception):
    """The process could not be started, ended, or sent what makes no sense."""


class ParserProcess:
    """A running parser."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._connection = connection
        self._pidfd = os.pidfd_open(pid)
        # Steps of its confinement that the kernel refused.
        self.unconfined: list[str] = []

    @classmethod
    def spawn(cls) -> "ParserProcess":
        """An interpreter of its own. Raises ParserFailed where it can't be started."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = subprocess.Popen(
                    isolated_python(_MODULE, str(theirs.fileno()), str(os.getpid())),
                    env=isolated_environment() | _ENVIRONMENT,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise ParserFailed(error.strerror) from error
        process.returncode = 0  # `close` waits for it, and wants what it cost
        started = cls(process.pid, ours)
        started.wait_started()
        return started

    @classmethod
    def fork(cls) -> "ParserProcess | None":
        """A copy of this process, for a recorder that has not begun: it has one thread, has opened nothing, and holds
        nothing that a parser must not know. That saves the tenth of a second that an interpreter takes to start. None
        where it can't be made: `spawn` is for later."""
        recorder = os.getpid()
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            return None
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            return None
        if pid == 0:
            # Whatever happens, this copy never returns to what the recorder does next.
            try:
                _serve_only(theirs, recorder)
            finally:
                os._exit(1)
        theirs.close()
        return cls(pid, ours)

    def wait_started(self) -> None:
        """Wait until it is confined; before that it reads nothing untrusted. Raises ParserFailed, when it is closed."""
        try:
            self._connection.settimeout(START_S)
            hello = receive_request(self._connection)
        except (OSError, ValueError) as error:
            self.close()
            raise ParserFailed("it did not start") from error
        if hello is None:
            self.close()
            raise ParserFailed("it ended as it started")
        self.unconfined = hello[0]["refused"]
        # A forked one was made before the recorder raised its priority: the names of a starved machine are wanted most.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self.pid, os.getpriority(os.PRIO_PROCESS, 0))

    @property
    def cpu_s(self) -> float:
        """The CPU time that it took so far, by the kernel's account; 0 when it is gone."""
        with contextlib.suppress(OSError):
            # The clock of another process (kernel/time/posix-cpu-timers.c, CPUCLOCK_SCHED).
            return time.clock_gettime((~self.pid << 3) | 2)
        return 0.0

    @property
    def private_kb(self) -> int:
        """Its memory that it doesn't share with others; 0 when it is gone."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as statm:  # noqa: PTH123
                _, resident, shared, *_ = map(int, statm.read().split())
        except (OSError, ValueError):
            return 0
        return (resident - shared) * resource.getpagesize() // 1024

    def ask(self, request: dict[str, Any], files: list[int], seconds: float) -> dict[str, npt.NDArray[Any]]:
        """The reply to a request about open files. Raises FileRefused, and ParserFailed where the process is of no
        more use: then it has to be closed."""
        until = time.monotonic() + seconds
        try:
            self._connection.settimeout(seconds)
            send_request(self._connection, request, files)
            header = self._receive(HEADER_SIZE, until)
            return decode_reply(header, self._receive(body_size(header), until))
        except TimeoutError as error:
            raise ParserFailed(f"reading it took more than {seconds:g} s") from error
        except BadReply as error:
            raise ParserFailed(f"the parser sent what makes no sense: {error}") from error
        except OSError as error:
            raise ParserFailed(f"the parser ended{self._cause()}") from error

    def _receive(self, size: int, until: float) -> bytearray:
        content = bytearray(size)
        view, got = memoryview(content), 0
        while got < size:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(left)
            received = self._connection.recv_into(view[got:])
            if not received:
                raise ParserFailed(f"the parser ended{self._cause()}")
            got += received
        return content

    def _cause(self) -> str:
        # Left to be waited for: `close` wants what it cost.
        for _ in range(10):
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is not None:
                return f" with {ended.si_status}" if ended.si_code == os.CLD_EXITED else f" by signal {ended.si_status}"
            time.sleep(0.02)
        return ""

    def kill(self) -> None:
        """End it; may be called from any thread. Not by Popen, which would wait for it."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> float:
        """End it; returns the CPU time that it took."""
        self.kill()
        self._connection.close()
        _, _, usage = os.wait4(self.pid, 0)
        os.close(self._pidfd)
        return usage.ru_utime + usage.ru_stime


def _serve_only(connection: socket.socket, recorder: int) -> None:
    """Serve with no other file than the connection."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for stream in range(3):
        os.dup2(null, stream)
    fd = connection.detach()
    for other in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - a tenth of the time of pathlib
        if other > 2 and other != fd:
            with contextlib.suppress(OSError):  # the list itself is closed by now
                os.close(other)
    serve(socket.socket(fileno=fd), recorder)


def refusal_of(failure: ParserFailed) -> FileRefused:
    """What became of the file that was being read."""
    timed_out = isinstance(failure.__cause__, TimeoutError)
    return FileRefused(TIMEOUT if timed_out else FAILED, str(failure))
