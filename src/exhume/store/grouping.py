"""Columns as small numbers, and keys with their likes: what summing millions of rows is made of."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
_Key = TypeVar("_Key", np.int64, np.uint64)


def codes(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """The column as small numbers, and the values that they stand for."""
    encoded = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type).dictionary_encode()
    return whole.indices.to_numpy(zero_copy_only=False).astype(np.int64), whole.dictionary


def grouped(keys: npt.NDArray[_Key]) -> tuple[npt.NDArray[_Key], Ints]:
    """The distinct keys, and for each key the place of its like. Hashing beats the sorting of numpy.unique."""
    encoded = pa.array(keys).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy().astype(np.int64)
