"""`exhume fleet` as its users run it: a directory as the lake, and what is refused before anything starts."""

import json
import shutil
from pathlib import Path

import pytest
from tests.fleet.fleet_rows import rows_in

from exhume.cli import exit_codes


@pytest.fixture
def recording(small_recording, tmp_path) -> Path:
    """A copy: a push writes its spool into the recording."""
    return Path(shutil.copytree(small_recording, tmp_path / "recording"))


@pytest.mark.slow
def test_a_recording_is_pushed_into_a_directory_and_compacted(exhume, recording, tmp_path):
    lake = tmp_path / "lake"
    args = ("fleet", "push", str(lake), "--dir", str(recording), "--since", "1d", "--final")
    first, second = exhume(*args), exhume(*args)
    minutes = len(rows_in(lake))
    assert minutes >= 4
    assert f"{minutes} minutes summarised; {minutes} minutes" in first.stderr
    assert "0 minutes summarised; 0 minutes" in second.stderr
    assert {row["key"] for row in rows_in(lake, "attributes")} >= {"kernel", "cores"}
    incidents = rows_in(lake, "incidents")
    assert len(incidents) >= 1
    explained = [row for row in incidents if row["bundle"]]
    assert explained and all((lake / row["bundle"]).is_file() for row in explained)
    assert all(json.loads(row["finding"])["cause"] == row["cause"] for row in explained if row["finding"])
    done = json.loads(exhume("fleet", "compact", "--lake", str(lake), "--json").stdout)
    assert done["version"] == 1
    assert len(rows_in(lake)) == minutes
    # The commands that read a recording don't take the spool for a part of it.
    assert json.loads(exhume("info", "--dir", str(recording), "--json").stdout)["skipped"] == []


@pytest.mark.slow
def test_a_target_that_is_away_leaves_everything_for_the_next_push(exhume, recording, tmp_path):
    args = ("fleet", "push", "--dir", str(recording), "--since", "1d", "--final")
    away = exhume(*args, "http://127.0.0.1:9", check=False)
    assert away.returncode == exit_codes.ERROR
    assert "push again" in away.stderr
    assert exhume(*args, str(tmp_path / "lake")).returncode == exit_codes.OK
    assert len(rows_in(tmp_path / "lake")) >= 4


def test_tokens_are_added_listed_and_revoked(exhume, tmp_path):
    lake = ("--lake", str(tmp_path / "lake"))
    token = exhume("fleet", "token", "add", *lake, "node-1").stdout.strip()
    listed = json.loads(exhume("fleet", "token", "list", *lake, "--json").stdout)
    assert [each["node"] for each in listed["tokens"]] == ["node-1"]
    assert token not in (tmp_path / "lake/_hub/tokens.json").read_text()
    exhume("fleet", "token", "revoke", *lake, "node-1")
    assert exhume("fleet", "token", "revoke", *lake, "node-1", check=False).returncode == exit_codes.NO_DATA
    assert exhume("fleet", "token", "list", *lake, check=False).returncode == exit_codes.NO_DATA


@pytest.mark.parametrize(
    "args",
    [
        ("push",),
        ("push", "http://hub.example:8460"),
        ("push", "ftp://hub.example"),
        ("push", "{tmp}/lake", "--since", "soon"),
        ("push", "{tmp}/lake", "--push-token-file", "{tmp}/missing"),
        ("hub", "--lake", "{tmp}/lake", "--bind", "0.0.0.0:8460"),
        ("hub", "--lake", "{tmp}/lake", "--bind", "nowhere"),
        ("hub", "--lake", "{tmp}/lake", "--tls-cert", "c.pem"),
        ("hub", "--lake", "ftp://lake"),
        ("hub",),
        ("compact", "--lake", "{tmp}/lake", "--keep", "1m"),
        ("token", "add", "node-1"),
        ("token", "add", "--state", "{tmp}/state", "../x"),
    ],
)
def test_what_makes_no_sense_is_refused(exhume, args, small_recording, tmp_path):
    given = ("--dir", str(small_recording)) if args[0] == "push" else ()
    result = exhume("fleet", *(each.format(tmp=tmp_path) for each in args), *given, check=False)
    assert result.returncode == exit_codes.ERROR
    assert result.stderr.startswith("exhume: ")
