"""The lock files say what to install, never from where."""

import importlib.metadata
import re
import site
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("requirements.lock", "requirements-dev.lock")
ALL_LOCKS = (*LOCKS, "requirements-docs.lock", "requirements-release.lock")
REQUIREMENT = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^ ;]+)(?: ; (?P<marker>.+?))? \\$")
HASH = re.compile(r"^ {4}--hash=sha256:[0-9a-f]{64}(?: \\)?$")


def names_in(lock: str) -> set[str]:
    matches = (REQUIREMENT.match(line) for line in (ROOT / lock).read_text().splitlines())
    return {match["name"] for match in matches if match}


@pytest.mark.parametrize("lock", ALL_LOCKS)
def test_every_line_is_a_pinned_requirement_or_its_hash(lock: str):
    for number, line in enumerate((ROOT / lock).read_text().splitlines(), 1):
        assert REQUIREMENT.match(line) or HASH.match(line), f"{lock}:{number}: {line}"


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
    pins = {
        lock: {line for line in (ROOT / lock).read_text().splitlines() if REQUIREMENT.match(line)} for lock in LOCKS
    }
    assert pins["requirements.lock"] <= pins["requirements-dev.lock"]


def test_the_site_is_built_next_to_the_tools():
    """They share an environment: a package that both need has one version."""
    dev, docs = (
        {
            match["name"]: match["version"]
            for line in (ROOT / lock).read_text().splitlines()
            if (match := REQUIREMENT.match(line))
        }
        for lock in ("requirements-dev.lock", "requirements-docs.lock")
    )
    assert {name: dev[name] for name in docs.keys() & dev.keys()} == {
        name: docs[name] for name in docs.keys() & dev.keys()
    }


@pytest.mark.parametrize("name", ["setuptools", "wheel"])
def test_what_a_new_environment_brings_along_is_not_left_in_it(name: str):
    """Python's own copies are as old as it is: the environment has the locked version, or none."""
    installed = {each.version for each in importlib.metadata.distributions(path=site.getsitepackages(), name=name)}
    matches = [REQUIREMENT.match(line) for lock in LOCKS for line in (ROOT / lock).read_text().splitlines()]
    assert installed <= {match["version"] for match in matches if match and match["name"] == name}


def bare_name(requirement: str) -> str:
    return re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower()
