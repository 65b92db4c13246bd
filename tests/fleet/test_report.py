"""The report on small lakes: what is planted is found, what is damaged is named, what is missing is said."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.fleet.lakes import DAY_NS, UNTIL, minutes, plan, planted, report_of, window, write_rows
from tests.schema_check import check_output

from exhume.cli.main import main
from exhume.fleet.cohort.separators import Condition
from exhume.fleet.engines.local import LocalEngine
from exhume.fleet.lake import Lake
from exhume.fleet.report import FleetReport, report
from exhume.fleet.schema import TABLES
from exhume.lab.fleet import FleetSummary
from exhume.model.errors import NoData
from exhume.present.fleet_view import report_json, verdict

AT = f"@{UNTIL // 10**9}"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> FleetSummary:
    return planted(tmp_path_factory.mktemp("fleet") / "lake", plan(300, 2.0, seed=4))


@pytest.fixture(scope="module")
def found(lake: FleetSummary) -> FleetReport:
    return report_of(lake.directory, 2.0)


@pytest.fixture
def copy(lake: FleetSummary, tmp_path: Path) -> Path:
    return Path(shutil.copytree(lake.directory, tmp_path / "lake"))


@pytest.mark.slow
def test_the_planted_pair_is_first(lake: FleetSummary, found: FleetReport):
    first = found.first
    assert first is not None
    assert {each.key: each.value for each in first.conditions} == lake.truth.conditions
    assert set(lake.truth.conditions) == {"image", "zone"}
    assert first.nodes == lake.truth.members
    assert first.risk_ratio.low > 3 and first.q < 1e-6 and first.p < 0.01
    assert (Condition("unit.ecs.service", "failed/crash-loop"),) in first.same_nodes
    assert found.nodes == 300 and found.sick >= lake.truth.sick


def test_the_nodes_findings_name_the_leaker_and_the_step(found: FleetReport):
    assert found.common is not None
    assert (found.common.cause, found.common.leaker) == ("zombie-memcgs", "ecs-agent")
    assert found.common.function == "mem_cgroup_nr_lru_pages"
    assert [each.code for each in found.steps] == ["remedy", "boot", "at-risk", "compare", "source"]
    assert found.steps[0].command == "exhume fix plan ecs.service"
    assert found.steps[0].total == found.common.nodes or found.steps[0].total > 0
    assert set(found.steps[0].nodes) <= set(found.sick_nodes)


def test_it_starts_after_six_to_eight_days(found: FleetReport):
    assert found.hazard is not None
    assert found.hazard.rises_at in (5, 6, 7)
    assert found.hazard.from_days == pytest.approx(6.2, abs=0.6)
    assert found.hazard.to_days == pytest.approx(7.9, abs=0.6)
    assert sum(each.first_incidents for each in found.hazard.days) == found.hazard.first_incidents


def test_what_changed_before_is_the_rollout(found: FleetReport):
    assert found.changes
    assert {each.to.key for each in found.changes} <= {"image", "zone"}
    lead = found.changes[0].lead_s / 86_400
    assert 5 < lead < 10
    assert found.changes[0].sick <= found.changes[0].of_sick


def test_nodes_at_risk_are_planted_ones_with_a_time(lake: FleetSummary, found: FleetReport):
    assert found.forecast is not None and found.forecast.code == "nic-timeout"
    assert found.at_risk
    assert not {each.node for each in found.at_risk} & set(found.sick_nodes)
    for each in found.at_risk:
        assert each.earliest <= each.at and (each.latest is None or each.at <= each.latest)
        # From boot to incident it takes eight days at most.
        assert UNTIL < each.at < UNTIL + 9 * DAY_NS
        assert 280 < each.per_hour.value < 520


def test_failed_jobs_follow_incidents(found: FleetReport):
    jobs = found.jobs
    assert jobs is not None and jobs.failed == 212
    assert 150 <= jobs.explained <= 190
    assert jobs.expected < 10 and jobs.p < 1e-6
    assert all(0 <= each.before_s <= 60 + 20 for each in jobs.examples)


def test_breakdowns_add_up(found: FleetReport):
    zone = next(each for each in found.breakdowns if each.key == "zone")
    assert sum(each.nodes for each in zone.values) == 300
    assert sum(each.sick for each in zone.values) == found.sick
    assert sum(each.incidents for each in zone.values) == found.incidents
    assert [each.key for each in found.breakdowns][:2] == ["image", "zone"]
    assert "serial" not in {each.key for each in found.breakdowns}


def test_json_is_versioned_and_finite(found: FleetReport):
    shape = json.loads(json.dumps(report_json(found, None), allow_nan=False))
    assert shape["version"] == 1 and shape["verdict"] == "separated"
    assert shape["separators"][0]["conditions"][0] == {"key": "image", "value": "ami-0b22"}
    assert shape["window"]["until"].startswith("2026-03-08T")


@pytest.mark.slow
def test_no_cause_is_no_alarm(tmp_path: Path):
    planted(tmp_path / "lake", plan(300, 0.5, cause=False, seed=9))
    found = report_of(tmp_path / "lake", 0.5)
    assert found.separators == () and found.sick > 30
    assert verdict(found) == "scattered"
    assert found.changes == () and found.forecast is None
    assert found.jobs is not None and found.jobs.p > 0.001
    assert [each.code for each in found.steps] == ["diagnose"]


@pytest.mark.slow
def test_damaged_files_are_named_and_the_rest_is_right(copy: Path, found: FleetReport):
    files = sorted(copy.glob("summaries/*/*/*.parquet"))
    for path, damage in zip(files[:3], (b"", b"PAR1 nothing", files[2].read_bytes()[:-100] + bytes(100)), strict=True):
        path.write_bytes(damage)
    again = report_of(copy, 2.0)
    assert again.first is not None and found.first is not None
    assert again.first.conditions == found.first.conditions
    assert again.sick == found.sick
    assert any("3 files" in each for each in again.blind_spots)


@pytest.mark.slow
def test_a_damaged_page_costs_its_file_alone(copy: Path, found: FleetReport):
    path = sorted(copy.glob("summaries/*/*/*.parquet"))[5]
    content = bytearray(path.read_bytes())
    content[1000:9000] = bytes(8000)
    path.write_bytes(content)
    again = report_of(copy, 2.0)
    assert again.first is not None and found.first is not None
    assert again.first.conditions == found.first.conditions
    assert any("1 file " in each for each in again.blind_spots)


@pytest.mark.slow
def test_old_and_new_versions_mix(copy: Path, found: FleetReport):
    older, newer = sorted(copy.glob("summaries/*/*/*.parquet"))[:2]
    table = pq.read_table(older, partitioning=None)
    pq.write_table(table.drop_columns(["cost_per_zombie_us", "longest_stall_s"]), older)
    table = pq.read_table(newer, partitioning=None)
    table = table.append_column("added_later", pa.array(range(table.num_rows)))
    table = table.set_column(
        table.schema.get_field_index("memcgs_dying"), "memcgs_dying", table["memcgs_dying"].cast(pa.int64())
    )
    pq.write_table(table, newer)
    for path in copy.glob("incidents/*/*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["finding"]), path)
    again = report_of(copy, 2.0)
    assert again.first is not None and found.first is not None
    assert again.first.conditions == found.first.conditions
    assert again.first.sick == found.first.sick
    assert again.steps[0].code == "boot", "no finding advises anything"
    assert not any("could not be read" in each for each in again.blind_spots)


@pytest.mark.slow
def test_files_that_are_being_written_are_left_alone(copy: Path, found: FleetReport):
    place = next(copy.glob("summaries/*/*"))
    (place / ".half.parquet").write_bytes(b"half")
    (place / "half.tmp").write_bytes(b"half")
    (copy / "_staging").mkdir()
    (copy / "_staging/x.parquet").write_bytes(b"half")
    assert report_of(copy, 2.0).blind_spots == found.blind_spots


@pytest.mark.slow
def test_rows_that_are_there_twice_count_once(copy: Path, found: FleetReport):
    for table in ("incidents", "jobs", "attributes"):
        for path in list(copy.glob(f"{table}/*/*.parquet")):
            shutil.copy(path, path.with_name(f"again-{path.name}"))
    again = report_of(copy, 2.0)
    assert again.incidents == found.incidents
    assert again.jobs == found.jobs
    assert again.separators == found.separators


def test_a_clock_that_is_off_is_named_and_its_jobs_are_matched(tmp_path: Path):
    lake = tmp_path / "lake"
    ahead = {"clock_off_s": 3600.0}
    write_rows(lake, "summaries", minutes("right", 7200) + minutes("ahead", 7200, **ahead))
    incident = {"id": "1", "cause": "user-hog", "severity": "critical"}
    write_rows(lake, "incidents", [{"node": "ahead", "at": 3000, "until": 2990, **incident, **ahead}])
    # Reported by another node, with the right time.
    write_rows(lake, "jobs", [{"node": "ahead", "at": 3000 + 3600 - 30, "job": "train", "kind": "job-failed"}])
    found = report_of(lake)
    assert any("clock" in each and "ahead" in each for each in found.blind_spots)
    assert found.jobs is not None and found.jobs.explained == 1
    assert found.jobs.examples[0].before_s == pytest.approx(30)


def test_jobs_are_those_of_the_nodes_that_the_report_names(tmp_path: Path):
    """The head reports a job for its members; another lake file is of before that column was there."""
    lake = tmp_path / "lake"
    write_rows(lake, "summaries", [row for node in ("head", "gpu-1", "gpu-2") for row in minutes(node, 7200)])
    incident = {"id": "1", "cause": "user-hog", "severity": "critical"}
    write_rows(lake, "incidents", [{"node": "gpu-2", "at": 3000, "until": 2990, **incident}])
    failed = {"node": "head", "at": 2970, "job": "train", "kind": "job-failed"}
    write_rows(lake, "jobs", [{**failed, "member": "gpu-1"}, {**failed, "member": "gpu-2"}])
    old = [{**failed, "node": node, "job": "old"} for node in ("head", "gpu-2")]
    write_rows(lake, "jobs", old, "b", leave=("member",))
    found = report_of(lake).jobs
    assert found is not None and (found.failed, found.explained) == (2, 2)
    assert {(each.job, each.node) for each in found.examples} == {("train", "gpu-2"), ("old", "gpu-2")}
    write_rows(lake, "jobs", [{**failed, "member": "gpu-1"}])
    write_rows(lake, "jobs", [old[0]], "b", leave=("member",))
    found = report_of(lake).jobs
    assert found is not None and (found.failed, found.explained) == (2, 0), "the head had no incident"


@pytest.mark.slow
def test_clocks_an_hour_off_change_nothing_but_the_blind_spots(copy: Path, found: FleetReport):
    """Every third node is an hour ahead or behind, stored as by a hub: under its own times, with what it is off."""
    lake = Lake.open(str(copy))
    for number, path in enumerate(sorted(copy.glob("*/*/**/*.parquet"))):
        table = TABLES[path.relative_to(copy).parts[0]]
        rows = pq.read_table(path, partitioning=None)
        names = rows["node"].cast(pa.string()).to_pylist()
        off = np.array([3600.0, 0.0, 0.0, -3600.0, 0.0, 0.0])[[int(name[5:11]) % 6 for name in names]]
        shift = pa.array((off * 1e6).astype(np.int64), pa.duration("us"))
        for place, each in enumerate(rows.schema):
            if pa.types.is_timestamp(each.type):
                rows = rows.set_column(place, each.name, pc.add(rows[each.name], shift))
        seconds = pa.array(np.where(off == 0, np.nan, off), pa.float32(), from_pandas=True)
        path.unlink()
        # Each row is in the partition of the time that it has.
        lake.write(table, rows.append_column("clock_off_s", seconds), f"moved-{number}")
    again = report_of(copy, 2.0)
    clocks = [each for each in again.blind_spots if "clock" in each]
    assert len(clocks) == 1 and "100 nodes" in clocks[0]
    assert again.first is not None and found.first is not None
    assert again.first.conditions == found.first.conditions
    assert (again.sick, again.incidents, again.sick_nodes) == (found.sick, found.incidents, found.sick_nodes)
    assert again.hazard == found.hazard and again.onset == found.onset
    assert again.jobs == found.jobs and again.changes == found.changes


def test_an_empty_lake_is_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(NoData, match="no lake"):
        report_of(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoData, match="no summaries"):
        report_of(tmp_path / "empty")
    write_rows(tmp_path / "old", "summaries", minutes("a", 20 * 86_400))
    with pytest.raises(NoData, match=r"2026-02-16"):
        report_of(tmp_path / "old")


def test_a_lake_of_nothing_but_damage_is_no_data(tmp_path: Path):
    write_rows(tmp_path, "summaries", minutes("a", 60)).write_bytes(b"damage")
    with pytest.raises(NoData, match="can be read"):
        report_of(tmp_path)


def test_few_nodes_and_no_attributes(tmp_path: Path):
    write_rows(tmp_path, "summaries", minutes("a", 60, 120) + minutes("b", 60))
    found = report_of(tmp_path)
    assert (found.nodes, found.sick, found.separators, verdict(found)) == (2, 0, (), "healthy")
    assert any("without attributes" in each for each in found.blind_spots)


def test_names_in_the_lake_are_data(tmp_path: Path):
    cause = "x'; COPY (SELECT 1) TO 'owned.csv'; --"
    write_rows(tmp_path, "summaries", minutes("a", 60) + minutes("b", 60))
    incident = {"id": "1", "cause": cause, "severity": "critical", "finding": "{not json"}
    write_rows(tmp_path, "incidents", [{"node": "a", "at": 60, **incident}])
    found = report_of(tmp_path)
    assert found.common is not None and found.common.cause == cause
    assert not Path("owned.csv").exists()


def test_the_window_is_half_open(tmp_path: Path):
    write_rows(tmp_path, "summaries", minutes("in", 60) + minutes("out", 0, -60))
    engine = LocalEngine(1)
    assert report(str(tmp_path), window(1), engine).nodes == 1
    engine.close()


@pytest.mark.slow
def test_the_command(lake: FleetSummary, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    args = ["fleet", "report", "--lake", str(lake.directory), "--since", "2d", "--until", AT, "--utc"]
    page = tmp_path / "fleet.html"
    assert main([*args, "--html", str(page), "--by", "os"]) == 1
    text = capsys.readouterr().out
    assert "SEPARATED" in text and "by os" in text
    content = page.read_text()
    assert "ami-0b22" in content and "<script" not in content
    assert main([*args, "--json"]) == 1
    printed = capsys.readouterr().out
    check_output([*args, "--json"], printed)
    assert json.loads(printed)["nodes"] == 300
