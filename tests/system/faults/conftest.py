"""Recorders, disks and programs for the faults; none of them outlives its test."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.parts import missing, need
from tests.system.faults.recorder_process import PATIENCE_S, RecorderProcess

FAULTS = Path(__file__).parent

Start = Callable[..., RecorderProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start recorders; those that still run at the end of the test are killed."""
    running: list[RecorderProcess] = []

    def start_one(directory: Path, *options: str, **how: Any) -> RecorderProcess:
        process = RecorderProcess(directory, tmp_path / f"said-{len(running)}", *options, **how)
        running.append(process)
        return process

    yield start_one
    for process in running:
        process.kill()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def ext4_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that can fail as one on a disk does: `remount,abort` makes it read-only under open files."""
    image, disk = tmp_path / "image", tmp_path / "ext4"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run([need("mkfs.ext4"), "-q", "-m", "0", str(image)], check=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=False).returncode:
        missing("a loop device")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The programs beside this file, by name, compiled when they are first asked for."""
    directory = tmp_path_factory.mktemp("programs")

    def compile_one(name: str, *flags: str) -> Path:
        program = directory / name
        if not program.exists():
            source = FAULTS / f"{name}.c"
            words = ["gcc", "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", *(flags or ["-static"])]
            subprocess.run([*words, "-o", str(program), str(source)], check=True)
        return program

    return compile_one


@pytest.fixture
def load() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start programs, pinned to a core where one is named; those that still run at the end are killed."""
    running: list[subprocess.Popen[str]] = []

    def start_one(*words: str | Path, core: int | None = None, nice: int = 0) -> subprocess.Popen[str]:
        pinned = [] if core is None else ["taskset", "-c", str(core)]
        process = subprocess.Popen(
            ["nice", "-n", str(nice), *pinned, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        # Where sessions share the cores as groups, it is the group's priority that counts.
        group = Path(f"/proc/{process.pid}/autogroup")
        if nice and group.exists():
            group.write_text(str(nice))
        return process

    yield start_one
    for process in running:
        if process.poll() is None:
            # It is the first of its own session, so these are only its children.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=PATIENCE_S)
        if process.stdout:
            process.stdout.close()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that belongs to nobody in particular, below one that everybody may enter."""
    directory = Path("/tmp") / f"exhume-faults-{os.getpid()}"
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)
