"""Programs in containers are named by the container's files, never by the host's of the same path."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.collect.symbols.settled import user_frames
from tests.collect.symbols.symbol_programs import Compile, Running, map_file, running
from tests.parts import missing, need

from exhume.collect.symbols.mappings import AddressSpace
from exhume.collect.symbols.symbolizer import Symbolizer
from exhume.procfs.host import Host

# Maps a library itself, so that it needs nothing else in its container.
APP = """
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDONLY);
    void *at = mmap(0, 1 << 16, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    close(fd);
    printf("base=%p\\n", at);
    fflush(stdout);
    pause();
    return 0;
}
"""
CONTAINER = """
set -e
mount --make-rprivate /
mount -t {kind} {options} none {root}
mkdir -p {root}{directory} {root}/old
cp {app} {root}/app
[ -e {root}{library} ] || cp {inside} {root}{library}
cd {root}
pivot_root . old
exec /app {library}
"""


class Container:
    def __init__(self, compile_c: Compile, tmp_path: Path) -> None:
        self.app = compile_c(APP, "-static", name="app")
        (tmp_path / "lib").mkdir()
        outside = compile_c("int outside_name(int x) { return x; }", "-shared", "-fPIC", "-nostdlib", name="outside.so")
        self.inside = compile_c(
            "int inside_name(int x) { return x; }", "-shared", "-fPIC", "-nostdlib", name="inside.so"
        )
        self.library = tmp_path / "lib/libsame.so"
        shutil.copy(outside, self.library)
        self.root = tmp_path / "root"
        self.root.mkdir()
        with self.inside.open("rb"):
            listing = subprocess.run([need("nm"), self.inside], check=True, capture_output=True, text=True).stdout
        self.offset = next(int(line.split()[0], 16) for line in listing.splitlines() if "inside_name" in line)

    @contextmanager
    def run(self, kind: str, options: str = "") -> Iterator[Running]:
        script = CONTAINER.format(
            kind=kind,
            options=options,
            root=self.root,
            directory=self.library.parent,
            app=self.app,
            inside=self.inside,
            library=self.library,
        )
        with running(need("unshare"), "-m", "sh", "-c", script) as run:
            if not run.addresses:
                missing(f"{kind} to be mounted in a namespace")
            yield run


@pytest.fixture
def container(compile_c: Compile, tmp_path: Path) -> Container:
    return Container(compile_c, tmp_path)


def overlay(tmp_path: Path, container: Container) -> str:
    """The options of an overlay whose lower layer, on another filesystem than the upper, holds the library."""
    lower, upper, work = tmp_path / "lower", tmp_path / "upper", tmp_path / "work"
    home = lower / str(container.library.parent)[1:]
    for directory in (home, upper, work):
        directory.mkdir(parents=True)
    shutil.copy(container.inside, home / "libsame.so")
    return f"-o lowerdir={lower},upperdir={upper},workdir={work}"


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tmpfs", "overlay"])
def test_a_library_is_resolved_inside_its_container(container: Container, tmp_path: Path, kind: str) -> None:
    options = overlay(tmp_path, container) if kind == "overlay" else ""
    with container.run(kind, options) as run:
        space = AddressSpace.from_proc(Host(), run.pid)
        assert space is not None
        (frame,) = user_frames(
            Symbolizer(Host()), space, np.array([run.addresses["base"] + container.offset], np.uint64)
        )
        assert (frame.module, frame.name) == (str(container.library), "inside_name")


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tmpfs", "overlay"])
def test_a_container_that_is_gone_is_not_named_by_the_host(container: Container, tmp_path: Path, kind: str) -> None:
    options = overlay(tmp_path, container) if kind == "overlay" else ""
    with container.run(kind, options) as run:
        space = AddressSpace.from_proc(Host(), run.pid)
    assert space is not None
    address = np.array([run.addresses["base"] + container.offset], np.uint64)
    (frame,) = user_frames(Symbolizer(Host()), space, address)
    assert frame.name == f"libsame.so+0x{container.offset:x}"


@pytest.mark.root
def test_a_child_that_is_gone_is_named_through_its_parent(container: Container) -> None:
    with container.run("tmpfs") as run:
        parent = AddressSpace.from_proc(Host(), run.pid)
        assert parent is not None
        child = parent.fork(2**22 + 1)
        (frame,) = user_frames(
            Symbolizer(Host()), child, np.array([run.addresses["base"] + container.offset], np.uint64)
        )
        assert frame.name == "inside_name"


@pytest.mark.root
def test_the_kernels_own_record_of_the_mapping_is_enough(container: Container) -> None:
    """As the sampler sees it: device, inode and path from a mapping record, nothing from /proc/PID/maps."""
    with container.run("tmpfs") as run:
        status = os.stat(f"/proc/{run.pid}/root{container.library}")  # noqa: PTH116
        base = run.addresses["base"]
        space = AddressSpace(run.pid)
        major, minor = os.major(status.st_dev), os.minor(status.st_dev)
        map_file(space, base, base + (1 << 16), 0, major, minor, status.st_ino, 0, str(container.library))
        (frame,) = user_frames(Symbolizer(Host()), space, np.array([base + container.offset], np.uint64))
        assert frame.name == "inside_name"
