"""A recorder at work: signals, status and the last words. Shared by `exhume record` and bare `exhume`."""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from typing import Any

from exhume.cli.speaking import directory_words, say
from exhume.cli.stopping import stopped_by_signals
from exhume.cli.wiring import node_recorder
from exhume.model.clock import MILLIS, SystemClock, read_boot_id
from exhume.model.progress import TickSummary
from exhume.present.status import summary_lines
from exhume.present.terminal.status import status_for
from exhume.store.format.names import boot_part
from exhume.store.read.index import sealed_segments


def record_node(values: Mapping[str, Any]) -> None:
    """Record with these settings (their names as in the registry) until the time is over or a signal comes."""
    zone = UTC if values["utc"] else None
    directory = values["dir"]
    began_ms = SystemClock().monotonic_ns() // MILLIS
    with stopped_by_signals() as stop, node_recorder(values) as recorder:
        with suppress(OSError):
            if recorder.tightened:
                say(f"exhume: {directory} could be read by other users; now it can't, see --group")
            for source in recorder.missing:
                say(f"missing: {source}")
        summary = recorder.run(stop, _heard_or_not(lambda: status_for(values["color"], str(directory), zone).tick))
    where = directory_words(directory)
    try:
        for line in summary_lines(summary, str(directory), _size_on_disk(directory, began_ms)):
            print(line)
        print(f"next: exhume {'incidents' if summary.incidents else 'cores'}{where}")
        sys.stdout.flush()
    except OSError:
        # Nobody hears it, and it must not be tried again when the interpreter ends: what was recorded is sealed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _size_on_disk(directory: Path, began_ms: int) -> int:
    """What this recorder has left behind, sealed; an earlier one's segments may lie beside it."""
    boot = boot_part(read_boot_id())
    mine = (s for s in sealed_segments(directory) if s.name.boot == boot and s.name.start_ms >= began_ms)
    return sum(segment.size() for segment in mine)


def _heard_or_not(start: Callable[[], Callable[[TickSummary], None]]) -> Callable[[TickSummary], None]:
    """A status that may fail: a terminal that was closed, a pipe that nobody reads any more or a full disk under the
    log are no reason to stop recording."""
    tell: Callable[[TickSummary], None] | None = None
    with suppress(OSError):
        tell = start()

    def tick(summary: TickSummary) -> None:
        if tell is not None:
            with suppress(OSError):
                tell(summary)

    return tick
