"""exhume export: formats, filters, where it writes, and what it refuses."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.store.store_rows import cpu_rows, loss_row, recorder, tick_at

from exhume.cli.commands.export import FORMATS, PROFILES, TEXT

SECONDS = ("--since", "18:02:13", "--until", "18:02:19", "--utc")


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_written_to_a_file(exhume, small_recording, tmp_path, form):
    file = tmp_path / "out"
    result = exhume("export", form, "--dir", str(small_recording), *SECONDS, "-o", str(file))
    assert result.stdout == "" and str(file) in result.stderr
    assert file.stat().st_size > 100
    if form in TEXT:
        file.read_text()


def test_text_goes_to_stdout_without_a_file(exhume, small_recording):
    lines = exhume("export", "folded", "--dir", str(small_recording), *SECONDS, "--cpu", "5").stdout.splitlines()
    assert lines and all(line.rsplit(" ", 1)[1].isdigit() for line in lines)
    rows = list(csv.DictReader(io.StringIO(exhume("export", "csv", "--dir", str(small_recording), *SECONDS).stdout)))
    assert len(rows) == 8 * 6 and rows[0]["wall"].startswith("2025-03-03 18:02:13")


@pytest.mark.parametrize("by", ["core", "thread"])
@pytest.mark.parametrize("form", [form for form in PROFILES if form != "otlp"])
def test_profiles_are_split(exhume, small_recording, tmp_path, form, by):
    file = tmp_path / "out"
    exhume("export", form, "--dir", str(small_recording), *SECONDS, "--by", by, "--cpu", "4-5", "-o", str(file))
    if form == "speedscope" and by == "core":
        assert [profile["name"] for profile in json.loads(file.read_text())["profiles"]] == ["core 4", "core 5"]
    if form == "folded":
        first = {line.split(";")[0] for line in file.read_text().splitlines()}
        assert first == {"core 4", "core 5"} if by == "core" else len(first) > 2


def test_a_file_with_the_ending_of_gzip_is_compressed(exhume, small_recording, tmp_path):
    file = tmp_path / "trace.json.gz"
    exhume("export", "perfetto", "--dir", str(small_recording), *SECONDS, "-o", str(file))
    assert json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]


def test_filters_of_samples(exhume, small_recording, tmp_path):
    file = tmp_path / "samples.parquet"
    args = ("--table", "samples", "--cpu", "5", "--comm", "kubelet", "--stack", "mem_cgroup", "-o", str(file))
    exhume("export", "parquet", "--dir", str(small_recording), *SECONDS, *args)
    table = pq.read_table(file)
    assert set(table.column("cpu").to_pylist()) == {5} and set(table.column("comm").to_pylist()) == {"kubelet"}
    assert all(any("mem_cgroup" in name for name in frames) for frames in table.column("frames").to_pylist())


@pytest.mark.parametrize("table", ["events", "cores", "flame", "stacks", "processes", "anchors"])
def test_tables(exhume, small_recording, tmp_path, table):
    file = tmp_path / "rows.parquet"
    exhume("export", "parquet", "--dir", str(small_recording), "--last", "2m", "--table", table, "-o", str(file))
    assert pq.read_table(file).num_rows > 0


@pytest.mark.slow
def test_a_long_window_is_written_in_pieces(exhume, small_recording, tmp_path, monkeypatch):
    from exhume.cli.commands import export

    whole, pieces = tmp_path / "whole.parquet", tmp_path / "pieces.parquet"
    args = ("export", "parquet", "--dir", str(small_recording), "--table", "samples", "-o")
    exhume(*args, str(whole))
    monkeypatch.setattr(export, "PIECE_NS", 7_000_000_000)
    exhume(*args, str(pieces))
    assert pq.read_table(whole).equals(pq.read_table(pieces)) and pq.read_metadata(pieces).num_row_groups > 10


@pytest.mark.parametrize(
    "args",
    [
        ("no-such-format",),
        ("csv", "--by", "core"),
        ("otlp", "--by", "core"),
        ("pprof", "--table", "cpu"),
        ("csv", "--table", "no-such-table"),
        ("csv", "--table", "events", "--comm", "x"),
        ("csv", "--table", "node", "--cpu", "1"),
        ("openmetrics", "--pid", "1"),
        ("pprof", "--stack", "(", "-o", "/dev/null"),
        ("folded", "--last", "-1s"),
        ("folded", "-o", "/no/such/directory/file"),
    ],
)
def test_what_makes_no_sense_is_an_error(exhume, small_recording, args):
    result = exhume("export", args[0], "--dir", str(small_recording), *args[1:], check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("exhume: ") and "Traceback" not in result.stderr


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_in_the_window_is_no_data(exhume, small_recording, tmp_path, form):
    file = tmp_path / "out"
    args = ("--since", "2020-01-01T00:00:00Z", "--until", "2020-01-01T00:01:00Z", "-o", str(file))
    result = exhume("export", form, "--dir", str(small_recording), *args, check=False)
    assert result.returncode == 3 and not file.exists()


def test_no_samples_that_match(exhume, small_recording, quiet_recording, tmp_path):
    for args in (("--dir", str(small_recording), "--comm", "no-such"), ("--dir", str(quiet_recording))):
        assert exhume("export", "pprof", *args, "-o", str(tmp_path / "out"), check=False).returncode == 3


def test_nothing_binary_goes_to_a_terminal(small_recording):
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "exhume.cli.main", "export", "pprof", "--dir", str(small_recording), *SECONDS]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2 and "-o" in done.stderr


def test_what_was_not_recorded_is_said(exhume, tmp_path):
    writer = recorder(tmp_path / "recording")
    for index in (*range(5), *range(15, 20)):
        writer.append("cpu", cpu_rows(tick_at(index)))
        if index == 3:
            writer.append("losses", loss_row(tick_at(index), 7))
        writer.commit(tick_at(index))
    writer.close()
    said = exhume("export", "csv", "--dir", str(tmp_path / "recording")).stderr
    assert "7 lost" in said


def test_no_recording(exhume, tmp_path: Path):
    assert exhume("export", "folded", "--dir", str(tmp_path / "none"), check=False).returncode == 3
