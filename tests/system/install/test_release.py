"""The release of `make release`: the same bytes from two builds, and a list of all that is in it."""

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from tests.locks import pins
from tests.system.deploy.own_image import BASE, build, own_docker

from exhume import __version__

ROOT = Path(__file__).resolve().parents[3]
CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n{}\n## [1.2.0] - 2026-11-18\n\n### Added\n- A thing.\n\n## [1.1.0]\n\n- Old.\n"
)


def load():
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools/release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = load()


def test_the_version_is_in_one_place():
    assert tool.version_of(ROOT) == __version__
    assert "version" not in (ROOT / "pyproject.toml").read_text().partition("[project]")[2].partition("dynamic")[0]


def test_the_notes_are_the_section_of_the_version():
    assert tool.notes_of(CHANGELOG.format(""), "1.2.0", draft=False) == "# exhume 1.2.0\n\n### Added\n- A thing.\n"
    assert "Coming." in tool.notes_of(CHANGELOG.format("\n- Coming.\n"), "1.2.0", draft=True)


@pytest.mark.parametrize(("unreleased", "version"), [("\n- Coming.\n", "1.2.0"), ("", "1.3.0")])
def test_what_the_changelog_does_not_have_is_not_released(unreleased, version):
    with pytest.raises(tool.ReleaseError):
        tool.notes_of(CHANGELOG.format(unreleased), version, draft=False)


def test_the_parts_of_the_page_are_those_of_its_notices():
    notices = "It contains:\n\n@scope/a 1.0.0 (ISC)\n\nSome licence (MIT)\n\npreact 11.2.0 (MIT)\n\nText.\n"
    assert [each["purl"] for each in tool.npm_components(notices)] == [
        "pkg:npm/%40scope/a@1.0.0",
        "pkg:npm/preact@11.2.0",
    ]


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    to = tmp_path_factory.mktemp("release") / "made"
    subprocess.run(["make", "build/release-venv/.installed", "web"], cwd=ROOT, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "tools/release.py", "--draft", "--to", to],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return to


@pytest.mark.long
def test_two_builds_are_the_same_bytes(released):
    """The tool compares them, and builds nothing otherwise; here it is done once more, from the outside."""
    for name in (f"exhume-{__version__}-py3-none-any.whl", f"exhume-{__version__}.tar.gz"):
        builds = [ROOT / "build/release" / tree / "dist" / name for tree in ("first", "second-build")]
        assert len({hashlib.sha256(each.read_bytes()).digest() for each in (*builds, released / name)}) == 1
        assert builds[0].stat().st_ino != builds[1].stat().st_ino
    with tarfile.open(released / f"exhume-{__version__}.tar.gz") as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert {"share/man/man1/exhume.1", "src/exhume/present/web/static/index.html", "web/package-lock.json"} <= names


@pytest.mark.long
def test_the_parts_of_a_release_are_listed_with_versions_and_licences(released):
    bom = json.loads((released / f"exhume-{__version__}.cdx.json").read_text())
    assert (bom["bomFormat"], bom["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    parts = [each for each in bom["components"] if each["purl"].startswith("pkg:pypi/")]
    listed = {(canonicalize_name(each["name"]), each["version"]) for each in parts}
    locked = {(pin.name, pin.version) for pin in pins((ROOT / "requirements.lock").read_text())}
    assert listed <= locked
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {canonicalize_name(re.split(r"[<>=]", each)[0]) for each in needed} <= {name for name, _ in listed}
    names = {each["name"] for each in bom["components"]}
    assert "preact" in names
    assert not {"pytest", "hatchling", "vite", "exhume"} & names
    assert all(each.get("licenses") for each in bom["components"]), [
        each["name"] for each in bom["components"] if not each.get("licenses")
    ]
    licences = (released / "THIRD-PARTY-LICENSES.txt").read_text()
    assert all(f"\n{name}" in licences for name in names)


@pytest.mark.long
def test_checksums_are_those_of_the_files(released):
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=released, check=True, capture_output=True)
    assert len((released / "SHA256SUMS").read_text().splitlines()) == len(list(released.iterdir())) - 1
    assert (released / "RELEASE-NOTES.md").read_text().startswith(f"# exhume {__version__}")


@pytest.mark.long
@pytest.mark.root
@pytest.mark.needs("docker", "dockerd", "debootstrap")
def test_the_image_is_loaded_as_it_was_saved(tmp_path, monkeypatch):
    with own_docker() as docker:
        build(docker)
        for name, value in {**docker.environment, "DOCKER_HOST": f"unix://{docker.work}/d.sock"}.items():
            monkeypatch.setenv(name, value)
        archive = tool.image(ROOT, __version__, BASE, tmp_path)
        docker("image", "rm", f"exhume:{__version__}")
        assert f"exhume:{__version__}" in docker("load", "-i", str(archive))
        assert docker("run", "--rm", "--network=none", f"exhume:{__version__}", "--version").endswith(__version__)
