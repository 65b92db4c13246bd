"""`exhume cores` names the second that was bad, and says why where it shows nothing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.model.clock import NANOS, Tick
from exhume.model.facts import RecordingFacts
from exhume.store.write.writer import SegmentWriter

FACTS = RecordingFacts(
    node="node-1", boot_id="1f0c5a9e" + "0" * 24, cores=2, kernel="6.8.0", arch="x86_64", event_source="", rate_hz=0
)
NO_WAIT = "cpu: no run-queue wait per core (there is no /proc/schedstat)"
# 2026-03-01 03:13:54.966 UTC
SINCE = 1_772_334_834_966_000_000
MONO = 5_000 * NANOS
SECONDS = 30
HOT = 17


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Half a minute of two cores from 54.966 on, of which core 1 is in the kernel for a second from 11.966."""
    directory = tmp_path / "recording"
    facts = replace(FACTS, sources_missing=["psi: none", NO_WAIT])
    writer = SegmentWriter(directory, facts, max_bytes=None, max_age_s=None)
    for second in range(SECONDS):
        start = MONO + second * NANOS
        system = [10, 980 if second == HOT else 10]
        rows = {"time": [start] * 2, "cpu": [0, 1], "span_ms": [1000] * 2, "system": system}
        rows |= {name: [0, 0] for name in ("user", "nice", "irq", "softirq", "iowait", "steal", "guest")}
        writer.append("cpu", {**rows, "idle": [1000 - share for share in system]})
        writer.commit(Tick(second, start, start + NANOS, SINCE + (second + 1) * NANOS))
    writer.close()
    return directory


def test_a_recording_that_begins_within_a_second_names_the_row_that_was_hot(exhume, recording):
    found = json.loads(exhume("cores", "--dir", str(recording), "--utc", "--json").stdout)
    assert found["window"] == {"since": "2026-03-01T03:13:54.000000000Z", "until": "2026-03-01T03:14:25.000000000Z"}
    assert (found["cells"], found["cell_seconds"]) == (31, 1.0)
    worst = found["worst"]
    assert (worst["since"], worst["until"]) == ("2026-03-01T03:14:11.966000000Z", "2026-03-01T03:14:12.966000000Z")
    assert (worst["cpu"], worst["state"], worst["permille"]) == (1, "system", 980)
    hot = [cell for cell, value in enumerate(found["cores"][1]["permille"]) if value > 500]
    assert hot == [HOT]


@pytest.mark.parametrize("args", [(), ("--cells", "3"), ("--cells", "200")])
def test_the_line_below_the_map_names_the_same_second(exhume, recording, args):
    text = exhume("cores", "--dir", str(recording), "--utc", *args).stdout
    assert text.splitlines()[-1].startswith("worst: 2026-03-01 03:14:11.966 core 1 98% system")


def test_a_window_that_is_longer_than_the_terminal_has_cells_of_whole_seconds(exhume, recording):
    text = exhume("cores", "--dir", str(recording), "--utc", "--until", "03:14:23.966", COLUMNS="20").stdout
    assert text.splitlines()[-2].endswith("cell 3 s")
    assert "core 1 98% system" in text.splitlines()[-1]


def test_run_queue_wait_that_the_kernel_does_not_give_is_said_to_be_missing(exhume, recording):
    for args in ((), ("--json",)):
        result = exhume("cores", "--dir", str(recording), "--measure", "wait", *args, check=False)
        assert result.returncode == 3
        assert NO_WAIT in result.stderr
        assert "0 cores" not in result.stdout


def test_json_outside_of_what_is_recorded_is_an_empty_object(exhume, recording):
    for window in (("--since", "2027-01-01 00:00Z"), ("--until", "2020-01-01 00:00Z")):
        result = exhume("cores", "--dir", str(recording), *window, "--json", check=False)
        found = json.loads(result.stdout)
        assert result.returncode == 3
        assert (found["version"], found["cores"], found["marks"], found["worst"]) == (1, [], [], None)
