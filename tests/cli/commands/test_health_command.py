"""`exhume health`: what a probe gets, from a real recorder, next to damage, and at which cost."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.faults.recorder_process import PROGRAM, RecorderProcess, until

from exhume.cli import exit_codes
from exhume.store.write.lock import DirectoryLock

PAGE = Path(__file__).resolve().parents[3] / "docs/commands/health.md"


def health(exhume, directory, *options):
    result = exhume("health", "--dir", str(directory), "--json", *options, check=False)
    return result.returncode, json.loads(result.stdout)


def test_no_recording_is_no_data(exhume, tmp_path):
    code, found = health(exhume, tmp_path / "none")
    assert (code, found["state"], found["recording"]) == (exit_codes.NO_DATA, "stopped", False)
    assert set(found) <= set(re.findall(r"`(\w+)`", PAGE.read_text()))


def test_a_recorder_without_a_tick_is_degraded(exhume, tmp_path):
    lock = DirectoryLock(tmp_path / "recording")
    try:
        code, found = health(exhume, tmp_path / "recording")
    finally:
        lock.close()
    assert (code, found["problems"], found["rate_hz"]) == (exit_codes.FINDINGS, ["no-tick"], None)


def test_a_damaged_file_is_an_error_in_a_sentence(exhume, tmp_path):
    (tmp_path / "live").mkdir()
    (tmp_path / "live/health.json").write_bytes(os.urandom(5000))
    result = exhume("health", "--dir", str(tmp_path), check=False)
    assert result.returncode == exit_codes.ERROR
    assert len(result.stderr.splitlines()) == 1


def test_an_age_that_makes_no_sense_is_refused(exhume, tmp_path):
    assert exhume("health", "--dir", str(tmp_path), "--late-after", "0s", check=False).returncode == exit_codes.ERROR


@pytest.mark.root
@pytest.mark.slow
def test_a_real_recorder_is_healthy_then_late_then_stopped(exhume, tmp_path):
    directory = tmp_path / "recording"
    recorder = RecorderProcess(directory, tmp_path / "said")
    try:
        recorder.ticks(2)
        # Another test's load may make it lose something.
        code, found = health(exhume, directory, "--allow-losses", "--late-after", "20s")
        assert (code, found["state"]) == (exit_codes.OK, "healthy")
        assert found["pid"] == recorder.pid
        assert found["rss_bytes"] > 20 << 20
        assert len(found["sources_missing"]) == len(recorder.missing)
        recorder.send(signal.SIGSTOP)
        until("it is late", lambda: "late" in health(exhume, directory, "--late-after", "2s")[1]["problems"])
        recorder.send(signal.SIGCONT)
        until("it is on time", lambda: "late" not in health(exhume, directory, "--late-after", "2s")[1]["problems"])
        assert recorder.stop() == exit_codes.OK
    finally:
        recorder.kill()
    code, found = health(exhume, directory)
    assert (code, found["state"], found["pid"]) == (exit_codes.NO_DATA, "stopped", recorder.pid)
    skipped = json.loads(exhume("info", "--dir", str(directory), "--json").stdout)["skipped"]
    assert skipped == []


def test_neither_arrow_nor_a_terminal_library_is_loaded(tmp_path):
    script = (
        "import sys; from exhume.cli.main import main; main(sys.argv[1:]);"
        "print(sorted({'pyarrow', 'numpy', 'rich'} & sys.modules.keys()), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, "health", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.alone
@pytest.mark.slow
def test_a_probe_is_cheap(tmp_path):
    """At least once in five it takes under 0.2 s of CPU time: for probes that run every minute."""
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([PROGRAM, "health", "--dir", str(tmp_path)], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.2, spent
