"""Where an earlier recorder of the same boot stopped reading the kernel log."""

from pathlib import Path

import pyarrow.compute as pc

from exhume.model.errors import RecordingError
from exhume.store.names import boot_part
from exhume.store.query import Recording
from exhume.store.reader import Request, read_segment
from exhume.store.schema import UnreadableFile

# An hour of minutes: a log that was silent for longer is read from its start again, and only for what matters.
LOOKED_AT = 60


def last_log_sequence(directory: Path, boot_id: str) -> int | None:
    """The number of the last kernel-log record that was stored in this boot; None where there is none."""
    try:
        segments = Recording.open(directory).segments
    except RecordingError:
        return None
    for segment in reversed(segments[-LOOKED_AT:]):
        if segment.name.boot != boot_part(boot_id):
            continue
        try:
            events = read_segment(segment, Request("events", None, ["sequence"]))
        except UnreadableFile:
            continue
        last = pc.max(events.column("sequence")).as_py() if events is not None else None
        if last is not None:
            return int(last)
    return None
