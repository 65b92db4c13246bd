"""Metrics as text: OpenMetrics 1.0, and the Prometheus text format that preceded it.

prometheus_client is not used: it takes 10 µs per series and 2.7 MB (0.26 on Python 3.11), which for the 500 series of
a large node is the whole CPU budget of a scrape. The tests parse this module's output with its parser.
"""

import gzip
import math
import time
from collections.abc import Callable
from functools import lru_cache

from exhume.present.metrics.families import INFO, Family
from exhume.present.metrics.values import Labels, Snapshot

OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
# Speed matters more than the last percent of compression.
_GZIP_LEVEL = 1


def render(snapshot: Snapshot, *, openmetrics: bool = True) -> bytes:
    """Render all families that have series."""
    parts: list[str] = []
    for family, series in snapshot:
        if not series:
            continue
        parts.append(_header(family, openmetrics))
        sample, names = family.sample, family.labels
        for labels, value in series:
            parts.append(f"{sample}{_labels(names, labels)} {format_value(value)}\n")
    if openmetrics:
        parts.append("# EOF\n")
    # cgroup names are arbitrary bytes; those that are not UTF-8 were decoded with surrogates.
    return "".join(parts).encode("utf-8", "replace")


def format_value(value: float) -> str:
    """A number in the form that both formats use."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def negotiate(accept: str) -> bool:
    """Whether to send OpenMetrics, according to the Accept header of a request."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *params = (each.strip() for each in part.split(";"))
        weight = next((each[2:] for each in params if each.startswith("q=")), "1")
        if kind in weights and weight.replace(".", "", 1).isdigit():
            weights[kind] = max(weights[kind], float(weight))
    openmetrics, plain = weights.values()
    return openmetrics > 0 and openmetrics >= plain


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a response may be compressed."""
    parts = [part.replace(" ", "").partition(";") for part in accept_encoding.lower().split(",")]
    return any(
        name in ("gzip", "*") and params not in ("q=0", "q=0.0", "q=0.00", "q=0.000") for name, _, params in parts
    )


class RenderedMetrics:
    """The metrics as bytes, rendered at most once a second per format, however often they are scraped."""

    def __init__(self, read: Callable[[], Snapshot], clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._second = -1
        self._forms: dict[tuple[bool, bool], bytes] = {}

    def get(self, *, openmetrics: bool, compressed: bool) -> bytes:
        second = int(self._clock())
        if second != self._second:
            self._second, self._forms = second, {}
        form = openmetrics, compressed
        if form not in self._forms:
            if compressed:
                self._forms[form] = gzip.compress(self.get(openmetrics=openmetrics, compressed=False), _GZIP_LEVEL)
            else:
                self._forms[form] = render(self._read(), openmetrics=openmetrics)
        return self._forms[form]


@lru_cache(maxsize=256)
def _header(family: Family, openmetrics: bool) -> str:
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if not openmetrics:
        kind = "gauge" if family.kind == INFO else family.kind
        return f"# HELP {family.sample} {text}\n# TYPE {family.sample} {kind}\n"
    unit = f"# UNIT {family.name} {family.unit}\n" if family.unit else ""
    return f"# TYPE {family.name} {family.kind}\n{unit}# HELP {family.name} {text}\n"


@lru_cache(maxsize=1024)
def _labels(names: tuple[str, ...], values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}"
