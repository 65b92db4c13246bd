"""Observations out of a recording: the same measures as the live sampler takes, for time that has passed."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exhume.model.clock import NANOS, Window
from exhume.model.remedy import Effect, Measure
from exhume.remedy.verify.measures import RECORDING, Series
from exhume.store.read.recording import Recording

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_TIMEOUTS = "nic-tx-timeout"
# Events of a start of a unit or of a container.
_STARTS = ("unit-restarted", "container-start")
_KERNEL = ("system", "irq", "softirq")
# A tick of the recorder that came late is still one observation; what lies further apart is a gap.
_LONGEST_S = 60.0


class Recorded:
    """The measures of a window of a recording. Tables are read once, however many measures come out of them."""

    def __init__(self, recording: Recording, window: Window) -> None:
        self._recording = recording
        self.window = window.clamp(recording.span() or Window(0, 0))
        self._tables: dict[str, pa.Table] = {}

    def observe(self, effect: Effect) -> Series:
        """The observations of a measure; without any, with the reason."""
        since, until = self.window.since, self.window.until
        if self.window.empty:
            return Series(effect, RECORDING, since, until, missing="nothing was recorded in this time")
        values, spans, missing = _READERS[effect.measure](self, effect)
        return Series(effect, RECORDING, since, until, tuple(values.tolist()), tuple(spans.tolist()), missing)

    def table(self, name: str, columns: Sequence[str]) -> pa.Table:
        key = f"{name}:{','.join(columns)}"
        if key not in self._tables:
            self._tables[key] = self._recording.read(name, self.window, [*columns, "wall"]).sort_by("wall")
        return self._tables[key]

    def did_without(self, source: str) -> bool:
        """Whether the recorder had to do without a source."""
        return bool(self._recording.facts.missing(source))

    def ticks(self) -> tuple[Ints, Floats]:
        """When each recorded second began (wall nanoseconds), and its length in seconds."""
        rows = self.table("node", ["span_ms"])
        return _ints(rows, "wall"), _floats(rows, "span_ms") / 1000


def _of_cores(columns: Sequence[str], value: Callable[[pa.Table, Floats], Floats]) -> "Reader":
    def read(recorded: Recorded, effect: Effect) -> "Read":
        """The worst core of each second."""
        rows = recorded.table("cpu", ["span_ms", *columns])
        if not rows.num_rows:
            return _nothing("no cores were recorded")
        spans = _floats(rows, "span_ms") / 1000
        values = value(rows, spans)
        moments, which = np.unique(_ints(rows, "wall"), return_inverse=True)
        worst = np.full(len(moments), -np.inf)
        np.maximum.at(worst, which, np.where(np.isnan(values), -np.inf, values))
        length = np.zeros(len(moments))
        np.maximum.at(length, which, spans)
        known = np.isfinite(worst) & (length > 0)
        if not known.any():
            return _nothing("the kernel has no count of it (there is no /proc/schedstat)")
        return worst[known], length[known], ""

    return read


def _busy(rows: pa.Table, _: Floats) -> Floats:
    return 1 - np.minimum(1000, _floats(rows, "idle") + _floats(rows, "iowait")) / 1000


def _kernel(rows: pa.Table, _: Floats) -> Floats:
    kernel: Floats = np.sum([_floats(rows, name) for name in _KERNEL], axis=0)
    return np.minimum(1000, kernel) / 1000


def _wait(rows: pa.Table, spans: Floats) -> Floats:
    return _floats(rows, "wait_ns") / 1e9 / np.maximum(spans, 1e-3)


def _of_node(*columns: str) -> "Reader":
    def read(recorded: Recorded, effect: Effect) -> "Read":
        """An amount of each second: the sum of some counters of the node."""
        rows = recorded.table("node", ["span_ms", *columns])
        if not rows.num_rows:
            return _nothing("the node's counters were not recorded")
        values = np.sum([_floats(rows, name) for name in columns], axis=0)
        return _known(values, _floats(rows, "span_ms") / 1000, "the kernel has no such counter")

    return read


def _throttling(recorded: Recorded, effect: Effect) -> "Read":
    """Only seconds in which a cgroup was throttled have rows: all others count as nothing."""
    moments, spans = recorded.ticks()
    if not len(moments):
        return _nothing("nothing was recorded in this time")
    rows = recorded.table("throttling", ["cgroup", "throttled_ns"])
    held = np.zeros(len(moments))
    if rows.num_rows:
        wanted = np.array([belongs(path, effect.subject) for path in rows.column("cgroup").to_pylist()], bool)
        at = _ints(rows, "wall")[wanted]
        np.add.at(held, _tick_of(moments, at), _floats(rows, "throttled_ns")[wanted] / 1e9)
    return held, spans, ""


def _zombies(recorded: Recorded, effect: Effect) -> "Read":
    moments, counts = _counts(recorded)
    if len(counts) < 2:
        return _nothing("zombies were counted less than twice in this time")
    spans = np.diff(moments) / NANOS
    return _known(counts[1:], np.where(spans <= _LONGEST_S, spans, np.nan), "")


def _growth(recorded: Recorded, effect: Effect) -> "Read":
    moments, counts = _counts(recorded)
    if len(counts) < 2:
        return _nothing("zombies were counted less than twice in this time")
    spans = np.diff(moments) / NANOS
    return _known(np.diff(counts), np.where(spans <= _LONGEST_S, spans, np.nan), "")


def _counts(recorded: Recorded) -> tuple[Ints, Floats]:
    """When zombies of the whole node were counted, and how many there were: on v1 where memory is there."""
    rows = recorded.table("cgroups", ["hierarchy", "parent", "dying"])
    where, parent = rows.column("hierarchy").to_pylist(), rows.column("parent").to_pylist()
    hierarchy = "memory" if "memory" in where else "unified"
    dying = _floats(rows, "dying")
    kept = np.array([h == hierarchy and not p for h, p in zip(where, parent, strict=True)], bool) & ~np.isnan(dying)
    return _ints(rows, "wall")[kept], dying[kept]


def _timeouts(recorded: Recorded, effect: Effect) -> "Read":
    return _events(recorded, effect, lambda row: (row["value"] or 1.0) if row["kind"] == _TIMEOUTS else 0.0)


def _restarts(recorded: Recorded, effect: Effect) -> "Read":
    """Starts after the first: units by their name, containers with their manager before it."""
    manager, colon, container = effect.subject.partition(":")
    # Without its source, no start is no news. Podman's socket is not held open, as that would keep its service up.
    if colon and manager != "docker":
        return _nothing(f"the recorder has no events of {manager}")
    if recorded.did_without(manager if colon else "systemd"):
        return _nothing(f"the recorder had no starts from {manager if colon else 'systemd'}")

    def weight(row: dict[str, object]) -> float:
        named = row["container_name"] == container if colon else row["comm"] == effect.subject
        return float(row["kind"] in _STARTS and (named or not effect.subject))

    return _events(recorded, effect, weight)


def _events(recorded: Recorded, effect: Effect, weight: Callable[[dict[str, object]], object]) -> "Read":
    moments, spans = recorded.ticks()
    if not len(moments):
        return _nothing("nothing was recorded in this time")
    rows = recorded.table("events", ["kind", "comm", "value", "container_name"])
    weights = np.array([float(str(weight(row))) for row in rows.to_pylist()])
    counts = np.zeros(len(moments))
    if rows.num_rows:
        np.add.at(counts, _tick_of(moments, _ints(rows, "wall")), weights)
    elif effect.measure is Measure.RESTARTS:
        # No events at all: the recorder may not have had a source for them.
        return _nothing("the recording has no starts of units or containers")
    return counts, spans, ""


def belongs(cgroup: str, subject: str) -> bool:
    """Whether a cgroup is the subject's (a unit by name, a container by its id or name), or below it."""
    name = subject.rpartition(":")[2]
    return not name or any(name == part or (len(name) >= 12 and name in part) for part in cgroup.split("/"))


def _tick_of(moments: Ints, at: Ints) -> Ints:
    """Which second each moment fell into; what came before the first is counted into it."""
    return np.clip(np.searchsorted(moments, at, side="right") - 1, 0, len(moments) - 1)


def _floats(rows: pa.Table, column: str) -> Floats:
    return rows.column(column).cast(pa.float64()).to_numpy(zero_copy_only=False) if rows.num_rows else np.empty(0)


def _ints(rows: pa.Table, column: str) -> Ints:
    numbers: Ints = rows.column(column).to_numpy().astype(np.int64)
    return numbers


def _known(values: Floats, spans: Floats, otherwise: str) -> "Read":
    known = ~np.isnan(values) & ~np.isnan(spans) & (spans > 0)
    return values[known], spans[known], "" if known.any() else otherwise


def _nothing(why: str) -> "Read":
    return np.empty(0), np.empty(0), why


Read = tuple[Floats, Floats, str]
Reader = Callable[[Recorded, Effect], Read]

_READERS: dict[Measure, Reader] = {
    Measure.ZOMBIES: _zombies,
    Measure.ZOMBIE_GROWTH: _growth,
    Measure.BUSIEST_CORE: _of_cores(("idle", "iowait"), _busy),
    Measure.KERNEL_CORE: _of_cores(_KERNEL, _kernel),
    Measure.THROTTLING: _throttling,
    Measure.RECLAIM: _of_node("pgscan_kswapd", "pgscan_direct"),
    Measure.RESTARTS: _restarts,
    Measure.NIC_TIMEOUTS: _timeouts,
    Measure.FORKS: _of_node("forks"),
    Measure.RUN_QUEUE_WAIT: _of_cores(("wait_ns",), _wait),
}
