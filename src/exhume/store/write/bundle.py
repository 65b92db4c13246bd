"""Write the rows of a window as a separate recording, and pack it with a report into one file."""

import os
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, Window
from exhume.model.errors import RecordingError
from exhume.model.facts import RecordingFacts
from exhume.model.tables import TABLES
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import UnreadableFile, schema_of
from exhume.store.read.bundle import RECORDING
from exhume.store.read.index import Segment
from exhume.store.read.inventory import newest_rows
from exhume.store.read.reader import Request, facts_of
from exhume.store.read.recording import Recording
from exhume.store.write.seal import write_sealed

# The earliest time stamp a zip file can hold. A fixed one makes the same bundle have the same bytes.
_STAMP = (1980, 1, 1, 0, 0, 0)
_FILE_MODE = 0o644 << 16


def write_bundle(path: Path, recording: Recording, window: Window, documents: Mapping[str, bytes]) -> int:
    """Write the bundle of a window and return its size. `documents` are files for human readers. Raises OSError, and
    RecordingError if nothing was recorded in the window."""
    with tempfile.TemporaryDirectory(prefix="exhume-bundle-") as scratch:
        trimmed = Path(scratch)
        trim(recording, window, trimmed)
        segments = sorted(trimmed.iterdir())
        if not segments:
            raise RecordingError("nothing was recorded in that time")
        # Staged next to the target with owner-only access, then renamed: the bundle appears complete or not at all.
        fd, staged = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with ExitStack() as undo:
            undo.callback(Path(staged).unlink, missing_ok=True)
            with os.fdopen(fd, "wb") as file, zipfile.ZipFile(file, "w", allowZip64=False) as archive:
                for name, content in documents.items():
                    archive.writestr(_entry(name, zipfile.ZIP_DEFLATED), content)
                for table in (table for segment in segments for table in sorted(segment.iterdir())):
                    entry = _entry(f"{RECORDING}/{table.parent.name}/{table.name}", zipfile.ZIP_STORED)
                    archive.writestr(entry, table.read_bytes())
            size = Path(staged).stat().st_size
            Path(staged).replace(path)
    return size


def _entry(name: str, method: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _STAMP)
    entry.compress_type, entry.external_attr = method, _FILE_MODE
    return entry


def trim(recording: Recording, window: Window, target: Path) -> None:
    """Write the rows of a window into a directory as sealed segments, with the stacks and frames that they refer to.
    The first segment begins with the inventory as of the start of the window."""
    carried = newest_rows(recording, window.since)
    for segment in recording.holding(window):
        tables = {table: rows for table in TABLES if (rows := recording.rows_of(segment, Request(table, window)))}
        timed = [table for table in tables if table not in ("stacks", "frames", "processes")]
        if not timed:
            continue
        _keep_mentioned(tables)
        name = segment.name
        begin_ms = max(name.start_ms, -(-(window.since - name.offset) // MILLIS))
        if carried:
            tables["inventory"] = _with_carried(tables.get("inventory"), carried, begin_ms * MILLIS)
            carried = {}
        begun = SegmentName(name.wall_ms + begin_ms - name.start_ms, name.boot, begin_ms)
        write_sealed(target, begun, _facts(recording, segment), tables)


def _with_carried(own: pa.Table | None, carried: Mapping[str, Mapping[str, Any]], begin: int) -> pa.Table:
    """Prepend rows carried over from an earlier segment, which are valid from the start of this one."""
    schema = schema_of("inventory")
    earlier = pa.Table.from_pylist([{**row, "time": begin} for row in carried.values()], schema)
    return earlier if own is None else pa.concat_tables([earlier, own.select(schema.names).cast(schema)])


def _keep_mentioned(tables: dict[str, pa.Table]) -> None:
    """Drop the stacks that no sample refers to, and the frames that no stack refers to."""
    samples, stacks, frames = (tables.pop(table, None) for table in ("samples", "stacks", "frames"))
    if samples is None:
        return
    tables["samples"] = samples
    if stacks is not None:
        mentioned = pa.array(np.unique(samples.column("stack").to_numpy()))
        stacks = stacks.filter(pc.is_in(stacks.column("stack"), value_set=mentioned))
        tables["stacks"] = stacks
        if frames is not None:
            members = pc.unique(pc.list_flatten(stacks.column("frames")).combine_chunks())
            tables["frames"] = frames.filter(pc.is_in(frames.column("frame"), value_set=members))


def _facts(recording: Recording, segment: Segment) -> RecordingFacts:
    try:
        found = facts_of(segment, "anchors")
    except UnreadableFile:
        found = None
    return found or recording.facts
