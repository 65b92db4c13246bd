"""Facts of a recording: what is written is read back, also as an earlier version wrote it."""

import json
from dataclasses import replace

import pytest

from exhume.model.facts import MissingSource, RecordingFacts

FACTS = RecordingFacts("node-1", "b" * 32, 2, "6.8.0", "x86_64", "cpu-clock", 97)
NO_LOG = MissingSource("kernel-log", "/dev/kmsg can't be opened", "run as root")


def stored(missing):
    return json.dumps({**json.loads(FACTS.to_json()), "sources_missing": missing})


def test_missing_sources_are_objects():
    facts = replace(FACTS, sources_missing=[NO_LOG])
    assert json.loads(facts.to_json())["sources_missing"] == [
        {"source": "kernel-log", "reason": "/dev/kmsg can't be opened", "remedy": "run as root"}
    ]
    assert RecordingFacts.from_json(facts.to_json()) == facts
    assert facts.missing("kernel-log", "stacks") == [NO_LOG]
    assert facts.missing("stacks") == []


@pytest.mark.parametrize(
    ("sentence", "read"),
    [
        ("kernel-log: /dev/kmsg can't be opened; run as root", NO_LOG),
        (
            "stacks: refused; a limit: 4; add CAP_PERFMON",
            MissingSource("stacks", "refused; a limit: 4", "add CAP_PERFMON"),
        ),
        ("cpu: no run-queue wait", MissingSource("cpu", "no run-queue wait")),
    ],
)
def test_sentences_of_earlier_recordings_are_read(sentence, read):
    assert RecordingFacts.from_json(stored([sentence])).sources_missing == [read]
    assert str(read) == sentence


@pytest.mark.parametrize("missing", [[{"source": "x"}], [3], 4])
def test_anything_else_is_a_value_error(missing):
    with pytest.raises(ValueError, match="facts"):
        RecordingFacts.from_json(stored(missing))
