"""/proc/stat, read once a tick however many sources look at it: on a large machine the kernel takes its time to add
up every interrupt for it."""

from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable
from exhume.procfs.host import Host, ProcFile


class StatFile:
    """The content of /proc/stat at the current tick."""

    def __init__(self, host: Host) -> None:
        self._file = ProcFile(host.proc / "stat")
        self._tick = -1
        self._content = b""

    def require(self, source: str) -> None:
        """Raises SourceUnavailable, in the name of the source that needs it, when there is no /proc/stat."""
        try:
            self._file.read()
        except OSError as error:
            raise SourceUnavailable(
                source, f"{self._file.path} can't be read ({error.strerror})", "mount procfs at /proc"
            ) from error

    def read(self, tick: Tick) -> bytes:
        if self._tick != tick.end:
            self._content = self._file.read()
            self._tick = tick.end
        return self._content

    def close(self) -> None:
        self._file.close()
