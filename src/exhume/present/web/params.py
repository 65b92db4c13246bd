"""The parameters of each endpoint: parsed and validated in one place, documented in /api/openapi.json."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from exhume.model.errors import ExhumeError

if TYPE_CHECKING:
    # Workers parse no requests and do not load Starlette.
    from starlette.datastructures import QueryParams as RawParams

# The latest time that a JavaScript Date can represent.
LAST_MS = 8_640_000_000_000_000
MAX_CORES = 65_536
MAX_CELLS = 4000
MAX_TEXT, MAX_NAME = 500, 4000
MAX_EVENTS = 5000
#: The longest window whose samples are sent individually.
MAX_SLICES_MS = 30_000
MAX_PROCESSES = 10_000
NOT_COMPARED = "there is no second recording: start the server with exhume serve --compare-with DIR"
# Requests for longer windows read a lot, so they use a separate queue.
LONG_MS = 300_000
#: Marks a parameter without a default.
REQUIRED = object()
_NUMBERS = {int: re.compile(r"-?[0-9]{1,20}"), float: re.compile(r"-?[0-9]{0,20}\.?[0-9]{1,20}([eE][-+]?[0-9]{1,3})?")}
_JSON_TYPES = {int: "integer", float: "number", str: "string"}

Measure = Literal[
    "unusual", "stall", "deviation", "busy", "system", "user", "softirq", "irq", "iowait", "steal", "wait"
]
Baseline = Literal["none", "before", "others", "window", "other"]
Which = Literal["this", "other"]
Format = Literal["folded", "pprof", "speedscope", "svg", "html"]
Grouping = Literal["process", "program", "container", "pod"]
Kind = Literal["kernel", "user"]
FrameKind = Literal["kernel", "user", "jit", "comm", ""]


class Refusal(ExhumeError):
    """A request that is answered with an error status and a sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True, slots=True)
class Rule:
    """What a parameter accepts: `low` and `high` bound a number, or the length of a text. A parameter with `most` may
    be repeated. `extra` is additional JSON schema for constraints that the handler checks itself."""

    default: Any = None
    kind: Any = str
    low: float = 0
    high: float = MAX_TEXT
    choices: tuple[str, ...] = ()
    most: int = 0
    about: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    def parse(self, given: list[str]) -> Any:
        """Parse the given values. Raises ValueError stating what is accepted."""
        if not self.most:
            return self._parse_one(given[-1])
        if len(given) > self.most:
            raise ValueError(f"must not be given over {self.most:,} times")
        return tuple(map(self._parse_one, given))

    def _parse_one(self, text: str) -> Any:
        if self.choices:
            if text not in self.choices:
                raise ValueError(f"must be one of {', '.join(filter(None, self.choices))}")
            return text
        if self.kind is str:
            if len(text) > self.high:
                raise ValueError(f"must not be longer than {self.high:,} characters")
            return text
        value: float | None = self.kind(text) if _NUMBERS[self.kind].fullmatch(text) else None
        if value is None or not self.low <= value <= self.high:
            raise ValueError(f"must be a number from {self.low:,} to {self.high:,}")
        return value

    def json_schema(self) -> dict[str, Any]:
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        bounds = {"maxLength": self.high} if self.kind is str else {"minimum": self.low, "maximum": self.high}
        one = {"type": _JSON_TYPES[self.kind], **bounds, **self.extra}
        return {"type": "array", "items": one, "maxItems": self.most} if self.most else one


def param(default: Any = None, **rule: Any) -> Any:
    """Declare a parameter of an endpoint as a class attribute."""
    return Rule(default, **rule)


def _time() -> Any:
    return param(kind=int, high=LAST_MS, about="wall time, milliseconds since 1970")


def _cells(default: int) -> Any:
    return param(default, kind=int, low=1, high=MAX_CELLS, about="columns to pool the time into")


class QueryParams:
    """Base class of all parameter sets, itself used for endpoints without parameters. Hashable, so that equal requests
    share a job, and picklable as they are for the workers. An instance holds what was given; defaults are class
    attributes."""

    # Dataclasses would do the same, but compiling their methods takes 20 ms of each start.
    rules: ClassVar[Mapping[str, Rule]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Rule)}
        cls.rules = {**cls.rules, **own}
        for name, rule in own.items():
            setattr(cls, name, rule.default)

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))

    @classmethod
    def parse(cls, query: "RawParams", path: Mapping[str, str]) -> Self:
        """Parse a query string. Raises Refusal (422) that lists all invalid values in one sentence."""
        values, wrong = {}, []
        for name, rule in cls.rules.items():
            given = [path[name]] if name in path else query.getlist(name)
            try:
                if given:
                    values[name] = rule.parse(given)
                elif rule.default is REQUIRED:
                    raise ValueError("is required")
            except ValueError as error:
                wrong.append(f"{name}: {error}")
        if wrong:
            raise Refusal(422, "; ".join(wrong))
        return cls(**values)

    @property
    def long(self) -> bool:
        """Whether handling the request reads a lot."""
        return False


class RecordingParams(QueryParams):
    recording: Which = param(
        "this", choices=get_args(Which), about="other: the recording that the server was started to compare with"
    )


class TimeParams(RecordingParams):
    since: int | None = _time()
    until: int | None = _time()

    def is_over(self, most_ms: int) -> bool:
        """Whether the window is longer than this; a window without an end is assumed to be."""
        return self.since is None or self.until is None or self.until - self.since > most_ms


class CpusParams(TimeParams):
    cpus: str | None = param(
        about="cores, such as 0,3-7; all by default",
        extra={"pattern": "^(|[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*)$"},
    )


class FilterParams(CpusParams):
    comm: str | None = param(about="only threads of this name")
    pid: int | None = param(kind=int, high=2**31 - 1)
    container: str | None = param(about="only containers whose id or name starts with this")
    pod: str | None = param(about="only pods whose id, namespace/name or name starts with this")
    # No "format": "regex" in the JSON schema, which would mean ECMAScript syntax: RE2 accepts a different one.
    stack: str | None = param(about="only stacks with a frame that this RE2 expression matches")
    kind: Kind | None = param(choices=get_args(Kind), about="where the sample was taken")


class SamplesParams(FilterParams):
    """Parameters of endpoints that read every sample."""

    @property
    def long(self) -> bool:
        return self.is_over(LONG_MS)


class CoresParams(SamplesParams):
    cells: int = _cells(1000)
    measure: Measure = param("busy", choices=get_args(Measure))

    @property
    def long(self) -> bool:
        filtered = any((self.comm, self.pid is not None, self.container, self.pod, self.stack, self.kind))
        return filtered and super().long


class SlicesParams(FilterParams):
    """A window of at most `MAX_SLICES_MS`."""


class CellParams(RecordingParams):
    at: int = param(REQUIRED, kind=int, high=LAST_MS)
    cpu: int = param(REQUIRED, kind=int, high=MAX_CORES - 1)
    span: int = param(1000, kind=int, low=1, high=86_400_000, about="milliseconds from `at` on")
    measure: Measure = param("busy", choices=get_args(Measure))


class LanesParams(TimeParams):
    cells: int = _cells(1000)
    names: str | None = param(about="lanes, separated by commas; all by default")


class EventsParams(FilterParams):
    kinds: str | None = param(about="kinds, separated by commas; all by default")
    text: str | None = param(about="only events whose text contains this")
    limit: int = param(500, kind=int, low=1, high=MAX_EVENTS)


class MarksParams(FilterParams):
    cells: int = _cells(400)


class BaselineParams(SamplesParams):
    baseline: Baseline = param(
        "none",
        choices=get_args(Baseline),
        about="before: the same cores earlier; others: the other cores; window: base_since to base_until; other: the"
        " same of the recording to compare with",
    )
    base_since: int | None = _time()
    base_until: int | None = _time()


class FlameParams(BaselineParams):
    least: float = param(1 / 20_000, kind=float, high=1, about="frames below this share are dropped")


class ExportParams(BaselineParams):
    form: Format = param(REQUIRED, choices=get_args(Format))
    root: tuple[str, ...] = param((), high=MAX_NAME, most=500, about="the frames down to the new root")
    hide: tuple[str, ...] = param((), high=MAX_NAME, most=100, about="frames to drop with their callees")
    up: int = param(0, kind=int, low=0, high=1, about="1 draws the root at the bottom (svg)")


class SubsecondParams(SamplesParams):
    column_ms: int = param(1000, kind=int, low=100, high=60_000, about="milliseconds of a column")
    rows: int = param(50, kind=int, low=1, high=1000, about="parts that a column is divided into")


class ProcessesParams(SamplesParams):
    by: Grouping = param("process", choices=get_args(Grouping), about="what the CPU time is summed by")
    limit: int = param(100, kind=int, low=1, high=MAX_PROCESSES)


class InterruptsParams(CpusParams):
    limit: int = param(100, kind=int, low=1, high=1000)

    @property
    def long(self) -> bool:
        return self.is_over(LONG_MS)


class FrameTimesParams(SamplesParams):
    name: str = param(REQUIRED, high=MAX_NAME)
    module: str | None = param()
    kind_of_frame: FrameKind = param("kernel", choices=get_args(FrameKind))
    cells: int = _cells(1000)


class DiagnosisParams(TimeParams):
    at: int | None = _time()
    incident: str | None = param(about="the id of an incident: its own diagnosis, whatever the times")
    long = True


class ProgressParams(QueryParams):
    requests: str = param("", high=1000, about="names, separated by commas, that requests have in X-Exhume-Request")


class MomentParams(RecordingParams):
    """Parameters of the internal job that diagnoses one incident: wall nanoseconds."""

    since: int
    until: int
    at: int
    trigger: str | None = None
    long = True


class FilesParams(QueryParams):
    """Parameters of the internal job that looks for damaged files: the name of the last segment checked."""

    after: str = ""
    long = True
