"""File systems of the lab's own: a tmpfs, and an ext4 in an image file. Unmounting them frees every page they hold."""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

from exhume.model.errors import LabError
from exhume.model.isolation import safe_path
from exhume.procfs.host import Host
from exhume.procfs.mountinfo import read_mounts

_MNT_DETACH = 2
_MS_NOATIME = 1024
_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_SET_FD, _LOOP_CLR_FD, _LOOP_SET_STATUS64, _LOOP_SET_DIRECT_IO = 0x4C00, 0x4C01, 0x4C04, 0x4C08
_LO_FLAGS_AUTOCLEAR = 4
_LOOP_INFO = struct.Struct("=52xI176x")  # struct loop_info64, of which only the flags matter here
_ATTEMPTS = 10
_RELEASED_S = 60.0
# A process that walks over all file systems is in the lab's for a moment.
_LOOKED_AT_S = 1.0
# Debian keeps it outside an ordinary user's path.
SEARCH_PATH = os.pathsep.join((safe_path(os.environ.get("PATH", "")), "/usr/sbin", "/sbin"))

_libc = ctypes.CDLL(None, use_errno=True)


def mount_tmpfs(at: Path, size: int, files: int) -> None:
    """An empty tmpfs with room for so many bytes and files."""
    at.mkdir(exist_ok=True)
    _mount("exhume-lab", at, "tmpfs", 0, f"size={size},nr_inodes={files},mode=700")


def make_ext4(image: Path, size: int, files: int) -> None:
    """A file with an empty ext4 in it. It takes no room on disk until it is written to."""
    program = shutil.which("mkfs.ext4", path=SEARCH_PATH)
    if program is None:
        raise LabError("mkfs.ext4 is missing; install e2fsprogs, or choose --pin tmpfs")
    with image.open("xb") as file:
        file.truncate(size)
    made = subprocess.run(
        [program, "-q", "-F", "-b", "4096", "-m", "0", "-N", str(files), "-E", "nodiscard,lazy_itable_init=1", image],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise LabError(f"cannot make an ext4 in {image}: {made.stderr.strip()}")


def mount_ext4(image: Path, at: Path) -> None:
    """Mount an image through a loop device. One that was mounted before has to be let go of first: mounted twice it
    would be two file systems that write over each other."""
    at.mkdir(exist_ok=True)
    # A program that has mounts of its own, and was started while this one was there, keeps it until it ends.
    deadline = time.monotonic() + _RELEASED_S
    while devices := _devices_with(image):
        if time.monotonic() > deadline:
            raise LabError(
                f"{image} is still in use on {devices[0]}, by a process with mounts of its own; try again once it ended"
            )
        time.sleep(0.05)
    try:
        device = _loop_device(image)
    except OSError as error:
        raise LabError(
            f"no loop device can be had ({error.strerror}); load the loop module, or choose --pin tmpfs"
        ) from None
    try:
        # The kernel would fill in inode tables in the background, for minutes.
        _mount(os.fspath(Path(f"/proc/self/fd/{device}").readlink()), at, "ext4", _MS_NOATIME, "noinit_itable")
    finally:
        os.close(device)


def unmount(at: Path) -> bool:
    """Unmount what is mounted at a place. False when a process uses it: then it goes when that process lets go."""
    unused = True
    name = os.fspath(at.absolute())
    deadline = time.monotonic() + _LOOKED_AT_S
    while name in (points := mount_points()):
        # What is mounted below goes with it.
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
    """Where something is mounted."""
    return {mount.point for mount in read_mounts(Host().proc / "self/mountinfo")}


def _mount(source: str, at: Path, kind: str, flags: int, options: str) -> None:
    args = (os.fsencode(arg) for arg in (source, os.fspath(at), kind))
    if _libc.mount(*args, ctypes.c_ulong(flags), options.encode()) != 0:
        raise LabError(f"cannot mount a {kind} at {at}: {os.strerror(ctypes.get_errno())}")


def _loop_device(image: Path) -> int:
    """A descriptor of a loop device that shows the image. The device is free again when nothing has it open."""
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            device = os.open(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}", os.O_RDWR | os.O_CLOEXEC)
            if _bind(device, backing):
                return device
            os.close(device)
    finally:
        os.close(backing)
        os.close(control)
    raise OSError(errno.EBUSY, "all are in use")


def _bind(device: int, backing: int) -> bool:
    """Show an image on a device; False when another process was quicker to take the device."""
    try:
        fcntl.ioctl(device, _LOOP_SET_FD, backing)
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        os.close(device)
        raise
    fcntl.ioctl(device, _LOOP_SET_STATUS64, _LOOP_INFO.pack(_LO_FLAGS_AUTOCLEAR))
    # Else the image's own pages would be cached, and charged, a second time. Not every file system can.
    with contextlib.suppress(OSError):
        fcntl.ioctl(device, _LOOP_SET_DIRECT_IO, 1)
    return True


def detach(image: Path) -> None:
    """Take an image off the device that a process left it on when it was killed before it could mount it."""
    for name in _devices_with(image):
        with contextlib.suppress(OSError):
            device = os.open(f"/dev/{name}", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _LOOP_CLR_FD)
            finally:
                os.close(device)


def _devices_with(image: Path) -> list[str]:
    """The loop devices that show an image."""
    found = []
    for bound in Host().sys.glob("block/loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if bound.read_text().rstrip("\n") == os.fspath(image.absolute()):
                found.append(bound.parts[-3])
    return found
