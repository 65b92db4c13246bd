"""Where an earlier recorder of the same boot stopped reading the kernel log."""

from pathlib import Path

from exhume.model.errors import RecordingError
from exhume.store.index import list_recording
from exhume.store.names import boot_part
from exhume.store.schema import UnreadableFile

# A log that was silent for longer than these segments is read from its start again, and only for what matters.
LOOKED_AT = 60


def last_log_sequence(directory: Path, boot_id: str) -> int | None:
    """The number of the last kernel-log record that was stored in this boot; None where there is none."""
    try:
        segments = list_recording(directory).segments
    except RecordingError:
        return None
    mine = [segment for segment in segments[-LOOKED_AT:] if segment.name.boot == boot_part(boot_id)]
    if not mine:
        return None
    from exhume.store.reader import Request, read_segment  # only a recorder that goes on needs to read

    for segment in reversed(mine):
        try:
            events = read_segment(segment, Request("events", None, ["sequence"]))
        except UnreadableFile:
            continue
        known = [] if events is None else [n for n in events.column("sequence").to_pylist() if n is not None]
        if known:
            return int(max(known))
    return None
