"""The node as files: the locations of /proc, /sys, /dev and /var/log, and a reader that is cheap enough to run every
second.

Every source reads through `Host`, so tests can substitute a tree of their own.
"""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Host:
    """The roots of the kernel's file trees, and of the node's logs."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    logs: Path = Path("/var/log")

    def resolve(self, mounted_at: str) -> Path:
        """Map a path from the kernel (a mount point, a device) to one that this process can reach.

        Only paths below /proc, /sys and /dev are moved to the injected roots.
        """
        for name, root in (("/proc", self.proc), ("/sys", self.sys), ("/dev", self.dev)):
            if mounted_at == name or mounted_at.startswith(name + "/"):
                return root / mounted_at[len(name) + 1 :]
        return Path(mounted_at)


# The initial pid namespace has this number on every kernel (include/linux/proc_ns.h, PROC_PID_INIT_INO).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"


def sees_all_processes(host: Host) -> bool:
    """Whether this process is in the node's own pid namespace; also True if that cannot be determined."""
    try:
        return os.fspath((host.proc / "self/ns/pid").readlink()) == _FIRST_PID_NAMESPACE
    except OSError:
        return True


class ProcFile:
    """A file of /proc or /sys that is read repeatedly.

    The file descriptor stays open (opening costs more than reading) and is reopened when the file behind it went away,
    as files of CPUs, devices and cgroups do. `single` is for a file that the kernel writes in one piece (fs/seq_file.c,
    single_open; fs/kernfs/file.c, kernfs_seq_show; sysctls): a read that does not fill the buffer is complete.
    """

    __slots__ = ("_fd", "_single", "_size", "path")

    def __init__(self, path: Path | str, *, single: bool = False) -> None:
        self.path = os.fspath(path)
        self._fd = -1
        self._size = 4096
        self._single = single

    def read(self) -> bytes:
        """The current content. Raises OSError when it cannot be read."""
        if self._fd >= 0:
            try:
                content = os.pread(self._fd, self._size, 0)
                return content if self._single and len(content) < self._size else self._rest(content)
            except OSError:
                self.close()
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return self._rest(os.pread(self._fd, self._size, 0))

    def read_or_none(self) -> bytes | None:
        """The current content, or None when it cannot be read."""
        try:
            return self.read()
        except OSError:
            return None

    def _rest(self, content: bytes) -> bytes:
        """The whole content, of which the first read returned the beginning."""
        # Other seq files return one buffer at a time (fs/seq_file.c, seq_read_iter): only an empty read is the end.
        if not content or (self._single and len(content) < self._size):
            return content
        chunks = [content]
        length = len(content)
        while chunk := os.pread(self._fd, self._size, length):
            chunks.append(chunk)
            length += len(chunk)
        if length >= self._size:
            self._size = min(length + length // 4 + 4096, 1 << 20)
        return content if len(chunks) == 1 else b"".join(chunks)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


def subdirectories(path: Path | str) -> list[str]:
    """The names of the directories (or links to directories) in a directory; none when it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []
