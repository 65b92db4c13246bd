"""Recordings across versions: those of 0.1.0 stay readable, and a newer format is a sentence, not a riddle.

`0.1.0/` has the first two minutes of what `exhume lab synth --cores 2 --hours 0.034` of that version wrote.
"""

import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from tests.schema_check import check_output
from tests.store.store_rows import cpu_rows, recorder, tick_at

from exhume.cli import exit_codes
from exhume.cli.main import run as run_program
from exhume.model.facts import FORMAT_VERSION
from exhume.model.tables import TABLES
from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules
from exhume.store.format.schema import FACTS_KEY
from exhume.store.read.recording import Recording

OLD = Path(__file__).with_name("0.1.0")
SENTENCE = f"format {FORMAT_VERSION + 1} is newer than this exhume reads (format {FORMAT_VERSION}); upgrade exhume"


@pytest.fixture
def exhume(monkeypatch, capsys):
    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["exhume", *args])
        with pytest.raises(SystemExit) as ended:
            run_program()
        said = capsys.readouterr()
        check_output(args, said.out)
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def recording(tmp_path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "recording"))


def raise_format(segment: Path) -> None:
    """Make the files of a segment those of the next format."""
    for file in segment.glob("*.parquet"):
        table = pq.read_table(file)
        facts = json.loads(table.schema.metadata[FACTS_KEY]) | {"format_version": FORMAT_VERSION + 1}
        pq.write_table(table.replace_schema_metadata({FACTS_KEY: json.dumps(facts)}), file)


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("2*"))


def test_a_recording_of_0_1_0_is_read_and_diagnosed(exhume):
    code, out, _ = exhume("info", "--dir", str(OLD), "--json")
    found = json.loads(out)
    assert (code, found["exhume_version"], found["format_version"]) == (exit_codes.OK, "0.1.0", 1)
    assert (found["cores"], found["segments"], found["skipped"]) == (2, 2, [])
    assert found["samples"] > 1000
    code, out, _ = exhume("diagnose", "--dir", str(OLD), "--json")
    finding = json.loads(out)["findings"][0]
    assert (code, finding["cause"]) == (exit_codes.FINDINGS, "zombie-memcgs")
    assert finding["culprit"]["function"].endswith("nr_lru_pages")
    assert finding["culprit"]["comm"] == "kubelet"
    for command, code in (("cores", exit_codes.OK), ("events", exit_codes.OK), ("incidents", exit_codes.FINDINGS)):
        assert exhume(command, "--dir", str(OLD), "--json")[0] == code


def test_every_table_of_0_1_0_is_read():
    recording = Recording.open(OLD)
    written = {file.stem for segment in segments(OLD) for file in segment.glob("*.parquet")} - {"overview"}
    assert len(written) > 12
    for table in sorted(written & TABLES.keys()):
        assert recording.read(table, None).num_rows > 0, table
    assert written <= TABLES.keys()
    assert not recording.skipped


def test_a_new_recorder_goes_on_in_an_old_directory(exhume, recording):
    """An upgrade in place: nothing that is there is written again, and both are read as one recording."""
    before = {path: path.read_bytes() for segment in segments(recording) for path in segment.iterdir()}
    writer = recorder(recording)
    for number in range(5):
        tick = tick_at(number)
        writer.append("cpu", cpu_rows(tick, user=100))
        writer.commit(tick)
    writer.close()
    assert {path: path.read_bytes() for path in before} == before
    found = json.loads(exhume("info", "--dir", str(recording), "--json")[1])
    assert (found["segments"], found["skipped"]) == (3, [])
    assert found["recorded_seconds"] == pytest.approx(2 * 60 + 5, abs=3)


@pytest.mark.parametrize(
    "args",
    [
        *(("info",), ("cores",), ("events",), ("incidents",), ("diagnose",), ("diagnose", "--json")),
        *(("flame", "-o", "flame.svg"), ("export", "folded", "-o", "out.folded")),
    ],
    ids=" ".join,
)
def test_a_newer_format_is_a_sentence_in_every_command(exhume, recording, tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    for segment in segments(recording):
        raise_format(segment)
    code, out, err = exhume(*args, "--dir", str(recording))
    assert (code, out) == (exit_codes.ERROR, "")
    assert SENTENCE in err
    assert "Traceback" not in err


def test_a_newer_format_is_a_sentence_on_the_page(recording):
    for segment in segments(recording):
        raise_format(segment)
    with TestClient(create_app(recording, Rules()), base_url="http://localhost") as page:
        found = page.get("/api/recording").json()
    assert found["state"] == "empty"
    assert SENTENCE in found["hint"]


def test_of_a_recording_in_two_formats_the_known_one_is_read(exhume, recording):
    """A recorder was upgraded, then downgraded."""
    raise_format(segments(recording)[-1])
    code, out, _ = exhume("info", "--dir", str(recording), "--json")
    found = json.loads(out)
    assert code == exit_codes.OK
    assert {each["reason"] for each in found["skipped"]} == {SENTENCE}
    assert found["samples"] > 500
    with TestClient(create_app(recording, Rules()), base_url="http://localhost") as page:
        shown = page.get("/api/recording").json()
        assert shown["state"] != "empty"
        named = page.get("/api/recording").json()["skipped"]
    assert any(SENTENCE in each for each in named)


def test_what_a_later_version_added_is_ignored(exhume, recording):
    """Columns and tables of a later version with the same format."""
    for segment in segments(recording):
        for file in segment.glob("*.parquet"):
            table = pq.read_table(file)
            later = table.append_column("of_a_later_version", pa.array([1] * table.num_rows, pa.int64()))
            pq.write_table(later.replace_schema_metadata(table.schema.metadata), file)
        shutil.copy(segment / "anchors.parquet", segment / "of_a_later_version.parquet")
    code, out, _ = exhume("diagnose", "--dir", str(recording), "--json")
    assert (code, json.loads(out)["findings"][0]["cause"]) == (exit_codes.FINDINGS, "zombie-memcgs")
    assert {path.path.stem for path in Recording.open(recording).skipped} <= {"of_a_later_version"}
