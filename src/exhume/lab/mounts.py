"""File systems of the lab: a tmpfs, and an ext4 in an image file. Unmounting them frees all their pages."""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path

from exhume.model.errors import LabError
from exhume.model.isolation import safe_path
from exhume.procfs.host import Host
from exhume.procfs.mountinfo import read_mounts

_MNT_DETACH = 2
_LOOP_CLR_FD, _LOOP_SET_DIRECT_IO = 0x4C01, 0x4C08
_RELEASED_S = 60.0
# A process that walks over all file systems uses the lab's for a moment.
_LOOKED_AT_S = 1.0
# Debian keeps some programs outside of an ordinary user's path.
SEARCH_PATH = os.pathsep.join((safe_path(os.environ.get("PATH", "")), "/usr/sbin", "/sbin"))

_libc = ctypes.CDLL(None, use_errno=True)


def mount_tmpfs(at: Path, size: int, files: int) -> None:
    """Mount an empty tmpfs with room for this many bytes and files."""
    at.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={files},mode=700", "exhume-lab", at)


def make_ext4(image: Path, size: int, files: int) -> None:
    """Create a file with an empty ext4. It takes no disk space until it is written to."""
    with image.open("xb") as file:
        file.truncate(size)
    options = ("-b", "4096", "-m", "0", "-N", str(files), "-E", "nodiscard,lazy_itable_init=1")
    _run("mkfs.ext4", "-q", "-F", *options, image, advice="install e2fsprogs, or choose --pin tmpfs")


def mount_ext4(image: Path, at: Path) -> None:
    """Mount an image through a loop device. An earlier mount must be released first: if mounted twice, there would be
    two file systems overwriting each other."""
    at.mkdir(exist_ok=True)
    # A program with its own mount namespace that was started while the image was mounted keeps it until it ends.
    deadline = time.monotonic() + _RELEASED_S
    while devices := _devices_with(image):
        if time.monotonic() > deadline:
            raise LabError(
                f"{image} is still in use on {devices[0]}, by a process with mounts of its own; try again once it ended"
            )
        time.sleep(0.05)
    # Otherwise the kernel would initialise inode tables in the background, for minutes.
    options = ("-t", "ext4", "-o", "loop,noatime,noinit_itable")
    _run("mount", *options, image, at, advice="load the loop module, or choose --pin tmpfs")
    # Otherwise the image's own pages would be cached and charged a second time. Not every file system supports this.
    _control_loop(image, _LOOP_SET_DIRECT_IO, 1)


def unmount(at: Path) -> bool:
    """Unmount what is mounted at a path. False if a process uses it: then it goes when that process releases it."""
    unused = True
    name = os.fspath(at.absolute())
    deadline = time.monotonic() + _LOOKED_AT_S
    while name in (points := mount_points()):
        # Detaching also removes mounts below.
        flags = _MNT_DETACH if any(point.startswith(f"{name}/") for point in points) else 0
        if _libc.umount2(os.fsencode(at), flags) != 0:
            number = ctypes.get_errno()
            if number == errno.EBUSY and time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            if number != errno.EBUSY or _libc.umount2(os.fsencode(at), _MNT_DETACH) != 0:
                raise LabError(f"{at} can't be unmounted: {os.strerror(number)}")
            unused = False
    return unused


def mount_points() -> set[str]:
    """All mount points."""
    return {mount.point for mount in read_mounts(Host().proc / "self/mountinfo")}


def detach(image: Path) -> None:
    """Detach the loop device that a process left behind when it was killed before it could mount the image."""
    _control_loop(image, _LOOP_CLR_FD)


def _run(program: str, *args: str | Path, advice: str = "") -> None:
    found = shutil.which(program, path=SEARCH_PATH)
    if found is None:
        raise LabError(f"{program} is missing; {advice or 'install util-linux'}")
    done = subprocess.run([found, *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{program} failed: {done.stderr.strip()}{advice and f'; {advice}'}")


def _control_loop(image: Path, request: int, value: int = 0) -> None:
    for name in _devices_with(image):
        with contextlib.suppress(OSError), Path("/dev", name).open("r+b", buffering=0) as device:
            fcntl.ioctl(device, request, value)


def _devices_with(image: Path) -> list[str]:
    """The loop devices that are backed by an image."""
    found = []
    for bound in Host().sys.glob("block/loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if bound.read_text().rstrip("\n") == os.fspath(image.absolute()):
                found.append(bound.parts[-3])
    return found
