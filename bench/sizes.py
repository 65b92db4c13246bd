"""How large recordings are, and how many samples they hold."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from bench.processes import BenchError

# What a sample needs to be read: itself, its stack, its symbols.
SAMPLE_TABLES = ("samples", "stacks", "frames")


@dataclass(frozen=True, slots=True)
class Size:
    samples: int
    bytes: int

    @property
    def bytes_a_sample(self) -> float:
        return self.bytes / self.samples


def recorded(directory: Path) -> Size:
    """The sealed samples of a recording, with their stacks and symbols."""
    files = [path for table in SAMPLE_TABLES for path in directory.glob(f"*/{table}.parquet")]
    samples = sum(pq.read_metadata(path).num_rows for path in files if path.stem == "samples")
    if not samples:
        raise BenchError(f"nothing was recorded: {directory.with_suffix('.log').read_text()[-500:]}")
    return Size(samples, sum(path.stat().st_size for path in files))


def sampled_ms(directory: Path) -> tuple[int, int]:
    """When the first and the last sample of a recording were taken, by the clock that ticks since the boot."""
    files = sorted(directory.glob("*/samples.parquet"))
    times = [pq.read_table(path, columns=["time_ms"])["time_ms"].to_numpy() for path in files]
    return min(int(each.min()) for each in times if len(each)), max(int(each.max()) for each in times if len(each))


def whole(directory: Path) -> int:
    """All tables of a recording, in bytes."""
    return sum(path.stat().st_size for path in directory.glob("*/*.parquet"))


def perf_data(data: Path) -> Size:
    report = subprocess.run(
        ["perf", "report", "-i", str(data), "--stats"], capture_output=True, text=True, check=False
    ).stdout
    for line in report.splitlines():
        if line.strip().startswith("SAMPLE events:"):
            return Size(int(line.split(":")[1].split()[0]), data.stat().st_size)
    raise BenchError(f"perf recorded no samples: {data.with_suffix('.log').read_text()[-500:]}")
