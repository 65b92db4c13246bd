"""Events of other programs: what is taken from an untrusted sender, and in which form it is recorded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.model.job_event import KINDS, MAX_BYTES, MAX_TEXT, BadEvent, JobEvent


def test_an_event_is_sent_and_taken_whole():
    event = JobEvent("job-failed", "train-7: NCCL timeout", 1_780_000_000_000_000_000, "node-7", {"rank": "39"})
    assert JobEvent.decode(event.encode()) == event
    assert event.line() == "train-7: NCCL timeout (node=node-7, rank=39)"


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "incident", "text": "x"},
        {"kind": "oom", "text": "x"},
        {"kind": "note", "text": " \n"},
        {"kind": "note", "text": "x", "at": -1},
        {"kind": "note", "text": "x", "at": 1 << 70},
        {"kind": "note", "text": "x", "attributes": {"a b": "1"}},
        {"kind": "note", "text": "x", "attributes": {str(n): "1" for n in range(17)}},
        {"kind": "note"},
        {"text": "x"},
        {"kind": "note", "text": "x", "version": 2},
        {"kind": "note", "text": "x", "attributes": [1]},
    ],
)
def test_what_is_no_event_is_refused(fields):
    with pytest.raises(BadEvent):
        JobEvent.decode(json.dumps({"version": 1, **fields}).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_by_one_error(datagram):
    with pytest.raises(BadEvent):
        JobEvent.decode(datagram)


@given(text=st.text(min_size=1, max_size=3000), value=st.text(max_size=500), kind=st.sampled_from(sorted(KINDS)))
def test_every_line_is_one_bounded_line(text, value, kind):
    try:
        event = JobEvent(kind, text, attributes={"a": value})
        sent = event.encode()
    except BadEvent:
        return
    assert len(sent) <= MAX_BYTES
    line = JobEvent.decode(sent).line()
    assert line.isprintable()
    assert len(line) <= MAX_TEXT + 250


def test_secrets_are_redacted_and_escape_sequences_removed():
    event = JobEvent("note", "\x1b[31mred\nline", attributes={"url": "postgres://me:hunter2@db/x", "token": "abc"})
    line = event.line()
    assert "hunter2" not in line and "abc" not in line
    assert "\x1b" not in line and "\n" not in line
    assert "hunter2" in event.line(keep_secrets=True)
