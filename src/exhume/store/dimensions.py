"""Stacks, frames and processes are told again in every segment; over several segments each is wanted once."""

import numpy as np
import pyarrow as pa

_KEYS = {"stacks": "stack", "frames": "frame"}


def without_repeats(table: str, rows: pa.Table) -> pa.Table:
    """Each stack and frame once; each process once as it was first told."""
    key = _KEYS.get(table)
    if key is not None:
        _, first = np.unique(rows.column(key).to_numpy(), return_index=True)
        return rows.take(pa.array(np.sort(first)))
    told = [name for name in rows.schema.names if name not in ("time", "wall")]
    firsts = rows.group_by(told, use_threads=False).aggregate([("time", "min"), ("wall", "min")])
    return firsts.rename_columns([*told, "time", "wall"]).select(rows.schema.names)
