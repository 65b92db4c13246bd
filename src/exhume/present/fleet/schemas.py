"""The shapes of the fleet page's answers. Times are milliseconds of wall time since 1970; an hour is its first one.

Cells and attributes are columns over the roster: the sorted names of the nodes that an hour has, identified by a hash.
"""

from typing import Literal

from typing_extensions import TypedDict


class MeasureShape(TypedDict):
    """A measure that nodes are coloured by. `fold` is how the minutes of an hour are one value; `full` is the value of
    the strongest colour; `hue` a CPU state, or empty for the colour of text."""

    name: str
    title: str
    unit: str
    fold: Literal["max", "sum"]
    full: float
    scale: Literal["linear", "log"]
    hue: str


class DamagedFile(TypedDict):
    """A file of the lake that could not be read."""

    file: str
    reason: str


class FleetShape(TypedDict):
    """The lake as a whole: the hours that it has summaries of, in order, and the files that could not be read so
    far."""

    version: int
    lake: str
    hours: list[int]
    measures: list[MeasureShape]
    damaged: list[DamagedFile]


class CellsHeader(TypedDict):
    """The header of `/api/cells`. Behind it is an array of 32-bit floats for each of `measures`, one value for each
    node of the roster; NaN where a node sent nothing. `names` is null where the client knows this roster; `silent`
    counts the nodes that the lake knows and that sent nothing in this hour."""

    at: int
    roster: str
    nodes: int
    names: list[str] | None
    measures: list[str]
    silent: int
    damaged: int


class AttributeColumn(TypedDict):
    """An attribute of each node: `width` bytes for each at `offset` behind the header, little-endian: 0 where the node
    does not have it, else an index into `values` plus one. With a `width` of 0 every node has the only value."""

    key: str
    values: list[str]
    width: int
    offset: int


class AttributesHeader(TypedDict):
    """The header of `/api/attributes`, of the roster's nodes at the end of the hour. `keys` are all keys of the lake,
    where all were requested; those without a column are read on request."""

    at: int
    roster: str
    nodes: int
    columns: list[AttributeColumn]
    keys: list[str]


class FleetHistogramShape(TypedDict):
    """Incidents that began in each hour."""

    hours: list[int]
    incidents: list[int]


class FleetIncident(TypedDict):
    """An incident of a node. `bundle`: its recording can be opened at `/node/NODE/incident/ID/`."""

    node: str
    id: str
    at: int
    until: int | None
    cause: str | None
    severity: str | None
    confidence: float | None
    core: int | None
    function: str | None
    process: str | None
    culprit: str | None
    leaker: str | None
    lost_core_s: float | None
    summary: str | None
    bundle: bool


class CauseCount(TypedDict):
    cause: str
    incidents: int
    nodes: int


class FleetIncidentsShape(TypedDict):
    """The newest incidents first, `limit` of `total`. `causes` counts those of every cause, whichever was requested."""

    incidents: list[FleetIncident]
    total: int
    causes: list[CauseCount]


class NodeSeries(TypedDict):
    measure: str
    values: list[float | None]


class NodeShape(TypedDict):
    """One node: its minutes in the hour, and what it is at the end of it."""

    node: str
    at: int
    minutes: list[int]
    series: list[NodeSeries]
    attributes: dict[str, str]


class ConditionShape(TypedDict):
    key: str
    value: str


class SeparatorShape(TypedDict):
    """An attribute value, or a pair of them, that separates sick nodes from healthy ones: how much more often nodes
    with it are sick (`risk_ratio`, with its 95 % interval), corrected for the many that were tried (`q`); `coverage`
    is the share of the sick nodes that have it. `same_nodes` counts other attributes that explain it as well;
    `explained`: nothing is left of it once the first one is accounted for."""

    conditions: list[ConditionShape]
    cause: str
    nodes: int
    sick: int
    risk_ratio: float | None
    low: float | None
    high: float | None
    q: float
    coverage: float
    same_nodes: int
    explained: bool


class CommonCause(TypedDict):
    """The cause that most sick nodes found themselves, and whom they name most often."""

    cause: str
    nodes: int
    incidents: int
    leaker: str
    culprit: str
    function: str


class FleetChange(TypedDict):
    """An attribute that changed on sick nodes before their first incident."""

    key: str
    before: str
    value: str
    sick: int
    of_sick: int


class AtRiskNode(TypedDict):
    """A node that will have an incident: when, by the best estimate."""

    node: str
    at: int


class FleetStepShape(TypedDict):
    text: str
    command: str
    nodes: int


class FailedJobs(TypedDict):
    """Of `failed` jobs, `explained` had a member on a node with an incident within `within_s` before: their `share`
    with its 95 % interval, how many would by chance, and the probability of at least as many."""

    failed: int
    explained: int
    within_s: int
    share: float
    low: float
    high: float
    expected: float
    p: float


class FleetClusters(TypedDict):
    """An attribute by whose values sick nodes cluster: how many values it has, those that are sick, and the share of
    the sick nodes in them."""

    key: str
    values: int
    sick: list[str]
    coverage: float


class FleetReportShape(TypedDict):
    """The lake's report. `state` is `computing` while the first one is computed, `failed` where `detail` says why there
    is none. `uptime_days` is when first incidents come after boot, the middle 80 % of them."""

    state: Literal["computing", "ready", "failed"]
    detail: str
    since: int | None
    until: int | None
    nodes: int
    sick: int
    tried: int
    separators: list[SeparatorShape]
    common: CommonCause | None
    uptime_days: tuple[float, float] | None
    onset: int | None
    changes: list[FleetChange]
    at_risk: list[AtRiskNode]
    at_risk_total: int
    clusters: list[FleetClusters]
    jobs: FailedJobs | None
    steps: list[FleetStepShape]
    blind_spots: list[str]
