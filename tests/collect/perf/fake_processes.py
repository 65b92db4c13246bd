"""Processes that exist only as files of a fake /proc, and as records."""

from pathlib import Path

from exhume.collect.perf.records import walk
from exhume.collect.perf.tasks import Image, Tasks
from exhume.procfs.host import Host


class FakeProcesses:
    """A /proc of maps and names, and the tasks that are followed by it."""

    def __init__(self, root: Path) -> None:
        self.host = Host(proc=root)
        self.tasks = Tasks(self.host)

    def lives(self, pid: int, name: str, path: str, *, start: int = 0x1000, tids: dict[int, str] | None = None) -> None:
        """/proc shows the process, with one mapping."""
        for tid, called in {pid: name, **(tids or {})}.items():
            thread = self.host.proc / f"{pid}/task/{tid}"
            thread.mkdir(parents=True, exist_ok=True)
            (thread / "comm").write_text(called + "\n")
        (self.host.proc / f"{pid}/maps").write_text(f"{start:x}-{start + 0x1000:x} r-xp 00000000 08:01 7 {path}\n")

    def is_gone(self, pid: int) -> None:
        for file in sorted((self.host.proc / str(pid)).rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        (self.host.proc / str(pid)).rmdir()

    def tick(self, *rings: bytes, sampled: tuple[int, ...] = ()) -> None:
        """The records of a tick, ring by ring; the tick is not over until it is settled."""
        self.tasks.apply([walk(*rings)], sampled)

    def over(self) -> None:
        self.tasks.settle()

    def program(self, pid: int, time: int, address: int = 0x1000) -> str | None:
        """Which file an address of a process meant at a time."""
        return path_at(self.tasks.image_at(pid, time), address)

    def name(self, pid: int, time: int, tid: int | None = None) -> str:
        return self.tasks.name_at(pid, tid or pid, time)


def path_at(image: Image | None, address: int) -> str | None:
    mapping = image.space.find(address) if image else None
    return mapping.file.path if mapping else None
