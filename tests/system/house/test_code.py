"""Rules of the house that no linter knows."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted((ROOT / "src/exhume").rglob("*.py"))
GENERATED = {ROOT / "web/src/api-schema.ts"}
# Whatever else is written by hand: one test looks at all of it.
WRITTEN = sorted(
    path
    for place, kinds in {"tests": ["py"], "bench": ["py"], "tools": ["py"], "web/src": ["ts", "tsx", "css"]}.items()
    for kind in kinds
    for path in (ROOT / place).rglob(f"*.{kind}")
    if path not in GENERATED
)
# One source that breaks must not stop the others: the edge of the tick is the one place that may catch everything.
EDGE_OF_THE_TICK = {"src/exhume/collect/loop.py"}
JUNK_DRAWERS = {"utils", "util", "helpers", "misc", "common"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_is_code_to_check():
    assert len(SOURCES) > 10


def test_no_module_is_a_junk_drawer():
    assert len(WRITTEN) > 300
    assert not [name_of(path) for path in (*SOURCES, *WRITTEN) if path.stem in JUNK_DRAWERS]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_is_caught_by_chance(path: Path):
    if name_of(path) in EDGE_OF_THE_TICK:
        return
    handlers = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ExceptHandler)]
    broad = [handler.lineno for handler in handlers if catches_everything(handler)]
    assert not broad, f"{name_of(path)} catches everything at line {broad}: name the errors that can happen"


def catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(node, ast.Name) and node.id in {"Exception", "BaseException"} for node in caught)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_every_file_says_what_it_is(path: Path):
    assert ast.get_docstring(ast.parse(path.read_text())), f"{name_of(path)} has no docstring"
