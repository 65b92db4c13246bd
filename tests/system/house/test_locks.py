"""The lock files say what to install, never from where."""

import importlib.metadata
import re
import site
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.locks import PIN, Pin, pins

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("requirements.lock", "requirements-dev.lock")
ALL_LOCKS = (*LOCKS, "requirements-docs.lock", "requirements-release.lock")
HASH = re.compile(r"^ {4}--hash=sha256:[0-9a-f]{64}(?: \\)?$")


def locked(lock: str) -> list[Pin]:
    return pins((ROOT / lock).read_text())


def names_in(lock: str) -> set[str]:
    return {pin.name for pin in locked(lock)}


@pytest.mark.parametrize("lock", ALL_LOCKS)
def test_every_line_is_a_pinned_requirement_or_its_hash(lock: str):
    for number, line in enumerate((ROOT / lock).read_text().splitlines(), 1):
        assert PIN.match(line) or HASH.match(line), f"{lock}:{number}: {line}"


@pytest.mark.parametrize("lock", ALL_LOCKS)
def test_no_host_names_addresses_or_paths(lock: str):
    text = (ROOT / lock).read_text()
    assert not re.search(r"://|@|--index|--find-links|(?<![a-z0-9])/[a-z]", text)


def test_every_dependency_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    runtime = project["project"]["dependencies"] + project["dependency-groups"]["build"]
    assert {bare_name(item) for item in runtime} <= names_in("requirements.lock")
    assert {bare_name(item) for item in runtime + extras["dev"]} <= names_in("requirements-dev.lock")
    for group in ("docs", "release"):
        assert set(map(bare_name, project["dependency-groups"][group])) <= names_in(f"requirements-{group}.lock")


def test_the_tools_stand_on_the_versions_that_the_program_runs_with():
    lines = {lock: {match[0] for match in PIN.finditer((ROOT / lock).read_text())} for lock in LOCKS}
    assert lines["requirements.lock"] <= lines["requirements-dev.lock"]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_package_is_locked_with_the_extras_that_others_ask_of_it(lock: str):
    """pip before 23.3 takes such a package from outside the lock otherwise."""
    extras = {pin.name: pin.extras for pin in locked(lock)}
    for pin in locked(lock):
        try:
            needed = importlib.metadata.requires(pin.name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another version of Python, or for another system
        for requirement in map(Requirement, needed):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *pin.extras)):
                assert requirement.extras <= extras.get(canonicalize_name(requirement.name), frozenset()), (
                    f"{pin.name}: {requirement}"
                )


def test_the_site_is_built_next_to_the_tools():
    """They share an environment: a package that both need has one version."""
    dev, docs = (
        {pin.name: pin.version for pin in locked(lock)} for lock in ("requirements-dev.lock", "requirements-docs.lock")
    )
    assert {name: dev[name] for name in docs.keys() & dev.keys()} == {
        name: docs[name] for name in docs.keys() & dev.keys()
    }


@pytest.mark.parametrize("name", ["setuptools", "wheel"])
def test_what_a_new_environment_brings_along_is_not_left_in_it(name: str):
    """Python's own copies are as old as it is: the environment has the locked version, or none."""
    installed = {each.version for each in importlib.metadata.distributions(path=site.getsitepackages(), name=name)}
    assert installed <= {pin.version for lock in LOCKS for pin in locked(lock) if pin.name == name}


def bare_name(requirement: str) -> str:
    return re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower()
