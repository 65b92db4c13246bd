"""Numbers on the wire: a header in JSON and arrays behind it, as they lie in memory.

A little-endian 32-bit length, that many bytes of JSON (padded with blanks so that the arrays begin at a multiple of
four), then the arrays one after the other. A browser turns them into typed arrays without looking at a single number.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from starlette.responses import Response

MEDIA_TYPE = "application/octet-stream"


def framed(header: Mapping[str, Any], *arrays: npt.NDArray[Any]) -> Response:
    words = json.dumps(header, separators=(",", ":")).encode()
    words += b" " * (-(4 + len(words)) % 4)
    parts = [struct.pack("<I", len(words)), words, *(array.tobytes() for array in arrays)]
    return Response(b"".join(parts), media_type=MEDIA_TYPE)
