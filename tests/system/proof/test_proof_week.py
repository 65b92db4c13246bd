"""A week of a node, asked for as a whole: each answer keeps to the memory that one request may take, or is refused."""

import os
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.present.web.test_serve_command import link_of, started
from tests.system.fuzz.test_fuzz_queries import Server

from exhume.lab.synth import write_synthetic
from exhume.present.web.handle import MAX_SAMPLES
from exhume.present.web.worker import JOB_BYTES
from exhume.store.format.names import SegmentName
from exhume.store.read.core_grid import OVERVIEW_FILE

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.alone]

MINUTES = 7 * 24 * 60
# Synthetic minutes, which come again and again: the same samples at another time.
DISTINCT = 10
# What the interpreter and its libraries take beyond that.
PROGRAM_KB = 150 << 10
LONGEST_S = 600
QUERIES = (
    "recording",
    "cores",
    "events?limit=5000",
    "flame",
    "processes",
    "export/html",
    "subsecond?column_ms=60000",
    "diagnosis",
)


def repeat(directory: Path, week: Path) -> None:
    """Link the segments of a recording to so many minutes that they are a week. Only the wall time in a segment's
    name is another, which moves all of its rows."""
    segments = sorted(path for path in directory.iterdir() if SegmentName.parse(path.name) is not None)
    first = SegmentName.parse(segments[0].name)
    assert first is not None
    (week / "live").mkdir(parents=True)
    for minute in range(MINUTES):
        source = segments[minute % len(segments)]
        name = SegmentName.parse(source.name)
        assert name is not None
        target = week / str(replace(name, wall_ms=first.wall_ms + minute * 60_000))
        target.mkdir()
        for file in source.iterdir():
            # An overview names its segment.
            if file.name != OVERVIEW_FILE:
                os.link(file, target / file.name)


@pytest.fixture(params=[8, 16])
def week(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, bool]:
    """A week, and whether one answer may read all of its samples."""
    written = write_synthetic(tmp_path / "minutes", cores=request.param, hours=DISTINCT / 60, seed=5)
    repeat(tmp_path / "minutes", tmp_path / "week")
    return tmp_path / "week", written.samples * MINUTES // DISTINCT <= MAX_SAMPLES


@pytest.fixture
def server(week: tuple[Path, bool]) -> Iterator[Server]:
    with started("serve", "--dir", str(week[0]), "--no-open", "--listen", "127.0.0.1:0") as process:
        yield Server(process, urlsplit(link_of(process)).port)


@pytest.mark.timeout(3600)
def test_no_request_about_a_week_takes_more_than_one_may(week: tuple[Path, bool], server: Server) -> None:
    statuses: dict[str, int] = {}
    largest: dict[str, int] = {}
    for query in QUERIES:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=LONGEST_S)
        connection.request("GET", f"/api/{query}")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        statuses[query] = answer.status
        largest[query] = max(server.memory_kb().values())
    print({query: (statuses[query], largest[query] >> 10) for query in QUERIES})
    assert max(largest.values()) < JOB_BYTES // 1024 + PROGRAM_KB
    assert set(statuses.values()) <= {200, 413}
    assert {statuses[query] for query in ("flame", "processes", "export/html")} == ({200} if week[1] else {413})
    assert {statuses[query] for query in ("recording", "cores", "events?limit=5000")} == {200}
    assert statuses["diagnosis"] == statuses["subsecond?column_ms=60000"] == 413
