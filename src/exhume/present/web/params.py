"""The parameters of each endpoint: parsed and validated once, documented in /api/openapi.json."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from exhume.present.web.reply import Refusal

if TYPE_CHECKING:
    # Workers parse no requests, and do not load Starlette.
    from starlette.datastructures import QueryParams as RawParams

# The last moment that a JavaScript Date can hold.
LAST_MS = 8_640_000_000_000_000
MAX_CORES = 65_536
MAX_CELLS = 4000
MAX_TEXT = 500
MAX_EVENTS = 5000
CPU_LIST = r"^(|[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*)$"
# Requests about more than this read much, and queue apart from the others.
LONG_MS = 300_000

Time = Annotated[int | None, Field(ge=0, le=LAST_MS, description="wall time, milliseconds since 1970")]
Text = Annotated[str | None, Field(max_length=MAX_TEXT)]
Cells = Annotated[int, Field(ge=1, le=MAX_CELLS, description="columns to pool the time into")]
Measure = Literal["busy", "system", "user", "softirq", "irq", "iowait", "steal", "wait"]
Baseline = Annotated[
    Literal["none", "before", "others", "window"],
    Field(description="before: the same cores earlier; others: the other cores; window: base_since to base_until"),
]
Format = Literal["folded", "pprof", "speedscope", "svg", "html"]
Frame = Annotated[str, StringConstraints(max_length=4000)]


class QueryParams(BaseModel):
    """Base of all parameters: hashable, so that equal requests are recognised, and sent to workers as they are."""

    # Validators are built with the first request: building all of them would delay the start.
    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def parse(cls, query: "RawParams", path: Mapping[str, Any]) -> Self:
        """Raises Refusal (422) with all values that are wrong in one sentence."""
        lists = {name for name, field in cls.model_fields.items() if field.annotation == tuple[Frame, ...]}
        values: dict[str, Any] = {name: query.getlist(name) if name in lists else query[name] for name in query}
        try:
            return cls.model_validate({**values, **path})
        except ValidationError as error:
            found = (f"{each['loc'][0]}: {each['msg'][:1].lower()}{each['msg'][1:]}" for each in error.errors())
            raise Refusal(422, "; ".join(found)) from None

    @property
    def long(self) -> bool:
        """Whether the answer reads much."""
        return False


class NoParams(QueryParams):
    """No parameters."""


class TimeParams(QueryParams):
    since: Time = None
    until: Time = None

    @property
    def long(self) -> bool:
        return self.since is None or self.until is None or self.until - self.since > LONG_MS


class FilterParams(TimeParams):
    cpus: Annotated[Text, Field(pattern=CPU_LIST, description="cores, such as 0,3-7; all by default")] = None
    comm: Annotated[Text, Field(description="only threads of this name")] = None
    pid: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    container: Annotated[Text, Field(description="only containers whose id or name starts with this")] = None
    pod: Annotated[Text, Field(description="only pods whose id, namespace/name or name starts with this")] = None
    stack: Annotated[
        Text,
        Field(
            description="only stacks with a frame that this RE2 expression matches",
            json_schema_extra={"format": "regex"},
        ),
    ] = None
    kind: Annotated[Literal["kernel", "user"] | None, Field(description="where the sample was taken")] = None


class CoresParams(FilterParams):
    cells: Cells = 1000
    measure: Measure = "busy"

    @property
    def long(self) -> bool:
        filtered = any((self.comm, self.pid is not None, self.container, self.pod, self.stack, self.kind))
        return filtered and super().long


class CellParams(QueryParams):
    at: Annotated[int, Field(ge=0, le=LAST_MS)]
    cpu: Annotated[int, Field(ge=0, lt=MAX_CORES)]
    span: Annotated[int, Field(ge=1, le=86_400_000, description="milliseconds from `at` on")] = 1000
    measure: Measure = "busy"


class LanesParams(TimeParams):
    cells: Cells = 1000
    names: Annotated[Text, Field(description="lanes, separated by commas; all by default")] = None

    @property
    def long(self) -> bool:
        return False


class EventsParams(FilterParams):
    kinds: Annotated[Text, Field(description="kinds, separated by commas; all by default")] = None
    text: Annotated[Text, Field(description="only events whose text contains this")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_EVENTS)] = 500

    @property
    def long(self) -> bool:
        return False


class MarksParams(FilterParams):
    cells: Cells = 400

    @property
    def long(self) -> bool:
        return False


class BaselineParams(FilterParams):
    baseline: Baseline = "none"
    base_since: Time = None
    base_until: Time = None


class FlameParams(BaselineParams):
    least: Annotated[float, Field(ge=0, le=1, description="frames below this share are dropped")] = 1 / 20_000


class ExportParams(BaselineParams):
    form: Format
    root: Annotated[tuple[Frame, ...], Field(max_length=500, description="the frames down to the new root")] = ()
    hide: Annotated[tuple[Frame, ...], Field(max_length=100, description="frames to drop with their callees")] = ()


class SubsecondParams(FilterParams):
    column_ms: Annotated[int, Field(ge=100, le=60_000, description="milliseconds of a column")] = 1000
    rows: Annotated[int, Field(ge=1, le=1000, description="parts that a column is divided into")] = 50


class ProcessesParams(FilterParams):
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class FrameTimesParams(FilterParams):
    name: Annotated[str, Field(max_length=4000)]
    module: Text = None
    kind_of_frame: Literal["kernel", "user", "jit", "comm", ""] = "kernel"
    cells: Cells = 1000


class DiagnosisParams(TimeParams):
    at: Time = None
    incident: Annotated[Text, Field(description="the id of an incident: its own diagnosis, whatever the times")] = None

    @property
    def long(self) -> bool:
        return True


class ProgressParams(QueryParams):
    requests: Annotated[
        str, Field(max_length=1000, description="names, separated by commas, that requests have in X-Exhume-Request")
    ] = ""


class MomentParams(QueryParams):
    """Of the internal job that diagnoses one incident: wall nanoseconds."""

    since: int
    until: int
    at: int

    @property
    def long(self) -> bool:
        return True


class FilesParams(QueryParams):
    """Of the internal job that looks for damaged files: the name of the last segment that was checked."""

    after: str = ""

    @property
    def long(self) -> bool:
        return True
