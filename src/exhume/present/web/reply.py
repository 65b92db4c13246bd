"""Replies of handlers: JSON, framed arrays and refusals. Loaded by the server and by workers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exhume.model.errors import ExhumeError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from exhume.present.web.params import MomentParams
    from exhume.present.web.schemas import IncidentShape
import struct

import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

JSON = "application/json"
#: nginx's code for a client that closed the connection before the answer was ready.
CLIENT_CLOSED_REQUEST = 499


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer that can be sent from a worker to the server."""

    body: bytes
    media_type: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident as the recorder marked it, and the parameters of its diagnosis."""

    shape: "IncidentShape"
    moment: "MomentParams"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The first finding's fields (empty where nothing explains the incident), and the whole diagnosis as JSON."""

    finding: Mapping[str, Any]
    body: bytes


class Refusal(ExhumeError):
    """A request that is answered with a 4xx status and a sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status

    def __reduce__(self) -> tuple[type["Refusal"], tuple[int, str]]:
        return Refusal, (self.status, str(self))


def json_reply(model: "BaseModel") -> Reply:
    """The JSON of a model."""
    return Reply(model.model_dump_json().encode())


def problem(status: int, detail: str) -> Reply:
    """The JSON of a refusal or a failure."""
    return Reply(json.dumps({"detail": detail}).encode(), status=status)


BINARY = "application/octet-stream"
# Made once: pyarrow imports pandas' date types, if they are there, for each scalar made of a Python string.
_COMMA = pa.scalar(",", pa.string())


def framed(header: Mapping[str, Any], *arrays: npt.NDArray[Any]) -> Reply:
    """A header in JSON and the arrays behind it."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % 4)
    return Reply(b"".join([struct.pack("<I", len(text)), text, *(array.tobytes() for array in arrays)]), BINARY)


def with_columns(fields: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]]) -> Reply:
    """A JSON object with columns of integers after its other fields; Arrow formats integers several times as fast as
    the json module."""
    parts = [json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")[:-1]]
    for name, values in columns.items():
        texts = pa.array(values).cast(pa.string())
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), _COMMA)[0]
        parts += [b',"', name.encode(), b'":[', joined.as_buffer().to_pybytes(), b"]"]
    return Reply(b"".join([*parts, b"}"]))
