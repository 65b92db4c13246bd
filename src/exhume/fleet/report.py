"""The fleet report: which nodes are sick, what sets them apart, when it begins, its cause, who is next, what to do."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from exhume.fleet.cohort.census import Bools, Census, Episodes, take_census
from exhume.fleet.cohort.clusters import SickClusters, active
from exhume.fleet.cohort.forecast import AtRisk, Forecast, forecast_of
from exhume.fleet.cohort.jobs import JobView, jobs_of
from exhume.fleet.cohort.onset import Change, Hazard, Onset, changes_before, hazard_of, onset_of
from exhume.fleet.cohort.separators import Condition, Separator, properties_of, separate
from exhume.fleet.cohort.statistics import wilson
from exhume.fleet.engines import Engine, ask
from exhume.fleet.lake import Lake
from exhume.fleet.queries import FINDINGS
from exhume.model.clock import Window
from exhume.model.finding import Estimate
from exhume.model.text import count, listed

# Causes are compared separately if they affect at least this many nodes; only the most frequent ones.
_LEAST_SICK, _LEAST_SICK_SHARE, _MOST_CAUSES = 5, 0.005, 5
# Attributes in the breakdown, all of which have few values, and the values per attribute, those with the most nodes
# first.
MOST_KEYS, MOST_VALUES = 400, 20
# The number of nodes that a step names.
MOST_NAMED = 20
_ZOMBIES = "zombie-memcgs"
# A cause that at least this share of the sick nodes has is what they have in common.
_SHARED = 0.5


@dataclass(frozen=True, slots=True)
class CauseCount:
    """A cause by the nodes' own findings, and the leaker, culprit and function that they name most often, each with its
    number of nodes."""

    cause: str
    nodes: int
    incidents: int
    lost_core_s: float
    leaker: str = ""
    leaker_nodes: int = 0
    culprit: str = ""
    culprit_nodes: int = 0
    function: str = ""
    function_nodes: int = 0


@dataclass(frozen=True, slots=True)
class ValueCount:
    """The nodes with a value of an attribute, and how many of them are sick."""

    value: str
    nodes: int
    sick: int
    incidents: int
    risk: Estimate


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Incidents by the values of an attribute; `left_out` counts values with fewer nodes."""

    key: str
    values: tuple[ValueCount, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class FleetStep:
    """A recommended step and the nodes to begin with; `total` is the number of affected nodes."""

    code: str
    text: str
    command: str = ""
    nodes: tuple[str, ...] = ()
    total: int = 0


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The whole report. `tried` counts the attributes and pairs that were compared; `common` is the cause that most
    nodes of the first separator (or most sick nodes) found themselves. `clusters` are attributes by whose values sick
    nodes cluster if nothing separates them, `unproven` attributes that correlate with these clusters."""

    lake: str
    window: Window
    engine: str
    nodes: int
    sick: int
    incidents: int
    separators: tuple[Separator, ...]
    tried: int
    common: CauseCount | None
    causes: tuple[CauseCount, ...]
    hazard: Hazard | None
    onset: Onset | None
    changes: tuple[Change, ...]
    forecast: Forecast | None
    jobs: JobView | None
    steps: tuple[FleetStep, ...]
    breakdowns: tuple[Breakdown, ...]
    sick_nodes: tuple[str, ...]
    blind_spots: tuple[str, ...] = field(default=())
    clusters: tuple[SickClusters, ...] = ()
    unproven: tuple[Condition, ...] = ()

    @property
    def first(self) -> Separator | None:
        return self.separators[0] if self.separators else None

    @property
    def at_risk(self) -> tuple[AtRisk, ...]:
        return self.forecast.nodes if self.forecast is not None else ()


def report(lake: Lake | str, window: Window, engine: Engine) -> FleetReport:
    """Compare all nodes of a lake. Raises NoData, UsageError, LakeError, EngineError."""
    if isinstance(lake, str):
        lake = Lake.open(lake, make=False)
    census = take_census(lake, window, engine)
    episodes, nodes = census.episodes, len(census.nodes)
    sick = census.first_incident >= 0
    properties = properties_of(census.values, census.reference, nodes)
    separation = separate(properties, _labels(census, sick))
    first = separation.separators[0] if separation.separators else None
    # The sick nodes of the first separator, by its cause; without a separator all of them.
    concerned = sick if first is None or separation.members is None else separation.members & sick
    causes = tuple(_causes(episodes))
    among = episodes.select(concerned[episodes.node])
    common = next((each for each in _causes(among) if first is None or each.cause == (first.cause or each.cause)), None)
    leading = sick if common is None else _sick_by(episodes, common.cause, nodes)
    forecast = forecast_of(census, sick)
    order = _by_incidents(census, concerned)
    jobs = jobs_of(census)
    breakdowns = tuple(_breakdowns(census, sick))
    # A remedy that helps a few nodes is not advice for all of them.
    shared = common if common is not None and common.nodes >= _SHARED * len(order) else None
    remedies = _remedies(census, lake, engine, shared)
    clustered = separation.clusters[0].key if separation.clusters else ""
    return FleetReport(
        lake.uri,
        window,
        engine.name,
        nodes,
        int(sick.sum()),
        len(episodes.node),
        separation.separators,
        separation.tried,
        common,
        causes,
        hazard_of(census, separation.members),
        onset_of(census, leading),
        changes_before(census, leading, active(properties.clusterings, (leading, sick))),
        forecast,
        jobs,
        tuple(_steps(_Next(lake, census, first, shared, forecast, order, remedies, breakdowns, clustered))),
        breakdowns,
        tuple(census.nodes[each] for each in _by_incidents(census, sick)),
        tuple(_blind_spots(census, properties.skipped_keys)),
        separation.clusters,
        separation.unproven,
    )


def _labels(census: Census, sick: Bools) -> dict[str, Bools]:
    """Labels: nodes that are sick at all, and nodes that are sick by each of the frequent causes."""
    labels = {"": sick}
    least = max(_LEAST_SICK, _LEAST_SICK_SHARE * len(census.nodes))
    for name in census.episodes.names["cause"]:
        by_cause = _sick_by(census.episodes, name, len(census.nodes))
        # A cause that all sick nodes have adds no information.
        if least <= by_cause.sum() < sick.sum():
            labels[name] = by_cause
    most = sorted(labels, key=lambda name: -int(labels[name].sum()))[: _MOST_CAUSES + 1]
    return {name: labels[name] for name in most}


def _sick_by(episodes: Episodes, cause: str, nodes: int) -> Bools:
    found = np.zeros(nodes, bool)
    found[episodes.node[episodes.having("cause", cause)]] = True
    return found


def _causes(episodes: Episodes) -> Iterator[CauseCount]:
    """Causes with their nodes, the most frequent first."""
    counted = []
    for code, name in enumerate(episodes.names["cause"]):
        own = episodes.codes["cause"] == code
        if own.any():
            counted.append((len(np.unique(episodes.node[own])), name, own))
    for nodes, name, own in sorted(counted, key=lambda each: (-each[0], each[1])):
        named: list[str | int] = []
        for column in ("leaker", "culprit", "function"):
            named += _most_common(episodes, column, own)
        lost = float(np.nansum(episodes.lost_core_s[own]))
        yield CauseCount(name, nodes, int(own.sum()), round(lost, 1), *named)  # type: ignore[arg-type]


def _most_common(episodes: Episodes, column: str, rows: Bools) -> tuple[str, int]:
    """The text that most nodes name, and the number of these nodes."""
    named = rows & (episodes.codes[column] >= 0)
    if not named.any():
        return "", 0
    # Packs a text and a node into one number.
    width = int(episodes.node.max()) + 1
    pairs = np.unique(episodes.codes[column][named] * width + episodes.node[named])
    counts = np.bincount(pairs // width)
    best = int(counts.argmax())
    return episodes.names[column][best], int(counts[best])


def _by_incidents(census: Census, nodes: Bools) -> list[int]:
    """Nodes by the number of incidents on the window's last day, in descending order."""
    episodes = census.episodes
    recent = episodes.moment >= census.window.until // 1000 - 86_400_000_000
    newest = np.bincount(episodes.node[recent], minlength=len(census.nodes))
    every = np.bincount(episodes.node, minlength=len(census.nodes))
    return sorted(np.flatnonzero(nodes).tolist(), key=lambda node: (-newest[node], -every[node], census.nodes[node]))


def _breakdowns(census: Census, sick: Bools) -> Iterator[Breakdown]:
    """Incidents by every attribute that differs between nodes."""
    values = census.values
    node, key, value = values.at(census.reference)
    known = value >= 0
    node, key, value = node[known], key[known], value[known]
    incidents = np.bincount(census.episodes.node, minlength=len(census.nodes))
    order = np.argsort(key, kind="stable")
    begins = np.searchsorted(key[order], np.arange(len(values.keys) + 1))
    shown = 0
    for place in sorted(range(len(values.keys)), key=lambda each: Condition(values.keys[each], "").order):
        rows = order[begins[place] : begins[place + 1]]
        codes, column = np.unique(value[rows], return_inverse=True)
        # Skip attributes that are the same on all nodes or different on most.
        if shown >= MOST_KEYS or len(codes) < 2 or len(codes) > len(rows) / 2:
            continue
        shown += 1
        totals = np.bincount(column)
        ill = np.bincount(column, sick[node[rows]]).astype(int)
        had = np.bincount(column, incidents[node[rows]]).astype(int)
        most = np.lexsort((codes, -totals, -ill))[:MOST_VALUES].tolist()
        counted = tuple(
            ValueCount(
                values.values[codes[each]],
                int(totals[each]),
                int(ill[each]),
                int(had[each]),
                wilson(int(ill[each]), int(totals[each])),
            )
            for each in most
        )
        yield Breakdown(values.keys[place], counted, len(codes) - len(counted))


@dataclass(frozen=True, slots=True)
class _Remedy:
    text: str
    command: str
    findings: int


def _remedies(census: Census, lake: Lake, engine: Engine, common: CauseCount | None) -> list[_Remedy]:
    """The remedies of the nodes' own findings of the common cause, the most frequent first."""
    if common is None:
        return []
    query = FINDINGS.within(census.window, cause=common.cause)
    [answer] = ask(engine, lake, [(query, census.window)])
    advised: Counter[tuple[str, str]] = Counter()
    for text in answer.rows["finding"].to_pylist():
        advised.update(set(_advice(text)))
    return [_Remedy(*advice, times) for advice, times in advised.most_common(2)]


def _advice(text: str) -> Iterator[tuple[str, str]]:
    """Texts and commands of a finding's remedies; empty for malformed input."""
    try:
        finding = json.loads(text)
    except (ValueError, RecursionError):
        return
    remedies = finding.get("remedies") if isinstance(finding, dict) else None
    for each in remedies if isinstance(remedies, list) else []:
        if isinstance(each, dict) and isinstance(each.get("text"), str):
            yield each["text"][:200], str(each.get("command") or "")[:200]


@dataclass(frozen=True, slots=True)
class _Next:
    lake: Lake
    census: Census
    first: Separator | None
    common: CauseCount | None
    forecast: Forecast | None
    sick: list[int]
    remedies: list[_Remedy]
    breakdowns: tuple[Breakdown, ...]
    # The attribute by which sick nodes cluster, if no attribute sets them apart.
    clustered: str


def _steps(given: _Next) -> Iterator[FleetStep]:
    """The recommended steps, the most urgent first."""
    names = tuple(given.census.nodes[each] for each in given.sick[:MOST_NAMED])
    total = len(given.sick)
    for remedy in given.remedies[:1]:
        yield FleetStep("remedy", remedy.text, remedy.command, names, total)
    if given.common is not None and given.common.cause == _ZOMBIES:
        # Only a reboot is certain to free cgroups whose directory is gone.
        yield FleetStep("boot", "then reboot these nodes: zombies that are there stay until then", "", names, total)
    risk = given.forecast.nodes if given.forecast is not None else ()
    if risk:
        yield FleetStep(
            "at-risk",
            "do the same on the nodes at risk, the nearest first",
            "",
            tuple(each.node for each in risk[:MOST_NAMED]),
            len(risk),
        )
    groups = _groups(given)
    if groups is not None:
        yield FleetStep("compare", "see what else differs between them", _compare_command(given.lake, *groups))
    if given.first is not None:
        text = " and ".join(f"{each.key} {each.value}" for each in given.first.conditions)
        yield FleetStep("source", f"change it at its source: all new nodes with {text} will become sick too")
    elif total:
        alike = f"they come in clusters by {given.clustered}: look at one of each" if given.clustered else ""
        text = alike or "no attribute sets them apart: look at one of them"
        yield FleetStep("diagnose", text, "exhume diagnose", names, total)


def _groups(given: _Next) -> tuple[Condition, Condition] | None:
    """A condition of the sick nodes, and the same key with the most frequent value of the healthy nodes."""
    for condition in reversed(given.first.conditions if given.first is not None else ()):
        values = next((each.values for each in given.breakdowns if each.key == condition.key), ())
        others = [each for each in values if each.value != condition.value]
        if others:
            healthiest = max(others, key=lambda each: each.nodes - each.sick)
            return condition, Condition(condition.key, healthiest.value)
    return None


def _compare_command(lake: Lake, *groups: Condition) -> str:
    place = ["--lake", lake.uri, *(["--s3-endpoint", lake.endpoint] if lake.endpoint else [])]
    return shlex.join(["exhume", "compare", *place, *(f"{each.key}={each.value}" for each in groups)])


def _blind_spots(census: Census, skipped: list[str]) -> Iterator[str]:
    if census.unread:
        path, reason = census.unread[0]
        yield f"{count(len(census.unread), 'file')} of the lake could not be read: {path.rsplit('/', 1)[-1]}: {reason}"
    if census.clock_off:
        worst = sorted(census.clock_off, key=lambda node: -abs(census.clock_off[node]))
        yield (
            f"{count(len(worst), 'node')} with a clock that is off ({listed(worst, 3)}): moments of theirs are set "
            "right by the hub's clock"
        )
    silent = len(census.nodes) - len(np.unique(census.course.node))
    if silent:
        yield f"{count(silent, 'node')} with incidents but no summaries: their uptime is not known"
    bare = len(census.nodes) - len(np.unique(census.values.node))
    if bare:
        yield f"{count(bare, 'node')} without attributes: they count as nodes without any value"
    if skipped:
        yield f"not compared, as nearly every node has another value: {listed(skipped, 4)}"
    late = _gone(census)
    if late:
        yield f"{count(late, 'node')} sent nothing in the last hour of the window"


def _gone(census: Census) -> int:
    newest = np.zeros(len(census.nodes), np.int64)
    np.maximum.at(newest, census.course.node, census.course.last)
    end = min(census.window.until // 1000, int(newest.max(initial=0)))
    return int(((newest > 0) & (newest < end - 3_600_000_000)).sum())
