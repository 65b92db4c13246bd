"""Keeps systemd informed about the recorder: ready after the first tick, alive with each tick, stopping at its end.

The protocol of sd_notify(3): a datagram of lines to the socket that NOTIFY_SOCKET names. Without the variable there is
nothing to do. Nothing here waits.
"""

import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress

from exhume.model.clock import Tick
from exhume.model.tables import Columns, Losses

VARIABLE = "NOTIFY_SOCKET"


class SystemdNotifier:
    """An observer of the recorder's ticks."""

    name = "systemd-notify"

    def __init__(self, address: str) -> None:
        """An empty address is no service manager."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address:
            kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            self._socket = socket.socket(socket.AF_UNIX, kind)
        self._ready = False

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> "SystemdNotifier":
        """The one that the service manager asks for. Its variable is removed: it is for this process alone."""
        address = environment.pop(VARIABLE, "")
        return cls(address if address.startswith(("/", "@")) and len(address) > 1 else "")

    def observe(self, _tick: Tick, _rows: Mapping[str, Sequence[Columns]], _losses: Sequence[Losses]) -> None:
        """Alive; after the first tick also ready: from then on there is something to read."""
        self._send("WATCHDOG=1" if self._ready else "READY=1\nSTATUS=recording\nWATCHDOG=1")
        self._ready = True

    def close(self) -> None:
        """The recorder goes on to seal its recording, which takes a moment."""
        self._send("STOPPING=1\nSTATUS=sealing")
        if self._socket is not None:
            self._socket.close()

    def _send(self, state: str) -> None:
        if self._socket is not None:
            # A full queue, or a manager that is being restarted: the next tick comes in a second.
            with suppress(OSError):
                self._socket.sendto(state.encode(), self._address)
