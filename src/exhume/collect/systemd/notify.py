"""Notifies systemd about the recorder: ready after the first tick, watchdog with each tick, stopping at its end.

The protocol of sd_notify(3): a datagram of lines to the socket in NOTIFY_SOCKET. Without the variable this does
nothing. Nothing here waits.
"""

import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress

from exhume.model.clock import Tick
from exhume.model.tables import Columns, Losses

VARIABLE = "NOTIFY_SOCKET"


class SystemdNotifier:
    """A tick observer that notifies the service manager."""

    name = "systemd-notify"

    def __init__(self, address: str) -> None:
        """An empty address means that there is no service manager."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address:
            kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            self._socket = socket.socket(socket.AF_UNIX, kind)
        self._ready = False

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> "SystemdNotifier":
        """The notifier that the service manager asks for. Removes the variable from the environment: it is only for
        this process."""
        address = environment.pop(VARIABLE, "")
        return cls(address if address.startswith(("/", "@")) and len(address) > 1 else "")

    def observe(self, _tick: Tick, _rows: Mapping[str, Sequence[Columns]], _losses: Sequence[Losses]) -> None:
        """Send the watchdog notification; after the first tick also ready, since there is data to read from then on."""
        self._send("WATCHDOG=1" if self._ready else "READY=1\nSTATUS=recording\nWATCHDOG=1")
        self._ready = True

    def close(self) -> None:
        """Send stopping: the recorder still has to seal its recording, which takes a moment."""
        self._send("STOPPING=1\nSTATUS=sealing")
        if self._socket is not None:
            self._socket.close()

    def _send(self, state: str) -> None:
        if self._socket is not None:
            # The queue is full, or the manager is being restarted: the next tick comes in a second.
            with suppress(OSError):
                self._socket.sendto(state.encode(), self._address)
