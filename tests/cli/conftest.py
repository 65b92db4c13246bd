"""A small recording with an incident in it, and the program as its users run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exhume.lab.synth import write_synthetic


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory):
    """Four minutes of a node with eight cores: (directory, what was written)."""
    directory = tmp_path_factory.mktemp("synthetic") / "recording"
    return directory, write_synthetic(directory, cores=8, hours=4 / 60, seed=7)


@pytest.fixture(scope="session")
def small_recording(synthetic) -> Path:
    return synthetic[0]


@pytest.fixture(scope="session")
def exhume():
    """Run the program; its environment holds no settings of whoever runs the tests."""

    def run(*words: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("EXHUME_")}
        clean |= {"TZ": "UTC", "COLUMNS": "100", **environment}
        command = [sys.executable, "-m", "exhume.cli.main", *words]
        result = subprocess.run(command, capture_output=True, text=True, env=clean, timeout=60, check=False)
        assert not check or result.returncode == 0, result.stderr
        return result

    return run
