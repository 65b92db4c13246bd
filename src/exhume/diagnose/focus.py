"""Which seconds of a window to look at: the ones that stand out from the rest, on any core, in any measure.

Every second gets a score for each measure: how far it lies above the calm fifth of the seconds around it, in units
of what a node feels (one core's whole time, half a second of a ksoftirqd's wait, two thousand forks ...). The largest
decides, and cores are never averaged: one core of 96 scores like all of them.
"""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.rows import Floats, Ints, Rows
from exhume.model.clock import NANOS
from exhume.model.events import RESTART
from exhume.model.window import Window
from exhume.store.query import Recording

LONGEST_S = 60
CONTEXT_S = 120
_CALM_PERCENTILE = 20
_LEAST_SCORE = 0.2
_GAP_S = 3
_SHORTEST_BASELINE_S = 3
# A loop that costs little is no more than worth a look, where nothing else is.
_RESTART_SCORE = 0.25
_RESTART_TOLD_S = 5

# What one unit of a measure of the node is: about where a node feels it.
_NODE_UNITS = {
    "forks": 2_000.0,
    "pgfault": 300_000.0,
    "pgscan_kswapd": 100_000.0,
    "pgscan_direct": 50_000.0,
    "allocstall": 200.0,
    "compact_stall": 100.0,
    "numa_pte_updates": 200_000.0,
    "oom_kill": 1.0,
    "psi_memory_some": 300_000.0,
    "psi_io_some": 700_000.0,
    "pswpout": 20_000.0,
}


@dataclass(frozen=True, slots=True)
class Focus:
    """A stretch that stands out, the calm stretch to compare it with (empty where there is none), and by how much."""

    window: Window
    baseline: Window
    score: float
    measure: str


def find_foci(recording: Recording, window: Window, at: int | None = None, most: int = 3) -> list[Focus]:
    """The stretches of a window that stand out, the worst first; with a moment, the one nearest to it. There is always
    one: where nothing stands out it is the last minute of the window."""
    span = recording.span() or window
    context = Window(window.since - CONTEXT_S * NANOS, window.until + 30 * NANOS).clamp(span)
    seconds = max(1, -(-context.nanos // NANOS))
    scores, measures = _scores(recording, context, seconds)
    first = max(0, (window.since - context.since) // NANOS)
    last = min(seconds, -(-(window.until - context.since) // NANOS))
    inside = np.zeros(seconds, np.bool_)
    inside[first:last] = True
    runs = _runs(np.where(inside, scores, 0.0))
    if not runs:
        return [_flat(window, context, scores)]
    if at is not None:
        second = (at - context.since) / NANOS
        runs.sort(key=lambda run: (_distance(run, second), -scores[slice(*run)].max()))
        runs = runs[:1]
    else:
        runs.sort(key=lambda run: -scores[slice(*run)].max() * min(10, run[1] - run[0]))
    return [_focus(run, context, scores, measures) for run in runs[:most]]


def _focus(run: tuple[int, int], context: Window, scores: Floats, measures: list[str]) -> Focus:
    begin, end = run
    worst = begin + int(np.argmax(scores[begin:end]))
    if end - begin > LONGEST_S:
        begin = max(begin, min(worst - LONGEST_S // 2, end - LONGEST_S))
        end = begin + LONGEST_S
    window = _wall(context, begin, end)
    return Focus(window, _baseline(run, context, scores), float(scores[worst]), measures[worst])


def _flat(window: Window, context: Window, scores: Floats) -> Focus:
    """Nothing stands out: the last minute against what was before it."""
    since = max(window.since, window.until - LONGEST_S * NANOS)
    before = Window(max(context.since, since - LONGEST_S * NANOS), since)
    baseline = before if before.seconds >= _SHORTEST_BASELINE_S else Window(since, since)
    return Focus(Window(since, window.until), baseline, float(scores.max(initial=0.0)), "")


def _baseline(run: tuple[int, int], context: Window, scores: Floats) -> Window:
    """The longest calm stretch near the run, before it where there is one: up to a minute."""
    limit = max(_LEAST_SCORE / 2, 0.25 * float(scores[slice(*run)].max()))
    calm = scores < limit
    # The seconds next to the run hold its beginning and its end.
    before = _last_run(calm, max(0, run[0] - LONGEST_S - 1), max(0, run[0] - 1))
    if before is None:
        before = _last_run(calm, min(len(calm), run[1] + 1), min(len(calm), run[1] + LONGEST_S + 1))
    if before is None:
        moment = context.since + run[0] * NANOS
        return Window(moment, moment)
    return _wall(context, *before)


def _last_run(calm: "np.ndarray[tuple[int], np.dtype[np.bool_]]", begin: int, end: int) -> tuple[int, int] | None:
    """The longest run of calm seconds in a range, the latest of several; None where it would be too short."""
    best: tuple[int, int] | None = None
    start = None
    for second in range(begin, end + 1):
        if second < end and calm[second]:
            start = second if start is None else start
        elif start is not None:
            if best is None or second - start >= best[1] - best[0]:
                best = (start, second)
            start = None
    return best if best is not None and best[1] - best[0] >= _SHORTEST_BASELINE_S else None


def _runs(scores: Floats) -> list[tuple[int, int]]:
    """Stretches of seconds that stand out; short calms inside one don't end it."""
    left = scores.copy()
    runs: list[tuple[int, int]] = []
    while len(runs) < 8 and left.max(initial=0.0) >= _LEAST_SCORE:
        peak = int(np.argmax(left))
        limit = max(_LEAST_SCORE, 0.4 * float(left[peak]))
        begin = _reach(left, peak, -1, limit)
        end = _reach(left, peak, 1, limit) + 1
        runs.append((begin, end))
        left[max(0, begin - _GAP_S) : end + _GAP_S] = 0.0
    return runs


def _reach(scores: Floats, peak: int, step: int, limit: float) -> int:
    """How far the stretch around the peak goes in one direction."""
    edge, calm, second = peak, 0, peak + step
    while 0 <= second < len(scores) and calm < _GAP_S:
        if scores[second] >= limit:
            edge, calm = second, 0
        else:
            calm += 1
        second += step
    return edge


def _distance(run: tuple[int, int], second: float) -> float:
    return max(run[0] - second, 0.0, second - run[1])


def _wall(context: Window, begin: int, end: int) -> Window:
    return Window(context.since + begin * NANOS, min(context.since + end * NANOS, context.until))


def _scores(recording: Recording, context: Window, seconds: int) -> tuple[Floats, list[str]]:
    """The score of each second, and the measure that gave it."""
    curves: dict[str, Floats] = {}
    cpu = Rows("cpu", recording.read("cpu", context))
    if len(cpu):
        bins = _bins(cpu, context, seconds)
        for name, columns in _CORE_MEASURES.items():
            curves[name] = _most(bins, cpu.sums(columns) / 1000, seconds)
    node = Rows("node", recording.read("node", context, ["span_ms", *_NODE_UNITS, "wall"]))
    if len(node):
        bins = _bins(node, context, seconds)
        for name, unit in _NODE_UNITS.items():
            curves[name] = _most(bins, node.rates(name) / unit, seconds)
    threads = Rows("threads", recording.read("threads", context, ["comm", "wait_ns", "wall"]))
    if len(threads):
        soft = np.array([comm.startswith("ksoftirqd/") for comm in threads.texts("comm")], np.bool_)
        waits = np.where(soft, threads.numbers("wait_ns") / (NANOS / 2), 0.0)
        curves["ksoftirqd wait"] = _most(_bins(threads, context, seconds), waits, seconds)
    again = _restarts(recording, context, seconds)
    if again is not None:
        curves["restarts"] = again
    throttling = Rows("throttling", recording.read("throttling", context))
    if len(throttling):
        share = throttling.numbers("throttled") / np.maximum(throttling.numbers("periods"), 1)
        curves["throttling"] = _most(_bins(throttling, context, seconds), share, seconds)
    return _above_calm(curves, seconds)


def _restarts(recording: Recording, context: Window, seconds: int) -> Floats | None:
    """What is started again and again is told every few seconds, for the seconds before."""
    told = [event.wall for event in recording.events(context, [RESTART]) if event.severity != "info"]
    if not told:
        return None
    curve = np.zeros(seconds)
    for wall in told:
        second = min(seconds - 1, (wall - context.since) // NANOS)
        curve[max(0, second - _RESTART_TOLD_S) : second + 1] = _RESTART_SCORE
    return curve


_CORE_MEASURES = {
    "kernel": ("system", "irq", "softirq"),
    "softirq": ("irq", "softirq"),
    "steal": ("steal",),
    # A busy program is no fault by itself: it counts for little, but the moment it begins can be told.
    "user": ("user", "nice"),
}
_USER_WEIGHT = 0.5


def _above_calm(curves: dict[str, Floats], seconds: int) -> tuple[Floats, list[str]]:
    best = np.zeros(seconds)
    names = np.zeros(seconds, np.int64)
    for number, (name, curve) in enumerate(curves.items()):
        calm = float(np.percentile(curve, _CALM_PERCENTILE))
        excess = np.minimum(curve - calm, 2.0) * (_USER_WEIGHT if name == "user" else 1.0)
        better = excess > best
        best[better] = excess[better]
        names[better] = number
    told = list(curves)
    return best, [told[number] if told else "" for number in names.tolist()]


def _bins(rows: Rows, context: Window, seconds: int) -> Ints:
    return np.clip((rows.wall - context.since) // NANOS, 0, seconds - 1)


def _most(bins: Ints, values: Floats, seconds: int) -> Floats:
    """The highest value of each second; 0 where there is none."""
    highest = np.zeros(seconds)
    known = ~np.isnan(values)
    np.maximum.at(highest, bins[known], values[known])
    return highest
