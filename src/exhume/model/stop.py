"""A stop request that a signal handler may set."""

import os
import select


class Stop:
    """Like threading.Event, but `set` takes no lock: if a signal arrived while the same thread waits, an Event's lock
    would never be released. Waiting ends as soon as it is set."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._set = False

    def set(self) -> None:
        if not self._set:
            self._set = True
            os.write(self._writer, b"\0")

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the stop is set or the timeout expires; True if it is set."""
        if not self._set:
            select.select([self._reader], [], [], None if timeout is None else max(0.0, timeout))
        return self._set

    def fileno(self) -> int:
        """A file descriptor that becomes readable when the stop is set, for use with select."""
        return self._reader

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
