"""A part that the machine lacks is named; in continuous integration it fails the test."""

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


def test_no_test_skips_by_hand():
    by_hand = set()
    for path in TESTS.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if any(ast.unparse(call.func) in {"pytest.skip", "pytest.mark.skip", "pytest.mark.skipif"} for call in calls):
            by_hand.add(str(path.relative_to(TESTS)))
    assert by_hand == {"parts.py"}
