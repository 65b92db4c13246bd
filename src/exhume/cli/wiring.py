"""Where the recorder's parts meet: sources on one side, the store on the other."""

from collections.abc import Mapping
from typing import Any

from exhume.collect.host import Host
from exhume.collect.loop import Recorder, RecorderOptions
from exhume.model.clock import NANOS
from exhume.model.errors import Missing
from exhume.model.facts import RecordingFacts
from exhume.model.sink import RowSink
from exhume.store.writer import SegmentWriter


def assemble_recorder(values: Mapping[str, Any]) -> tuple[Recorder, list[Missing]]:
    """A recorder of this node with these settings, and what it has to do without."""
    options = RecorderOptions(
        rate_hz=values["rate"],
        length_ns=values["for"],
        cpu_budget=values["cpu-budget"],
        memory_budget_bytes=values["memory-budget"],
    )

    def open_store(facts: RecordingFacts) -> RowSink:
        age = values["max-age"]
        return SegmentWriter(
            values["dir"], facts, max_bytes=values["max-size"], max_age_s=None if age is None else age / NANOS
        )

    recorder = Recorder(Host(), open_store, options)
    return recorder, recorder.missing
