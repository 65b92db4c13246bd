"""Reading what exhume and FlameScope answer, to be sure that both answered, and with the stacks that were recorded."""

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import BenchError

TIME = re.compile(r"\s(\d+\.\d+):\s")
IDLE = "swapper"
# Two samplers on the same cores take their samples at other moments.
SAMPLES_APART = 0.1
LARGE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Graph:
    """A flame graph: its samples, and for each function of the kernel those that it is in."""

    samples: int
    kernel: Counter[str]

    def share(self, name: str) -> float:
        return self.kernel[name] / self.samples


@dataclass(frozen=True, slots=True)
class Recorded:
    """When the samples of a perf script text were taken, in seconds, in order."""

    all: list[float]
    certainly_busy: list[float]

    @property
    def first_second(self) -> int:
        return int(self.all[0])

    def bounds(self, since: float, until: float) -> tuple[int, int]:
        """The fewest and the most samples that a reader may find, since readers judge for themselves what is idle."""
        busy, every = (bisect_right(times, until) - bisect_left(times, since) for times in self._both())
        return busy, every

    def _both(self) -> tuple[list[float], list[float]]:
        return self.certainly_busy, self.all


def read_script(path: Path) -> Recorded:
    every: list[float] = []
    busy: list[float] = []
    with path.open(errors="replace") as lines:
        for line in lines:
            # Frames are indented by a tab, samples are apart by an empty line.
            if line[0] in "\t#\n":
                continue
            found = TIME.search(line)
            if found is None:
                raise BenchError(f"perf script wrote a sample without a time: {line.strip()}")
            every.append(float(found[1]))
            if not line.lstrip().startswith(IDLE):
                busy.append(every[-1])
    if not every:
        raise BenchError("perf recorded no samples")
    return Recorded(sorted(every), sorted(busy))


def flamescope_heatmap(body: bytes) -> int:
    """The samples in FlameScope's heatmap."""
    return sum(sum(column) for column in json.loads(body)["values"])


def flamescope_graph(body: bytes) -> Graph:
    """Nested frames, of which only the innermost one counts a sample."""
    kernel: Counter[str] = Counter()

    def count(node: dict[str, Any], around: frozenset[str]) -> int:
        name = node["n"]
        samples: int = node["v"] + sum(count(child, around | {name}) for child in node["c"])
        # A function that calls itself is in its samples once.
        if node["l"] == "kernel" and name not in around:
            kernel[name] += samples
        return samples

    return Graph(count(json.loads(body), frozenset()), kernel)


def exhume_heatmap(body: bytes) -> int:
    """The samples in exhume's heatmap: the cells lie behind a header in JSON, and behind them the kernel's part."""
    length = int.from_bytes(body[:4], "little")
    header = json.loads(body[4 : 4 + length])
    counts = memoryview(body[4 + length :]).cast("I")
    return sum(counts[: header["rows"] * header["columns"]])


def exhume_graph(body: bytes) -> Graph:
    """Columns: each frame has the place of its parent, which comes before it, and all samples that it is in."""
    answer = json.loads(body)
    labels, parents = answer["label"], answer["parent"]
    names, kinds = answer["labels"]["name"], answer["labels"]["kind"]
    kernel: Counter[str] = Counter()
    around: list[frozenset[str]] = []
    for label, parent, samples in zip(labels, parents, answer["samples_of"], strict=True):
        outer = around[parent] if 0 <= parent < len(around) else frozenset()
        name = names[label]
        if kinds[label] == "kernel" and name not in outer:
            kernel[name] += samples
        around.append(outer | {name})
    return Graph(answer["samples"], kernel)


def check_recorded(what: str, found: int, bounds: tuple[int, int]) -> None:
    """What a reader found has to be what perf recorded."""
    if not bounds[0] <= found <= bounds[1] or not found:
        raise BenchError(f"{what} has {found:,} samples, perf recorded {bounds[0]:,} to {bounds[1]:,}")


def check_as_many(ours: int, peer: int) -> None:
    if abs(ours - peer) > SAMPLES_APART * peer:
        raise BenchError(f"exhume has {ours:,} samples where FlameScope has {peer:,}")


def check_alike(ours: Graph, peer: Graph) -> None:
    """Both sampled the same cores in the same seconds: they have to tell the same of what the kernel did."""
    check_as_many(ours.samples, peer.samples)
    large = [name for name in peer.kernel if name[0] != "[" and peer.share(name) >= LARGE_SHARE]
    if not large:
        raise BenchError("no function of the kernel stands out in what FlameScope answered")
    for name in large:
        if not peer.share(name) / 2 <= ours.share(name) <= peer.share(name) * 2:
            raise BenchError(f"{name} has {ours.share(name):.0%} in exhume, {peer.share(name):.0%} in FlameScope")
