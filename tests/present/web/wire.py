"""Asking the page's servers: parameters that are generated, and framed numbers that are read."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from httpx2 import Response
from hypothesis import HealthCheck, Phase, settings

#: Of tests that call every endpoint with generated parameters.
GENERATED = settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


def run_generated(cases: Path) -> None:
    """Run a file of schemathesis' tests in a pytest of its own. Its plugin makes the requests while tests are
    collected, which takes half a minute of CPU: of this one process instead of every worker."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cases],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def header_of(answer: Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return json.loads(answer.content[4 : 4 + struct.unpack_from("<I", answer.content)[0]])


def heat(answer: Response) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """(header, values, states) of a heatmap, cores x cells."""
    header = header_of(answer)
    start = 4 + struct.unpack_from("<I", answer.content)[0]
    shape = (len(header["cpus"]), header["cells"])
    size = shape[0] * shape[1]
    values = np.frombuffer(answer.content, "<u2", size, start).reshape(shape)
    return header, values, np.frombuffer(answer.content, np.uint8, size, start + 2 * size).reshape(shape)


def counts(answer: Response) -> tuple[dict[str, Any], np.ndarray]:
    """(header, counts) of the sub-second heatmap, columns x rows."""
    header, (found, _) = kernel_counts(answer)
    return header, found


def kernel_counts(answer: Response) -> tuple[dict[str, Any], np.ndarray]:
    """The same, with the counts of the kernel next to those of all."""
    header = header_of(answer)
    start = 4 + struct.unpack_from("<I", answer.content)[0]
    assert start % 4 == 0
    found = np.frombuffer(answer.content, np.uint32, offset=start)
    return header, found.reshape(2, header["columns"], header["rows"])
