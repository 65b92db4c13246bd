"""Templates of messages: values, optional parts, alternatives, and entities that are named."""

import re

import pytest

from exhume.diagnose import messages
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examiners
from exhume.model.finding import EntityKind, process_entity


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("{a:.0%} of {b}", {"a": 0.5, "b": "it"}, "50% of it"),
        ("x[ ({a:.1f} before)]", {"a": 2.0}, "x (2.0 before)"),
        ("x[ ({a:.1f} before)]", {"a": None}, "x"),
        ("[{who}|many] spin", {"who": None}, "many spin"),
        ("[{who} spins|many spin]", {"who": process_entity("db", 7)}, "db spins"),
        ("{who:pid}", {"who": process_entity("db", 7)}, "db (pid 7)"),
        ("{who:pid}", {"who": process_entity("db")}, "db"),
        ("x[{?on}, on]", {"on": False}, "x"),
        ("x[{?on}, on]", {"on": True}, "x, on"),
        ("{name}", {"name": "[{a}]"}, "[{a}]"),
    ],
)
def test_a_template_is_filled(template: str, values: dict[str, object], text: str) -> None:
    assert messages.fill("test.code", template, values) == text


def test_named_entities_are_collected_once() -> None:
    process = process_entity("db", 7)
    assert messages.entities_in([process, 3, None, process]) == (process,)
    assert process.kind is EntityKind.PROCESS and process.id == "7"


def test_every_template_has_balanced_brackets_and_no_unknown_syntax() -> None:
    for code, template in messages.templates().items():
        plain = re.sub(r"\{\??\w+(?::[^{}]*)?\}", "", template)
        assert "{" not in plain and "}" not in plain, code
        assert plain.count("[") == plain.count("]"), code


def test_every_cause_has_an_examiner_and_messages() -> None:
    assert set(examiners()) == set(catalogue())
    tables = {code.partition(".")[0] for code in messages.templates()}
    assert set(catalogue()) <= tables


def test_texts_of_remedies_need_only_their_target() -> None:
    for cause in catalogue().values():
        for remedy in cause.remedies:
            assert messages.fill("remedy", remedy.text, {"target": "x"}), remedy.id
