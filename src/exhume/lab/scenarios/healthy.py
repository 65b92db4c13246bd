"""Healthy heavy work: it fills machines every day, and must not be called starvation."""

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from exhume.lab.stage import Scenario, Stage
from exhume.model.errors import LabError
from exhume.model.isolation import INTERPRETER

_FILES, _FILE_BYTES = 400, 24 << 10
_SOURCES = 24
_IMAGE_FILES = 2_000
_BLOB_BYTES = 48 << 20


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise LabError(f"{name} is not installed, which this work needs")
    return found


def _repeat(stage: Stage, command: str, jobs: int | None = None) -> None:
    stage.run("cpu.repeat", jobs or len(stage.cores), stage.directory / "jobs", command)


def _tree(stage: Stage, files: int = _FILES, size: int = _FILE_BYTES) -> Path:
    """Create files in directories; half of their content is compressible."""
    tree = stage.directory / "tree"
    for number in range(files):
        path = tree / str(number % 20) / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(stage.rng.randbytes(size // 2) + bytes(size // 2))
    return tree


def prepare_build(stage: Stage) -> None:
    _tool("cc")
    sources = stage.directory / "sources"
    sources.mkdir()
    for number in range(_SOURCES):
        functions = "\n".join(
            f"double f{number}_{each}(double x) {{ double s = 0; for (int i = 1; i < 99; i++) s += x * {each} / i;"
            f" return s; }}"
            for each in range(200)
        )
        (sources / f"unit{number}.c").write_text(functions)


@Scenario("a build: compilers, twice as many as cores", prepare_build, healthy=True, heavy=True)
def build(stage: Stage) -> None:
    jobs = 2 * len(stage.cores)
    sources = stage.directory / "sources"
    _repeat(stage, f"ls {sources}/*.c | xargs -P {jobs} -I@ sh -c '{_tool('cc')} -O2 -c @ -o $(basename @).o'", jobs=1)


def prepare_archive(stage: Stage) -> None:
    _tree(stage)


@Scenario("tar and gzip of a tree of files", prepare_archive, healthy=True, heavy=True)
def archive(stage: Stage) -> None:
    _repeat(stage, f"{_tool('tar')} -czf archive.tar.gz -C {stage.directory} tree")


@Scenario("dd writes large files and reads them", healthy=True, heavy=True)
def disk_copy(stage: Stage) -> None:
    dd = _tool("dd")
    _repeat(stage, f"{dd} if=/dev/zero of=file bs=1M count=64 conv=fsync && {dd} if=file of=/dev/null bs=1M", jobs=1)


def prepare_checksum(stage: Stage) -> None:
    (stage.directory / "blob").write_bytes(stage.rng.randbytes(_BLOB_BYTES))


@Scenario("checksums of large files, on every core", prepare_checksum, healthy=True, heavy=True)
def checksum(stage: Stage) -> None:
    _repeat(stage, f"{_tool('sha256sum')} {stage.directory / 'blob'}")


@Scenario("a database that writes, indexes and queries", healthy=True, heavy=True)
def database(stage: Stage) -> None:
    for number in range(len(stage.cores)):
        stage.start("cpu.database", stage.seconds, stage.directory / f"orders{number}.db")
    stage.wait()


def prepare_package_install(stage: Stage) -> None:
    tree = _tree(stage)
    control = tree / "DEBIAN/control"
    control.parent.mkdir()
    control.write_text(
        "Package: some\nVersion: 1\nArchitecture: all\nMaintainer: none <none@localhost>\nDescription: x\n"
    )
    package = str(stage.directory / "some.deb")
    subprocess.run([_tool("dpkg-deb"), "--build", str(tree), package], check=True, stdout=subprocess.DEVNULL)


@Scenario("packages are unpacked, one after the other", prepare_package_install, healthy=True, heavy=True)
def package_install(stage: Stage) -> None:
    _repeat(stage, f"{_tool('dpkg-deb')} --extract {stage.directory / 'some.deb'} root")


def prepare_image_unpack(stage: Stage) -> None:
    _tree(stage, _IMAGE_FILES, 4 << 10)
    layer, place = str(stage.directory / "layer.tar.gz"), str(stage.directory)
    subprocess.run([_tool("tar"), "-czf", layer, "-C", place, "tree"], check=True)


@Scenario("layers of an image with thousands of files are unpacked", prepare_image_unpack, healthy=True, heavy=True)
def image_unpack(stage: Stage) -> None:
    _repeat(stage, f"{_tool('tar')} -xzf {stage.directory / 'layer.tar.gz'} && rm -rf tree")


@Scenario("frames are transformed and quantised on every core, as a video encoder does", healthy=True, heavy=True)
def video_encode(stage: Stage) -> None:
    numpy = find_spec("numpy")
    if numpy is None or numpy.origin is None:
        raise LabError("numpy is not installed, which this work needs")
    for _ in stage.cores:
        stage.start("cpu.encode", stage.seconds, Path(numpy.origin).parents[1])
    stage.wait()


def prepare_test_suite(stage: Stage) -> None:
    cases = "\n".join(
        f"    def test_{number}(self):\n        self.assertEqual(sum(sorted(range({number}))), sum(range({number})))"
        for number in range(300)
    )
    (stage.directory / "test_some.py").write_text(f"import unittest\n\nclass Some(unittest.TestCase):\n{cases}\n")


@Scenario("test suites: processes that start, run their cases and end", prepare_test_suite, healthy=True, heavy=True)
def test_suite(stage: Stage) -> None:
    _repeat(stage, f"{INTERPRETER} -I -S -m unittest discover -q -s {stage.directory} -p test_some.py")


def prepare_backup(stage: Stage) -> None:
    _tree(stage)


@Scenario("a backup: a tree is copied, written to the disk and checked", prepare_backup, healthy=True, heavy=True)
def backup(stage: Stage) -> None:
    tree = stage.directory / "tree"
    _repeat(
        stage, f"cp -a {tree} copy && find copy -type f -exec {_tool('sha256sum')} {{}} + > sums && sync sums", jobs=1
    )
