"""exhume incidents, as its users run it."""

import json

from exhume.cli.commands import incidents


def test_every_mark_has_its_finding(exhume, synthetic):
    directory, written = synthetic
    found = json.loads(exhume("incidents", "--dir", str(directory), "--json", check=False).stdout)["incidents"]
    assert len(found) >= 3
    assert {mark["verdict"] for mark in found} == {"starved"}
    assert len({mark["finding"]["cause"] for mark in found}) == 1
    assert f"core {written.incident.cpu}" in found[0]["finding"]["summary"]


def test_the_finding_stands_below_its_marks(exhume, small_recording):
    marks = exhume("incidents", "--dir", str(small_recording), "--no-findings", check=False).stdout.splitlines()
    explained = exhume("incidents", "--dir", str(small_recording), check=False).stdout.splitlines()
    assert explained[: len(marks)] == marks
    assert explained[len(marks)].strip().startswith("╰  CRITICAL ")
    assert len(explained) == len(marks) + 1


def test_without_findings_nothing_is_explained(exhume, small_recording):
    args = ("incidents", "--dir", str(small_recording), "--json", "--no-findings")
    found = json.loads(exhume(*args, check=False).stdout)["incidents"]
    assert {(mark["verdict"], mark["finding"]) for mark in found} == {(None, None)}


def test_what_takes_too_long_is_left_out_and_said(exhume, small_recording, monkeypatch):
    monkeypatch.setattr(incidents, "MAX_SECONDS", -1.0)
    result = exhume("incidents", "--dir", str(small_recording), "--json", check=False)
    assert {mark["finding"] for mark in json.loads(result.stdout)["incidents"]} == {None}
    assert result.stderr.count("\n") == 1
