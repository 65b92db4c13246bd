"""Child processes of the notifications: bounded in time and output, and preferred victims of the OOM killer.

Each runs in a session of its own, so that everything a command starts can be killed with it.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from exhume.model.isolation import isolated_environment
from exhume.model.process import first_to_end, usual_priority

# How much output is kept; the rest is read and dropped, so that the child doesn't block.
KEPT_BYTES = 4 << 20
KEPT_ERROR_BYTES = 4096
_CHUNK = 1 << 16
_LOOK_S = 0.2


class Cancel(Protocol):
    """Signals that a child should be ended early; implemented by threading.Event."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ChildResult:
    """How a child ended. `code` is None if it was killed on timeout or because the recorder stops."""

    code: int | None
    output: bytes
    errors: str
    truncated: bool = False

    @property
    def last_error(self) -> str:
        """The last line on stderr."""
        lines = self.errors.strip().splitlines()
        return lines[-1] if lines else ""


def run_child(
    command: Sequence[str],
    data: bytes,
    *,
    timeout_s: float,
    cancel: Cancel,
    environment: Mapping[str, str],
) -> ChildResult:
    """Run a command with `data` on its standard input. Raises OSError if it can't be started."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
        env=dict(environment),
    )
    with process:
        _lower(process.pid)
        try:
            return _converse(process, data, time.monotonic() + timeout_s, cancel)
        finally:
            # Also kill what it left in the background. The pid can't be reused before it is reaped.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def child_environment() -> dict[str, str]:
    """The environment of these children, without the recorder's settings: they must not see its tokens."""
    return {name: value for name, value in isolated_environment().items() if not name.startswith("EXHUME_")}


def _lower(pid: int) -> None:
    """Take the recorder's raised priority off a child, but lower it no further than normal: an oversubscribed node has
    to be diagnosed too, and at load 48 on two cores a child at nice 10 got less than a second of CPU in 35."""
    usual_priority(pid)
    first_to_end(pid)


def _converse(process: "subprocess.Popen[bytes]", data: bytes, deadline: float, cancel: Cancel) -> ChildResult:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    kept = {process.stdout: bytearray(), process.stderr: bytearray()}
    most = {process.stdout: KEPT_BYTES, process.stderr: KEPT_ERROR_BYTES}
    truncated, written = False, 0
    with selectors.DefaultSelector() as selector:
        for stream in kept:
            selector.register(stream, selectors.EVENT_READ)
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        # A background process may keep the pipes open, so the exit of the command itself is what counts.
        while selector.get_map() and process.poll() is None and time.monotonic() < deadline and not cancel.is_set():
            for key, _ in selector.select(_LOOK_S):
                if key.fileobj is process.stdin:
                    written = _write(process.stdin.fileno(), data, written)
                    if written >= len(data):
                        selector.unregister(process.stdin)
                        with contextlib.suppress(BrokenPipeError):
                            process.stdin.close()
                    continue
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                truncated |= _keep(kept[key.fileobj], chunk, most[key.fileobj])  # type: ignore[index]
        while process.poll() is None and time.monotonic() < deadline and not cancel.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
    code = process.poll()
    if code is not None:
        # Output written right before it exited.
        for pipe, content in kept.items():
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                while len(content) < most[pipe] and (chunk := os.read(pipe.fileno(), _CHUNK)):
                    truncated |= _keep(content, chunk, most[pipe])
    errors = kept[process.stderr].decode(errors="replace")
    return ChildResult(code, bytes(kept[process.stdout]), errors, truncated)


def _write(descriptor: int, data: bytes, written: int) -> int:
    """Write a chunk and return the new total; a child that closed its input counts as having read all of it."""
    try:
        return written + os.write(descriptor, data[written : written + _CHUNK])
    except BlockingIOError:
        return written
    except BrokenPipeError:
        return len(data)


def _keep(content: bytearray, chunk: bytes, most: int) -> bool:
    """Append what fits; returns whether anything was cut off."""
    room = most - len(content)
    content += chunk[:room]
    return len(chunk) > room
