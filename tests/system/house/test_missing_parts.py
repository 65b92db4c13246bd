"""A test whose requirement is missing names it and skips; in continuous integration it fails."""

import ast
from pathlib import Path

import pytest
from tests.parts import missing, need

TESTS = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_part_fails_only_in_ci(monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="needs a wheel on this machine"):
        missing("a wheel")
    with pytest.raises(outcome, match="no-such-command"):
        need("no-such-command")


def test_a_command_that_is_there_is_found():
    assert Path(need("sh")).exists()


def test_every_skip_goes_through_parts():
    skips = set()
    for path in TESTS.rglob("*.py"):
        text = path.read_text()
        if "skip" not in text:
            continue
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        if any(ast.unparse(call.func) in {"pytest.skip", "pytest.mark.skip", "pytest.mark.skipif"} for call in calls):
            skips.add(str(path.relative_to(TESTS)))
    assert skips == {"parts.py"}
