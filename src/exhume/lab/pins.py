"""The kinds of pins that keep a removed memory cgroup alive: the files and the swap they need, and their removal."""

import ctypes
import errno
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from exhume.control.swap import FIRST, is_on, make_swapfile, swap_off, swap_on
from exhume.lab.mounts import detach, make_ext4, mount_ext4, mount_tmpfs, unmount
from exhume.lab.programs.zombie_maker import FILES_IN_A_DIRECTORY, numbered
from exhume.model.errors import LabError
from exhume.procfs.host import Host

_MIB = 1 << 20
_CHUNK = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Pin:
    """A kind of pin. `reclaimable`: reclaim on the parent frees it. `layout` is how its files lie: one for each cgroup
    (`own`), one for all (`shared`), or a directory for each (`directories`)."""

    name: str
    description: str
    filesystem: str
    layout: str
    reclaimable: bool
    swapped: bool = False
    held: bool = False


PINS = {
    pin.name: pin
    for pin in (
        Pin("tmpfs", "a page of a tmpfs file", "tmpfs", "own", reclaimable=False),
        Pin("ext4", "a page of an ext4 file", "ext4", "own", reclaimable=True),
        Pin("shared", "a page of one ext4 file that all of them read", "ext4", "shared", reclaimable=True),
        Pin("metadata", "a page of ext4 metadata (a directory block)", "ext4", "directories", reclaimable=True),
        Pin("swap", "a swap entry of a tmpfs file", "tmpfs", "own", reclaimable=False, swapped=True),
        Pin(
            "mlock", "a page of a file that a process locks into memory", "ext4", "shared", reclaimable=False, held=True
        ),
        Pin("mapped", "a page of a file that a process has mapped", "ext4", "shared", reclaimable=True, held=True),
    )
}


@dataclass(frozen=True, slots=True)
class PinFiles:
    """The places of one lab's files."""

    directory: Path
    pin: Pin
    count: int

    @property
    def files_directory(self) -> Path:
        return self.directory / self.pin.filesystem

    @property
    def image(self) -> Path:
        return self.directory / "ext4.img"

    @property
    def swapfile(self) -> Path:
        return self.directory / "swapfile"

    @property
    def files(self) -> list[Path]:
        """The files (or directories, for metadata) whose pages pin."""
        if self.pin.layout == "shared":
            return [self.files_directory / "shared"]
        return [Path(numbered(os.fspath(self.files_directory), number)) for number in range(self.count)]

    @property
    def disk_bytes(self) -> int:
        """Room that the files take below the work directory, at most."""
        image = self._image_bytes if self.pin.filesystem == "ext4" else 0
        return image + (self._swap_bytes if self.pin.swapped else 0)

    def set_up(self) -> None:
        """Make and mount what the pin needs. What is made here is charged to the caller, never to a zombie."""
        if self.pin.filesystem == "tmpfs":
            mount_tmpfs(self.files_directory, 2 * self.count * mmap.PAGESIZE + 16 * _MIB, 2 * self.count + 1024)
        else:
            make_ext4(self.image, self._image_bytes, self.count + self.count // FILES_IN_A_DIRECTORY + 1024)
            mount_ext4(self.image, self.files_directory)
        if self.pin.layout == "shared":
            _write_uncached(self.files[0], self.count * mmap.PAGESIZE)
        elif self.pin.layout == "directories":
            for path in self.files:
                path.mkdir(parents=True)
            # Mounted again, so that nothing of it is in memory.
            unmount(self.files_directory)
            mount_ext4(self.image, self.files_directory)
        if self.pin.swapped:
            begin_swapping(self.swapfile, self._swap_bytes)

    def settle(self) -> None:
        """Write dirty pages to the disk: then only the page cache holds them."""
        if self.pin.filesystem == "ext4":
            fd = os.open(self.files_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _libc.syncfs(fd)
            os.close(fd)

    @property
    def _image_bytes(self) -> int:
        return self.count * (mmap.PAGESIZE + 4096 + 512) + 64 * _MIB

    @property
    def _swap_bytes(self) -> int:
        return 2 * self.count * mmap.PAGESIZE + 32 * _MIB


def take_down(directory: Path) -> list[Path]:
    """Let go of every page below a lab's directory, whatever its kind of pin is and however far it got.

    The mounts that some process still uses are returned: their pages go when it lets go.
    """
    mounts = [directory / "tmpfs", directory / "ext4"]
    used = [at for at in mounts if not unmount(at)]
    end_swapping(directory / "swapfile")
    detach(directory / "ext4.img")
    return used


def begin_swapping(path: Path, size: int) -> None:
    """Make a swapfile and turn it on before every other, so that the lab's pages end up in the lab's file."""
    try:
        make_swapfile(os.fspath(path), size)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from None
    try:
        swap_on(os.fspath(path), FIRST)
    except OSError as error:
        remedy = "; choose a directory on a disk with --work" if error.errno == errno.EINVAL else ""
        raise LabError(f"{path} can't be used as swap: {error.strerror}{remedy}") from None


def end_swapping(path: Path) -> None:
    """Turn a swapfile off, if it is on; what others have in it comes back to memory."""
    if not is_on(Host(), os.fspath(path.absolute())):
        return
    try:
        swap_off(os.fspath(path))
    except OSError as error:
        raise LabError(f"{path} can't be turned off as swap: {error.strerror}; free some memory") from None


def _write_uncached(path: Path, size: int) -> None:
    """A file of a size, none of it in the page cache."""
    with path.open("xb") as file:
        for start in range(0, size, _CHUNK):
            file.write(b"\xee" * min(_CHUNK, size - start))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
