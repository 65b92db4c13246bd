"""Where tracepoints are described. Where tracefs is not mounted, a mount that only this process can see."""

import os
from functools import cache
from pathlib import Path

from exhume.collect.host import Host
from exhume.collect.perf.syscalls import call, numbers
from exhume.model.errors import SourceUnavailable

_FSCONFIG_CMD_CREATE = 6
_CLOEXEC = 1


@cache
def _detached_mount() -> Path | None:
    """One mount serves all: it stays until the process ends."""
    try:
        context = call(numbers().fsopen, b"tracefs\0", _CLOEXEC)
        try:
            call(numbers().fsconfig, context, _FSCONFIG_CMD_CREATE, None, None, 0)
            mount = call(numbers().fsmount, context, _CLOEXEC, 0)
        finally:
            os.close(context)
    except (OSError, SourceUnavailable):
        return None
    return Path(f"/proc/self/fd/{mount}")


def find_tracefs(host: Host) -> Path | None:
    """The root of tracefs: where it is mounted, else a detached mount of our own; None where neither can be had.

    A detached mount is attached nowhere: nothing on the node changes, and it goes with our descriptor.
    """
    for mounted in (host.sys / "kernel/tracing", host.sys / "kernel/debug/tracing"):
        if os.access(mounted / "events", os.R_OK | os.X_OK):
            return mounted
    return _detached_mount() if host.sys == Path("/sys") else None
