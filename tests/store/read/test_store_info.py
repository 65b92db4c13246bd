"""Info, events and cost: what a recording says about itself."""

import pickle
import subprocess
import sys
from pathlib import Path

from tests.store.store_rows import FACTS, MONO, WALL, cpu_rows, loss_row, recorder, sample_rows, seconds, tick_at

from exhume.model.clock import NANOS, Tick, Window
from exhume.store.read.recording import Recording


def self_row(tick: Tick, user_us: int) -> dict[str, list[int]]:
    return {
        "time": [tick.start],
        "span_ms": [1000],
        "user_us": [user_us],
        "system_us": [5_000],
        "rss_kb": [90_000 + tick.index],
        "rate_hz": [97],
        "samples": [2],
        "tick_us": [1_000],
        "written_bytes": [1_000 * tick.index],
        "ring_fill": [10],
    }


def test_info_tells_the_recording(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    for index in range(90):
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick))
        writer.append("samples", sample_rows(tick, [(0, 1, "a", 1), (1, 1, "a", 1)]))
        writer.append("self", self_row(tick, 45_000 if index == 70 else 5_000))
        if index % 10 == 0:
            writer.append("losses", loss_row(tick, 3))
        writer.commit(tick)
    recording = Recording.open(tmp_path)
    for state in ("live", "sealed"):
        if state == "sealed":
            writer.close()
        info = recording.info()
        assert info.facts == FACTS
        assert info.span == Window(*seconds(0, 90))
        assert (info.recorded_seconds, info.segments, info.samples) == (90, 2, 180)
        assert info.losses == {"test: lost": 27}
        assert (info.rate_hz, info.event_source) == (97, "cpu-clock")
        assert info.cost.cpu_percent_max == 5.0
        assert round(info.cost.cpu_percent_mean, 4) == round(1 + 4 / 90, 4)
        assert info.cost.rss_kb_max == 90_089
        assert info.cost.written_bytes == sum(1_000 * index for index in range(90))
        assert info.skipped == []
        assert info.bytes > 0
    assert recording.self_cost(Window(*seconds(70, 71))).cpu_percent_mean == 5.0


def test_the_cost_of_each_source_is_its_share_of_a_core(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    for index in range(90):
        tick = tick_at(index)
        writer.append("self", self_row(tick, 5_000))
        if index % 10 == 9:
            spent = {"source": ["stacks", "store"], "cpu_us": [10_000, 30_000 if index < 50 else 0]}
            writer.append("source_cost", {"time": [tick.end - 10 * NANOS] * 2, "span_ms": [10_000] * 2, **spent})
        writer.commit(tick)
    writer.close()
    costs = Recording.open(tmp_path).info().cost.sources
    assert [(each.source, round(each.cpu_percent, 4), each.cpu_seconds) for each in costs] == [
        ("store", round(100 * 0.15 / 90, 4), 0.15),
        ("stacks", 0.1, 0.09),
    ]


def test_a_tick_that_takes_long_does_not_cost_more_than_a_core(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    for index in range(3):
        tick = tick_at(index)
        # It reads for 17.5 s after its end, which the tick after it is counted from.
        slow = {"user_us": [8_125_000], "tick_us": [17_500_000]} if index == 1 else {}
        writer.append("self", self_row(tick, 5_000) | slow)
        writer.commit(tick)
    writer.close()
    assert round(Recording.open(tmp_path).self_cost().cpu_percent_max, 1) == round(100 * 8.13 / 18.499, 1)


def test_a_rate_that_was_lowered_and_raised_again(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    for index, rate_hz in enumerate((97, 48, 97, 64)):
        tick = tick_at(index)
        writer.append("self", self_row(tick, 5_000) | {"rate_hz": [rate_hz]})
        writer.commit(tick)
    writer.close()
    cost = Recording.open(tmp_path).self_cost()
    assert (cost.lowest_rate_hz, cost.newest_rate_hz) == (48, 64)


def test_events_stand_where_they_happened(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    for index, late in ((0, 0), (1, 4000), (70, 60)):
        tick = tick_at(index)
        event = {"time": [tick.start - late * NANOS], "source": ["kmsg"], "severity": ["warning"], "text": [f"{index}"]}
        writer.append("events", {**event, "kind": ["boot" if late == 4000 else "stall"], "cpu": [39]})
        writer.commit(tick)
    writer.close()
    recording = Recording.open(tmp_path)
    assert [event.text for event in recording.events()] == ["1", "0", "70"]
    assert [event.wall for event in recording.events()] == [WALL - 3999 * NANOS, WALL, WALL + 10 * NANOS]
    assert recording.events()[0].time == MONO - 3999 * NANOS
    # Found by the time at which it happened, though it lies in a later segment.
    assert [event.text for event in recording.events(Window(*seconds(10, 11)))] == ["70"]
    assert [event.text for event in recording.events(Window(*seconds(-4000, -3000)))] == ["1"]
    assert [event.text for event in recording.events(None, {"boot"})] == ["1"]
    assert (recording.events()[1].cpu, recording.events()[1].pid) == (39, None)


def test_opening_a_recording_imports_no_query_engine() -> None:
    code = (
        "import sys, exhume.store.read.recording, exhume.store.write.writer;"
        "print([m for m in ('duckdb', 'pyarrow.dataset', 'pyarrow.acero', 'pandas') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


RECORD_ONE_TICK = """
import pickle, sys
from pathlib import Path
import exhume.cli.recorder
from exhume.store.write.writer import SegmentWriter
facts, tick, tables = pickle.load(sys.stdin.buffer)
writer = SegmentWriter(Path(sys.argv[1]), facts, max_bytes=None, max_age_s=None)
for table, rows in tables.items():
    writer.append(table, rows)
writer.commit(tick)
writer.close()
print("pyarrow.parquet" in sys.modules, "pyarrow.compute" in sys.modules)
"""


def test_recording_and_sealing_do_not_import_the_wrappers_of_compute(tmp_path: Path) -> None:
    """They would take a tenth of the recorder's start."""
    tick = tick_at(0)
    tables = {
        "stacks": {"stack": [1, 2], "frames": [[3], [1, 2]]},
        "frames": {"frame": [1, 2, 3], "kind": ["user"] * 3, "module": ["m"] * 3, "name": ["c", "b", "a"]},
        "samples": sample_rows(tick, [(0, 7, "b", 2), (1, 3, "a", 1)]),
        "cpu": cpu_rows(tick),
    }
    command = [sys.executable, "-c", RECORD_ONE_TICK, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, check=True, input=pickle.dumps((FACTS, tick, tables)))
    assert found.stdout.split() == [b"True", b"False"]
    recording = Recording.open(tmp_path)
    assert recording.read("stacks")["stack"].to_pylist() == [2, 1], "sealed in the order of their frames"
    assert recording.read("frames")["name"].to_pylist() == ["a", "b", "c"]


def test_changes_of_the_rate_are_counted_not_added_up(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    for index, (kind, rate) in enumerate((("rate-lowered", 48), ("rate-raised", 97), ("rate-raised", 194))):
        tick = tick_at(index)
        row = {"time": [tick.start], "source": ["stacks"], "kind": [kind], "count": [rate], "text": ["budget"]}
        writer.append("losses", row)
        writer.commit(tick)
    writer.close()
    assert Recording.open(tmp_path).info().losses == {"stacks: rate-lowered": 1, "stacks: rate-raised": 2}


def test_labels_that_become_known_are_in_the_next_segment(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    labels = {"zone": "eu-1a"}
    for index in range(6):
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick))
        began = writer.commit(tick)
        # Reported after the third tick: the fourth is the last of its segment.
        assert began == (index == 3)
        if index >= 2:
            writer.relabel(labels)
    recording = Recording.open(tmp_path)
    assert recording.facts.labels == labels
    assert len(recording.segments) == 2
    writer.close()
    sealed = Recording.open(tmp_path)
    assert (sealed.facts.labels, sealed.read("cpu", None, ["cpu"]).num_rows) == (labels, 12)
