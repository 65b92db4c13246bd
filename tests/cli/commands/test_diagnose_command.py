"""exhume diagnose, as its users run it."""

import json
import re

import pytest

from exhume.model.clock import NANOS
from exhume.model.times import UTC, format_moment


def moment(nanos: int) -> str:
    return format_moment(nanos, UTC)


@pytest.fixture
def incident(synthetic):
    return synthetic[1].incident


def diagnosed(exhume, directory, *args):
    result = exhume("diagnose", "--dir", str(directory), "--json", *args, check=False)
    assert result.returncode == 1, result.stderr
    return json.loads(result.stdout)


def test_a_cause_is_explained_without_a_recording(exhume, tmp_path):
    result = exhume("diagnose", "--explain", "zombie-memcgs", "--dir", str(tmp_path / "none"))
    assert result.stdout.startswith("# Zombie memory cgroups")
    assert "## How to fix it" in result.stdout


def test_an_unknown_cause_is_refused(exhume):
    result = exhume("diagnose", "--explain", "zombie-memcg", check=False)
    assert result.returncode == 2
    assert "did you mean zombie-memcgs?" in result.stderr
    assert exhume("diagnose", "--explain", "zombie-memcgs", "--json", check=False).returncode == 2


@pytest.mark.slow
def test_the_newest_mark_is_explained(exhume, small_recording, incident):
    found = diagnosed(exhume, small_recording)
    assert (found["version"], found["verdict"]) == (1, "starved")
    top = found["findings"][0]
    assert (top["severity"], top["culprit"]["cpu"]) == ("critical", incident.cpu)
    assert found["focus"]["since"] <= moment(incident.until)
    assert found["focus"]["until"] >= moment(incident.since)
    roles = [link["role"] for link in top["chain"]]
    assert roles == sorted(roles, key=["symptom", "mechanism", "culprit", "root_cause"].index)
    quoted = [evidence for link in top["chain"] for evidence in link["evidence"]]
    assert quoted
    assert all(evidence["table"] and evidence["where"] and evidence["value"] is not None for evidence in quoted)


@pytest.mark.slow
def test_a_moment_a_range_and_the_whole_find_the_same(exhume, small_recording, incident):
    asked = [
        ("--at", moment(incident.log_time)),
        ("--at", moment(incident.since - 5 * NANOS)),
        ("--since", moment(incident.since - 60 * NANOS), "--until", moment(incident.until + 20 * NANOS)),
        ("--last", "10m"),
    ]
    found = [diagnosed(exhume, small_recording, *args) for args in asked]
    causes = {(each["findings"][0]["cause"], each["findings"][0]["culprit"]["cpu"]) for each in found}
    assert len(causes) == 1
    # Within the incident it is the diagnosis of the incident, as the list of incidents and the page have it.
    assert found[0] == diagnosed(exhume, small_recording, "--at", moment(incident.log_time + NANOS))
    listed = json.loads(exhume("incidents", "--dir", str(small_recording), "--json", check=False).stdout)
    top = next(each for each in listed["incidents"] if each["finding"] is not None)["finding"]
    assert {name: found[0]["findings"][0][name] for name in ("cause", "confidence", "summary")} == {
        name: top[name] for name in ("cause", "confidence", "summary")
    }
    assert found[1]["window"] == {
        "since": moment(incident.since - 25 * NANOS).replace("Z", "+00:00"),
        "until": moment(incident.since + 15 * NANOS).replace("Z", "+00:00"),
    }


def test_the_report_begins_with_the_verdict(exhume, small_recording, incident):
    lines = exhume("diagnose", "--dir", str(small_recording), "--utc", check=False).stdout.splitlines()
    assert lines[0].startswith(" STARVED  ")
    assert "\x1b" not in "".join(lines)
    # A command stays whole, to be copied.
    assert max(len(line) for line in lines if " $ " not in line) <= 100
    text = "\n".join(lines)
    for word in ("symptom", "mechanism", "confidence", f"core {incident.cpu}"):
        assert word in text


def test_colours_on_request(exhume, small_recording):
    assert "\x1b[" in exhume("diagnose", "--dir", str(small_recording), "--color", "always", check=False).stdout


def test_a_calm_time_is_healthy(exhume, quiet_recording):
    result = exhume("diagnose", "--dir", str(quiet_recording), check=False)
    assert (result.returncode, result.stdout.split()[0]) == (0, "HEALTHY")


@pytest.mark.parametrize(
    "args",
    [("--at", "03:00", "--last", "5m"), ("--last", "5m", "--since", "03:00"), ("--at", "03:00", "--until", "04:00")],
)
def test_contradictions_are_refused(exhume, small_recording, args):
    result = exhume("diagnose", "--dir", str(small_recording), *args, check=False)
    assert result.returncode == 2
    assert result.stdout == ""


@pytest.mark.parametrize("args", [("--at", "not a time"), ("--last", "soon"), ("--last", "0s")])
def test_times_that_make_no_sense_are_refused(exhume, small_recording, args):
    result = exhume("diagnose", "--dir", str(small_recording), *args, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert args[1] in result.stderr


@pytest.mark.parametrize("args", [("--at", "2001-01-01T00:00:00Z"), ("--until", "2001-01-01T00:00:00Z")])
def test_a_time_that_was_not_recorded(exhume, small_recording, args):
    result = exhume("diagnose", "--dir", str(small_recording), *args, check=False)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.count("\n") == 1


def test_without_a_recording(exhume, tmp_path):
    result = exhume("diagnose", "--dir", str(tmp_path / "nowhere"), check=False)
    assert result.returncode == 3
    assert "does not exist" in result.stderr


def test_a_page_that_stands_alone(exhume, small_recording, tmp_path):
    target = tmp_path / "incident.html"
    result = exhume("diagnose", "--dir", str(small_recording), "--html", str(target), check=False)
    assert result.returncode == 1
    assert result.stdout.startswith(" STARVED")
    page = target.read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", page.replace("&quot;", '"'))
    # The names of XML namespaces, which the script needs to draw SVG, are the only addresses.
    assert not re.search(r"https?://(?!www\.w3\.org/(?:2000/svg|1999/xhtml|1998/Math/MathML)\b)", page)


def test_a_page_that_cannot_be_written(exhume, small_recording, tmp_path):
    result = exhume("diagnose", "--dir", str(small_recording), "--html", str(tmp_path), check=False)
    assert result.returncode == 2
    assert "can't write" in result.stderr
