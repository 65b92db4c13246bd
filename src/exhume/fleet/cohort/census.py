"""The nodes of a fleet over a window, as arrays: the course of each boot, the values of attributes, the incidents.

Times are microseconds since 1970. Nodes, keys, values and names are numbers: places in the lists of their texts.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.fleet.cohort.statistics import Floats, Ints
from exhume.fleet.engines import Engine, ask
from exhume.fleet.engines.files import newest_date
from exhume.fleet.lake import Lake
from exhume.fleet.queries import COURSE, EPISODES, FAILURES, VALUES, step_micros
from exhume.fleet.schema import CLOCK_OFF_S, SUMMARIES
from exhume.model.clock import NANOS, Window
from exhume.model.errors import NoData
from exhume.model.finding import Severity
from exhume.model.times import format_moment

DAY_US = 86_400_000_000
# Attributes and incidents of before the window are looked at too: what a node had when it began, and which boots were
# sick before.
LOOKED_BACK_NS = 30 * 86_400 * NANOS
SICK = (Severity.CRITICAL.value, Severity.WARNING.value)

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Course:
    """Each boot of each node in each step of the window: when it was seen first and last, its uptime in seconds,
    zombies and memory cgroups at the end, what a walk cost for each. Sorted by node and time; NaN is not known."""

    node: Ints
    boot: Ints
    minutes: Ints
    first: Ints
    last: Ints
    uptime_low: Floats
    uptime_high: Floats
    dying: Floats
    tracked: Floats
    cost: Floats

    @cached_property
    def started(self) -> Ints:
        """When the boot of each row began; where the uptime is not known, when the row begins."""
        uptime = np.where(np.isnan(self.uptime_low), 0.0, self.uptime_low)
        return self.first - (uptime * 1e6).astype(np.int64)


@dataclass(frozen=True)
class Values:
    """The values of attributes, each from a moment on; sorted by node, key and moment. Value -1: the key is gone."""

    node: Ints
    key: Ints
    value: Ints
    moment: Ints
    keys: list[str]
    values: list[str]

    @cached_property
    def begins(self) -> Bools:
        """Where the rows of another node or key begin."""
        return np.concatenate(([True], (np.diff(self.node) != 0) | (np.diff(self.key) != 0)))[: len(self.node)]

    def at(self, moments: Ints) -> tuple[Ints, Ints, Ints]:
        """Node, key and value of every attribute as it was at the moment that each node has; for attributes that were
        pushed only later, the first."""
        starts = np.flatnonzero(self.begins)
        if not len(starts):
            return self.node, self.key, self.value
        known = np.add.reduceat((self.moment <= moments[self.node]).astype(np.int64), starts)
        rows = starts + np.maximum(known - 1, 0)
        return self.node[rows], self.key[rows], self.value[rows]


@dataclass(frozen=True)
class Episodes:
    """Incidents, in the order of time. `names` has the texts of cause, severity, leaker, culprit, function and process
    by column; -1 is none."""

    node: Ints
    moment: Ints
    ended: Ints
    core: Floats
    lost_core_s: Floats
    codes: dict[str, Ints]
    names: dict[str, list[str]]

    def select(self, rows: Bools | Ints) -> "Episodes":
        """Some of them, or all in another order."""
        return Episodes(
            self.node[rows],
            self.moment[rows],
            self.ended[rows],
            self.core[rows],
            self.lost_core_s[rows],
            {name: codes[rows] for name, codes in self.codes.items()},
            self.names,
        )

    def having(self, column: str, *texts: str) -> Bools:
        wanted = [place for place, name in enumerate(self.names[column]) if name in texts]
        return np.isin(self.codes[column], wanted)

    def text(self, column: str, row: int) -> str:
        code = int(self.codes[column][row])
        return self.names[column][code] if code >= 0 else ""


@dataclass(frozen=True)
class Census:
    """All of it. `episodes` are those of the window, `earlier` of some weeks before it; both are incidents that harmed
    (critical or warning). `clock_off` are nodes whose clock the hub found wrong, with the seconds; `failures` are the
    members of failed jobs, as they are in the lake."""

    window: Window
    nodes: list[str]
    course: Course
    values: Values
    episodes: Episodes
    earlier: Episodes
    clock_off: dict[str, float]
    unread: tuple[tuple[str, str], ...]
    failures: pa.Table

    @cached_property
    def first_incident(self) -> Ints:
        """The moment of each node's first incident in the window; -1 for none."""
        return first_of(self.episodes, len(self.nodes))

    @cached_property
    def reference(self) -> Ints:
        """The moment at which each node is looked at: a sick one at its first incident, the others at the median of
        those, so that what changed on all nodes meanwhile sets no node apart."""
        first = self.first_incident
        sick = first[first >= 0]
        usual = int(np.median(sick)) if len(sick) else self.window.until // 1000
        return np.where(first >= 0, first, usual)


def first_of(episodes: Episodes, nodes: int) -> Ints:
    found = np.full(nodes, np.iinfo(np.int64).max)
    np.minimum.at(found, episodes.node, episodes.moment)
    return np.where(found == np.iinfo(np.int64).max, -1, found)


def take_census(lake: Lake, window: Window, engine: Engine) -> Census:
    """Read what the report needs of a lake. Raises NoData for a window without a node, LakeError, EngineError."""
    lake.check()
    longer = Window(max(0, window.since - LOOKED_BACK_NS), window.until)
    asked = (
        (COURSE.within(window, step=step_micros(window)), window),
        (VALUES.within(longer), longer),
        (EPISODES.within(longer), longer),
        (FAILURES.within(window), window),
    )
    answers = ask(engine, lake, asked)
    course, values, episodes, failures = (each.rows for each in answers)
    unread = list(dict.fromkeys(each for answer in answers for each in answer.unread))
    recent = pc.greater_equal(episodes["moment"], window.since // 1000)
    nodes = pc.unique(pa.chunked_array([*course["node"].chunks, *episodes.filter(recent)["node"].chunks], pa.string()))
    nodes = nodes.take(pc.array_sort_indices(nodes))
    if not len(nodes):
        raise NoData(_nothing(lake, window, unread))
    every = _episodes(episodes, nodes)
    harmful = every.having("severity", *SICK) & (every.node >= 0)
    inside = every.moment >= window.since // 1000
    off = pc.is_valid(course["clock_off_s"])
    wrong = course.filter(off).group_by("node").aggregate([("clock_off_s", "max")]).to_pylist()
    return Census(
        window,
        nodes.to_pylist(),
        _course(course, nodes),
        _values(values, nodes),
        every.select(harmful & inside),
        every.select(harmful & ~inside),
        {each["node"]: each["clock_off_s_max"] for each in wrong if abs(each["clock_off_s_max"]) >= CLOCK_OFF_S},
        tuple(unread),
        failures,
    )


def _nothing(lake: Lake, window: Window, unread: list[tuple[str, str]]) -> str:
    if unread:
        return f"none of the {len(unread)} files that {lake.uri} has of this time can be read: {unread[0][1]}"
    newest = newest_date(lake, SUMMARIES)
    if newest is None:
        return f"{lake.uri} holds no summaries of nodes; nodes push them with exhume fleet push"
    since = format_moment(window.since, digits=0)
    return f"{lake.uri} holds nothing since {since}; its newest summaries are of {newest}: choose a time with --until"


def numbers(column: pa.ChunkedArray) -> Floats:
    """A column as floats, NaN for null."""
    found: Floats = pc.cast(column, pa.float64()).to_numpy().astype(np.float64)
    return found


def whole(column: pa.ChunkedArray, missing: int = -1) -> Ints:
    """A column as integers."""
    found: Ints = pc.fill_null(pc.cast(column, pa.int64()), missing).to_numpy().astype(np.int64)
    return found


def places(column: pa.ChunkedArray, listed: pa.Array) -> Ints:
    """Where each value is in a list; -1 for none."""
    return whole(pc.index_in(column, value_set=listed))


def _coded(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """A column of texts as numbers, and the sorted texts."""
    texts = pc.drop_null(pc.unique(column))
    texts = texts.take(pc.array_sort_indices(texts))
    return places(column, texts), texts.to_pylist()


def _course(rows: pa.Table, nodes: pa.Array) -> Course:
    costs = numbers(rows["costs"])
    with np.errstate(invalid="ignore", divide="ignore"):
        cost = np.where(costs > 0, numbers(rows["cost_sum"]) / costs, np.nan)
    return Course(
        places(rows["node"], nodes),
        _coded(rows["boot_id"])[0],
        whole(rows["minutes"]),
        whole(rows["first"]),
        whole(rows["last"]),
        numbers(rows["uptime_low"]),
        numbers(rows["uptime_high"]),
        numbers(rows["dying"]),
        numbers(rows["tracked"]),
        cost,
    )


def _values(rows: pa.Table, nodes: pa.Array) -> Values:
    node = places(rows["node"], nodes)
    keys, values = _coded(rows["key"]), _coded(rows["value"])
    # Nodes that are gone since have attributes only.
    kept = node >= 0
    return Values(node[kept], keys[0][kept], values[0][kept], whole(rows["moment"])[kept], keys[1], values[1])


def _episodes(rows: pa.Table, nodes: pa.Array) -> Episodes:
    coded = {
        name: _coded(rows[name]) for name in ("cause", "severity", "leaker", "culprit", "function", "process", "id")
    }
    moment, ended = whole(rows["moment"]), whole(rows["ended"])
    return Episodes(
        places(rows["node"], nodes),
        moment,
        np.maximum(ended, moment),
        numbers(rows["core"]),
        numbers(rows["lost_core_s"]),
        {name: codes for name, (codes, _) in coded.items()},
        {name: texts for name, (_, texts) in coded.items()},
    )
