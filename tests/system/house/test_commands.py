"""Documentation names only make targets, commands and files that exist."""

import re
from collections.abc import Callable
from pathlib import Path

from exhume.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
DOCUMENTS += sorted((ROOT / "docs").glob("**/*.md"))
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"(?<![\w./~<>*-])((?:src|tests|bench|docs|tools|\.ci)/[\w./-]*[\w/])(?![\w*<>{-])")
FILE_NAME = re.compile(r"`([A-Z]+\.md|[\w-]+\.lock|pyproject\.toml|Makefile)`")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def verbs() -> set[str]:
    """The commands of exhume."""
    return set(COMMANDS)


def code_in(path: Path) -> str:
    return "\n".join(CODE.findall(path.read_text()))


def violations(mentioned: Callable[[Path], set[str]], existing: set[str]) -> list[str]:
    """What documents mention and doesn't exist, each with its document."""
    return [f"{name_of(path)}: {name}" for path in DOCUMENTS for name in sorted(mentioned(path) - existing)]


def test_documents_name_only_make_targets_that_exist():
    assert not violations(lambda path: set(re.findall(r"\bmake ([a-z-]+)\b", code_in(path))), make_targets())


def test_documents_name_only_commands_that_exist():
    command = re.compile(r"(?:^|`|\$ |/)exhume ([a-z]+)\b", re.MULTILINE)
    assert not violations(lambda path: set(command.findall(code_in(path))), verbs())


def test_helper_modules_are_not_commands():
    assert not verbs() & {"args", "terminal", "recorder", "default", "main"}
    assert {"record", "fix", "serve", "lab"} <= verbs()


def test_documents_name_only_files_that_exist():
    def missing_files(document: Path) -> set[str]:
        text = document.read_text()
        mentioned = set(PATH.findall(text)) | set(FILE_NAME.findall(text))
        return {name for name in mentioned if not (document.parent / name).exists() and not (ROOT / name).exists()}

    assert not violations(missing_files, set())


def test_documents_name_only_tests_that_exist():
    def missing_tests(document: Path) -> set[str]:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", document.read_text())
        return {name for file, name in named if f"def {name}(" not in (ROOT / file).read_text()}

    assert not violations(missing_tests, set())


def test_links_between_documents_are_not_dead():
    def dead_links(document: Path) -> set[str]:
        targets = {target for target in LINK.findall(document.read_text()) if "://" not in target}
        return {target for target in targets if not (document.parent / target).exists()}

    assert not violations(dead_links, set())
