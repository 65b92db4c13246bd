"""The parameters of the fleet page's endpoints and of jobs over an incident's bundle."""

from exhume.present.fleet.measures import BY_NAME
from exhume.present.web.params import MAX_EVENTS, REQUIRED, QueryParams, Refusal, param

# Node names are host names (RFC 1123); attribute keys and values have the limits of the lake.
MAX_NODE, MAX_KEY = 253, 200
# The end of 9998: partitions have dates, and Python's dates end with the year after that.
LAST_MOMENT = 253_370_764_799_999
MAX_KEYS = 64
_NAMES = "|".join(BY_NAME)


class HourParams(QueryParams):
    at: int | None = param(
        kind=int, high=LAST_MOMENT, about="a moment of the hour, milliseconds since 1970; the newest by default"
    )
    known: str | None = param(high=64, about="the `roster` whose names the client has: they are not sent again")


class CellsParams(HourParams):
    measures: str | None = param(
        about="names of measures, separated by commas; all by default",
        extra={"pattern": f"^(|({_NAMES})(,({_NAMES}))*)$"},
    )

    @property
    def names(self) -> list[str]:
        """The requested measures, all by default. Raises Refusal for an unknown name."""
        requested = [name for name in (self.measures or "").split(",") if name]
        unknown = [name for name in requested if name not in BY_NAME]
        if unknown:
            raise Refusal(422, f"measures: {unknown[0][:100]!r} is none; choose from {', '.join(BY_NAME)}")
        return requested or list(BY_NAME)


class AttributesParams(HourParams):
    keys: tuple[str, ...] = param(
        (), high=MAX_KEY, most=MAX_KEYS, about="keys of attributes; without any, all keys, and the columns of the usual"
    )

    @property
    def long(self) -> bool:
        return not self.keys


class IncidentsParams(QueryParams):
    since: int | None = param(kind=int, high=LAST_MOMENT)
    until: int | None = param(kind=int, high=LAST_MOMENT)
    key: str | None = param(high=MAX_KEY, about="only nodes with `value` of this attribute at the end of the time")
    value: str | None = param(high=MAX_KEY, about="an empty one: only nodes without the attribute")
    node: str | None = param(high=MAX_NODE)
    cause: str | None = param()
    limit: int = param(200, kind=int, low=1, high=MAX_EVENTS)


class NodeParams(QueryParams):
    name: str = param(REQUIRED, high=MAX_NODE)
    at: int | None = param(kind=int, high=LAST_MOMENT)


class HistogramParams(QueryParams):
    long = True


class BundlePathParams(QueryParams):
    """Parameters of the internal job that finds, and if necessary fetches, the bundle of an incident."""

    node: str = param(REQUIRED, high=MAX_NODE)
    incident: str = param(REQUIRED, high=MAX_KEY)
    long = True


class BundleParams(QueryParams):
    """Parameters of the internal jobs that read an unpacked bundle: a request to the recording page."""

    directory: str
    inner: QueryParams

    @property
    def long(self) -> bool:
        return self.inner.long
