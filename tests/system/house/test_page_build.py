"""The page is built from locked packages, only when it changed, with whatever Node there is."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def load():
    spec = importlib.util.spec_from_file_location("page", ROOT / "tools/page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


page = load()
PAGES = (page.STATIC / "index.html", page.STATIC / "fleet.html", page.REPORT / "report.html")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with the page's sources and nothing built."""
    shutil.copytree(ROOT / "web", tmp_path / "web", ignore=shutil.ignore_patterns("node_modules"))
    return tmp_path


@pytest.fixture
def no_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Node, neither on the path nor as a Python package."""
    empty = tmp_path / "empty-path"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setattr(page, "node_of_python", lambda: None)


def built(tree: Path) -> None:
    """As if the page had been built from the sources that are there."""
    for file in PAGES:
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        (tree / file).write_text("<!doctype html>")
    (tree / page.STATIC / page.STAMP).write_text(page.content_hash(tree))


def test_the_lock_says_what_to_install_never_from_where():
    text = (ROOT / "web/package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    assert '"resolved"' not in text and ".tgz" not in text
    assert all("integrity" in entry for name, entry in packages.items() if name)


def test_every_platform_finds_its_packages_in_the_lock():
    packages = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    wanted = {each for entry in packages.values() for each in entry.get("optionalDependencies", {})}
    assert len(wanted) > 20
    assert {each for each in wanted if f"node_modules/{each}" not in packages} == set()


def test_a_page_that_is_fresh_needs_no_node(tree: Path, no_node: None):
    built(tree)
    assert page.build(tree) is False
    assert page.needed_package(tree) is None


def test_a_page_is_stale_once_a_source_changed_was_added_or_renamed(tree: Path):
    built(tree)
    source = tree / "web/src/main.tsx"
    before = source.read_text()
    source.write_text(before + "\n")
    assert not page.is_fresh(tree)
    source.write_text(before)
    assert page.is_fresh(tree)
    source.rename(tree / "web/src/other.tsx")
    assert not page.is_fresh(tree)


@pytest.mark.parametrize("file", PAGES)
def test_a_page_whose_files_are_gone_is_stale(tree: Path, file: Path):
    built(tree)
    (tree / file).unlink()
    assert not page.is_fresh(tree)


def test_tests_of_the_page_are_no_part_of_it(tree: Path):
    built(tree)
    (tree / "web/tests/address.test.ts").write_text("")
    assert page.is_fresh(tree)


def test_node_comes_as_a_python_package_where_the_machine_has_none(tree: Path, no_node: None):
    assert page.needed_package(tree) == page.NODE_PACKAGE
    with pytest.raises(page.PageError, match="pip install"):
        page.build(tree)


@pytest.mark.parametrize(
    ("version", "usable"),
    [("v18.20.0", False), ("v20.18.1", False), ("v20.19.0", True), ("v22.11.0", False), ("v24.1.0", True)],
)
def test_an_old_node_is_not_used(version: str, usable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("node", "npm"):
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\necho {version}\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert (page.node_on_path() is not None) == usable


@pytest.mark.needs("node", "npm")
def test_a_registry_out_of_reach_is_a_sentence(tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(page.PageError, match=r"registry can't be reached.*npmrc"):
        page.build(tree)
