"""Environments with packages that are only compared with, below the build directory; kept for the next run."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.processes import BenchError


def venv_with(directory: Path, requirements: Sequence[str]) -> Path:
    """The Python of an environment that has these requirements."""
    requested, installed = "\n".join(requirements), directory / "requirements.txt"
    python = directory / "bin/python"
    if not installed.is_file() or installed.read_text() != requested:
        print(f"  installing {directory.name}", flush=True)
        installed.unlink(missing_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(directory)])
        listed = directory / "requested.txt"
        listed.write_text(requested)
        _run([str(python), "-m", "pip", "install", "--quiet", "-r", str(listed)])
        listed.rename(installed)
    return python


def _run(args: list[str]) -> None:
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"packages to compare with could not be installed: {done.stderr.strip()[-500:]}")
