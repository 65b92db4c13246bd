"""A recording that is safe to share: secrets in command lines and in event texts are replaced on reading, whatever the
recorder kept."""

import pyarrow as pa

from exhume.model.redaction import redact_command, redact_line
from exhume.store.read.cached import CachedRecording
from exhume.store.read.index import Segment
from exhume.store.read.reader import Request

_TEXTS = {("processes", "cmdline"): redact_command, ("events", "text"): redact_line}


class RedactedRecording(CachedRecording):
    """All consumers, for example a diagnosis or a report, see `***` instead of secrets."""

    def _read(self, segment: Segment, request: Request) -> pa.Table | None:
        rows = super()._read(segment, request)
        for (table, column), redact in _TEXTS.items():
            if rows is not None and request.table == table and column in rows.schema.names:
                place = rows.schema.get_field_index(column)
                # Redact each distinct text once: a segment repeats them.
                texts = rows.column(place).combine_chunks().dictionary_encode()
                cleaned = pa.array([each and redact(each) for each in texts.dictionary.to_pylist()], pa.string())
                rows = rows.set_column(place, rows.schema.field(place), cleaned.take(texts.indices))
        return rows
