"""Figures of cores: what mpstat and sadf say is what the recording has."""

import json
import os
import subprocess
import time

import pytest
from tests.interop.importers.made_up import START, imported, mpstat_text, put, script

from exhume.interop.importers.importer import ImportRequest, import_files
from exhume.model.clock import NANOS

UTC_ENVIRONMENT = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}


def rows_of(recording):
    return recording.read("cpu").sort_by([("time", "ascending"), ("cpu", "ascending")]).to_pylist()


def test_text_becomes_rows(tmp_path):
    path = put(tmp_path, "mpstat.txt", mpstat_text(range(1, 4), {0: (10.0, 20.5, 0.0), 1: (0.0, 0.0, 99.99)}))
    result, recording = imported(tmp_path, path)
    assert result.complete
    rows = rows_of(recording)
    assert [(row["time"] - START, row["cpu"], row["span_ms"]) for row in rows] == [
        (second * NANOS, cpu, 1000) for second in range(3) for cpu in range(2)
    ]
    assert (rows[0]["user"], rows[0]["system"], rows[0]["idle"]) == (100, 205, 695)
    assert rows[1]["softirq"] == 1000
    assert (recording.facts.node, recording.facts.kernel, recording.facts.cores) == ("node-1", "6.1.0", 2)


def test_twelve_hour_clock_and_midnight(tmp_path):
    text = mpstat_text(range(3), {0: (1.0, 1.0, 1.0)}).replace("2026-03-01", "03/01/26")
    for second, clock in enumerate(("11:59:58 PM", "11:59:59 PM", "12:00:00 AM")):
        text = text.replace(f"03:00:0{second}", clock)
    _, recording = imported(tmp_path, put(tmp_path, "m", text))
    day = START - 3 * 3600 * NANOS + 86_400 * NANOS
    assert [row["time"] for row in rows_of(recording)] == [day + second * NANOS for second in (-3, -2, -1)]


def test_cut_off_json_keeps_what_is_whole(tmp_path):
    core = {"usr": 1.0, "nice": 0.0, "sys": 2.0, "iowait": 0.0, "irq": 0.0, "soft": 0.0, "idle": 97.0}
    moments = [
        {"timestamp": f"03:00:0{second}", "cpu-load": [{"cpu": "all", **core}, {"cpu": "0", **core}]}
        for second in range(5)
    ]
    host = {"nodename": "n", "date": "2026-03-01", "number-of-cpus": 1, "statistics": moments}
    for separators in ((",", ": "), (",", ":")):
        whole = json.dumps({"sysstat": {"hosts": [host]}}, separators=separators)
        path = put(tmp_path, "m.json", whole[: whole.rindex('"03:00:04"')])
        _, recording = imported(tmp_path, path, directory=f"r{len(separators[1])}")
        assert [row["time"] - START for row in rows_of(recording)] == [second * NANOS for second in (-1, 0, 1, 2)]
        assert rows_of(recording)[0]["system"] == 20


def test_measured_figures_replace_estimated_ones(tmp_path):
    samples = put(tmp_path, "s", script(range(10)))
    figures = put(tmp_path, "m", mpstat_text(range(4, 7), {0: (50.0, 0.0, 0.0), 1: (0.0, 0.0, 0.0)}))
    _, together = imported(tmp_path, samples, figures, directory="together")
    imported(tmp_path, samples, directory="later")
    _, later = imported(tmp_path, figures, directory="later")
    expected = [1000] * 3 + [500] * 3 + [1000] * 4
    for recording in (together, later):
        rows = [row for row in rows_of(recording) if row["cpu"] == 0]
        assert [1000 - row["idle"] for row in rows] == expected
    assert together.read("samples").num_rows == later.read("samples").num_rows == 200


@pytest.mark.needs("mpstat")
@pytest.mark.parametrize("form", ["text", "json"])
def test_real_mpstat(tmp_path, form):
    flags = ["-o", "JSON"] if form == "json" else []
    began = time.time_ns()
    said = subprocess.run(
        ["mpstat", "-P", "ALL", *flags, "1", "3"], capture_output=True, check=True, env=UTC_ENVIRONMENT
    ).stdout
    result, recording = imported(tmp_path, put(tmp_path, "m", said))
    assert result.complete
    rows = rows_of(recording)
    assert len(rows) == 3 * os.cpu_count()
    # Its text has whole seconds: where it is woken a little late, two of them may lie between two lines.
    assert {row["span_ms"] for row in rows} <= {1000, 2000}
    assert began - 2 * NANOS < rows[0]["time"] < time.time_ns()
    assert all(
        990
        <= sum(row[n] for n in ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest", "idle"))
        <= 1010
        for row in rows
    )


@pytest.mark.needs("sadf")
def test_binary_files_by_way_of_sadf(tmp_path):
    binary = tmp_path / "sa01"
    subprocess.run(["/usr/lib/sysstat/sadc", "-S", "XALL", "1", "3", binary], check=True)
    shown = subprocess.run(
        ["sadf", "-j", binary, "--", "-u", "ALL", "-P", "ALL"], capture_output=True, check=True
    ).stdout
    _, direct = imported(tmp_path, binary, directory="direct")
    _, through = imported(tmp_path, put(tmp_path, "j", shown), directory="through")
    assert rows_of(direct) == rows_of(through)
    expected = json.loads(shown)["sysstat"]["hosts"][0]["statistics"]
    values = [core["sys"] for moment in expected for core in moment["cpu-load"] if core["cpu"] != "all"]
    assert [row["system"] for row in rows_of(direct)] == [round(value * 10) for value in values]


def test_binary_files_without_sadf_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    path = put(tmp_path, "sa", b"\x96\xd5" + bytes(100))
    result = import_files(ImportRequest((str(path),), tmp_path / "r", processes=1))
    assert "install sysstat" in result.files[0].error.reason


def test_a_row_with_a_share_that_is_not_a_number_is_left_out(tmp_path):
    text = mpstat_text(range(1, 4), {0: (10.0, 20.5, 0.0), 1: (0.0, 0.0, 99.99)}).replace("20.50", "nan", 1)
    result, recording = imported(tmp_path, put(tmp_path, "mpstat.txt", text))
    assert not result.complete
    assert [(row["time"] - START, row["cpu"]) for row in rows_of(recording)] == [
        (second * NANOS, cpu) for second in range(3) for cpu in range(2)
    ][1:]


def test_a_share_with_two_points_is_no_number_in_json(tmp_path):
    moments = [{"timestamp": f"03:00:0{second}", "cpu-load": [{"cpu": "0", "usr": 1.5}]} for second in range(3)]
    host = {"nodename": "n", "date": "2026-03-01", "number-of-cpus": 1, "statistics": moments}
    whole = json.dumps({"sysstat": {"hosts": [host]}}).replace("1.5", "1..5", 1)
    _, recording = imported(tmp_path, put(tmp_path, "m.json", whole))
    assert [row["user"] for row in rows_of(recording)] == [10, 15, 15]
