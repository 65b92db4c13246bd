"""Files and mappings of a program that were made to stall the recorder: it goes on, within its memory, and says so."""

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import crafted_elf
from tests.parts import need
from tests.system.faults.recorder_process import RecorderProcess, clean_words, longest_gap, losses

from exhume.store.read.recording import Recording

pytestmark = pytest.mark.root

Start = Callable[..., RecorderProcess]

MEMORY_BUDGET = 150_000_000
MEMORY_MARGIN = 40_000_000
UNPRIVILEGED = ("--reuid=65534", "--regid=65534", "--clear-groups")


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024


def record_next_to(recorder: RecorderProcess, run: Callable[[], None]) -> int:
    """Record for ten seconds next to some programs; returns the most memory that was held."""
    recorder.ticks(2)
    run()
    time.sleep(10)
    peak = peak_bytes(recorder.pid)
    began = time.monotonic()
    recorder.send(signal.SIGTERM)
    assert recorder.wait(patience=5.0) == 0
    assert time.monotonic() - began < 5.0
    clean_words(recorder)
    return peak


@pytest.mark.paced
def test_crafted_programs_of_another_user_neither_stall_nor_swell_the_recorder(
    tmp_path: Path, start: Start, load, compiled: Callable[[str], Path], open_directory: Path
) -> None:
    programs = [crafted_elf.write(kind, compiled("spin"), open_directory / kind) for kind in crafted_elf.KINDS]
    recorder = start(tmp_path / "recording")

    def run() -> None:
        for program in programs:
            load(need("setpriv"), *UNPRIVILEGED, program, nice=10)

    assert record_next_to(recorder, run) < MEMORY_BUDGET + MEMORY_MARGIN
    assert longest_gap(recorder.directory) <= 2.2
    texts = [loss.text for loss in Recording.open(recorder.directory).losses()]
    for program in programs:
        assert any(str(program) in text and "uid 65534" in text for text in texts), program
    assert "source-failed" not in losses(recorder.directory)


@pytest.mark.paced
def test_countless_mappings_of_a_long_path_do_not_swell_the_recorder(
    tmp_path: Path, start: Start, load, compiled: Callable[[str], Path], open_directory: Path
) -> None:
    program = shutil.copy(compiled("many_maps"), open_directory)
    recorder = start(tmp_path / "recording")
    recorder.recording()

    def run() -> None:
        shell = f"cd {open_directory}; exec {program}"
        process = load(need("setpriv"), *UNPRIVILEGED, "sh", "-c", shell)
        assert process.stdout.readline() == "ready\n"

    assert record_next_to(recorder, run) < MEMORY_BUDGET + MEMORY_MARGIN
    assert longest_gap(recorder.directory) <= 2.2
    found = [loss.text for loss in Recording.open(recorder.directory).losses() if loss.kind == "lost-mappings"]
    assert any("many_maps" in text and "uid 65534" in text for text in found)
