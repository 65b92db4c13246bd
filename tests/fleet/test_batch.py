"""Batches: what is in one comes out again, and whatever else a sender makes up is refused."""

import gzip
import json
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.fleet.fleet_rows import batch, packed, summaries

from exhume.fleet.batch import BadBatch, BadVersion, decode, is_node_name, to_arrow
from exhume.fleet.schema import SUMMARIES, TABLES

WHOLE = {
    "version": 1,
    "node": "node-1",
    "spool": "00c0ffee00c0ffee",
    "seq": 0,
    "tables": {"summaries": summaries(2)},
}


def test_a_batch_comes_back_as_it_was():
    sent = batch(summaries=summaries(3), jobs={"at": summaries()["minute"], "job": ["train-7"], "kind": ["job-failed"]})
    assert decode(sent.encode()) == sent
    assert sent.encode() == sent.encode(), "the same bytes each time: a digest recognises it"


def test_a_minute_takes_about_a_kilobyte():
    every = {
        each.name: ["x" * 12 if str(each.type) == "string" else 1.234 if "float" in str(each.type) else 12]
        for each in SUMMARIES.schema
        if each.name not in ("node", "received_at", "clock_off_s")
    }
    assert len(batch(summaries={**every, **summaries()}).encode()) < 1024


def test_rows_get_all_columns_of_their_table():
    rows = to_arrow(SUMMARIES, summaries(2), "node-1", 1_780_000_000_000_000, 3600.0)
    assert rows.schema == SUMMARIES.schema
    assert rows.column("node").to_pylist() == ["node-1"] * 2
    assert rows.column("clock_off_s").to_pylist() == [3600.0] * 2
    assert rows.column("pressure_cpu").null_count == 2


def test_columns_and_tables_of_a_newer_node_are_left_out():
    document = {**WHOLE, "tables": {"summaries": {**summaries(), "warp_factor": [9]}, "moods": {"at": [1]}}}
    found = decode(packed(document))
    assert set(found.ignored) == {"summaries.warp_factor", "moods"}
    assert "warp_factor" not in found.tables["summaries"]
    assert list(found.tables) == ["summaries"]


def test_a_later_version_is_not_refused_for_good():
    with pytest.raises(BadVersion):
        decode(packed({**WHOLE, "version": 2}))


def changed(**values):
    return {**WHOLE, "tables": {"summaries": {**summaries(2), **values}}}


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {**WHOLE, "version": True},
        {**WHOLE, "node": "../../etc"},
        {**WHOLE, "node": "n" * 300},
        {**WHOLE, "node": None},
        {**WHOLE, "spool": "../../x"},
        {**WHOLE, "seq": -1},
        {**WHOLE, "seq": 1.5},
        {**WHOLE, "tables": []},
        {**WHOLE, "tables": {"summaries": {"boot_id": ["x"]}}},
        {**WHOLE, "tables": {"summaries": {"minute": summaries()["minute"]}}},
        changed(cores=[1]),
        changed(cores=[1, 65_536]),
        changed(cores=[1, -1]),
        changed(cores=[1, 1.5]),
        changed(cores=[1, True]),
        changed(cores="12"),
        changed(uptime_s=[1, 1e39]),
        changed(uptime_s=[1, "1"]),
        changed(uptime_s=[1, 10**400]),
        changed(busiest_state=["user", "x" * 401]),
        changed(busiest_state=["user", "\ud800"]),
        changed(boot_id=["x", None]),
        changed(minute=[0, 1]),
        changed(minute=[summaries()["minute"][0], 1 << 70]),
        {**WHOLE, "tables": {"attributes": {"at": summaries()["minute"], "key": ["zone"], "value": ["x" * 201]}}},
        {**WHOLE, "tables": {"summaries": summaries(20_001)}},
    ],
)
def test_what_is_no_batch_is_refused(document):
    with pytest.raises(BadBatch):
        decode(packed(document))


@pytest.mark.parametrize("text", ['{"version": 1, "seq": NaN}', "[" * 100_000, '{"a": 1}{', "\xff"])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(BadBatch):
        decode(gzip.compress(text.encode("latin-1")))


def test_numbers_that_json_does_not_have_are_refused():
    text = json.dumps(changed(uptime_s=[1.0, float("nan")]))
    with pytest.raises(BadBatch):
        decode(gzip.compress(text.encode()))


@pytest.mark.slow
def test_what_unpacks_to_more_than_the_bound_is_not_unpacked():
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    assert len(bomb) < 1 << 18
    with pytest.raises(BadBatch, match="MiB"):
        decode(bomb)


@pytest.mark.parametrize("damage", [lambda body: body[:-9], lambda body: body + b"more", lambda body: body[4:]])
def test_a_damaged_body_is_refused(damage):
    with pytest.raises(BadBatch):
        decode(damage(batch().encode()))


@given(st.binary(max_size=400))
def test_no_bytes_are_an_error_of_another_kind(content):
    for body in (content, gzip.compress(content)):
        with pytest.raises(BadBatch):
            decode(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.sampled_from(sorted(each.name for each in SUMMARIES.schema)), JSON)
@example("kernel_share", [None, 16_777_217])
def test_no_value_is_an_error_of_another_kind(column, value):
    document = changed(**{column: value})
    try:
        found = decode(gzip.compress(json.dumps(document).encode()))
    except BadBatch:
        return
    # What is accepted can be stored.
    for name, columns in found.tables.items():
        assert to_arrow(TABLES[name], columns, found.node).num_rows == 2


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("node-1", True), ("ip-10-0-0-7.ec2.internal", True), ("", False), (".", False), ("a/b", False), ("a\n", False)],
)
def test_names_of_nodes(name, is_one):
    assert is_node_name(name) is is_one
