"""A fake node: trees of files in place of /proc, /sys, /dev and /var/log."""

from pathlib import Path

from exhume.model.clock import NANOS, Tick
from exhume.procfs.host import Host


class FakeNode:
    """Write what the kernel would say, and read it through `host`."""

    def __init__(self, root: Path) -> None:
        self.host = Host(root / "proc", root / "sys", root / "dev", root / "var/log")
        for directory in (self.host.proc, self.host.sys, self.host.dev):
            directory.mkdir(parents=True)

    def proc(self, name: str, content: str | bytes) -> Path:
        return _write(self.host.proc / name, content)

    def sys(self, name: str, content: str | bytes) -> Path:
        return _write(self.host.sys / name, content)

    def mounts(self, *lines: str) -> None:
        self.proc("self/mountinfo", "".join(f"{line}\n" for line in lines))


def _write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = content.encode()
    path.write_bytes(content)
    return path


def tick(second: int, seconds: float = 1.0) -> Tick:
    """The tick that ends at a second."""
    end = (1000 + second) * NANOS
    return Tick(second, end - int(seconds * NANOS), end, 1_700_000_000 * NANOS + end)
