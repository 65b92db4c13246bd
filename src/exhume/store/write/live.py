"""The segment that is being written: one Arrow IPC stream a table, which grows by a message a tick.

A message is written with one system call and cut off again if it did not fit, so what stands in a file is always
whole messages, but for the last one of a recorder that was killed in the middle. Readers stop there.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from exhume.model.facts import RecordingFacts
from exhume.model.ownership import Access, open_own
from exhume.store.format.names import LIVE_SUFFIX
from exhume.store.format.schema import DECODING_ERRORS, UnreadableFile, check_required, check_schema, with_facts

# What every message begins with (Arrow's columnar format, encapsulated messages).
_CONTINUATION = b"\xff\xff\xff\xff"


class LiveTable:
    """The growing file of one table."""

    def __init__(self, directory: Path, table: str, facts: RecordingFacts, access: Access | None = None) -> None:
        self._fd = open_own(directory / (table + LIVE_SUFFIX), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        (access or Access()).apply(self._fd)
        self._header: list[pa.Buffer] = [with_facts(table, facts).serialize()]
        self.size = os.fstat(self._fd).st_size

    def write(self, batches: list[pa.RecordBatch]) -> int:
        """Append batches as one whole; returns the bytes. On an error nothing of them stays in the file."""
        messages = self._header + [batch.serialize() for batch in batches]
        wanted: int = sum(message.size for message in messages)
        try:
            written = os.writev(self._fd, messages)
        except OSError:
            self._cut_back()
            raise
        if written != wanted:
            self._cut_back()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._header = []
        self.size += wanted
        return wanted

    def _cut_back(self) -> None:
        os.ftruncate(self._fd, self.size)

    def vanished(self) -> bool:
        """Whether the file was deleted: what is written to it then can't be read by any process."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        os.close(self._fd)


class LiveStream:
    """The batches of a live file that are whole. Iterate once.

    A file that ends inside a batch is what a killed recorder leaves. Anything else that can't be decoded is damage:
    `damaged` is set, and only the batches from which the next one can still be found are passed over. Every value is
    checked: offsets that a flipped bit sent out of bounds crash the process that follows them."""

    def __init__(self, source: pa.NativeFile, table: str) -> None:
        self.schema: pa.Schema | None = None
        self.damaged = False
        self._source = source
        self._table = table
        self._reader: pa.ipc.RecordBatchStreamReader | None = None
        try:
            reader = pa.ipc.open_stream(source)
            check_schema(reader.schema, table)
            self.schema, self._reader = reader.schema, reader
        except UnreadableFile:
            self.damaged = True
        except DECODING_ERRORS:
            # Killed before the first message was whole: no rows.
            self.damaged = self._is_damage(0)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self._reader is not None:
            begin = self._source.tell()
            try:
                batch = self._reader.read_next_batch()
            except (StopIteration, *DECODING_ERRORS):
                # The recorder writes no end mark: pages that a power cut left zero look like one.
                self.damaged = self.damaged or self._is_damage(begin)
                return
            try:
                batch.validate(full=True)
                check_required(batch, self._table)
            except (UnreadableFile, *DECODING_ERRORS):
                self.damaged = True
                continue
            yield batch

    def _is_damage(self, begin: int) -> bool:
        """Whether what could not be decoded is something else than the beginning of a message that was cut off."""
        if self._source.tell() < self._source.size():
            return True
        mark = self._source.read_at(len(_CONTINUATION), begin)
        return not _CONTINUATION.startswith(mark)


def live_tables(directory: Path) -> list[str]:
    """The tables that have a file in a live segment."""
    return sorted(entry.name.removesuffix(LIVE_SUFFIX) for entry in directory.glob("*" + LIVE_SUFFIX))
