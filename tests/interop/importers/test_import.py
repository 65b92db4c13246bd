"""Many files become one timeline: in any order, once, with gaps and overlaps marked, and all or nothing."""

import json
import signal
import sys
from itertools import permutations

import pyarrow as pa
import pytest
from tests.interop.importers.made_up import START, imported, mpstat_text, put, script
from tests.interop.importers.perf_file import perf_file

from exhume.cli.main import main
from exhume.interop.importers import timeline
from exhume.interop.importers.importer import ImportRequest, StoppedAtFirst, import_files
from exhume.model.clock import NANOS, Window
from exhume.model.errors import RecordingError
from exhume.model.tables import INCIDENT
from exhume.store.read.recording import Recording

WHOLE = Window(0, 2**62)
TABLES = ("samples", "cpu", "sampling", "events", "stacks", "frames", "processes", "losses")


def content_of(recording):
    """Everything in a recording, without an order."""
    found = {}
    for table in TABLES:
        rows = recording.read(table, WHOLE)
        columns = [name for name in rows.schema.names if not pa.types.is_list(rows.schema.field(name).type)]
        found[table] = sorted(map(str, rows.select(columns).to_pylist()))
    return found


@pytest.fixture
def parts(tmp_path):
    """Two minutes in four files: samples, a gap of ten seconds, figures of cores, a log."""
    return (
        put(tmp_path, "one.txt", script(range(50))),
        put(tmp_path, "two.txt", script(range(60, 120), comm="other")),
        put(tmp_path, "mpstat.txt", mpstat_text(range(30, 90), {0: (5.0, 95.0, 0.0), 1: (50.0, 0.0, 0.0)})),
        put(
            tmp_path,
            "log.txt",
            "2026-03-01T03:00:40,000000+00:00 eth0: napi handler hasn't been called for a long time but is scheduled\n",
        ),
    )


@pytest.mark.slow
def test_order_and_grouping_of_files_make_no_difference(tmp_path, parts):
    _, together = imported(tmp_path, *parts, directory="together")
    expected = content_of(together)
    assert {table: len(rows) for table, rows in expected.items()}["samples"] == 110 * 20
    for number, order in enumerate(list(permutations(parts))[5::9]):
        _, recording = imported(tmp_path, *order, directory=f"order{number}")
        assert content_of(recording) == expected
    # One by one: times since boot are placed by their own first moment.
    one, two, figures, log = parts
    for path in (two, log, one, figures):
        start = START + 60 * NANOS if path is two else START
        _, recording = imported(tmp_path, path, directory="later", start=start)
    assert content_of(recording) == expected
    assert {each.source for each in recording.facts.sources_missing} == {
        each.source for each in together.facts.sources_missing
    }


def test_gaps_are_marked_until_they_are_filled(tmp_path, parts):
    result, recording = imported(tmp_path, *parts[:2])
    (gap,) = [loss for loss in recording.losses() if loss.kind == "gap"]
    assert (gap.wall - START) // NANOS == 49
    assert gap.count == pytest.approx(10_100, abs=100)
    assert [loss.kind for loss in result.losses] == ["gap"]
    filling = put(tmp_path, "fill.txt", script(range(50, 60)))
    _, recording = imported(tmp_path, filling, start=START + 50 * NANOS)
    assert not [loss for loss in recording.losses() if loss.kind == "gap"]
    assert recording.read("samples").num_rows == 120 * 20


def test_what_two_files_have_counts_once(tmp_path):
    first = put(tmp_path, "a", script(range(30)))
    again = put(tmp_path, "b", script(range(20, 40), comm="again"))
    result, recording = imported(tmp_path, first, again)
    assert recording.read("samples").num_rows == 40 * 20
    (overlap,) = [loss for loss in recording.losses() if loss.kind == "overlap"]
    assert overlap.count == pytest.approx(9_900, abs=100)
    assert max(1000 - row["idle"] for row in recording.read("cpu").to_pylist()) == 1000
    # Of other cores there is no overlap.
    other = put(tmp_path, "c", script(range(30)).replace("[000]", "[002]").replace("[001]", "[003]"))
    result, recording = imported(tmp_path, first, other, directory="other")
    assert recording.read("samples").num_rows == 2 * 30 * 20
    assert not result.losses


def test_the_same_file_twice_adds_nothing(tmp_path, parts):
    _, recording = imported(tmp_path, *parts)
    before, names = content_of(recording), sorted(path.name for path in recording.directory.iterdir())
    copy = put(tmp_path, "copy.txt", parts[0].read_bytes())
    result, recording = imported(tmp_path, *parts, copy)
    assert all(file.known for file in result.files)
    assert result.complete
    assert content_of(recording) == before
    assert sorted(path.name for path in recording.directory.iterdir()) == names
    # And twice in one command.
    _, recording = imported(tmp_path, parts[0], copy, directory="other")
    assert recording.read("samples").num_rows == 50 * 20


def test_incidents_are_marked_as_the_recorder_does(tmp_path, parts):
    _, recording = imported(tmp_path, *parts)
    marks = [
        (event.trigger, event.cpu, (event.wall - START) // NANOS)
        for event in recording.events()
        if event.kind == INCIDENT
    ]
    # Before the figures, core 0 was in the kernel as well, by its samples; a mark holds until there was a pause.
    assert ("nic-napi-starved", None, 40) in marks
    assert [mark for mark in marks if mark[0] == "core" and mark[1] == 0]
    _, quiet = imported(tmp_path, put(tmp_path, "q", mpstat_text(range(60), {0: (90.0, 5.0, 0.0)})), directory="quiet")
    assert not [event for event in quiet.events() if event.kind == INCIDENT]


def test_blind_spots_say_what_files_could_not_know(tmp_path, parts):
    def missing(recording):
        return {each.source for each in recording.facts.sources_missing}

    _, recording = imported(tmp_path, parts[0])
    assert {"cpu", "kernel-log", "run-queue wait", "cgroups"} <= missing(recording)
    assert "stacks" not in missing(recording)
    _, recording = imported(tmp_path, parts[2], parts[3])
    assert {"cpu", "kernel-log", "stacks"} & missing(recording) == set()
    _, recording = imported(tmp_path, parts[3], directory="log")
    assert {"cpu", "stacks"} <= missing(recording)


def test_an_interrupted_import_changes_nothing_or_is_completed(tmp_path, parts, monkeypatch):
    _, recording = imported(tmp_path, parts[0])
    before = content_of(recording)
    _, expected = imported(tmp_path, parts[0], parts[2], directory="expected")

    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    for function, done in (("commit", False), ("complete", True)):
        timeline.complete(recording.directory)
        with monkeypatch.context() as patched:
            if function == "commit":
                patched.setattr("exhume.interop.importers.importer.commit", die)
                patched.setattr("exhume.interop.importers.importer.complete", lambda directory: None)
            else:
                # The journal is written, and nothing after it.
                patched.setattr(timeline, "complete", die)
                patched.setattr("exhume.interop.importers.importer.complete", lambda directory: None)
            with pytest.raises(Killed):
                imported(tmp_path, parts[2])
        assert content_of(Recording.open(recording.directory)) == before
        if done:
            timeline.complete(recording.directory)
            assert content_of(Recording.open(recording.directory)) == content_of(expected)
            assert not list((recording.directory / "live").iterdir())


def test_strict_stops_and_imports_nothing(tmp_path, parts):
    bad = put(tmp_path, "bad.txt", script(range(2)) + "nonsense\n\n")
    with pytest.raises(StoppedAtFirst) as stopped:
        imported(tmp_path, bad, strict=True)
    assert stopped.value.left_out.offset == len(script(range(2)))
    assert not list((tmp_path / "recording").glob("2026*"))


def test_a_recording_of_a_node_is_left_alone(tmp_path, parts):
    _, recording = imported(tmp_path, parts[0])
    (recording.directory / "imports.json").unlink()
    with pytest.raises(RecordingError, match="recording of a node"):
        imported(tmp_path, parts[1])


def test_several_processes_make_the_same(tmp_path, parts, monkeypatch):
    monkeypatch.setattr("exhume.interop.importers.importer._WORTH_SHARING", 0)
    _, one = imported(tmp_path, *parts, directory="one", processes=1)
    _, two = imported(tmp_path, *parts, directory="two", processes=2)
    assert content_of(one) == content_of(two)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_command_reports_and_exits(tmp_path, parts, capsys):
    directory = str(tmp_path / "cli")
    start = ["--start", "2026-03-01T03:00:00Z", "--utc", "--dir", directory]
    assert main(["import", *map(str, parts), *start]) == 0
    said = capsys.readouterr().err
    assert "one.txt: perf script, 1,000 samples" in said
    assert main(["import", str(parts[0]), "--json", *start]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["version"], report["complete"], report["files"][0]["known"]) == (1, True, True)
    # What the source could not know is printed, and is in the JSON.
    bare = put(tmp_path, "bare.data", perf_file(samples=20, copied=bytes(64)))
    assert main(["import", str(bare), "--json", *start[:-1], str(tmp_path / "bare")]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    missing = {each["source"]: each for each in file["missing"]}
    assert missing["user stacks"]["remedy"] == "record with --call-graph fp"
    assert main(["import", str(bare), *start[:-1], str(tmp_path / "printed")]) == 0
    said = capsys.readouterr().err
    for each in missing.values():
        assert f"no {each['source']}: {each['reason']}; {each['remedy']}" in said
    bad = put(tmp_path, "bad", b"\x00\x01\x02")
    assert main(["import", str(bad), str(tmp_path / "absent"), *start]) == 2
    said = capsys.readouterr().err
    assert f"not imported: {bad}: none of the formats" in said
    assert "absent: no such file" in said
    for command in ("cores", "info", "events", "incidents", "diagnose"):
        assert main([command, "--dir", directory]) in (0, 1)
    assert main(["flame", "--dir", directory, "-o", str(tmp_path / "x.svg"), "--since", "2026-03-01T03:00:00Z"]) == 0
    assert len(capsys.readouterr().out) > 1000


def test_standard_input(tmp_path, monkeypatch):
    path = put(tmp_path, "s", script(range(3)))
    with path.open("rb") as file:
        import os

        saved = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            request = ImportRequest(("-",), tmp_path / "r", START, processes=1)
            result = import_files(request)
        finally:
            os.dup2(saved, 0)
            os.close(saved)
    assert result.files[0].path == "-"
    assert Recording.open(tmp_path / "r").read("samples").num_rows == 60
    assert sys.stdin is not None
