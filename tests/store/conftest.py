"""What the tests of the store share."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.parts import missing


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        missing(f"a tmpfs to mount ({mounted.stderr.strip()})")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)
