"""Every command that looks at a recording names the files that it could not read."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.store_rows import cpu_rows, recorder, tick_at

PROGRAM = Path(sys.executable).with_name("exhume")


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A recording whose only files of cores and events are cut off; returns its directory."""
    writer = recorder(tmp_path)
    for index in range(3):
        tick = tick_at(index)
        event = {"time": [tick.start], "source": ["kernel-log"], "kind": ["line"], "severity": ["info"], "text": ["a"]}
        writer.append("cpu", cpu_rows(tick))
        writer.append("events", event)
        writer.commit(tick)
    writer.close()
    for name in ("cpu", "events"):
        file = next(tmp_path.glob(f"2*/{name}.parquet"))
        file.write_bytes(file.read_bytes()[:60])
    return tmp_path


@pytest.mark.parametrize(
    ("command", "table"),
    [
        ("cores", "cpu"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [("events", "events"), ("incidents", "events"), ("info", "cpu")]
        ),
    ],
)
def test_a_damaged_file_is_named(damaged: Path, command: str, table: str) -> None:
    ran = subprocess.run(
        [PROGRAM, command, "--dir", str(damaged)], capture_output=True, text=True, timeout=60, check=False
    )
    file = next(damaged.glob(f"2*/{table}.parquet"))
    assert str(file) in (ran.stdout if command == "info" else ran.stderr)
    assert "Traceback" not in ran.stderr
