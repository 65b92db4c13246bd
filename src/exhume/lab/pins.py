"""The kinds of pins that keep a removed memory cgroup alive: the files and the swap that they need, and making zombies
with them."""

import ctypes
import errno
import json
import mmap
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from exhume.control.swap import FIRST, make_swapfile, swap_on
from exhume.lab.hierarchies import MemoryHierarchy
from exhume.lab.leftovers import Leftovers, LoopImage, OwnMount, Swapfile
from exhume.lab.mounts import make_ext4, mount_ext4, mount_tmpfs, unmount
from exhume.lab.programs.zombie_maker import FILES_IN_A_DIRECTORY, Order, numbered
from exhume.lab.stage import Started
from exhume.model.errors import LabError

_MIB = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Pin:
    """A kind of pin. `layout` is the layout of its files: one per cgroup (`own`), one for all (`shared`), or a
    directory per cgroup (`directories`). `reclaimable`: reclaim on the parent frees it; `held`: a process keeps the
    file."""

    name: str
    description: str
    filesystem: str
    layout: str
    reclaimable: bool = False
    swapped: bool = False
    held: bool = False


PINS = {
    pin.name: pin
    for pin in (
        Pin("tmpfs", "a page of a tmpfs file", "tmpfs", "own"),
        Pin("ext4", "a page of an ext4 file", "ext4", "own", reclaimable=True),
        Pin("shared", "a page of one ext4 file that all of them read", "ext4", "shared", reclaimable=True),
        Pin("metadata", "a page of ext4 metadata (a directory block)", "ext4", "directories", reclaimable=True),
        Pin("swap", "a swap entry of a tmpfs file", "tmpfs", "own", swapped=True),
        Pin("mlock", "a page of a file that a process locks into memory", "ext4", "shared", held=True),
        Pin("mapped", "a page of a file that a process has mapped", "ext4", "shared", reclaimable=True, held=True),
    )
}


class PinFiles:
    """The files for this many zombies in a run's directory. `disk_bytes` is the maximum disk space they take."""

    def __init__(self, directory: Path, pin: Pin, count: int) -> None:
        self.pin, self.count = pin, count
        self.mount = directory / pin.filesystem
        self._image, self._swapfile = directory / "ext4.img", directory / "swapfile"
        self._image_bytes = count * (mmap.PAGESIZE + 4096 + 512) + 64 * _MIB
        self._swap_bytes = 2 * count * mmap.PAGESIZE + 32 * _MIB
        image = self._image_bytes if pin.filesystem == "ext4" else 0
        self.disk_bytes = image + (self._swap_bytes if pin.swapped else 0)

    @property
    def files(self) -> list[Path]:
        """The files (or directories, for metadata) whose pages are the pins."""
        if self.pin.layout == "shared":
            return [self.mount / "shared"]
        return [Path(numbered(os.fspath(self.mount), number)) for number in range(self.count)]

    def set_up(self, leftovers: Leftovers) -> None:
        """Create and mount what the pin needs. This is charged to the caller, never to a zombie."""
        if self.pin.swapped:
            # Turned off after the files are gone, so that their swapped-out pages need not be read back.
            leftovers.add(Swapfile(os.fspath(self._swapfile)))
        if self.pin.filesystem == "tmpfs":
            leftovers.add(OwnMount(os.fspath(self.mount)))
            mount_tmpfs(self.mount, 2 * self.count * mmap.PAGESIZE + 16 * _MIB, 2 * self.count + 1024)
        else:
            leftovers.add(LoopImage(os.fspath(self._image)))
            leftovers.add(OwnMount(os.fspath(self.mount)))
            make_ext4(self._image, self._image_bytes, self.count + self.count // FILES_IN_A_DIRECTORY + 1024)
            mount_ext4(self._image, self.mount)
        if self.pin.layout == "shared":
            _write_uncached(self.files[0], self.count * mmap.PAGESIZE)
        elif self.pin.layout == "directories":
            for path in self.files:
                path.mkdir(parents=True)
            # Mounted again, so that none of it is in memory.
            unmount(self.mount)
            mount_ext4(self._image, self.mount)
        if self.pin.swapped:
            self._begin_swapping()

    def _begin_swapping(self) -> None:
        """Create a swapfile and turn it on with the highest priority, so that the lab's pages end up in it."""
        path = self._swapfile
        try:
            make_swapfile(os.fspath(path), self._swap_bytes)
        except OSError as error:
            raise LabError(f"cannot write {path}: {error.strerror}") from None
        try:
            swap_on(os.fspath(path), FIRST)
        except OSError as error:
            remedy = "; choose a directory on a disk with --work" if error.errno == errno.EINVAL else ""
            raise LabError(f"{path} can't be used as swap: {error.strerror}{remedy}") from None

    def make_zombies(self, leftovers: Leftovers, hierarchy: MemoryHierarchy, cgroup: Path, progress: Progress) -> None:
        """Make the zombies below a cgroup. Their dirty pages are written, so that only the page cache pins them."""
        order = Order(
            parent=os.fspath(cgroup),
            home=os.fspath(hierarchy.home_below(cgroup)),
            join=hierarchy.join_file,
            reclaim=hierarchy.reclaim_file,
            reclaim_input=hierarchy.reclaim_input,
            layout=self.pin.layout,
            swapped=self.pin.swapped,
            files=os.fspath(self.mount),
            count=self.count,
        )
        with closing(Started(leftovers, "zombie_maker.make")) as maker:
            maker.send(json.dumps(order))
            for line in maker.lines():
                progress(int(line), self.count)
            complaint = maker.complaint()
        if complaint:
            raise LabError(f"cannot make zombies pinned by {self.pin.name}: {complaint}")
        if self.pin.filesystem == "ext4":
            fd = os.open(self.mount, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _libc.syncfs(fd)
            os.close(fd)


def _write_uncached(path: Path, size: int) -> None:
    """Write a file of this size without leaving any of it in the page cache."""
    with path.open("xb") as file:
        for start in range(0, size, _MIB):
            file.write(b"\xee" * min(_MIB, size - start))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
