"""The synthetic recording that the readers are measured on: written once, kept for the next run."""

import random
import shutil
import time
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import exhume
from exhume.lab.synth import write_synthetic
from exhume.model.clock import NANOS, Window
from exhume.store.read.recording import Recording

CORES = 96
SEED = 7
WINDOW_S = 5


@dataclass(frozen=True, slots=True)
class Synthetic:
    directory: Path
    span: Window
    hours: float

    def windows(self, count: int, seed: int) -> list[Window]:
        """Windows of five seconds, anywhere."""
        draw = random.Random(seed)
        last = self.span.until - WINDOW_S * NANOS
        starts = (draw.randrange(self.span.since, last) for _ in range(count))
        return [Window(start, start + WINDOW_S * NANOS) for start in starts]


def synthetic(work: Path, quick: bool) -> Synthetic:
    hours = 1.0 if quick else 12.0
    directory = work / f"synthetic-{CORES}x{hours:g}h-{SEED}"
    finished = directory.with_suffix(".finished")
    if not finished.exists() or finished.read_text() != _writers():
        shutil.rmtree(directory, ignore_errors=True)
        begin = time.monotonic()
        summary = write_synthetic(directory, cores=CORES, hours=hours, seed=SEED)
        finished.write_text(_writers())
        print(f"  wrote {summary.samples:,} samples, {summary.bytes / 1e9:.2f} GB in {time.monotonic() - begin:.0f} s")
    span = Recording.open(directory).span()
    assert span is not None
    return Synthetic(directory, span, hours)


def _writers() -> str:
    """A fingerprint of the code that writes recordings: when it changes, what it wrote before is no measure of it."""
    package = Path(exhume.__file__).parent
    sources = sorted(path for part in ("model", "store", "lab") for path in (package / part).rglob("*.py"))
    return blake2b(b"".join(path.read_bytes() for path in sources)).hexdigest()
