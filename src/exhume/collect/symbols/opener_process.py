"""The recorder's side of the opener and parser processes: starts them, sends them requests, and ends or abandons them
when they take too long."""

import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import time
from typing import Any

import numpy.typing as npt

from exhume.collect.symbols.opener import keep_only, serve
from exhume.collect.symbols.parser.wire import (
    HEADER_SIZE,
    BadReply,
    body_size,
    decode_reply,
    receive_request,
    send_request,
)
from exhume.model.isolation import isolated_environment, isolated_python
from exhume.procfs.pid_status import status_values

_MODULE = "exhume.collect.symbols.opener"
# On a starved machine it takes seconds to start a process.
START_S = 20.0
# How long a killed process may take to exit; the recorder waits this long when it exits itself.
_END_S = 0.5
_MEASURE_EVERY_S = 30.0
# One thread is enough, and each thread costs a stack and buffers.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

Arrays = dict[str, npt.NDArray[Any]]


class ProcessFailed(Exception):
    """The process could not be started, has exited, or sent an invalid reply: it is unusable."""


class ProcessTimeout(ProcessFailed):
    """The process did not answer in time."""


class _Process:
    """Another process and the connection to it."""

    def __init__(self, pid: int, connection: socket.socket, pidfd: int) -> None:
        self.pid = pid
        self._connection = connection
        self._pidfd = pidfd

    @property
    def cpu_s(self) -> float:
        """The CPU time it has used, according to the kernel; 0 after it exited."""
        with contextlib.suppress(OSError):
            # The clock of another process (kernel/time/posix-cpu-timers.c, CPUCLOCK_SCHED).
            return time.clock_gettime((~self.pid << 3) | 2)
        return 0.0

    @property
    def private_kb(self) -> int:
        """Its memory that is not shared with other processes; 0 after it exited."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as statm:  # noqa: PTH123
                _, resident, shared, *_ = map(int, statm.read().split())
        except (OSError, ValueError):
            return 0
        return (resident - shared) * resource.getpagesize() // 1024

    def kill(self) -> None:
        """Kill it. May be called from any thread, and wakes the thread that waits for a reply."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Whether it has exited, or does so within some seconds."""
        return bool(select.select([self._pidfd], [], [], seconds)[0])

    def close(self) -> None:
        """Release it, whatever its state."""
        self._connection.close()
        os.close(self._pidfd)


class ParserProcess(_Process):
    """A running parser: a child of the opener, which passes requests to it; the replies come here."""

    def __init__(self, pid: int, connection: socket.socket, pidfd: int) -> None:
        super().__init__(pid, connection, pidfd)
        # Confinement steps that the kernel refused.
        self.unconfined: list[str] = []

    def wait_started(self) -> None:
        """Wait until it is confined; it reads nothing untrusted before that. Raises ProcessFailed."""
        try:
            self._connection.settimeout(START_S)
            hello = receive_request(self._connection)
        except (OSError, ValueError) as error:
            raise ProcessFailed("it did not start") from error
        if hello is None:
            raise ProcessFailed("it ended as it started")
        self.unconfined = hello[0]["refused"]

    def reply(self, seconds: float) -> Arrays:
        """The reply to a request that was passed to it. Raises FileRefused, ProcessTimeout and ProcessFailed."""
        until = time.monotonic() + seconds
        try:
            header = self._receive(HEADER_SIZE, until)
            return decode_reply(header, self._receive(body_size(header), until))
        except TimeoutError as error:
            raise ProcessTimeout(f"reading it took more than {seconds:g} s") from error
        except BadReply as error:
            raise ProcessFailed(f"the parser sent what makes no sense: {error}") from error
        except OSError as error:
            raise ProcessFailed("the parser ended") from error

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
                raise ProcessFailed("the parser ended")
            got += received
        return content


class OpenerProcess(_Process):
    """A running opener."""

    def __init__(self, pid: int, connection: socket.socket, pidfd: int) -> None:
        super().__init__(pid, connection, pidfd)
        self._private_kb, self._measured = 0, float("-inf")

    @property
    def private_kb(self) -> int:
        """Its memory that is not shared with other processes, as of some seconds ago. Most pages are shared with the
        recorder or the parser until one of them writes to them, and the kernel needs a millisecond to work that out."""
        now = time.monotonic()
        if now - self._measured >= _MEASURE_EVERY_S:
            self._measured = now
            with contextlib.suppress(OSError), open(f"/proc/{self.pid}/smaps_rollup", "rb") as rollup:  # noqa: PTH123
                content = rollup.read()
                self._private_kb = sum(
                    value for name in (b"Private_Clean", b"Private_Dirty") for value in status_values(content, name)
                )
        return self._private_kb

    @classmethod
    def spawn(cls) -> "OpenerProcess":
        """Start a fresh interpreter. Raises ProcessFailed when that fails."""
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
            raise ProcessFailed(error.strerror) from error
        process.returncode = 0  # `end` waits for it
        return cls(process.pid, ours, os.pidfd_open(process.pid))

    @classmethod
    def fork(cls) -> "OpenerProcess | None":
        """Fork this process, for a recorder that has not begun: it has one thread, has opened nothing, and holds
        nothing that a parser must not know. This saves the tenth of a second that an interpreter needs to start.
        Returns None when the fork fails; the caller can `spawn` later."""
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
            # Whatever happens, the child must never return to the recorder's code.
            try:
                os.setsid()
                keep_only(theirs)
                serve(theirs, recorder)
            finally:
                os._exit(1)
        theirs.close()
        return cls(pid, ours, os.pidfd_open(pid))

    def call(self, do: str, seconds: float, **arguments: Any) -> dict[str, Any]:
        """The reply to a request. Raises ProcessTimeout and ProcessFailed."""
        message, files = self._call(do, seconds, arguments)
        for fd in files:
            os.close(fd)
        return message

    def _call(self, do: str, seconds: float, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        try:
            self._connection.settimeout(seconds)
            send_request(self._connection, {"do": do, **arguments}, [])
            received = receive_request(self._connection)
        except TimeoutError as error:
            raise ProcessTimeout("its filesystem does not answer") from error
        except OSError as error:
            raise ProcessFailed("the process that opens files ended") from error
        if received is None:
            raise ProcessFailed("the process that opens files ended")
        return received

    def start_parser(self) -> ParserProcess:
        """Start a parser. Raises ProcessFailed."""
        message, files = self._call("start-parser", START_S, {})
        if "error" in message:
            raise ProcessFailed(message["error"])
        connection, pidfd = files
        parser = ParserProcess(message["pid"], socket.socket(fileno=connection), pidfd)
        try:
            parser.wait_started()
        except ProcessFailed:
            parser.kill()
            parser.close()
            raise
        return parser

    def end(self) -> None:
        """Stop it and release it. If it is blocked, the kernel ends it when it can."""
        self.kill()
        self.has_ended(_END_S)
        self.reap()
        self.close()

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
