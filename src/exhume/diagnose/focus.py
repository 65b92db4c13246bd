"""Which seconds of a window to look at: the ones that stand out from the rest, on any core, in any measure.

Every second gets a score for each measure: how far it lies above the calm fifth of the seconds around it, in units
of what a node feels (one core's whole time, half a second of a ksoftirqd's wait, two thousand forks ...). The largest
decides, and cores are never averaged: each is held against its own calm, so one core of 96 scores like all of them,
also where some core is always busy. A line in the kernel log about starvation counts for the seconds before it.

Trouble that never pauses has no calm to stand out from: what is severe in itself (a core lost to the kernel, a
throttled cgroup, stolen time, ksoftirqds that wait) for seconds, and lies in no stretch that stands out, is a focus of
its own.
"""

from dataclasses import dataclass

import numpy as np

from exhume.collect.sources.kmsg_signatures import STARVATION_KINDS
from exhume.diagnose.evidence.rows import Floats, Ints, Mask, Rows
from exhume.model.clock import NANOS, Window
from exhume.model.tables import RESTART
from exhume.store.read.recording import Recording

# Reading more samples than this only to find the seconds to look at would take longer than the look itself.
_MOST_SAMPLES = 2_000_000
_PID_BITS = 32
LONGEST_S = 60
CONTEXT_S = 120
_CALM_PERCENTILE = 20
_CALM_PART = 0.5
_LEAST_SCORE = 0.2
_GAP_S = 3
# What is much lower than the peak is another story, with a focus of its own: a program that was there before, say.
_PART_OF_PEAK = 0.6
_SHORTEST_BASELINE_S = 3
_NEAR_S = 10
_LATER = 1.5
_LASTING_SCORE = 0.5
_TRIFLE = 0.3
# A driver reports this long after its queue stalled.
_BEFORE_LINE_S = 6
_LEAST_WAIT_NS = NANOS // 10
# A loop that costs little is no more than worth a look, where nothing else is.
_RESTART_SCORE = 0.25
_RESTART_REPORTED_S = 5
# What a large node counts goes up and down, second by second, by more than a small one ever reaches: there it takes
# so many of the usual steps of its calmer half to stand out. Not for shares of the time, nor for single events.
_USUAL_PERCENTILE = 75
_USUAL_STEPS = 8.0
_OF_ANY_SIZE = ("oom_kill", "psi_memory_some", "psi_io_some")

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
    scores, measures, severe = _scores(recording, context, seconds)
    first = max(0, (window.since - context.since) // NANOS)
    last = min(seconds, -(-(window.until - context.since) // NANOS))
    inside = np.zeros(seconds, np.bool_)
    inside[first:last] = True
    runs = _runs(np.where(inside, scores, 0.0))
    lasting = _lasting(severe & inside, runs)
    if not runs and lasting is None:
        return [_flat(window, context, scores)]
    foci = [_focus(run, context, scores, measures) for run in runs]
    if at is not None:
        if lasting is not None:
            foci.append(_lasting_focus(lasting, context, scores, severe))
        # The requested moment is near, but a trifle at the very second is not the reason for the request.
        return sorted(foci, key=lambda focus: -focus.score / (1 + _distance(focus.window, at) / _NEAR_S))[:1]
    foci.sort(key=lambda focus: -focus.score * min(10, focus.window.seconds))
    more = [] if lasting is None else [_lasting_focus(lasting, context, scores, severe)]
    if max(focus.score for focus in (*foci, *more)) < _TRIFLE:
        # Where trifles alone stand out, what was there all the time may matter more.
        more.append(_flat(window, context, scores))
    return foci[:most] + more


def _focus(run: tuple[int, int], context: Window, scores: Floats, measures: list[str]) -> Focus:
    begin, end = run
    worst = begin + int(np.argmax(scores[begin:end]))
    if end - begin > LONGEST_S:
        begin = max(begin, min(worst - LONGEST_S // 2, end - LONGEST_S))
        end = begin + LONGEST_S
    window = _wall(context, begin, end)
    return Focus(window, _baseline(run, context, scores), float(scores[worst]), measures[worst])


def _lasting(severe: Mask, runs: list[tuple[int, int]]) -> tuple[int, int] | None:
    """The longest stretch of severe seconds that none of the runs has; None where it is short."""
    left = severe.copy()
    for begin, end in runs:
        left[max(0, begin - _GAP_S) : end + _GAP_S] = False
    return _longest_run(left, 0, len(left))


def _lasting_focus(run: tuple[int, int], context: Window, scores: Floats, severe: Mask) -> Focus:
    begin, end = max(run[0], run[1] - LONGEST_S), run[1]
    return Focus(_wall(context, begin, end), _calm_near(run, context, ~severe & (scores < 1.0)), _LASTING_SCORE, "")


def _flat(window: Window, context: Window, scores: Floats) -> Focus:
    """Nothing stands out: the last minute against what was before it."""
    since = max(window.since, window.until - LONGEST_S * NANOS)
    before = Window(max(context.since, since - LONGEST_S * NANOS), since)
    baseline = before if before.seconds >= _SHORTEST_BASELINE_S else Window(since, since)
    return Focus(Window(since, window.until), baseline, float(scores.max(initial=0.0)), "")


def _baseline(run: tuple[int, int], context: Window, scores: Floats) -> Window:
    """The longest calm stretch near the run, before it where there is one: up to a minute."""
    limit = max(_LEAST_SCORE / 2, _CALM_PART * float(scores[slice(*run)].max()))
    return _calm_near(run, context, scores < limit)


def _calm_near(run: tuple[int, int], context: Window, calm: Mask) -> Window:
    # The seconds next to the run hold its beginning and its end.
    before = _longest_run(calm, max(0, run[0] - LONGEST_S - 1), max(0, run[0] - 1))
    if before is None:
        before = _longest_run(calm, min(len(calm), run[1] + 1), min(len(calm), run[1] + LONGEST_S + 1))
    if before is None:
        moment = context.since + run[0] * NANOS
        return Window(moment, moment)
    return _wall(context, *before)


def _longest_run(calm: Mask, begin: int, end: int) -> tuple[int, int] | None:
    """The longest run of marked seconds in a range, the latest of several; None where it would be too short."""
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
        limit = max(_LEAST_SCORE, _PART_OF_PEAK * float(left[peak]))
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


def _distance(window: Window, moment: int) -> float:
    """Seconds between a stretch and a moment. A symptom comes after what made it: what begins later is further away."""
    return max(_LATER * (window.since - moment), 0.0, moment - window.until) / NANOS


def _wall(context: Window, begin: int, end: int) -> Window:
    return Window(context.since + begin * NANOS, min(context.since + end * NANOS, context.until))


def _scores(recording: Recording, context: Window, seconds: int) -> tuple[Floats, list[str], Mask]:
    """The score of each second, the measure that gave it, and whether the second is severe whatever was before."""
    cores, hot = _of_cores(recording, context, seconds)
    throttled = _throttled_shares(recording, context, seconds)
    waits = _softirq_waits(recording, context, seconds)
    excesses = {
        **cores,
        **_of_node(recording, context, seconds),
        "ksoftirqd wait": _above_calm(waits),
        "throttling": _above_calm(throttled) * _WEIGHTS["throttling"],
        "kernel log": _of_log(recording, context, seconds),
        "one process": _of_one_process(recording, context, seconds),
        "restarts": _of_restarts(recording, context, seconds),
    }
    names = list(excesses)
    stacked = np.minimum(np.stack(list(excesses.values())), 2.0)
    severe = hot | (throttled >= _SEVERE["throttling"]) | (waits >= 1)
    return np.maximum(stacked.max(axis=0), 0.0), [names[number] for number in stacked.argmax(axis=0).tolist()], severe


def _of_restarts(recording: Recording, context: Window, seconds: int) -> Floats:
    """Restarts are recorded every few seconds, for the seconds before."""
    curve = np.zeros(seconds)
    for event in recording.events(context, [RESTART]):
        second = min(seconds - 1, (event.wall - context.since) // NANOS)
        if event.severity != "info":
            curve[max(0, second - _RESTART_REPORTED_S) : second + 1] = _RESTART_SCORE
    return curve


_CORE_MEASURES = {
    "kernel": ("system", "irq", "softirq"),
    "softirq": ("irq", "softirq"),
    "steal": ("steal",),
    # A busy program is no fault by itself: it counts for little, but its beginning is visible. Not its own time
    # alone: where the kernel takes a core from it, the calm would stand out.
    "busy": ("user", "nice", "system", "irq", "softirq", "steal"),
}
# What is part of the daily life of a busy node counts for less than what isn't.
_WEIGHTS = {"busy": 0.5, "throttling": 0.5, "waiting": 0.5, "one process": 0.5}
# What is severe though it was always so: shares of a core, or of a cgroup's periods.
_SEVERE = {"kernel": 0.95, "steal": 0.2, "throttling": 0.5}
# Threads that wait for a core, in seconds a second, that count like a core full of a busy program.
_WAITING = 4.0


def _of_cores(recording: Recording, context: Window, seconds: int) -> tuple[dict[str, Floats], Mask]:
    """Each core above its own calm; of the cores, the one that is furthest above it. And whether one is severe."""
    cpu = Rows("cpu", recording.read("cpu", context, ["cpu", "span_ms", *_CORE_STATES, "wait_ns", "wall"]))
    severe = np.zeros(seconds, np.bool_)
    if not len(cpu):
        return {}, severe
    present = np.bincount(cpu.cpu) > 0
    cores = int(present.sum())
    # Core numbers may have holes.
    places = (np.cumsum(present) - 1)[cpu.cpu] * seconds + _bins(cpu, context, seconds)
    found = {}
    values = {name: cpu.sums(columns) / 1000 for name, columns in _CORE_MEASURES.items()}
    values["waiting"] = np.minimum(cpu.rates("wait_ns") / NANOS / _WAITING, 1.0)
    for name, value in values.items():
        shares = _most(places, value, cores * seconds).reshape(cores, seconds)
        severe |= (shares >= _SEVERE[name]).any(axis=0) if name in _SEVERE else False
        found[name] = _above_own_calm(shares) * _WEIGHTS.get(name, 1.0)
    return found, severe


def _above_own_calm(shares: Floats) -> Floats:
    calm = np.percentile(shares, _CALM_PERCENTILE, axis=1, method="lower")
    # Of many cores, one is always a little above its calm: what counts is more than that.
    return _above_calm((shares - calm[:, np.newaxis]).max(axis=0))


_CORE_STATES = sorted({column for columns in _CORE_MEASURES.values() for column in columns})


def _of_node(recording: Recording, context: Window, seconds: int) -> dict[str, Floats]:
    node = Rows("node", recording.read("node", context, ["span_ms", *_NODE_UNITS, "wall"]))
    if not len(node):
        return {}
    bins = _bins(node, context, seconds)
    curves = {name: _most(bins, node.rates(name) / unit, seconds) for name, unit in _NODE_UNITS.items()}
    return {
        name: _above_calm(curve) / (1.0 if name in _OF_ANY_SIZE else max(1.0, _USUAL_STEPS * _usual_step(curve)))
        for name, curve in curves.items()
    }


def _usual_step(curve: Floats) -> float:
    """How far a curve goes up or down within a second, while it is in its lower half."""
    low = curve <= np.median(curve)
    steps = np.abs(np.diff(curve))[low[1:] & low[:-1]]
    return float(np.percentile(steps, _USUAL_PERCENTILE)) if len(steps) else 0.0


def _softirq_waits(recording: Recording, context: Window, seconds: int) -> Floats:
    """How long ksoftirqds waited, in half seconds. A wait is recorded when it is over: it counts in all the seconds
    that it took."""
    rows = Rows("threads", recording.read("threads", context, ["comm", "wait_ns", "wall"]))
    rows = rows.where(rows.numbers("wait_ns") >= _LEAST_WAIT_NS)
    curve = np.zeros(seconds)
    for last, comm, waited in zip(
        _bins(rows, context, seconds).tolist(), rows.texts("comm"), rows.numbers("wait_ns"), strict=True
    ):
        if comm.startswith("ksoftirqd/"):
            took = slice(max(0, last - int(waited) // NANOS), last + 1)
            curve[took] = np.maximum(curve[took], waited / (NANOS / 2))
    return curve


def _throttled_shares(recording: Recording, context: Window, seconds: int) -> Floats:
    rows = Rows("throttling", recording.read("throttling", context, ["periods", "throttled", "wall"]))
    share = rows.numbers("throttled") / np.maximum(rows.numbers("periods"), 1)
    return _most(_bins(rows, context, seconds), share, seconds)


def _of_one_process(recording: Recording, context: Window, seconds: int) -> Floats:
    """Of a core that is always full, more than before goes to one process."""
    shares = _largest_process_shares(recording, context, seconds)
    return np.zeros(seconds) if shares is None else _above_own_calm(shares) * _WEIGHTS["one process"]


def _largest_process_shares(recording: Recording, context: Window, seconds: int) -> Floats | None:
    """The share of the process that has most, by core (row) and second; None without samples, or with too many."""
    facts = recording.facts
    if seconds * max(1, facts.cores) * max(1, facts.rate_hz) > _MOST_SAMPLES:
        return None
    rows = recording.read("samples", context, ["cpu", "pid", "weight_us", "wall"])
    if not rows.num_rows:
        return None
    cpu, pid, wall = (rows.column(name).to_numpy().astype(np.int64) for name in ("cpu", "pid", "wall"))
    weight = rows.column("weight_us").to_numpy().astype(np.float64) / 1e6
    known = pid > 0
    cpu, pid, wall, weight = cpu[known], pid[known], wall[known], weight[known]
    if not len(cpu):
        return None
    bins = np.clip((wall - context.since) // NANOS, 0, seconds - 1)
    distinct, members = np.unique((cpu * seconds + bins) << _PID_BITS | pid, return_inverse=True)
    sums = np.bincount(members, weight, len(distinct))
    largest = np.zeros((int(cpu.max()) + 1) * seconds)
    np.maximum.at(largest, distinct >> _PID_BITS, sums)
    return np.minimum(largest, 1.0).reshape(-1, seconds)


def _of_log(recording: Recording, context: Window, seconds: int) -> Floats:
    curve = np.zeros(seconds)
    for event in recording.events(context):
        if event.kind in STARVATION_KINDS:
            second = int(np.clip((event.wall - context.since) // NANOS, 0, seconds - 1))
            curve[max(0, second - _BEFORE_LINE_S) : second + 1] = 1.0
    return curve


def _above_calm(curve: Floats) -> Floats:
    above: Floats = curve - np.percentile(curve, _CALM_PERCENTILE)
    return above


def _bins(rows: Rows, context: Window, seconds: int) -> Ints:
    return np.clip((rows.wall - context.since) // NANOS, 0, seconds - 1)


def _most(bins: Ints, values: Floats, seconds: int) -> Floats:
    """The highest value of each second; 0 where there is none."""
    highest = np.zeros(seconds)
    known = ~np.isnan(values)
    np.maximum.at(highest, bins[known], values[known])
    return highest
