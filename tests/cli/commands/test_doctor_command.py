"""exhume doctor on this machine, as its users run it."""

import json
import re
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from tests.cli.test_docs import PAGES, fields_of

from exhume.model.finding import Check, Diagnosis, Level, Verdict
from exhume.present.diagnosis_view import Checkup


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A place for what it makes meanwhile, of its own."""
    with mock.patch.object(tempfile, "tempdir", str(tmp_path_factory.mktemp("doctor"))):
        yield Path(tempfile.gettempdir())


@pytest.fixture(scope="module")
def looked(exhume, scratch):
    return exhume("doctor", "--for", "2s", "--json", check=False)


def test_it_looks_at_everything_and_leaves_nothing(looked, scratch):
    found = json.loads(looked.stdout)
    assert (found["version"], found["looked_seconds"]) == (2, 2.0)
    assert looked.returncode == (0 if found["verdict"] == "well" else 1)
    assert {check["id"] for check in found["checks"]} == {
        *("zombies", "cgroups", "dentries", "mounts", "conntrack", "throttling", "pressure-memory", "pressure-io"),
        *("pressure-cpu", "oom", "steal", "nic-timeouts", "failed-units", "kernel-log", "restarts"),
    }
    assert found["diagnosis"]["window"]["since"] < found["diagnosis"]["window"]["until"]
    assert found["diagnosis"]["verdict"] != "unknown"
    assert not list(scratch.iterdir())


def test_every_field_is_documented(looked):
    page = (PAGES / "doctor.md").read_text() + (PAGES / "diagnose.md").read_text()
    assert fields_of(json.loads(looked.stdout)) <= set(re.findall(r"`(\w+)`", page))


@pytest.mark.parametrize("length", ["1s", "2h", "a while"])
def test_lengths_that_make_no_sense(exhume, length):
    result = exhume("doctor", "--for", length, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert length in result.stderr


def checkup(verdict: Verdict, *levels: Level) -> Checkup:
    checks = [Check(f"check-{n}", f"title {n}", level, "5") for n, level in enumerate(levels)]
    return Checkup("node-1", 6.0, checks, Diagnosis("node-1", (0, 1), (0, 1), verdict))


@pytest.mark.parametrize(
    ("verdict", "levels", "level"),
    [
        (Verdict.HEALTHY, [Level.WELL, Level.UNSEEN], Level.WELL),
        (Verdict.HEALTHY, [Level.WELL, Level.LOOK], Level.LOOK),
        (Verdict.HEALTHY, [Level.BAD, Level.LOOK], Level.BAD),
        (Verdict.DEGRADED, [Level.WELL], Level.LOOK),
        (Verdict.STARVED, [Level.LOOK], Level.BAD),
        (Verdict.UNKNOWN, [Level.WELL], Level.WELL),
    ],
)
def test_the_gravest_decides(verdict, levels, level):
    found = checkup(verdict, *levels)
    assert found.level is level
    assert found.sentence


def test_the_lines_fit(exhume):
    from exhume.present.terminal.diagnosis import checkup_lines

    found = checkup(Verdict.HEALTHY, *Level)
    for width in (80, 120):
        lines = [line.plain for line in checkup_lines(found, None, width)]
        assert lines[0].startswith(" BAD ")
        assert max(map(len, lines)) <= width
        assert [line.split()[-1] for line in lines[2:6]] == ["well", "look", "bad", "seen"]
