"""The text of the metrics: valid by the parser of prometheus_client, and rendered no more often than it changes."""

import gzip
import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain
from tests.present.metrics.ticks import Watched, cpu, events

from exhume.model.tables import Events
from exhume.present.metrics.exposition import RenderedMetrics, accepts_gzip, format_value, negotiate, render
from exhume.present.metrics.families import COUNTER, FAMILIES, INFO, families_table

PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
STRANGE = 'un"it\\with\n\tëverything\udcff.service'


def watched() -> Watched:
    restart = Events(2_000_000_000_000, "systemd", "unit-restarted", "info", "", comm=STRANGE, value=1.0)
    return Watched(missing=["systemd"]).tick(cpu=cpu({"system": 1000}, {}), events=events(restart))


def test_openmetrics_is_valid_and_whole() -> None:
    text = render(watched().observer.read()).decode()
    found = {family.name: family for family in parse_openmetrics(text)}
    assert text.endswith("# EOF\n")
    for family in FAMILIES:
        if family.name in found:
            parsed = found[family.name]
            assert (parsed.type, parsed.unit, parsed.documentation) == (family.kind, family.unit, family.help)
    (sample,) = [s for s in found["exhume_restarts"].samples if s.labels["kind"] == "unit"]
    assert sample.name == "exhume_restarts_total"
    assert sample.labels["name"] == STRANGE.replace("\udcff", "?")
    assert sample.value == 1


def test_the_plain_format_has_the_same_values() -> None:
    snapshot = watched().observer.read()
    new = {
        (s.name, *s.labels.items()): s.value for m in parse_openmetrics(render(snapshot).decode()) for s in m.samples
    }
    old_text = render(snapshot, openmetrics=False).decode()
    old = {(s.name, *s.labels.items()): s.value for m in parse_plain(old_text) for s in m.samples}
    assert new == old
    assert "# EOF" not in old_text
    assert "# TYPE exhume_build_info gauge" in old_text
    assert "# TYPE exhume_core_stall_seconds_total counter" in old_text


def test_names_follow_the_conventions() -> None:
    for family in FAMILIES:
        assert re.fullmatch(r"exhume_[a-z0-9_]+", family.name)
        assert not family.unit or family.name.endswith(f"_{family.unit}")
        assert not family.name.endswith("_total")
        assert (family.kind == INFO) == bool(family.kind == INFO and not family.unit)
        assert family.kind == COUNTER or not family.sample.endswith("_total")
        assert "pid" not in family.labels
        assert family.help.endswith(".")
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.0, "1"), (0, "0"), (0.25, "0.25"), (float("inf"), "+Inf"), (1e20, "1e+20"), (-2.0, "-2"), (True, "1")],
)
def test_values(value: float, expected: str) -> None:
    assert format_value(value) == expected


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        (PROMETHEUS_ACCEPT, True),
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text;q=0.3, text/plain;q=0.9", False),
        ("application/openmetrics-text; version=1.0.0; q=0.9, text/plain;q=0.5", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nonsense", False),
    ],
)
def test_the_format_is_negotiated(accept: str, openmetrics: bool) -> None:
    assert negotiate(accept) is openmetrics


@pytest.mark.parametrize(
    ("header", "compressed"),
    [("gzip", True), ("deflate, gzip;q=1.0, *;q=0.5", True), ("", False), ("br", False), ("gzip;q=0", False)],
)
def test_compression_is_negotiated(header: str, compressed: bool) -> None:
    assert accepts_gzip(header) is compressed


def test_it_is_rendered_once_a_second_for_each_form() -> None:
    now, reads = [10.0], [0]
    observer = watched().observer

    def read():
        reads[0] += 1
        return observer.read()

    metrics = RenderedMetrics(read, lambda: now[0])
    plain = metrics.get(openmetrics=True, compressed=False)
    for _ in range(100):
        assert metrics.get(openmetrics=True, compressed=False) is plain
        assert gzip.decompress(metrics.get(openmetrics=True, compressed=True)) == plain
    assert reads == [1]
    now[0] = 11.0
    metrics.get(openmetrics=True, compressed=True)
    assert reads == [2]


def test_the_document_has_every_family() -> None:
    document = Path(__file__).parents[3] / "docs/metrics.md"
    assert families_table() in document.read_text()
