"""Tokens: one a node, known to nobody afterwards, revoked at once."""

import stat

import pytest

from exhume.fleet import tokens as tokens_module
from exhume.fleet.tokens import Tokens
from exhume.model.errors import ExhumeError, UsageError


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(tokens_module, "LOOK_S", 0.0)


def test_a_token_belongs_to_its_node_until_it_is_revoked(tmp_path):
    operator, hub = Tokens(tmp_path), Tokens(tmp_path)
    first, second = operator.add("node-1"), operator.add("node-2")
    assert (hub.node_of(first), hub.node_of(second)) == ("node-1", "node-2")
    assert operator.revoke("node-1")
    assert not operator.revoke("node-1")
    assert (hub.node_of(first), hub.node_of(second)) == (None, "node-2")


def test_a_new_token_replaces_the_old_one(tmp_path):
    tokens = Tokens(tmp_path)
    first = tokens.add("node-1")
    second = tokens.add("node-1")
    assert (tokens.node_of(first), tokens.node_of(second)) == (None, "node-1")
    assert [each.node for each in tokens.listed()] == ["node-1"]


def test_tokens_are_not_on_the_disk_and_the_file_is_private(tmp_path):
    tokens = Tokens(tmp_path / "state")
    token = tokens.add("node-1")
    for path in (tmp_path / "state").iterdir():
        assert token not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 300])
def test_what_is_no_name_of_a_node_gets_none(tmp_path, name):
    with pytest.raises(UsageError):
        Tokens(tmp_path).add(name)


def test_a_damaged_file_is_named_and_lets_none_in(tmp_path):
    tokens = Tokens(tmp_path)
    token = tokens.add("node-1")
    (tmp_path / "tokens.json").write_text("{")
    with pytest.raises(ExhumeError, match=r"tokens\.json"):
        Tokens(tmp_path).node_of(token)
