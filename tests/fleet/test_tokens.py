"""Tokens: one a node, known to nobody afterwards, revoked at once."""

import os
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


HUB = 8461


@pytest.mark.root
@pytest.mark.parametrize("made", [True, False], ids=["a hub that ran before", "a new hub"])
def test_what_root_changes_belongs_to_the_user_of_the_hub(tmp_path, made):
    state = tmp_path / "lake/_hub"
    state.parent.mkdir()
    os.chown(state.parent, HUB, HUB)
    if made:
        state.mkdir(mode=0o700)
        os.chown(state, HUB, HUB)
    tokens = Tokens(state)
    for change in (tokens.add, tokens.revoke):
        change("node-1")
        assert {
            path.name: (path.stat().st_uid, path.stat().st_gid) for path in (state, *state.iterdir())
        } == dict.fromkeys(("_hub", "tokens.json", "tokens.lock"), (HUB, HUB))


@pytest.mark.root
def test_a_file_that_the_hub_linked_to_is_not_given_to_it(tmp_path):
    other, state = tmp_path / "other", tmp_path / "state"
    other.write_text("of root")
    state.mkdir()
    for name in ("tokens.lock", "tokens.new"):
        os.link(other, state / name)
    os.chown(state, HUB, HUB)
    Tokens(state).add("node-1")
    assert (other.stat().st_uid, other.read_text()) == (0, "of root")


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
