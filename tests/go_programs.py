"""Small programs in Go for tests of what Go programs read: compiled once, with nothing but the standard library."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.parts import missing


@functools.cache
def compiled(source: Path) -> str:
    """The program that a file is compiled to."""
    found = sorted(Path("/usr/lib").glob("go-1.*/bin/go"))
    if not found:
        missing("Go (tools/system-packages test)")
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    program = f"{folder}/{source.stem}"
    subprocess.run(
        [found[0], "build", "-o", program, source],
        env={**os.environ, "GOCACHE": f"{folder}/cache", "GO111MODULE": "off", "CGO_ENABLED": "0"},
        check=True,
    )
    return program
