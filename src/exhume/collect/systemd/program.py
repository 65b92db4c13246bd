"""Runs one of systemd's own programs, with bounds on what it may say and how long it may take."""

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from exhume.model.priority import usual_priority

_PART = 1 << 16
_MOST_COMPLAINTS = 1 << 12
# Their words have to be the same everywhere, and nothing may wait for a key.
_ENVIRONMENT = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "", "SYSTEMD_LOG_LEVEL": "err"}


@dataclass(frozen=True, slots=True)
class Said:
    """The lines that a program wrote, whether these are all of them, and what it complained of."""

    lines: list[bytes] = field(default_factory=list)
    whole: bool = True
    code: int = 0
    complaint: str = ""


def run(words: Sequence[str], most_bytes: int, patience_s: float, most_lines: int | None = None) -> Said:
    """What it says, up to these bounds: then it is stopped. Raises FileNotFoundError where there is no such program.

    The words go to the program as they are: no shell sees them.
    """
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_ENVIRONMENT},
    ) as child:
        usual_priority(child.pid)
        try:
            said, complaint, whole = _listen(child, most_bytes, time.monotonic() + patience_s, most_lines)
        finally:
            child.kill()
        code = child.wait()
    *lines, rest = said.split(b"\n")
    if whole and rest:
        lines.append(rest)
    if most_lines is not None:
        lines = lines[:most_lines]
    return Said(lines, whole, code if whole else 0, complaint.decode(errors="replace").strip())


def _listen(
    child: subprocess.Popen[bytes], most_bytes: int, deadline: float, most_lines: int | None
) -> tuple[bytes, bytes, bool]:
    assert child.stdout is not None
    assert child.stderr is not None
    said, complaints = bytearray(), bytearray()
    streams = {child.stdout.fileno(): said, child.stderr.fileno(): complaints}
    # Not select: that knows no descriptors above 1,023.
    watch = select.poll()
    for stream in streams:
        watch.register(stream, select.POLLIN)
    seen = 0
    while streams:
        ready = watch.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            return bytes(said), bytes(complaints), False
        for stream, _ in ready:
            part = os.read(stream, _PART)
            if not part:
                del streams[stream]
                watch.unregister(stream)
                continue
            streams[stream].extend(part)
            seen += part.count(b"\n") if streams[stream] is said else 0
        del complaints[_MOST_COMPLAINTS:]
        if len(said) > most_bytes or (most_lines is not None and seen >= most_lines):
            return bytes(said), bytes(complaints), False
    # Both ends are closed: it is over, or as good as.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=max(1.0, deadline - time.monotonic()))
    return bytes(said), bytes(complaints), True
