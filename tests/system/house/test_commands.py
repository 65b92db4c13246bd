"""Continuous integration runs what everybody runs, and documentation names only what exists."""

import os
import re
from pathlib import Path

import pytest

from exhume.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"(?<![\w./~<>*-])((?:src|tests|bench|docs|tools|\.ci)/[\w./-]*[\w/])(?![\w*<>{-])")
FILE_NAME = re.compile(r"`([A-Z]+\.md|[\w-]+\.lock|pyproject\.toml|Makefile)`")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def verbs() -> set[str]:
    """The commands that the program knows."""
    return set(COMMANDS)


def code_in(path: Path) -> str:
    return "\n".join(CODE.findall(path.read_text()))


def test_continuous_integration_hides_nothing():
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    lines = [line.strip() for line in script.read_text().splitlines()]
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "exec make test"]


def test_every_target_is_explained_and_phony():
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())
    explained = set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE))
    assert make_targets() == phony == explained


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_documents_name_only_targets_that_exist(document: Path):
    mentioned = set(re.findall(r"\bmake ([a-z-]+)\b", code_in(document)))
    assert mentioned <= make_targets()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_documents_name_only_commands_that_exist(document: Path):
    mentioned = set(re.findall(r"(?:^|`|\$ |/)exhume ([a-z]+)\b", code_in(document), re.MULTILINE))
    assert mentioned <= verbs()


def test_helper_modules_are_not_commands():
    assert not verbs() & {"args", "terminal", "recorder", "default", "main"}
    assert {"record", "fix", "serve", "lab"} <= verbs()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_documents_name_only_files_that_exist(document: Path):
    text = document.read_text()
    mentioned = set(PATH.findall(text)) | set(FILE_NAME.findall(text))
    mentioned = {name for name in mentioned if not (document.parent / name).exists()}
    assert not {name for name in mentioned if not (ROOT / name).exists()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path):
    targets = {target for target in LINK.findall(document.read_text()) if "://" not in target}
    assert not {target for target in targets if not (document.parent / target).exists()}
