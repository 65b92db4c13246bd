"""Reading the server's framed numbers."""

import json
import struct
from typing import Any

import numpy as np
from httpx2 import Response


def header_of(answer: Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return json.loads(answer.content[4 : 4 + struct.unpack_from("<I", answer.content)[0]])


def heat(answer: Response) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """(header, values, states) of a heatmap, cores x cells."""
    header = header_of(answer)
    start = 4 + struct.unpack_from("<I", answer.content)[0]
    shape = (len(header["cpus"]), header["cells"])
    numbers = np.frombuffer(answer.content, np.uint8, offset=start).reshape(2, *shape)
    return header, numbers[0], numbers[1]


def counts(answer: Response) -> tuple[dict[str, Any], np.ndarray]:
    """(header, counts) of the sub-second heatmap, columns x rows."""
    header = header_of(answer)
    start = 4 + struct.unpack_from("<I", answer.content)[0]
    assert start % 4 == 0
    return header, np.frombuffer(answer.content, np.uint32, offset=start).reshape(header["columns"], header["rows"])
