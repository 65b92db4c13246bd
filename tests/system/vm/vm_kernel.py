"""Debian's kernels for cloud machines, which are small. Downloaded once, kept outside the repository."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.parts import missing, need

# What a kernel may need as modules to reach its disks and to mount images.
MODULES = ("virtio_pci", "virtio_blk", "loop")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """Which kernel a VM boots, and how it mounts cgroups. Its package is the newest whose name has the `prefix`, of the
    Debian `suite` (that of this machine if empty)."""

    prefix: str
    cgroup_version: int
    suite: str = ""

    @property
    def memory_root(self) -> str:
        return "/sys/fs/cgroup/memory" if self.cgroup_version == 1 else "/sys/fs/cgroup"


# The incident's generation: v1, whose totals lack what a CPU has not yet added up (until 5.13); and v2.
KERNELS = {
    "6.1-v2": KernelChoice("linux-image-6.1.", 2),
    "5.10-v1": KernelChoice("linux-image-5.10.", 1, "bullseye"),
}


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
        """Those that are not built in, each after what it depends on."""
        found: dict[str, Path] = {}
        for name in MODULES:
            self._add(name, found)
        return list(found.values())

    def _add(self, name: str, found: dict[str, Path]) -> None:
        path = next(self.directory.glob(f"lib/modules/*/kernel/**/{name}.ko"), None)
        if path is None or name in found:
            return
        # Names with - and _ are the same; files of these have _.
        depends = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for other in depends[1].decode().split(",") if depends and depends[1] else ():
            self._add(other, found)
        found[name] = path


def guest_kernel(cache: Path, choice: KernelChoice) -> GuestKernel:
    """The kernel of the cache, or else the one that apt offers."""
    kept = sorted(path for path in cache.glob(f"{choice.prefix}*") if path.is_dir())
    if kept:
        return GuestKernel(kept[-1])
    scratch = cache / f"download-{choice.prefix}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        options = _own_lists(scratch, choice.suite) if choice.suite else []
        name = _newest(choice, options)
        _download(name, scratch, options)
        package = next(scratch.glob("*.deb"))
        subprocess.run([need("dpkg-deb"), "-x", package, scratch / "unpacked"], check=True, capture_output=True)
        (scratch / "unpacked").rename(cache / name)
    finally:
        shutil.rmtree(scratch)
    return GuestKernel(cache / name)


def _own_lists(scratch: Path, suite: str) -> list[str]:
    """Options with which apt knows another suite, and this machine's lists stay as they are."""
    sources = scratch / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {suite} main\n")
    for directory in ("lists/partial", "archives/partial"):
        (scratch / directory).mkdir(parents=True)
    settings = {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "-", "Dir::State::lists": scratch / "lists"}
    options = [f"-o{name}={value}" for name, value in (settings | {"Dir::Cache": scratch}).items()]
    _apt(["update", *options], scratch, f"Debian's package lists of {suite}")
    return options


def _newest(choice: KernelChoice, options: list[str]) -> str:
    args = [need("apt-cache"), *options, "pkgnames", choice.prefix]
    listed = subprocess.run(args, capture_output=True, text=True, check=False).stdout.split()
    names = [name for name in listed if name.endswith("-cloud-amd64")]
    if not names:
        missing(f"a package source that offers {choice.prefix}*-cloud-amd64")
    # 5.10.0-32 is newer than 5.10.0-9.
    return max(names, key=lambda name: [int(part) for part in name.replace("-", ".").split(".") if part.isdigit()])


def _download(name: str, into: Path, options: list[str]) -> None:
    _apt(["download", *options, name], into, f"a download of {name}")


def _apt(args: list[str], directory: Path, what: str) -> None:
    # apt would fetch as a user of its own, who may not write here.
    command = [need("apt-get"), "-qq", "-o", "APT::Sandbox::User=root", *args]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        missing(f"{what} ({done.stderr.strip()})")
