"""How each kind of leftover is undone. Everything may be gone already: undoing twice is undoing once.

process (pid, started)   cgroup (path)   mount (path)   netns (name)   link (name)   setting (path, value)   file (path)
new-path (path)
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from exhume.lab.hierarchies import remove_below
from exhume.lab.processes import Process
from exhume.model.errors import LabError

Entry = dict[str, str | int]

_ATTEMPTS = 50
# Half a minute.
_CGROUP_ATTEMPTS = 300


def end_process(entry: Entry) -> None:
    """The process with all of its group: its number stays taken while the group has a member."""
    process = Process(int(entry["pid"]), int(entry["started"]))
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.alive and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    if not process.kill():
        raise LabError(f"process {process.pid} doesn't end: it is stuck in the kernel")


def remove_cgroup(entry: Entry) -> None:
    """The cgroup and those below it, with the processes in them: nobody else has business in a lab's own cgroup."""
    path = Path(str(entry["path"]))
    for attempt in range(_CGROUP_ATTEMPTS):
        if not path.is_dir():
            return
        for pid in _members(path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            remove_below(path, path.stat().st_ino)
        except FileNotFoundError:
            # Whoever made it removes it, too.
            continue
        except LabError:
            # A process that was just killed is a member until it is gone.
            if attempt == _CGROUP_ATTEMPTS - 1:
                raise
            time.sleep(0.1)


def _members(path: Path) -> list[int]:
    members: list[int] = []
    for directory, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            members += map(int, Path(directory, "cgroup.procs").read_text().split())
    # A process of another namespace shows as 0, which would be ourselves.
    return [pid for pid in members if pid > 0 and pid != os.getpid()]


def unmount(entry: Entry) -> None:
    """All that is mounted at the path, in layers too."""
    path = str(entry["path"])
    for _ in range(_ATTEMPTS):
        if path not in mount_points():
            return
        # There is no unmount in the standard library, and umount(8) is on every machine.
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)
    raise LabError(f"{path} can't be unmounted")


def unmount_below(directory: Path) -> list[str]:
    """Unmount whatever is mounted in a directory; returns what stays, in words."""
    failed = []
    inside = [path for path in mount_points() if Path(path).is_relative_to(directory)]
    for path in sorted(inside, key=len, reverse=True):
        try:
            unmount({"path": path})
        except LabError as error:
            failed.append(str(error))
    return failed


def mount_points() -> set[str]:
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    return {_unescaped(line.split(b" ")[4]) for line in lines}


def _unescaped(path: bytes) -> str:
    for code, plain in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        path = path.replace(code, plain)
    return os.fsdecode(path)


def remove_netns(entry: Entry) -> None:
    path = Path("/run/netns", str(entry["name"]))
    if path.exists():
        _ip("netns", "del", path.name)
    if path.exists():
        raise LabError(f"the network namespace {path.name} can't be removed; try: ip netns del {path.name}")


def remove_link(entry: Entry) -> None:
    """A network device of the lab's own."""
    path = Path("/sys/class/net", str(entry["name"]))
    if path.exists():
        _ip("link", "del", path.name)
    if path.exists():
        raise LabError(f"the network device {path.name} can't be removed; try: ip link del {path.name}")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=False, capture_output=True)


def restore_setting(entry: Entry) -> None:
    with contextlib.suppress(FileNotFoundError):
        Path(str(entry["path"])).write_text(str(entry["value"]))


def remove_file(entry: Entry) -> None:
    Path(str(entry["path"])).unlink(missing_ok=True)


def remove_new_path(entry: Entry) -> None:
    """A file, or a directory with nothing but sockets in it, that was not there before. What others put there stays."""
    path = Path(str(entry["path"]))
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for inside in path.iterdir():
        if inside.is_socket():
            inside.unlink()
    with contextlib.suppress(OSError):
        path.rmdir()


UNDO: dict[str, Callable[[Entry], None]] = {
    "process": end_process,
    "cgroup": remove_cgroup,
    "mount": unmount,
    "netns": remove_netns,
    "link": remove_link,
    "setting": restore_setting,
    "file": remove_file,
    "new-path": remove_new_path,
}
