"""The program as a process: how quickly it answers, what it loads, how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exhume.model.clock import NANOS
from exhume.store.read.core_grid import HELD, OVERVIEW_MEASURES, columns_for, read_overview, seconds_of
from exhume.store.read.reader import Request, read_segment
from exhume.store.read.recording import Recording

PROGRAM = [sys.executable, "-m", "exhume.cli.main"]


def run(*args, **options):
    return subprocess.run([*PROGRAM, *args], capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.mark.slow
def test_help_and_version():
    helped = run("--help")
    assert helped.returncode == 0
    for command in ("record", "info", "incidents", "cores", "flame", "events", "lab"):
        assert f"\n  {command} " in helped.stdout
        assert run(command, "--help").stdout.startswith(f"usage: exhume {command} ")
    assert run("--version").stdout.startswith("exhume ")


def test_an_unknown_command_or_flag_is_an_error():
    known = {("recrod",): "exhume", ("info", "--frobnicate"): "exhume info", ("fix", "list", "-9"): "exhume fix list"}
    for args, command in known.items():
        result = run(*args)
        assert result.returncode == 2
        assert result.stderr.startswith("exhume: ")
        assert result.stderr.endswith(f"ee {command} --help\n")
        assert result.stderr.count("\n") == 1


def test_help_loads_nothing_heavy():
    heavy = ("numpy", "pyarrow", "duckdb", "rich", "asyncio")
    code = f"import sys, exhume.cli.main; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.alone
def test_help_is_quick():
    def cpu_seconds():
        before = os.times()
        run("--help")
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    # CPU time rather than time on the wall: whatever else runs on the machine is not the program's doing. A core that
    # others slow down takes longer for the same: one quick time shows what the program needs.
    assert any(cpu_seconds() < 0.12 for _ in range(30))


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_traceback(small_recording):
    with subprocess.Popen(
        [*PROGRAM, "cores", "--dir", str(small_recording), "--json", "--cells", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


def recorded_s(directory: Path) -> float:
    span = Recording.open(directory).span()
    return 0.0 if span is None else (span.until - span.since) / NANOS


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_seals_what_is_there(number, tmp_path):
    directory = tmp_path / "recording"
    with subprocess.Popen(
        [*PROGRAM, "record", "--dir", str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == f"recording into {directory}\n"
        # The first status line comes with the first tick, after the incidents that it marked.
        assert "recording:" in next(line for line in process.stdout if "incident:" not in line)
        deadline = time.monotonic() + 60
        while recorded_s(directory) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        refused = run("record", "--dir", str(directory), "--for", "1s")
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    assert refused.returncode == 2
    assert str(process.pid) in refused.stderr
    assert "recorded " in output
    assert "lost: " in output
    assert "cost: " in output
    assert output.splitlines()[-1].startswith("next: exhume ")
    assert " on disk\n" in output
    assert "0 B on disk" not in output
    found = json.loads(run("info", "--dir", str(directory), "--json").stdout)
    assert found["live"] is False
    assert found["recorded_seconds"] >= 2
    assert found["skipped"] == []
    assert_overviews_match_what_rows_hold(directory)


def assert_overviews_match_what_rows_hold(directory):
    compared = 0
    for segment in Recording.open(directory).segments:
        rows = read_segment(segment, Request("cpu", None, columns_for(HELD)))
        for measure in OVERVIEW_MEASURES if rows is not None else ():
            stored = read_overview(segment.path, segment.name, measure)
            expected = seconds_of(segment.name, rows, measure)
            assert stored.first == expected.first
            assert stored.scores.tolist() == expected.scores.tolist()
            compared += 1
    assert compared


@pytest.mark.root
def test_bare_exhume_records_with_the_settings_of_the_environment(tmp_path):
    environment = os.environ | {"EXHUME_DIR": str(tmp_path / "here"), "EXHUME_FOR": "2s", "EXHUME_RATE": "50"}
    assert "recorded " in run(env=environment).stdout
    assert json.loads(run("info", "--json", env=environment).stdout)["rate_hz"] == 50


@pytest.mark.slow
def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    result = run("record", "--dir", str(blocked / "recording"), "--for", "1s")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("exhume: ")
    assert run("record", "--dir", str(blocked)).stderr.endswith(f"{blocked} is a file; name a directory with --dir\n")


@pytest.mark.slow
@pytest.mark.parametrize("args", [("info",), ("cores", "--json", "--cells", "100000"), ("--help",)])
def test_a_full_disk_under_the_output_is_one_sentence(small_recording, args):
    where = () if args == ("--help",) else ("--dir", str(small_recording))
    # Without buffers argparse would keep to itself that help could not be written.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        args = [*PROGRAM, *args, *where]
        result = subprocess.run(args, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert result.returncode == 2
    assert result.stderr == "exhume: can't write the output: no space left on device; send it somewhere else\n"


def test_a_terminal_without_unicode_gets_what_it_can_show(small_recording):
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    result = run("cores", "--dir", str(small_recording), env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "core" in result.stdout
