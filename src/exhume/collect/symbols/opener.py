"""The opener process: opens files of watched processes, and passes them to the parser, which it starts.

A filesystem that does not answer (FUSE, NFS) blocks any process that opens, reads or closes its files, and a process
blocked there cannot be killed, not even by SIGKILL (fs/fuse/dev.c, request_wait_answer). So the recorder itself holds
no file of a watched process. The opener does, with the privileges that this requires, and the recorder abandons it when
it stops answering. The opener reads neither the files nor anything from the parser.
"""

import contextlib
import ctypes
import gc
import itertools
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from exhume.collect.symbols.locate import open_mapped, open_regular
from exhume.collect.symbols.mappings import AddressSpace, FileKey, Mapping, mapped_file
from exhume.collect.symbols.parser import server as parser_server
from exhume.collect.symbols.parser.open_file import OpenFile, identity_of
from exhume.collect.symbols.parser.wire import receive_request, send_request
from exhume.procfs.host import Host

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_NO_NEW_PRIVS = 1, 15, 38  # linux/prctl.h
# How long a killed parser may take to exit.
_END_S = 1.0

_Message = dict[str, Any]


class Opener:
    """Answers the recorder: one reply per request. The files of a job are held until the job is over."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._held: dict[int, OpenFile] = {}
        self._numbers = itertools.count()
        # Write-only: the parser's replies go to the recorder.
        self._to_parser: socket.socket | None = None
        self._parser = 0
        # Parsers that were killed and have not exited yet.
        self._ending: set[int] = set()

    def serve(self) -> None:
        while (received := receive_request(self._connection)) is not None:
            request, _ = received
            match request["do"]:
                case "open-mapped":
                    self._reply({"files": [self._open_mapped(request)]})
                case "open":
                    self._reply({"files": [self._open(root, path, request) for root, path in request["places"]]})
                case "identities":
                    self._reply({"identities": [_identity(path) for path in request["paths"]]})
                case "parse":
                    self._reply(self._hand_over(request))
                case "close":
                    self._close(list(self._held))
                    self._reply({})
                case "start-parser":
                    self._start_parser()
                case "stop-parser":
                    self._reply(self._stop_parser(request["ends_within"]))

    def _reply(self, message: _Message, files: list[int] | None = None) -> None:
        send_request(self._connection, message, files or [])

    def _hold(self, file: OpenFile | None) -> _Message | None:
        if file is None:
            return None
        number = next(self._numbers)
        self._held[number] = file
        user = os.fstat(file.fd).st_uid
        return {"number": number, "identity": file.identity, "uid": user, "path": file.path, "root": file.root}

    def _open_mapped(self, request: _Message) -> _Message | None:
        """Open the mapped file through the first of the processes that makes it reachable."""
        host = Host(proc=Path(request["proc"]))
        for pid, lineage, start, end, offset, key in request["views"]:
            mapping = Mapping(start, end, offset, mapped_file(FileKey(*key)))
            file = open_mapped(host, AddressSpace(pid, tuple(lineage)), mapping)
            if file is not None:
                return self._hold(file)
        return None

    def _open(self, root: str, path: str, request: _Message) -> _Message | None:
        return self._hold(open_regular(path, root=root, follow=request["follow"]))

    def _hand_over(self, request: _Message) -> _Message:
        files = [self._held[number].fd for number in request["files"]]
        error = ""
        try:
            if self._to_parser is None:
                error = "there is none"
            else:
                send_request(self._to_parser, request["request"], files)
        except OSError as failure:
            error = failure.strerror or str(failure)
        if not request["keep"]:
            self._close(request["files"])
        return {"error": error}

    def _close(self, numbers: list[int]) -> None:
        for number in numbers:
            self._held.pop(number).close()

    def _start_parser(self) -> None:
        """Fork a parser, and pass its connection and a handle to kill it to the recorder."""
        self._reap()
        parser_server.warm_up()  # once for all parsers
        try:
            recorders, parsers = socket.socketpair()
        except OSError as error:
            self._reply({"error": error.strerror})
            return
        us = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            recorders.close()
            parsers.close()
            self._reply({"error": error.strerror})
            return
        if pid == 0:
            # Whatever happens, the child must never open anything.
            try:
                keep_only(parsers)
                parser_server.serve(parsers, us)
            finally:
                os._exit(1)
        parsers.close()
        self._parser, self._to_parser = pid, recorders
        pidfd = os.pidfd_open(pid)
        try:
            self._reply({"pid": pid}, [recorders.fileno(), pidfd])
        finally:
            os.close(pidfd)

    def _stop_parser(self, ends_within: float) -> _Message:
        """Stop the parser unless it exits by itself within some seconds. Returns its exit status and CPU time, or
        nothing when it does not exit."""
        pid, self._parser = self._parser, 0
        if self._to_parser is not None:
            self._to_parser.close()
            self._to_parser = None
        if not pid:
            return {}
        pidfd = os.pidfd_open(pid)
        try:
            select.select([pidfd], [], [], ends_within)
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            if not select.select([pidfd], [], [], _END_S)[0]:
                self._ending.add(pid)
                return {}
        finally:
            os.close(pidfd)
        _, _, usage = os.wait4(pid, 0)
        cause = ""
        if ended is not None:
            how = "with" if ended.si_code == os.CLD_EXITED else "by signal"
            cause = f" {how} {ended.si_status}"
        return {"cpu_s": usage.ru_utime + usage.ru_stime, "cause": cause}

    def _reap(self) -> None:
        self._ending = {pid for pid in self._ending if os.waitpid(pid, os.WNOHANG)[0] == 0}


def _identity(path: str) -> tuple[int, int, int, int] | None:
    try:
        return identity_of(os.stat(path))  # noqa: PTH116
    except (OSError, ValueError):
        return None


def keep_only(connection: socket.socket) -> None:
    """Close every other file descriptor in a process that was just forked."""
    null = os.open(os.devnull, os.O_RDONLY)
    for stream in range(3):
        os.dup2(null, stream)
    for other in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - a tenth of the time of pathlib
        if other > 2 and other != connection.fileno():
            with contextlib.suppress(OSError):  # the descriptor of the listing is closed by now
                os.close(other)


def serve(connection: socket.socket, recorder: int) -> None:
    """Answer the recorder, whose process id is given, until it exits."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != recorder:
        return
    # Signals to a whole session or service are meant for the recorder, which waits for outstanding names.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.chdir("/")
    libc.prctl(_PR_SET_NAME, b"exhume-opener", 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    gc.freeze()  # what is loaded stays, so the collector need not scan it
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        Opener(connection).serve()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
