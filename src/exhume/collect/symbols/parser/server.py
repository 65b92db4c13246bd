"""The parser process: reads the files that the opener passes to it, and returns their tables to the recorder.

It loads what it needs, drops its privileges (`confine`), and then answers one request after the other. The recorder
kills it when a file takes too long.
"""

import ctypes
import gc
import os
import signal
import socket
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.parser import demangle as demangling
from exhume.collect.symbols.parser.confine import confine
from exhume.collect.symbols.parser.open_file import MALFORMED, UNREADABLE, FileRefused, OpenFile, identity_of, readable
from exhume.collect.symbols.parser.perf_map import read_perf_map
from exhume.collect.symbols.parser.program import (
    Program,
    debug_link,
    load_names,
    load_outlines,
    load_program,
    pack_program,
    unpack_outlines,
    unpack_program,
)
from exhume.collect.symbols.parser.wire import (
    BadReply,
    encode_refusal,
    encode_reply,
    joined,
    receive_request,
    send_request,
    text,
)

_Arrays = dict[str, npt.NDArray[Any]]

# CPU time limit per request, after which the kernel kills the process. The budget of a file is 0.2 s for each of its
# parts.
_MAX_CPU_S = 2.0
# For glibc's mallopt (malloc.h). Up to 4 MiB of free memory are kept between files: releasing and reallocating it costs
# a third of the time to read a file.
_FREE_BYTES_KEPT = 4 << 20
_PR_SET_NAME = 15  # linux/prctl.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def answer(request: dict[str, Any], files: list[OpenFile]) -> _Arrays:
    """The reply to a request. Raises FileRefused."""
    match request["kind"]:
        case "program":
            return _program(files, request["offsets"])
        case "debug":
            return _debug_link(files[0])
        case "outlines":
            return _outlines(files[0])
        case "names":
            names = [bytes.fromhex(each) for each in request["mangled"]]
            for file, lookups in zip(files, request["lookups"], strict=True):
                names += load_names(file, lookups)
            return _named(names)
        case "perf-map":
            return read_perf_map(files[0], request["offset"], request["size"])
    raise ValueError(request["kind"])


def _program(files: list[OpenFile], offsets: list[int]) -> _Arrays:
    """The functions of a file, and what is already known about the offsets that were hit."""
    program, source = load_program(files[0], files[1:])
    arrays = pack_program(program, files.index(source))
    hit = np.array(offsets, np.uint64)
    found = program.find(hit)
    if (found < 0).any():
        arrays |= _outlines(files[0])
    indexes = sorted({index for index in found.tolist() if index >= 0 and _is_costly(program, index)})
    lookups = [program.lookup(index) for index in indexes if program.needs_file]
    names = load_names(source, lookups) if program.needs_file else [program.name(index, None) for index in indexes]
    if len(files) == 1:
        arrays |= _debug_link(files[0])
    unpack_program(arrays)  # what the recorder would refuse is refused here and blamed on the file
    return arrays | _named(names) | {"indexes": np.array(indexes, np.uint64)}


def _is_costly(program: Program, index: int) -> bool:
    """Whether the recorder cannot name a function by itself."""
    return program.needs_file or demangling.is_mangled(program.name(index, None))


def _debug_link(file: OpenFile) -> _Arrays:
    build_id, link = debug_link(file)
    return {"build_id": text(build_id), "link": text(link)}


def _outlines(file: OpenFile) -> _Arrays:
    starts, ends = load_outlines(file)
    arrays = {"outline": starts, "outlined": ends}
    unpack_outlines(arrays)
    return arrays


def _named(names: list[bytes]) -> _Arrays:
    lengths, content = joined([_readable(name) for name in names])
    return {"lengths": lengths, "content": content}


def _readable(name: bytes) -> bytes:
    return demangling.demangle(readable(name)).encode("utf-8", "replace")


def _reply(request: dict[str, Any], files: list[OpenFile]) -> bytes:
    try:
        return encode_reply(answer(request, files))
    except FileRefused as refusal:
        return encode_refusal(refusal)
    except BadReply as error:
        return encode_refusal(FileRefused(MALFORMED, str(error)))
    except MemoryError:
        return encode_refusal(FileRefused(MALFORMED, "it takes too much memory"))
    except OSError as error:
        return encode_refusal(FileRefused(UNREADABLE, error.strerror or "it can't be read"))


@cache
def warm_up() -> None:
    """Load everything that is normally loaded on first use: nothing can be loaded later. The opener does this once for
    all parsers."""
    for name in (b"_ZN3foo3barEv", b"_RNvC1a1b", b"_ZN4core3fmt17h0123456789abcdefE"):
        _readable(name)
    encode_reply(_named([b"a"]) | {"x": np.cumsum(np.array([3, 1], np.uint64))})


def _name_process() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"exhume-parser", 0, 0, 0)


def _tune_memory() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        for option, value in (
            (_M_ARENA_MAX, 1),
            (_M_MMAP_THRESHOLD, _FREE_BYTES_KEPT),
            (_M_TRIM_THRESHOLD, _FREE_BYTES_KEPT),
        ):
            mallopt(option, value)


def serve(connection: socket.socket, opener: int) -> None:
    """Answer requests from the opener, whose process id is given, until both opener and recorder are gone."""
    if os.getppid() != opener:
        return
    # Ctrl-C is meant for the recorder, which waits for outstanding names.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir("/")
    _name_process()
    _tune_memory()
    warm_up()
    gc.freeze()  # what is loaded stays, so the collector need not scan it
    send_request(connection, {"refused": confine()}, [])
    while (received := receive_request(connection)) is not None:
        request, descriptors = received
        signal.setitimer(signal.ITIMER_PROF, _MAX_CPU_S)
        files = [OpenFile(fd, identity_of(os.fstat(fd))) for fd in descriptors]
        try:
            content = _reply(request, files)
        finally:
            for file in files:
                file.close()
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.sendall(content)
        # Otherwise the tables of the last file would stay in memory until the next.
        del content
