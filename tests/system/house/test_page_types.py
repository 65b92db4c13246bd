"""The page's TypeScript types are those of the server's and the reports' schemas."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def load():
    spec = importlib.util.spec_from_file_location("page_types", ROOT / "tools/page_types.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


page_types = load()


def test_the_committed_types_are_fresh():
    assert page_types.TARGET.read_text() == page_types.generate(), "run tools/page_types.py"


def test_stale_types_fail_the_check(monkeypatch, tmp_path):
    monkeypatch.setattr(page_types, "TARGET", tmp_path / "api-schema.ts")
    assert page_types.main(["--check"]) == 1
    assert page_types.main([]) == 0
    assert page_types.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, "number"),
        ({"$ref": "#/$defs/Loss"}, "Loss"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}, "number | string"),
        ({"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}}, "(number | null)[]"),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "number"}]}, "[number, number]"),
        ({"enum": ["a", "b"], "type": "string"}, '"a" | "b"'),
        ({"const": "flame", "type": "string"}, '"flame"'),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "Record<string, string>"),
        ({}, "unknown"),
    ],
)
def test_types_of_json_schemas(schema, expected):
    assert page_types.type_of(schema) == expected
