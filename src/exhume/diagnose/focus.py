"""Find the seconds of a window to look at: those that stand out from the rest, on any core, by any measure.

Each second gets a score per measure: how far it is above the calm fifth of the surrounding seconds, in units of what a
node feels (all of one core's time, half a second of ksoftirqd wait, two thousand forks ...). The highest score counts.
Cores are never averaged: each is compared with its own calm level, so one busy core of 96 scores as high as all of
them, even if another core is always busy. A starvation message in the kernel log raises the score of the seconds before
it.

A problem that never pauses has no calm level to stand out from. Seconds that are severe in absolute terms (a core lost
to the kernel, a throttled cgroup, steal time, waiting ksoftirqds) become a focus of their own if they last and no other
focus contains them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exhume.collect.sources.kmsg_signatures import STARVATION_KINDS
from exhume.diagnose.catalogue import thresholds
from exhume.diagnose.evidence.rows import Floats, Ints, Mask, Rows
from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.tables import KERNEL_STATES, RESTART, is_held
from exhume.store.read.events import EventView
from exhume.store.read.recording import Recording

_PID_BITS = 32
_CORE_MEASURES = {
    "kernel": KERNEL_STATES,
    "softirq": ("irq", "softirq"),
    "steal": ("steal",),
    # A busy program is not a fault, so this has a low weight; it shows when the program started. The kernel states are
    # included: with user time alone, the moments when the kernel takes the core from the program would look calm.
    "busy": ("user", "nice", "system", "irq", "softirq", "steal"),
}
# A growing number of dying cgroups takes no CPU time by itself: such seconds still count as calm, unless the focus is
# about the growth.
_GROWTH = "dying cgroups"
_CORE_STATES = sorted({column for columns in _CORE_MEASURES.values() for column in columns})


def _limit(name: str) -> Any:
    return thresholds("focus")[name]


@dataclass(frozen=True, slots=True)
class Focus:
    """A stretch of seconds that stands out, its baseline (empty if there is no calm stretch), and its score."""

    window: Window
    baseline: Window
    score: float
    measure: str


def find_foci(recording: Recording, window: Window, at: int | None = None, most: int = 3) -> list[Focus]:
    """Find the stretches of a window that stand out, the worst first; with `at`, only the one nearest to that moment.
    There is always at least one: if nothing stands out, it is the last minute of the window. None extends beyond the
    window."""
    found = [(focus, focus.window.clamp(window)) for focus in _find_foci(recording, window, at, most)]
    # In a window shorter than a second, the second that stands out may lie outside the window.
    return [replace(focus, window=window if inside.empty else inside) for focus, inside in found]


def _find_foci(recording: Recording, window: Window, at: int | None, most: int) -> list[Focus]:
    span = recording.span() or window
    context = Window(window.since - _limit("context_s") * NANOS, window.until + 30 * NANOS).clamp(span)
    seconds = max(1, -(-context.nanos // NANOS))
    excesses, severe, recorded = _excesses(recording, context, seconds)
    names = list(excesses)
    stacked = np.minimum(np.stack(list(excesses.values())), 2.0)
    scores = np.maximum(stacked.max(axis=0), 0.0)
    measures = [names[number] for number in stacked.argmax(axis=0).tolist()]
    felt = np.maximum(np.delete(stacked, names.index(_GROWTH), axis=0).max(axis=0), 0.0)
    # The window may begin and end within a second of the context: include the seconds that it covers at least half of.
    first = max(0, min(seconds - 1, (window.since - context.since + NANOS // 2) // NANOS))
    last = min(seconds, max(first + 1, (window.until - context.since + NANOS // 2) // NANOS))
    inside = np.zeros(seconds, np.bool_)
    inside[first:last] = True
    runs = _runs(np.where(inside, scores, 0.0))
    foci = [
        _focus(run, context, scores if measures[run.worst] == _GROWTH else felt, recorded, measures) for run in runs
    ]
    # Find the longest stretch of severe seconds that no run covers. A run with a low score that is severe only in part
    # is about something else, for example page faults that increased while the programs causing them had their cores.
    left, gap = severe & inside, _limit("gap_s")
    for run in runs:
        if run.score >= _limit("lasting_score") or severe[run.begin : run.end].mean() > _limit("severe_part"):
            left[max(0, run.begin - gap) : run.end + gap] = False
    lasting = _longest_run(left, 0, seconds)
    more = []
    if lasting is not None:
        since = max(lasting[0], lasting[1] - _limit("longest_s"))
        calm = _calm_near(lasting, context, ~severe & (felt < 1.0) & recorded)
        more = [Focus(_wall(context, since, lasting[1]), calm, _limit("lasting_score"), "")]
    if not foci and not more:
        return [_flat(window, context, scores)]
    if at is not None:
        # The user asks about something near this moment, but hardly about a trifle at exactly that second. A symptom
        # follows its cause, so a stretch that begins after the moment counts as further away.
        def weight(focus: Focus) -> float:
            distance = max(_limit("later") * (focus.window.since - at), 0.0, at - focus.window.until) / NANOS
            return -focus.score / float(1 + distance / _limit("near_s"))

        return sorted((*foci, *more), key=weight)[:1]
    foci.sort(key=lambda focus: -focus.score * min(10, focus.window.seconds))
    if max(focus.score for focus in (*foci, *more)) < _limit("trifle"):
        # If only trifles stand out, what was there all the time may matter more.
        more.append(_flat(window, context, scores))
    return foci[:most] + more


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of seconds that stands out, with its worst second and the score of that second."""

    begin: int
    end: int
    worst: int
    score: float


def _focus(run: _Run, context: Window, scores: Floats, recorded: Mask, measures: list[str]) -> Focus:
    begin, end, longest = run.begin, run.end, _limit("longest_s")
    if end - begin > longest:
        begin = max(begin, min(run.worst - longest // 2, end - longest))
        end = begin + longest
    calm = max(_limit("least_score") / 2, _limit("calm_part") * run.score)
    baseline = _calm_near((run.begin, run.end), context, (scores < calm) & recorded)
    return Focus(_wall(context, begin, end), baseline, run.score, measures[run.worst])


def _flat(window: Window, context: Window, scores: Floats) -> Focus:
    """The focus if nothing stands out: the last minute, compared with the time before it."""
    longest = _limit("longest_s") * NANOS
    since = max(window.since, window.until - longest)
    before = Window(max(context.since, since - longest), since)
    baseline = before if before.seconds >= _limit("shortest_baseline_s") else Window(since, since)
    return Focus(Window(since, window.until), baseline, float(scores.max(initial=0.0)), "")


def _calm_near(run: tuple[int, int], context: Window, calm: Mask) -> Window:
    """The longest calm stretch near the run, up to a minute, preferably before it. The seconds next to the run are
    excluded: they contain its beginning and its end."""
    begin, end, longest = *run, _limit("longest_s")
    found = _longest_run(calm, max(0, begin - longest - 1), max(0, begin - 1))
    found = found or _longest_run(calm, min(len(calm), end + 1), min(len(calm), end + longest + 1))
    moment = context.since + begin * NANOS
    return Window(moment, moment) if found is None else _wall(context, *found)


def _longest_run(marked: Mask, begin: int, end: int) -> tuple[int, int] | None:
    """The longest run of marked seconds in a range (the latest of equally long ones); None if it is too short for a
    baseline."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], marked[begin:end], [False])).astype(np.int8)))
    runs = [(begin + int(since), begin + int(until)) for since, until in edges.reshape(-1, 2)]
    best = max(runs, key=lambda run: (run[1] - run[0], run), default=(0, 0))
    return best if best[1] - best[0] >= _limit("shortest_baseline_s") else None


def _runs(scores: Floats) -> list[_Run]:
    """Runs of seconds that stand out; a short calm within a run doesn't end it. A peak on top of a longer stretch is a
    run of its own and doesn't split the longer one."""
    left, least, gap = scores.copy(), _limit("least_score"), _limit("gap_s")
    runs: list[_Run] = []
    while len(runs) < 8 and left.max(initial=0.0) >= least:
        peak = int(np.argmax(left))
        limit = max(least, _limit("part_of_peak") * float(left[peak]))
        begin, end = _reach(left, peak, -1, limit), _reach(left, peak, 1, limit) + 1
        runs.append(_Run(begin, end, peak, float(left[peak])))
        below = min(left[max(0, begin - gap) : begin].max(initial=0.0), left[end : end + gap].max(initial=0.0))
        if below >= least:
            left[begin:end] = below
        else:
            left[max(0, begin - gap) : end + gap] = 0.0
    return runs


def _reach(scores: Floats, peak: int, step: int, limit: float) -> int:
    """The last second of the stretch around the peak in one direction."""
    edge, calm, second = peak, 0, peak + step
    while 0 <= second < len(scores) and calm < _limit("gap_s"):
        edge, calm = (second, 0) if scores[second] >= limit else (edge, calm + 1)
        second += step
    return edge


def _wall(context: Window, begin: int, end: int) -> Window:
    return Window(context.since + begin * NANOS, min(context.since + end * NANOS, context.until))


def _excesses(recording: Recording, context: Window, seconds: int) -> tuple[dict[str, Floats], Mask, Mask]:
    """Three values for each second: its excess by each measure, whether it is severe in absolute terms, and whether it
    was recorded as a second of its own."""
    cores, hot, recorded = _of_cores(recording, context, seconds)
    weights, severe = _limit("weights"), _limit("severe")
    rows = Rows("throttling", recording.read("throttling", context, ["periods", "throttled", "wall"]))
    shares = rows.numbers("throttled") / np.maximum(rows.numbers("periods"), 1)
    throttled = _most(_bins(rows, context, seconds), shares, seconds)
    waits = _softirq_waits(recording, context, seconds)
    # On a core that is always busy, one process may take more of it than before.
    processes = _largest_process_shares(recording, context, seconds)
    runnable = _runnable(recording, context, seconds)
    one_process = np.zeros(seconds) if processes is None else _above_own_calm(processes) * weights["one process"]
    lines = (event for event in recording.events(context) if event.kind in STARVATION_KINDS)
    restarts = (event for event in recording.events(context, [RESTART]) if event.severity != "info")
    excesses = {
        **cores,
        **_of_node(recording, context, seconds),
        "ksoftirqd wait": _above_calm(waits),
        "throttling": _above_calm(throttled) * weights["throttling"],
        "kernel log": _before(lines, context, seconds, _limit("before_line_s")),
        "one process": one_process,
        _GROWTH: _growth_of_zombies(recording, context, seconds) * weights[_GROWTH],
        "runnable": _above_calm(np.minimum(runnable / _limit("waiting_s"), 1.0)) * weights["waiting"],
        "restarts": _before(restarts, context, seconds, _limit("restart_reported_s")) * _limit("restart_score"),
    }
    graves = hot | (throttled >= severe["throttling"]) | (waits >= 1) | (runnable >= severe["runnable"])
    return excesses, graves, recorded


def _of_cores(recording: Recording, context: Window, seconds: int) -> tuple[dict[str, Floats], Mask, Mask]:
    """For each second, the highest excess of any core over its own calm level, by measure; whether a core is severe;
    and whether the second was recorded."""
    cpu = Rows("cpu", recording.read("cpu", context, ["cpu", "span_ms", *_CORE_STATES, "wait_ns", "wall"]))
    severe = np.zeros(seconds, np.bool_)
    if not len(cpu):
        # Only this table shows when the recorder was not running.
        return {}, severe, np.ones(seconds, np.bool_)
    present = np.bincount(cpu.cpu) > 0
    cores = int(present.sum())
    # CPU numbers may have holes.
    places = (np.cumsum(present) - 1)[cpu.cpu] * seconds + _bins(cpu, context, seconds)
    found = {}
    values = {name: cpu.sums(columns) / 1000 for name, columns in _CORE_MEASURES.items()}
    values["waiting"] = np.minimum(cpu.rates("wait_ns") / NANOS / _limit("waiting_s"), 1.0)
    held = is_held(cpu.sums(KERNEL_STATES), cpu.numbers("steal"))
    severe[_bins(cpu, context, seconds)[held]] = True
    for name, value in values.items():
        shares = _most(places, value, cores * seconds).reshape(cores, seconds)
        severe |= (shares >= _limit("severe").get(name, np.inf)).any(axis=0)
        found[name] = _above_own_calm(shares) * _limit("weights").get(name, 1.0)
    return found, severe, _recorded(cpu, context, seconds)


def _recorded(cpu: Rows, context: Window, seconds: int) -> Mask:
    """The seconds covered by rows of the cpu table. Rows of a late tick don't count: they hold the mean of many
    seconds."""
    spans_ms = cpu.numbers("span_ms")
    own = cpu.where(spans_ms <= max(_limit("late_s") * 1000, _limit("late_factor") * float(np.median(spans_ms))))
    spans = own.numbers("span_ms").astype(np.int64) * MILLIS
    last = np.clip((own.wall + np.maximum(spans, 1) - 1 - context.since) // NANOS, 0, seconds - 1)
    edges = np.bincount(_bins(own, context, seconds), minlength=seconds + 1)
    edges = edges - np.bincount(last + 1, minlength=seconds + 1)
    covered: Mask = np.cumsum(edges)[:seconds] > 0
    return covered


def _above_own_calm(shares: Floats) -> Floats:
    calm = np.percentile(shares, _limit("calm_percentile"), axis=1, method="lower")
    # With many cores, one is always a little above its own calm level: only what exceeds this usual maximum counts.
    return _above_calm((shares - calm[:, np.newaxis]).max(axis=0))


def _of_node(recording: Recording, context: Window, seconds: int) -> dict[str, Floats]:
    units = _limit("node_units")
    node = Rows("node", recording.read("node", context, ["span_ms", *units, "wall"]))
    if not len(node):
        return {}
    bins, found = _bins(node, context, seconds), {}
    for name, unit in units.items():
        curve = _most(bins, node.rates(name) / unit, seconds)
        found[name] = _above_calm(curve)
        if name not in _limit("of_any_size"):
            # The usual change from one second to the next while the curve is in its lower half.
            low = curve <= np.median(curve)
            steps = np.abs(np.diff(curve))[low[1:] & low[:-1]]
            usual = float(np.percentile(steps, _limit("usual_percentile"))) if len(steps) else 0.0
            found[name] = found[name] / max(1.0, _limit("usual_steps") * usual)
    return found


def _runnable(recording: Recording, context: Window, seconds: int) -> Floats:
    """Runnable threads per core, for kernels that don't count run delay. They are counted at the instant of a tick, so
    a single value says little: the median of three shows what lasts."""
    node = Rows("node", recording.read("node", context, ["running", "wall"]))
    counts = _most(_bins(node, context, seconds), node.numbers("running"), seconds) / max(1, recording.facts.cores)
    around = np.pad(counts, 1, mode="edge")
    middle: Floats = np.median(np.stack([around[:-2], counts, around[2:]]), axis=0)
    return middle


def _softirq_waits(recording: Recording, context: Window, seconds: int) -> Floats:
    """The wait of ksoftirqds in units of half a second, for every second of the wait: it is recorded only when it
    ends."""
    rows = Rows("threads", recording.read("threads", context, ["comm", "wait_ns", "wall"]))
    rows = rows.where(rows.numbers("wait_ns") >= _limit("least_wait_s") * NANOS)
    curve, bins = np.zeros(seconds), _bins(rows, context, seconds).tolist()
    for last, (comm, waited) in zip(bins, rows.listed("comm", "wait_ns"), strict=True):
        if comm.startswith("ksoftirqd/"):
            took = slice(max(0, last - waited // NANOS), last + 1)
            curve[took] = np.maximum(curve[took], waited / (NANOS / 2))
    return curve


def _growth_of_zombies(recording: Recording, context: Window, seconds: int) -> Floats:
    """Growth rate of dying cgroups, at most 1, for every second between two counts."""
    rows = Rows("cgroups", recording.read("cgroups", context, ["hierarchy", "parent", "dying", "wall"]))
    rows = rows.matching("parent", "")
    curve = np.zeros(seconds)
    for hierarchy in set(rows.texts("hierarchy").tolist()):
        own = rows.matching("hierarchy", hierarchy)
        own = own.where(~np.isnan(own.numbers("dying")))
        order = np.argsort(own.wall, kind="stable")
        bins, counts, walls = _bins(own, context, seconds)[order], own.numbers("dying")[order], own.wall[order]
        pace = np.diff(counts) / np.maximum(np.diff(walls) / NANOS, 1.0) / _limit("dying_a_second")
        for begin, end, value in zip(bins[:-1].tolist(), bins[1:].tolist(), pace.tolist(), strict=True):
            curve[begin : end + 1] = np.maximum(curve[begin : end + 1], min(value, 1.0))
    return curve


def _largest_process_shares(recording: Recording, context: Window, seconds: int) -> Floats | None:
    """The share of the busiest process, by core (row) and second; None if there are no samples, or too many."""
    facts = recording.facts
    if seconds * max(1, facts.cores) * max(1, facts.rate_hz) > _limit("most_samples"):
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


def _before(events: Iterable[EventView], context: Window, seconds: int, before_s: int) -> Floats:
    """1 in the seconds before each event, up to and including it: events are reported some seconds late."""
    curve = np.zeros(seconds)
    for event in events:
        second = int(np.clip((event.wall - context.since) // NANOS, 0, seconds - 1))
        curve[max(0, second - before_s) : second + 1] = 1.0
    return curve


def _above_calm(curve: Floats) -> Floats:
    above: Floats = curve - np.percentile(curve, _limit("calm_percentile"))
    return above


def _bins(rows: Rows, context: Window, seconds: int) -> Ints:
    return np.clip((rows.wall - context.since) // NANOS, 0, seconds - 1)


def _most(bins: Ints, values: Floats, seconds: int) -> Floats:
    """The highest value of each second; 0 if there is none."""
    highest = np.zeros(seconds)
    known = ~np.isnan(values)
    np.maximum.at(highest, bins[known], values[known])
    return highest
