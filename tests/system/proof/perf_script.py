"""What perf recorded, sample by sample, through `perf script`."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEAD = re.compile(r"^(?P<comm>.*?)\s+(?P<pid>-?\d+)/(?P<tid>-?\d+)\s+\[(?P<cpu>\d+)\]\s+(?P<time>[\d.]+):")
_FRAME = re.compile(r"^\s+(?P<address>[0-9a-f]+) (?P<name>.*?)(?:\+0x(?P<offset>[0-9a-f]+))? \((?P<module>.*)\)$")
UNKNOWN = "[unknown]"


@dataclass(frozen=True, slots=True)
class PerfFrame:
    """`offset` is how far into the function the address lies, -1 where there is no function."""

    address: int
    name: str
    offset: int
    module: str

    @property
    def in_kernel(self) -> bool:
        return self.module.startswith("[") and self.module not in ("[vdso]", UNKNOWN)


@dataclass(frozen=True, slots=True)
class PerfSample:
    """One sample; its frames leaf first, as perf prints them."""

    time_s: float
    comm: str
    frames: tuple[PerfFrame, ...]


def perf_samples(data: Path) -> Iterator[PerfSample]:
    """Without inlined functions: exhume names the function whose code it is, perf would unfold it into those that the
    compiler merged, where there is debug information."""
    fields = "comm,pid,tid,cpu,time,ip,sym,symoff,dso"
    words = ["perf", "script", "--no-inline", "-i", str(data), "-F", fields]
    script = subprocess.run(words, capture_output=True, text=True, errors="replace", check=True).stdout
    for block in script.split("\n\n"):
        head, *lines = block.strip("\n").split("\n")
        found = _HEAD.match(head)
        if found:
            frames = tuple(_frame(match) for line in lines if (match := _FRAME.match(line)))
            yield PerfSample(float(found["time"]), found["comm"].strip(), frames)


def _frame(match: re.Match[str]) -> PerfFrame:
    offset = match["offset"]
    return PerfFrame(
        int(match["address"], 16), match["name"], -1 if offset is None else int(offset, 16), match["module"]
    )
