"""The nodes of a fleet over a window, as arrays: the course of each boot, attribute values, incidents.

Times are microseconds since 1970. Nodes, keys, values and names are encoded as indices into the lists of their texts.
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
# Attributes and incidents before the window are read as well: they give the attributes at its beginning, and the boots
# that were sick before.
LOOKED_BACK_NS = 30 * 86_400 * NANOS
SICK = (Severity.CRITICAL.value, Severity.WARNING.value)

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Course:
    """Each boot of each node in each step of the window: when it was first and last seen, its uptime in seconds,
    zombies and memory cgroups at the end, and the cost of a walk per cgroup. Sorted by node and time; NaN means
    unknown."""

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
        """The start of each row's boot; if the uptime is unknown, the start of the row."""
        uptime = np.where(np.isnan(self.uptime_low), 0.0, self.uptime_low)
        return self.first - (uptime * 1e6).astype(np.int64)


@dataclass(frozen=True)
class Values:
    """Attribute values, each valid from a moment on; sorted by node, key and moment. Value -1: the key was removed."""

    node: Ints
    key: Ints
    value: Ints
    moment: Ints
    keys: list[str]
    values: list[str]

    @cached_property
    def begins(self) -> Bools:
        """Marks the first row of each node and key."""
        return np.concatenate(([True], (np.diff(self.node) != 0) | (np.diff(self.key) != 0)))[: len(self.node)]

    def at(self, moments: Ints) -> tuple[Ints, Ints, Ints]:
        """Node, key and value of every attribute as of its node's entry in `moments`; for attributes that were first
        pushed later, their first value."""
        starts = np.flatnonzero(self.begins)
        if not len(starts):
            return self.node, self.key, self.value
        known = np.add.reduceat((self.moment <= moments[self.node]).astype(np.int64), starts)
        rows = starts + np.maximum(known - 1, 0)
        return self.node[rows], self.key[rows], self.value[rows]


@dataclass(frozen=True)
class Episodes:
    """Incidents in time order. `names` holds the texts of cause, severity, leaker, culprit, function and process by
    column; -1 is none."""

    node: Ints
    moment: Ints
    ended: Ints
    core: Floats
    lost_core_s: Floats
    codes: dict[str, Ints]
    names: dict[str, list[str]]

    def select(self, rows: Bools | Ints) -> "Episodes":
        """The incidents at the given indices, in that order."""
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
    """All data of the report. `episodes` are the incidents of the window, `earlier` those of some weeks before it;
    both contain only harmful ones (critical or warning). `clock_off` maps nodes whose clock the hub found wrong to the
    offset in seconds; `failures` are the members of failed jobs, as stored in the lake."""

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
        """The time of each node's first incident in the window; -1 for none."""
        return first_of(self.episodes, len(self.nodes))

    @cached_property
    def reference(self) -> Ints:
        """The moment as of which each node's attributes are compared: for a sick node its first incident, for the
        others the median of those, so that changes that happened on all nodes meanwhile set no node apart."""
        first = self.first_incident
        sick = first[first >= 0]
        usual = int(np.median(sick)) if len(sick) else self.window.until // 1000
        return np.where(first >= 0, first, usual)


def first_of(episodes: Episodes, nodes: int) -> Ints:
    found = np.full(nodes, np.iinfo(np.int64).max)
    np.minimum.at(found, episodes.node, episodes.moment)
    return np.where(found == np.iinfo(np.int64).max, -1, found)


def take_census(lake: Lake, window: Window, engine: Engine) -> Census:
    """Read the data of the report from a lake. Raises NoData for a window without nodes, LakeError, EngineError."""
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
    """The index of each value in a list; -1 if it is not there."""
    return whole(pc.index_in(column, value_set=listed))


def _coded(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """A text column as indices, and the sorted distinct texts."""
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
    # Nodes without summaries in the window have only attributes.
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
