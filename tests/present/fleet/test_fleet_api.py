"""Every answer of the fleet page's server is what the lake says."""

import shutil
import struct
from collections import Counter
from datetime import timedelta

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.present.fleet.conftest import HOST
from tests.present.fleet.small_lake import (
    MINUTES,
    NODES,
    SILENT,
    hour_at,
    is_sick,
    minutes_of,
    ms,
    summary,
    write_rows,
    zone_of,
)
from tests.present.web.wire import header_of

from exhume.present.fleet.app import create_app
from exhume.present.fleet.measures import MEASURES
from exhume.present.web.guard import Rules

ROSTER = sorted([*NODES, SILENT])


def cells(answer):
    """(header, values by measure and node)."""
    header = header_of(answer)
    start = 4 + struct.unpack_from("<I", answer.content)[0]
    names = header["names"] or ROSTER
    columns = np.frombuffer(answer.content, np.float32, offset=start).reshape(-1, header["nodes"])
    values = [dict(zip(names, column, strict=True)) for column in columns]
    return header, dict(zip(header["measures"], values, strict=True))


def attributes(answer):
    """(header, value by key and node; None where it has none)."""
    header = header_of(answer)
    start = 4 + struct.unpack_from("<I", answer.content)[0]
    found = {}
    for column in header["columns"]:
        if column["width"] == 0:
            codes = [1] * header["nodes"]
        else:
            kind = np.dtype(f"<u{column['width']}")
            codes = np.frombuffer(answer.content, kind, header["nodes"], start + column["offset"])
        values = [None, *column["values"]]
        found[column["key"]] = dict(zip(ROSTER, (values[code] for code in codes), strict=True))
    return header, found


def test_the_lake_as_a_whole(client, lake):
    body = client.get("/api/fleet").json()
    assert body["hours"] == [lake.hour(i) for i in range(3)]
    assert [each["name"] for each in body["measures"]] == [each.name for each in MEASURES]
    assert body["damaged"] == []


def test_an_hour_has_one_value_per_node_and_measure(client, lake):
    header, values = cells(client.get(f"/api/cells?at={lake.hour(1) + 1234}"))
    assert (header["at"], header["names"], header["silent"]) == (lake.hour(1), ROSTER, 1)
    assert header["measures"] == [measure.name for measure in MEASURES]
    for node in NODES:
        assert values["longest_stall_s"][node] == (6.5 if is_sick(node) else 0.0)
        assert values["incidents"][node] == (3 if is_sick(node) else 0)
        assert values["memcgs_dying"][node] == 100 + MINUTES - 1
    assert all(np.isnan(column[SILENT]) for column in values.values())
    # A column that no file has is not zero.
    assert np.isnan(values["nic_resets"][NODES[0]])


def test_one_measure_of_the_newest_hour_without_the_names_that_are_known(client, lake):
    first, _ = cells(client.get("/api/cells?measures=memcgs_dying"))
    again, values = cells(client.get(f"/api/cells?measures=memcgs_dying&known={first['roster']}"))
    assert (again["at"], again["names"], again["measures"]) == (lake.hour(2), None, ["memcgs_dying"])
    assert values["memcgs_dying"][NODES[0]] == 200 + MINUTES - 1


def test_an_hour_without_summaries_has_only_silent_nodes(client, lake):
    header, values = cells(client.get(f"/api/cells?at={lake.hour(0) - 3_600_000}&measures=incidents"))
    assert header["silent"] == header["nodes"] == len(ROSTER)
    assert all(np.isnan(value) for value in values["incidents"].values())


def test_attributes_are_those_at_the_end_of_the_hour(client, lake):
    header, found = attributes(client.get(f"/api/attributes?at={lake.hour(1)}"))
    assert header["roster"] == header_of(client.get(f"/api/cells?at={lake.hour(1)}"))["roster"]
    assert header["keys"] == ["kernel", "os", "pool", "serial", "zone"]
    assert {node: found["zone"][node] for node in NODES} == {node: zone_of(node) for node in NODES}
    assert [found["pool"][node] for node in NODES[:3]] == ["p1", "p1", None]
    assert set(found["kernel"].values()) == {"6.1"}
    _, later = attributes(client.get(f"/api/attributes?at={lake.hour(2)}&keys=kernel&keys=pool&keys=nothing"))
    assert (later["kernel"][NODES[0]], later["kernel"][NODES[1]]) == ("6.12", "6.1")
    # An attribute that is gone is not set.
    assert (later["pool"][NODES[0]], later["pool"][NODES[1]]) == ("p1", None)
    assert set(later["nothing"].values()) == {None}


def test_incidents_are_the_newest_first_and_each_once(client, lake):
    body = client.get("/api/incidents").json()
    assert body["total"] == len(body["incidents"]) == 6
    moments = [each["at"] for each in body["incidents"]]
    assert moments == sorted(moments, reverse=True)
    assert Counter(each["id"] for each in body["incidents"]).most_common(1)[0][1] == 1
    # The row that was sent again has no bundle; the first one had.
    assert [(each["node"], each["id"]) for each in body["incidents"] if each["bundle"]] == [lake.with_bundle]
    assert {each["cause"]: (each["incidents"], each["nodes"]) for each in body["causes"]} == {
        "zombie-memcgs": (3, 3),
        "softirq-storm": (3, 3),
    }


def test_incidents_of_a_time_a_group_a_node_and_a_cause(client, lake):
    def found(query: str) -> list[str]:
        return sorted(each["id"] for each in client.get(f"/api/incidents?{query}").json()["incidents"])

    assert found("key=zone&value=b") == ["i-0", "i-1", "i-2", "i-3", "i-4"]
    assert found("key=zone&value=c") == ["i-escape"]
    assert found(f"key=pool&value=&until={lake.hour(2)}") == ["i-escape"]
    # Since then another node has lost the attribute.
    assert found("key=pool&value=") == ["i-0", "i-escape"]
    assert found("key=zone&value=nowhere") == []
    assert found(f"node={lake.with_bundle[0]}") == ["i-0"]
    assert found("cause=softirq-storm") == ["i-1", "i-3", "i-escape"]
    begin = ms(hour_at(1) + timedelta(minutes=2))
    assert found(f"since={begin + 2000}&until={begin + 4000}") == ["i-2", "i-3"]
    limited = client.get("/api/incidents?limit=2").json()
    assert (len(limited["incidents"]), limited["total"]) == (2, 6)


def test_the_histogram_counts_what_began_in_each_hour(client, lake):
    assert client.get("/api/histogram").json() == {"hours": [lake.hour(1)], "incidents": [6]}


def test_one_node_by_the_minute(client, lake):
    node = lake.with_bundle[0]
    body = client.get(f"/api/node?name={node}&at={lake.hour(1)}").json()
    rows = minutes_of(node, 1)
    assert body["minutes"] == [ms(row["minute"]) for row in rows]
    series = {each["measure"]: each["values"] for each in body["series"]}
    assert series["longest_stall_s"] == [row["longest_stall_s"] for row in rows]
    assert body["attributes"]["zone"] == "b"
    assert client.get(f"/api/node?name={SILENT}&at={lake.hour(1)}").json()["minutes"] == []
    assert client.get(f"/api/node?name=nobody&at={lake.hour(1)}").status_code == 404


@pytest.fixture
def own(lake, static, tmp_path):
    """A copy of the lake that a test may change, and a server over it."""
    directory = tmp_path / "lake"
    shutil.copytree(lake.directory, directory)
    with TestClient(create_app(directory, Rules(), static), base_url=HOST) as client:
        yield directory, client


def test_a_damaged_file_is_named_and_the_others_are_read(own, lake):
    directory, client = own
    (directory / "summaries/date=2026-07-14/hour=23/n-1.parquet").write_bytes(b"PAR1 and no more")
    header, values = cells(client.get(f"/api/cells?at={lake.hour(1)}&measures=memcgs_dying"))
    assert header["damaged"] == 1
    assert np.isnan(values["memcgs_dying"][NODES[0]]) and values["memcgs_dying"][NODES[25]] == 100 + MINUTES - 1
    (damaged,) = client.get("/api/fleet").json()["damaged"]
    assert damaged["file"] == "summaries/date=2026-07-14/hour=23/n-1.parquet"


def test_what_comes_later_is_read_and_compaction_changes_nothing(own, lake):
    directory, client = own
    folder = directory / "summaries/date=2026-07-15/hour=00"
    late = hour_at(2) + timedelta(minutes=40)
    before, _ = cells(client.get("/api/cells"))
    write_rows(folder / "late-1.parquet", [summary("node-new", late), summary(NODES[0], late, longest_stall_s=9.0)])
    after, values = cells(client.get("/api/cells"))
    assert "node-new" in after["names"] and after["roster"] != before["roster"]
    assert values["longest_stall_s"][NODES[0]] == 9.0
    # What is being written has another name.
    write_rows(folder / ".late-2.parquet", [summary("node-unready", late)])
    rows = [row for node in NODES for row in minutes_of(node, 2)]
    write_rows(folder / "compact-1.parquet", [*rows, summary("node-new", late)])
    for name in ("n-1", "m-1", "late-1"):
        (folder / f"{name}.parquet").unlink()
    compacted, values = cells(client.get("/api/cells"))
    assert compacted["roster"] == after["roster"]
    assert values["longest_stall_s"][NODES[0]] == 0.0
    assert values["memcgs_dying"][NODES[0]] == 200 + MINUTES - 1


def test_an_empty_lake_says_so(tmp_path, static):
    with TestClient(create_app(tmp_path, Rules(), static), base_url=HOST) as client:
        assert client.get("/api/fleet").json()["hours"] == []
        answer = client.get("/api/cells")
        assert answer.status_code == 404 and "--push" in answer.json()["detail"]
        assert client.get("/api/incidents").json()["total"] == 0


def test_the_page_and_what_is_refused(client):
    assert "a fleet" in client.get("/").text
    assert client.get("/api/cells?measures=nothing").status_code == 422
    assert client.get("/api/node").status_code == 422
    assert client.post("/api/fleet").status_code == 405
    paths = client.get("/api/openapi.json").json()["paths"]
    assert "/api/cells" in paths and "/api/report" in paths
