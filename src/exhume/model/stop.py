"""A request to stop that a signal handler may make."""

import os
import select


class Stop:
    """Speaks like threading.Event, but `set` takes no lock: a signal may arrive while the same thread waits, and an
    Event's lock would then never be released. Waiting ends the moment a stop is asked for."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._asked = False

    def set(self) -> None:
        if not self._asked:
            self._asked = True
            os.write(self._writer, b"\0")

    def is_set(self) -> bool:
        return self._asked

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until a stop is asked for or the seconds are over; True when it was asked for."""
        if not self._asked:
            select.select([self._reader], [], [], None if timeout is None else max(0.0, timeout))
        return self._asked

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
