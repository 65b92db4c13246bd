"""Columns -> Arrow record batches, checked on the way in so that a batch that was taken can always be sealed."""

from collections.abc import Sized
from typing import Any

import numpy as np
import pyarrow as pa

from exhume.model.tables import Columns
from exhume.store.schema import schema_of


def to_batch(table: str, columns: Columns) -> pa.RecordBatch | None:
    """The rows as a record batch; None where there are none. Raises ValueError where they don't fit the table."""
    schema = schema_of(table)
    unknown = set(columns) - set(schema.names)
    if unknown:
        raise ValueError(f"table {table} has no column {', '.join(sorted(unknown))}")
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of table {table} differ in length: {sorted(lengths)}")
    rows = lengths.pop() if lengths else 0
    if rows == 0:
        return None
    try:
        batch = _batch(schema, columns, rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ValueError(f"rows don't fit table {table}: {error}") from error
    for field, array in zip(schema, batch.columns, strict=True):
        if not field.nullable and array.null_count:
            raise ValueError(f"column {field.name} of table {table} must not be null")
    return batch


def _batch(schema: pa.Schema, columns: Columns, rows: int) -> pa.RecordBatch:
    if rows == 1 and all(isinstance(values, list) for values in columns.values()):
        try:
            return _one_row(schema, columns)
        except UnicodeEncodeError:
            # Column by column there is a remedy.
            pass
    return pa.record_batch([_array(field, columns.get(field.name), rows) for field in schema], schema=schema)


def _one_row(schema: pa.Schema, columns: Columns) -> pa.RecordBatch:
    # Two and a half times as fast as column by column for wide tables with a row a second, such as node.
    row = {name: values[0] for name, values in columns.items()}
    structs = pa.array([row], pa.struct(list(schema)))
    return pa.record_batch(structs.flatten(), schema=schema)


def _array(field: pa.Field, values: Sized | None, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, field.type)
    if isinstance(values, pa.Array):
        return values.cast(field.type)
    if isinstance(values, np.ndarray) and values.dtype.kind == "S":
        return pa.array([text.decode("utf-8", "replace") for text in values.tolist()], field.type)
    try:
        return pa.array(values, field.type)
    except UnicodeEncodeError:
        # A process may call itself anything, also what is not text.
        return pa.array([_as_text(value) for value in _plain(values)], field.type)


def _plain(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _as_text(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if isinstance(value, str) else value
