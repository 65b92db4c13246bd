"""What is built to be installed has the page inside, and needs no Node where it is installed."""

import os
import re
import select
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest

from exhume.lab.synth import write_synthetic

ROOT = Path(__file__).resolve().parents[3]
STATIC = "exhume/present/web/static"
REPORT = "exhume/present/web/report/report.html"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]

pytestmark = pytest.mark.slow


def run(*command: object, **words: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **words)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def built_wheel(source: Path, into: Path, **words: object) -> Path:
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", into, source, **words)
    (wheel,) = into.glob("exhume-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return built_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """The source archive, unpacked."""
    into = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", into, cwd=ROOT)
    (archive,) = into.glob("exhume-*.tar.gz")
    run("tar", "-xzf", archive, "-C", into, cwd=ROOT)
    return into / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def no_node(tmp_path_factory) -> dict[str, str]:
    """An environment in which no Node is found, and nothing of this tree."""
    empty = tmp_path_factory.mktemp("path")
    assert shutil.which("node", path=str(empty)) is None
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {**kept, "PATH": str(empty)}


def assets_of(index: str) -> list[str]:
    """The scripts, styles and pictures that the page asks for first."""
    found = re.findall(r'(?:src|href)="\.?/?((?:assets/)?[\w.-]+\.(?:js|css|svg))"', index)
    assert {name.rsplit(".", 1)[1] for name in found} >= {"js", "css"}
    return found


def test_the_wheel_has_the_page_inside(wheel: Path):
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        index = packed.read(f"{STATIC}/index.html").decode()
    assert {f"{STATIC}/{asset}" for asset in assets_of(index)} <= names
    assert {f"{STATIC}/third-party-notices.txt", f"{STATIC}/causes/zombie-memcgs.md", REPORT} <= names
    assert not [name for name in names if "node_modules" in name or name.startswith(("web/", "tests/"))]


def test_the_source_archive_has_the_built_page_and_what_it_is_built_from(sources: Path):
    static = sources / "src" / STATIC
    for asset in assets_of((static / "index.html").read_text()):
        assert (static / asset).is_file()
    assert (sources / "web/src/main.tsx").is_file()
    assert (sources / "web/package-lock.json").is_file()
    assert not (sources / "web/node_modules").exists()


def test_a_wheel_is_built_from_the_source_archive_without_node(sources: Path, no_node, tmp_path: Path):
    wheel = built_wheel(sources, tmp_path, env=no_node)
    with zipfile.ZipFile(wheel) as packed:
        assert packed.read(f"{STATIC}/index.html") == (sources / "src" / STATIC / "index.html").read_bytes()


def test_an_installed_wheel_serves_the_page_without_node(wheel: Path, no_node, tmp_path: Path):
    made = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", made)
    python = made / "bin/python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel)
    # Its dependencies are those that are installed here, as the lock says; the program is its own.
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", env=no_node).strip())
    (own / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    place = run(python, "-c", "import exhume; print(exhume.__file__)", env=no_node, cwd=tmp_path).strip()
    assert Path(place).is_relative_to(own)

    write_synthetic(tmp_path / "recording", cores=2, hours=1 / 60, seed=5)
    command = [made / "bin/exhume", "serve", "--dir", tmp_path / "recording", "--listen", "127.0.0.1:0", "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=no_node, cwd=tmp_path)
    assert server.stdout is not None
    try:
        assert select.select([server.stdout], [], [], 120)[0], "the server says nothing"
        address = server.stdout.readline().removeprefix("exhume: ").strip()
        with urlopen(address) as answer:
            index = answer.read().decode()
        assert '<div id="page">' in index
        for asset in assets_of(index):
            with urlopen(f"{address}{asset}") as answer:
                assert len(answer.read()) > 100
        with urlopen(f"{address}api/recording") as answer:
            assert b'"cores":2' in answer.read().replace(b" ", b"")
    finally:
        server.terminate()
        server.wait(60)
        server.stdout.close()
