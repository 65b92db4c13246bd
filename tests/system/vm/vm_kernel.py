"""Debian's kernel for cloud machines: cgroup v2, and small. Downloaded once, kept outside the repository."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.parts import missing, need

PACKAGE = "linux-image-cloud-amd64"
# What the kernel needs to reach its disks and to mount images, in the order in which they are loaded.
MODULES = (
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "loop",
)


def cache_directory() -> Path:
    """Where downloads and disks are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "exhume" / "vm"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@dataclass(frozen=True, slots=True)
class GuestKernel:
    """A kernel image and its modules, unpacked."""

    directory: Path

    @property
    def image(self) -> Path:
        return next(self.directory.glob("boot/vmlinuz-*"))

    @property
    def modules(self) -> list[Path]:
        return [next(self.directory.glob(f"lib/modules/*/kernel/**/{name}.ko")) for name in MODULES]


def guest_kernel(cache: Path) -> GuestKernel:
    """The kernel of the cache, or else the one that apt offers."""
    kept = sorted(path for path in cache.glob("linux-image-*") if path.is_dir())
    if kept:
        return GuestKernel(kept[-1])
    name = _newest()
    scratch = cache / "download"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        _download(name, scratch)
        package = next(scratch.glob("*.deb"))
        subprocess.run([need("dpkg-deb"), "-x", package, scratch / "unpacked"], check=True, capture_output=True)
        (scratch / "unpacked").rename(cache / name)
    finally:
        shutil.rmtree(scratch)
    return GuestKernel(cache / name)


def _newest() -> str:
    """The package that the name for the newest one stands for."""
    told = subprocess.run([need("apt-cache"), "depends", PACKAGE], capture_output=True, text=True, check=False)
    names = [line.split()[-1] for line in told.stdout.splitlines() if "Depends: linux-image-" in line]
    if not names:
        missing(f"a package source that offers {PACKAGE}")
    return names[0]


def _download(name: str, into: Path) -> None:
    # apt would fetch as a user of its own, who may not write here.
    words = [need("apt-get"), "-qq", "-o", "APT::Sandbox::User=root", "download", name]
    done = subprocess.run(words, cwd=into, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        missing(f"a download of {name} ({done.stderr.strip()})")
