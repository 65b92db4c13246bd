"""Builds a release of the committed sources into dist/exhume-VERSION/, twice, and refuses it where the builds differ.

    tools/release.py [--draft] [--to DIRECTORY] [--image-base IMAGE]

Wheel and source archive, the parts of the program as a CycloneDX document, the licences of all parts, the notes from
the changelog, and checksums. With --image-base also the container image on that base (python:3.13-slim-bookworm), which
needs Docker; its layers have times of their own, so it is built once. --draft also releases what the changelog still
has under "Unreleased", and a tree with changes that are not committed (which are not in it).
"""

import argparse
import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/release"
PYTHON = ROOT / ".venv/bin/python"
# What describes a release, in an environment of its own.
TOOLS = ROOT / "build/release-venv"
NOTICES = ROOT / "src/exhume/present/web/static/third-party-notices.txt"
PIP_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CERT")
SECTION = re.compile(r"^## \[([^]]+)\].*\n", re.MULTILINE)


class ReleaseError(Exception):
    """Why there is no release; the message says what to do."""


def version_of(tree: Path) -> str:
    """The version, from the one place that has it."""
    found = re.search(r'^__version__ = "([^"]+)"$', (tree / "src/exhume/__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise ReleaseError("src/exhume/__init__.py has no __version__")
    return found[1]


def notes_of(changelog: str, version: str, *, draft: bool) -> str:
    """The section of a version. Raises ReleaseError where it is not there, or something is still unreleased."""
    parts = SECTION.split(changelog)
    sections = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    unreleased = sections.get("Unreleased", "")
    if draft and unreleased:
        return f"# exhume {version}, draft\n\n{unreleased}\n"
    if unreleased:
        raise ReleaseError(f'CHANGELOG.md has entries under "Unreleased"; make them the section [{version}]')
    if not sections.get(version):
        raise ReleaseError(f"CHANGELOG.md has no section [{version}]; write it, or set __version__ right")
    return f"# exhume {version}\n\n{sections[version]}\n"


def run(*command: str | Path, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints. Raises ReleaseError with the end of its errors."""
    done = subprocess.run(
        [os.fspath(each) for each in command],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ReleaseError(f"{Path(command[0]).name} failed:\n{(done.stderr + done.stdout).strip()[-3000:]}")
    return done.stdout


def build(tree: Path, epoch: str) -> list[Path]:
    """Wheel and source archive of the committed sources, in a fresh tree."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = tree.with_suffix(".tar")
    run("git", "archive", "--output", archive, "HEAD")
    run("tar", "-xf", archive, "-C", tree)
    archive.unlink()
    # The locked packages of npm, as `make web` installed them.
    (tree / "web/node_modules").symlink_to(ROOT / "web/node_modules")
    environment = {"SOURCE_DATE_EPOCH": epoch, "PYTHONPATH": str(tree / "src"), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    run(PYTHON, "tools/page.py", "build", cwd=tree, environment=environment)
    run(PYTHON, "tools/shell_files.py", cwd=tree, environment=environment)
    for target in ("wheel", "sdist"):
        command = (PYTHON, "-m", "hatchling", "build", "--target", target, "--directory", tree / "dist")
        run(*command, cwd=tree, environment=environment)
    return sorted((tree / "dist").iterdir())


def built_twice(epoch: str) -> list[Path]:
    """The files of two builds in two places, if they are the same bytes."""
    first, second = (build(BUILD / name, epoch) for name in ("first", "second-build"))
    if [each.name for each in first] != [each.name for each in second]:
        raise ReleaseError("two builds have files of other names")
    for one, other in zip(first, second, strict=True):
        if not filecmp.cmp(one, other, shallow=False):
            raise ReleaseError(f"two builds of {one.name} differ: compare {one} and {other}")
    return first


def installed(wheel: Path) -> Path:
    """An environment with the program and its locked dependencies, each by its hash; returns its Python."""
    wheels, venv = BUILD / "wheels", BUILD / "environment"
    shutil.rmtree(venv, ignore_errors=True)
    pip = (PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check")
    lock = ("--require-hashes", "-r", ROOT / "requirements.lock")
    run(*pip, "download", "--no-deps", "--only-binary", ":all:", *lock, "-d", wheels)
    run(PYTHON, "-m", "venv", "--without-pip", venv)
    target = (*pip, "--python", venv / "bin/python", "install", "--no-index", "--find-links", wheels)
    run(*target, f"{wheel}[kubernetes]")
    return venv / "bin/python"


def bill_of_materials(python: Path, version: str, epoch: str) -> str:
    """The parts of the program as a CycloneDX document: the Python packages, and what the page is built of."""
    made = run(TOOLS / "bin/cyclonedx-py", "environment", python, "--output-reproducible", "--of", "JSON", "-o", "-")
    bom: dict[str, Any] = json.loads(made)
    own = [each for each in bom["components"] if each["name"] == "exhume"]
    # The document is about the program; its parts are the rest.
    about: dict[str, Any] = {"type": "application", "name": "exhume", "version": version}
    about |= {"bom-ref": f"exhume@{version}", "purl": f"pkg:pypi/exhume@{version}"}
    about |= {"licenses": [{"license": {"id": "Apache-2.0"}}]}
    bom["metadata"] = {**bom.get("metadata", {}), "component": about, "timestamp": _moment(epoch)}
    refs = {each["bom-ref"]: about["bom-ref"] for each in own}
    of_page = npm_components(NOTICES.read_text())
    bom["components"] = [each for each in bom["components"] if each["name"] != "exhume"] + of_page
    named = {each["Name"]: each["License"] for each in json.loads(pip_licenses(python, "--format=json"))}
    for each in bom["components"]:
        # A licence that is not one of SPDX's names.
        if not each.get("licenses") and each["name"] in named:
            each["licenses"] = [{"license": {"name": named[each["name"]]}}]
    for each in bom.get("dependencies", ()):
        each["ref"] = refs.get(each["ref"], each["ref"])
        if each["ref"] == about["bom-ref"]:
            each["dependsOn"] = sorted([*each.get("dependsOn", ()), *(part["bom-ref"] for part in of_page)])
    return json.dumps(bom, indent=1, sort_keys=True) + "\n"


def _moment(epoch: str) -> str:
    return datetime.fromtimestamp(int(epoch), UTC).isoformat().replace("+00:00", "Z")


def npm_components(notices: str) -> list[dict[str, Any]]:
    """The packages of npm whose code is in the page, by the notices that its build wrote."""
    found = re.findall(r"^(@?[\w./-]+) (\d\S*) \(([^)]+)\)$", notices, re.MULTILINE)
    purls = {name: f"pkg:npm/{name.replace('@', '%40', 1)}@{version}" for name, version, _ in found}
    return [
        {
            **{"type": "library", "name": name, "version": version, "purl": purls[name], "bom-ref": purls[name]},
            "licenses": [{"expression": licence}],
        }
        for name, version, licence in found
    ]


def licences(python: Path) -> str:
    """The licences of all parts, with their texts."""
    options = (
        "--with-license-file",
        "--no-license-path",
        "--with-notice-file",
        "--with-urls",
        "--format=plain-vertical",
    )
    texts = pip_licenses(python, *options)
    rule = "=" * 78
    return f"Python packages\n{rule}\n\n{texts.strip()}\n\nThe page\n{rule}\n\n{NOTICES.read_text().strip()}\n"


def pip_licenses(python: Path, *options: str) -> str:
    return run(TOOLS / "bin/pip-licenses", f"--python={python}", *options, "--ignore-packages", "exhume")


def image(tree: Path, version: str, base: str, directory: Path) -> Path:
    """The image of a built tree as an archive for `docker load`. Where packages come from is handed on, as variables of
    pip."""
    tag, archive = f"exhume:{version}", directory / f"exhume-{version}-image.tar"
    given = [f"--build-arg={name}" for name in PIP_VARIABLES if name in os.environ]
    dockerfile = ("-f", tree / "deploy/image/Dockerfile")
    run("docker", "build", "--network=host", f"--build-arg=BASE={base}", *given, *dockerfile, "-t", tag, tree)
    run("docker", "save", "-o", archive, tag)
    run("gzip", "-9n", archive)
    return archive.with_suffix(".tar.gz")


def checksums(directory: Path) -> str:
    """As `sha256sum --check` reads them."""
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(directory.iterdir()))
    return "".join(lines)


def release(*, draft: bool, to: Path | None = None, image_base: str = "") -> Path:
    """Build it; returns its directory. Raises ReleaseError."""
    version = version_of(ROOT)
    notes = notes_of((ROOT / "CHANGELOG.md").read_text(), version, draft=draft)
    if not draft and (changed := run("git", "status", "--porcelain")):
        raise ReleaseError(f"commit or remove what is changed; a release is of committed sources:\n{changed}")
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    files = built_twice(epoch)
    python = installed(next(each for each in files if each.suffix == ".whl"))
    directory = to or ROOT / f"dist/exhume-{version}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for file in files:
        shutil.copy(file, directory)
    (directory / f"exhume-{version}.cdx.json").write_text(bill_of_materials(python, version, epoch))
    (directory / "THIRD-PARTY-LICENSES.txt").write_text(licences(python))
    (directory / "RELEASE-NOTES.md").write_text(notes)
    if image_base:
        image(BUILD / "first", version, image_base, directory)
    (directory / "SHA256SUMS").write_text(checksums(directory))
    return directory


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draft", action="store_true")
    parser.add_argument("--to", type=Path)
    parser.add_argument("--image-base", default="")
    options = parser.parse_args(argv)
    try:
        made = release(draft=options.draft, to=options.to, image_base=options.image_base)
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{made}: the same bytes in two builds\n{(made / 'SHA256SUMS').read_text()}", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
