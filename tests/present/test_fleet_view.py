"""A fleet report in the terminal and as a page: it fits, and what the lake holds is shown as text."""

from dataclasses import replace
from datetime import UTC
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests.fleet.lakes import minutes, plan, planted, report_of, write_rows

from exhume.fleet.cohort.separators import Condition
from exhume.fleet.report import FleetReport
from exhume.present.fleet_view import conditions_text, headline, parts, report_json, verdict
from exhume.present.html.fleet import fleet_report
from exhume.present.terminal.fleet import fleet_lines, print_fleet_report


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> FleetReport:
    directory = tmp_path_factory.mktemp("view") / "lake"
    planted(directory, plan(200, 1.0, seed=4))
    return report_of(directory, 1.0)


@pytest.mark.parametrize("width", [80, 100])
def test_it_fits_the_terminal(found: FleetReport, width: int):
    lines = [line.plain for line in fleet_lines(found, UTC, width)]
    assert [line for line in lines if len(line) > width] == []
    titles = {"what sets sick nodes apart", "what it is", "by uptime", "failed jobs", "what to do", "by zone"}
    assert titles <= set(lines)
    # What it is and what to do are on the first screen.
    assert lines.index("what it is") < lines.index("what to do") < 12


def test_a_long_attribute_keeps_its_value(found: FleetReport):
    assert found.separators
    long = replace(found.separators[0], conditions=(Condition("sysctl." + "x" * 80, "128"),))
    changed = replace(found, separators=(found.separators[0], long))
    lines = [line.plain for line in fleet_lines(changed, UTC, 80)]
    assert any("sysctl." in line and "x 128 " in line for line in lines)
    assert [line for line in lines if len(line) > 80] == []


def test_sick_by_a_cause_is_not_sick_by_any(found: FleetReport):
    assert found.first is not None
    by_cause = replace(found, separators=(replace(found.first, cause="zombie-memcgs"),))
    assert f"{found.first.sick} of {found.first.nodes} nodes have it" in headline(by_cause)
    assert (
        "nodes have zombie-memcgs"
        in next(part for part in parts(by_cause, UTC) if part.title == "what sets sick nodes apart").sentences[0]
    )
    any_cause = replace(found, separators=(replace(found.first, cause=""),))
    assert f"{found.first.sick} of {found.first.nodes} nodes are sick" in headline(any_cause)


def test_the_headline_names_leaker_and_place(found: FleetReport):
    assert headline(found).startswith("zombie-memcgs of ecs-agent on image ami-0b22 in zone b: ")
    assert found.first is not None
    assert conditions_text(found.first.conditions[:1]) == "image ami-0b22"


def test_a_pipe_gets_no_escape_sequences(found: FleetReport):
    file = StringIO()
    print_fleet_report(Console(file=file, width=80, soft_wrap=True), found, UTC)
    assert "\x1b" not in file.getvalue() and "SEPARATED" in file.getvalue()


def test_attributes_on_request_are_shown_whole(found: FleetReport):
    team = next(part for part in parts(found, UTC, ["label.team"]) if part.title == "by label.team")
    assert len(team.rows) == 12
    assert not [part for part in parts(found, UTC) if part.title == "by label.team"]


def test_what_nodes_are_named_is_text(tmp_path: Path):
    name = "<script>alert(1)</script>\x1b[31m"
    write_rows(tmp_path, "summaries", minutes(name, 60) + minutes("b", 60))
    incident = {"id": "1", "cause": "<b>", "severity": "critical", "leaker": name}
    write_rows(tmp_path, "incidents", [{"node": name, "at": 60, **incident}])
    found = report_of(tmp_path)
    page = fleet_report(found, UTC)
    assert "<script" not in page and "\x1b" not in page and "&lt;script&gt;" in page
    assert "\x1b" not in "".join(line.plain for line in fleet_lines(found, UTC, 80))


@pytest.mark.slow
def test_clusters_are_named_and_what_goes_with_them_is_not_claimed(tmp_path: Path):
    planted(tmp_path / "lake", plan(400, 0.1, seed=3, cause=False, clusters="rack", cluster_size=16))
    found = report_of(tmp_path / "lake", 0.1)
    assert verdict(found) == "clustered" and "label.rack" in headline(found)
    lines = [line.plain for line in fleet_lines(found, UTC, 80)]
    assert [line for line in lines if len(line) > 80] == []
    assert any("in clusters by label.rack" in line for line in lines)
    shape = report_json(found, UTC)
    assert shape["verdict"] == "clustered" and shape["separators"] == []
    assert shape["clusters"][0].keys() == {"key", "clusters", "sick", "coverage", "spread", "p"}
    assert all(each.keys() == {"key", "value"} for each in shape["unproven"])
