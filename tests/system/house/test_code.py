"""Rules about the source code that no linter checks."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted((ROOT / "src/exhume").rglob("*.py"))
OTHER_FILES = sorted(
    path
    for place, suffixes in {"tests": ["py"], "bench": ["py"], "tools": ["py"], "web/src": ["ts", "tsx", "css"]}.items()
    for suffix in suffixes
    for path in (ROOT / place).rglob(f"*.{suffix}")
)
# One source that fails must not stop the others, so only the recording loop may catch every exception.
MAY_CATCH_EVERYTHING = {"src/exhume/collect/loop.py"}
JUNK_DRAWERS = {"utils", "util", "helpers", "misc", "common"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_module_is_a_junk_drawer():
    assert len(SOURCES) > 100 and len(OTHER_FILES) > 300
    assert not [name_of(path) for path in (*SOURCES, *OTHER_FILES) if path.stem in JUNK_DRAWERS]


@functools.cache
def parsed() -> dict[str, ast.Module]:
    return {name_of(path): ast.parse(path.read_text()) for path in SOURCES}


def test_only_the_recording_loop_catches_every_exception():
    broad = [
        f"{name}:{node.lineno}"
        for name, module in parsed().items()
        if name not in MAY_CATCH_EVERYTHING
        for node in ast.walk(module)
        if isinstance(node, ast.ExceptHandler) and catches_everything(node)
    ]
    assert not broad, "name the errors that can happen"


def catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(node, ast.Name) and node.id in {"Exception", "BaseException"} for node in caught)


def test_every_module_has_a_docstring():
    assert not [name for name, module in parsed().items() if not ast.get_docstring(module)]


def test_coroutines_of_tests_run_in_a_thread():
    # Playwright keeps a loop in the main thread of its worker: asyncio.run fails there, in whichever test comes next.
    allowed = {"tests/coroutines.py", "tests/present/web/pool_program.py", name_of(Path(__file__))}
    tests = [path for path in OTHER_FILES if path.is_relative_to(ROOT / "tests")]
    assert {name_of(path) for path in tests if "asyncio.run(" in path.read_text()} <= allowed
