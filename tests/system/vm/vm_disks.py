"""The disks of the virtual machine: what it boots from, this machine's Python with what the program depends on, and
the program itself. Nothing of it needs root: the file systems are filled as they are made."""

import gzip
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.locks import pins
from tests.parts import missing, need
from tests.system.vm.vm_kernel import GuestKernel

ROOT = Path(__file__).resolve().parents[3]
GUEST = Path(__file__).parent / "guest"
PYTHON = Path(os.path.realpath(sys.executable))
STDLIB = Path(sysconfig.get_paths()["stdlib"])
PACKAGES = Path(sysconfig.get_paths()["purelib"])
# Where they are in the virtual machine: their own path may be below /tmp, which is a file system of its own there.
GUEST_PACKAGES = Path("/packages")
# Parts of the standard library that are large and that nothing here imports.
LEFT_OUT = ("site-packages", "dist-packages", "test", "idlelib", "ensurepip", "tkinter", "lib2to3", "config-*", "tests")
MOUNT_POINTS = ("dev", "proc", "run", "sys", "tmp", "var", "root", "etc", "bin")
MIB = 1 << 20
WORK_BYTES = 3 << 30
ENVIRONMENT = (f"PYTHONPATH=/var/exhume/src:{GUEST_PACKAGES}", "PATH=/bin:/sbin:/usr/sbin:/usr/bin", "HOME=/root")
AGENT_UNIT = f"""[Unit]
Description=Commands from the serial line
[Service]
Environment={" ".join(ENVIRONMENT)}
ExecStart={PYTHON} /var/exhume/agent.py
ExecStopPost=systemctl poweroff --force --force
"""


def boot_archive(kernel: GuestKernel, into: Path) -> Path:
    """What the kernel starts with: busybox, the modules that the disks need, and the program that mounts them."""
    with tempfile.TemporaryDirectory(dir=into) as name:
        stage = Path(name)
        for directory in ("bin", "dev", "modules", "newroot", "proc"):
            (stage / directory).mkdir()
        shutil.copy(static_busybox(), stage / "bin/busybox")
        for number, module in enumerate(kernel.modules):
            shutil.copy(module, stage / f"modules/{number}-{module.name}")
        shutil.copy(GUEST / "init", stage / "init")
        (stage / "init").chmod(0o755)
        names = "\n".join(str(path.relative_to(stage)) for path in sorted(stage.rglob("*"))).encode()
        words = [need("cpio"), "--quiet", "-o", "-H", "newc", "-R", "0:0"]
        archive = subprocess.run(words, input=names, cwd=stage, capture_output=True, check=True).stdout
    path = into / "boot.cpio.gz"
    path.write_bytes(gzip.compress(archive, 1))
    return path


def python_disk(cache: Path) -> Path:
    """This machine's Python, the locked packages and mkfs.ext4. Made again when one changes."""

    def fill(stage: Path) -> None:
        for directory in MOUNT_POINTS:
            (stage / directory).mkdir(parents=True)
        copy_programs(stage)
        for applet in ("sh", "mount"):
            (stage / "bin" / applet).symlink_to("busybox")

    return kept_disk(cache, "python", b"", fill)


def systemd_disk(cache: Path, tree: Path) -> Path:
    """The same, in a Debian that has systemd as its first process, which starts the agent."""

    def fill(stage: Path) -> None:
        # With its device nodes, which shutil would read.
        subprocess.run(["cp", "--archive", tree, stage], check=True)
        copy_programs(stage)
        units = stage / "etc/systemd/system"
        (units / "exhume-agent.service").write_text(AGENT_UNIT)
        (units / "multi-user.target.wants/exhume-agent.service").symlink_to("../exhume-agent.service")
        # Jobs of a Debian that has just been installed would take minutes of an emulated processor.
        for timer in (stage / "lib/systemd/system").glob("*.timer"):
            (units / timer.name).symlink_to("/dev/null")
        generators = stage / "etc/systemd/system-generators"
        generators.mkdir()
        for program in (stage / "lib/systemd/system-generators").iterdir():
            (generators / program.name).symlink_to("/dev/null")

    return kept_disk(cache, "systemd", bytes(tree), fill)


def kept_disk(cache: Path, kind: str, made_of: bytes, fill: Callable[[Path], None]) -> Path:
    """A disk of the cache, made again when something that it is made of changes."""
    recipe = (ROOT / "requirements.lock").read_bytes() + Path(__file__).read_bytes() + made_of
    key = hashlib.sha256(recipe + sys.version.encode() + bytes(PYTHON) + bytes(PACKAGES)).hexdigest()[:16]
    disk = cache / f"{kind}-{key}.img"
    if disk.exists():
        return disk
    for outdated in cache.glob(f"{kind}-*.img"):
        outdated.unlink()
    with tempfile.TemporaryDirectory(dir=cache) as name:
        stage = Path(name) / "stage"
        fill(stage)
        size = sum(path.lstat().st_size for path in stage.rglob("*"))
        make_disk(Path(name) / "disk", stage, size + size // 4 + 64 * MIB)
        (Path(name) / "disk").rename(disk)
    return disk


def copy_programs(stage: Path) -> None:
    """Busybox, Python with the packages, mkfs.ext4, and the libraries of all."""
    shutil.copy(static_busybox(), stage / "bin/busybox")
    programs = [PYTHON, Path(need("mkfs.ext4")).resolve()]
    copy_tree(STDLIB, stage)
    packages = list(locked_files())
    for package in packages:
        copy_to(package, stage / GUEST_PACKAGES.relative_to("/") / package.relative_to(PACKAGES), stage)
    extensions = [path for path in (*STDLIB.rglob("*.so"), *packages) if re.search(r"\.so(\.|$)", path.name)]
    copy([*programs, *libraries_of([*programs, *extensions])], stage)
    link = stage / str(need("mkfs.ext4")).lstrip("/")
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(programs[1])


def work_disk(into: Path) -> Path:
    """The program as it stands in the repository, and room to write."""
    stage = into / "work"
    for directory in ("lib", "tmp", "exhume"):
        (stage / directory).mkdir(parents=True)
    shutil.copytree(ROOT / "src/exhume", stage / "exhume/src/exhume", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "compileall", "-q", stage / "exhume/src"], check=True)
    shutil.copy(GUEST / "agent.py", stage / "exhume/agent.py")
    (stage / "exhume/start").write_text(
        f"export {' '.join(ENVIRONMENT)}\n{PYTHON} /var/exhume/agent.py\n/bin/busybox poweroff -f\n"
    )
    disk = into / "work.img"
    make_disk(disk, stage, WORK_BYTES)
    shutil.rmtree(stage)
    return disk


def static_busybox() -> Path:
    """A busybox that needs no libraries."""
    path = Path(need("busybox"))
    linked = subprocess.run([need("ldd"), path], capture_output=True, check=False)
    if linked.returncode == 0:
        missing("a busybox that is linked statically (busybox-static)")
    return path


def locked_files() -> Iterable[Path]:
    """The files of the packages that the program is locked to."""
    names = [pin.name for pin in pins((ROOT / "requirements.lock").read_text())]
    for name in dict.fromkeys(names):
        try:
            files = importlib.metadata.distribution(name).files or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another version of Python, or only to build with
        for file in files:
            path = Path(os.path.normpath(file.locate()))
            if path.is_relative_to(PACKAGES) and not {"tests", "include"} & set(path.parts) and path.exists():
                yield path


def libraries_of(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries that programs and extensions load, as the loader of this machine finds them."""
    found = set()
    for program in programs:
        reported = subprocess.run([need("ldd"), program], capture_output=True, text=True, check=False).stdout
        found |= {Path(name) for name in re.findall(r"(/\S+) \(0x", reported)}
    return {path for path in found if not path.is_relative_to(PACKAGES)}


def copy_tree(tree: Path, stage: Path) -> None:
    at = stage / str(tree).lstrip("/")
    shutil.copytree(tree, at, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)


def copy(files: Iterable[Path], stage: Path) -> None:
    for file in files:
        copy_to(file, stage / str(file).lstrip("/"), stage)


def copy_to(file: Path, at: Path, stage: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    # A link of the tree may lead to this machine's own file.
    at.unlink(missing_ok=True)
    assert at.parent.resolve().is_relative_to(stage.resolve()), at
    shutil.copy2(file, at)


def make_disk(path: Path, stage: Path, size: int) -> None:
    """An ext4 with the files of a directory in it. It takes as much room here as they do."""
    with path.open("xb") as file:
        file.truncate(size)
    words = [need("mkfs.ext4"), "-q", "-F", "-E", "root_owner=0:0,lazy_itable_init=1,nodiscard", "-d", stage, path]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
