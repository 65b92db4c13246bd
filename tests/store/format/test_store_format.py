"""docs/FORMAT.md is true, and other tools read what it describes."""

import inspect
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.store.store_rows import FACTS, cpu_rows, recorder, sample_rows, tick_at

from exhume.model.facts import FORMAT_VERSION, RecordingFacts
from exhume.model.tables import TABLES, columns_of
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import FACTS_KEY, schema_of

DOCUMENT = Path(__file__).parents[3] / "docs" / "FORMAT.md"


@pytest.fixture(scope="module")
def document() -> str:
    return DOCUMENT.read_text()


def sections(document: str) -> dict[str, str]:
    parts = re.split(r"^### (\w+)$", document[document.index("## Tables") :], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_table_and_column_is_described(document: str) -> None:
    described = sections(document)
    assert list(described) == list(TABLES)
    for table, text in described.items():
        rows = re.findall(r"^\| (\w+) \| ([\w<>]+) \| (yes|no) \|$", text, flags=re.MULTILINE)
        columns = [(c.name, c.kind, "yes" if c.nullable else "no") for c in columns_of(table)]
        assert rows == columns, table
        assert inspect.cleandoc(TABLES[table].__doc__ or "") in text


def test_the_version_the_facts_and_the_names_are_the_ones_in_use(document: str) -> None:
    assert f"This is format {FORMAT_VERSION}." in document
    for name in RecordingFacts.__dataclass_fields__:
        assert name in document
    for text in re.findall(r"\d{8}T\d{9}Z_\w+", document):
        assert str(SegmentName.parse(text)) == text


def test_types_on_disk_are_the_ones_that_are_described() -> None:
    for table in TABLES:
        for column, field in zip(columns_of(table), schema_of(table), strict=True):
            kind = column.kind.replace("list<uint64>", "list<element: uint64 not null>").replace("float64", "double")
            assert str(field.type) == kind


def test_the_query_in_the_document_runs(document: str, tmp_path: Path) -> None:
    writer = recorder(tmp_path, segment_s=5)
    for index in range(12):
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick, system=700 + index, softirq=100))
        writer.append("samples", sample_rows(tick, [(0, 7, "a", 2**64 - 1)]))
        writer.append("stacks", {"stack": [2**64 - 1, index], "frames": [[2**63, 5], [5]]})
        writer.append("frames", {"frame": [2**63], "kind": ["user"], "module": ["/bin/x"], "name": [f"f{index}"]})
        writer.commit(tick)
    # Another program reads the sealed part while the recorder runs on; nothing half-written gets in its way.
    writer.close()
    query = re.search(r"```sql\n(.*?)```", document, flags=re.DOTALL)
    assert query is not None
    found = duckdb.sql(query[1].replace("'D/", f"'{tmp_path}/").rstrip().rstrip(";")).fetchall()
    assert sorted(found) == [(0, 811), (1, 811)]
    stacks = duckdb.sql(f"SELECT count(*), max(stack), max(frames[1]) FROM '{tmp_path}/*/stacks.parquet'").fetchall()
    assert stacks == [(24, 2**64 - 1, 2**63)]
    names = duckdb.sql(f"SELECT count(DISTINCT name) FROM '{tmp_path}/*/frames.parquet'").fetchall()
    assert names == [(12,)]


def test_every_file_has_where_it_comes_from(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    writer.append("cpu", cpu_rows(tick_at(0)))
    writer.commit(tick_at(0))
    live = next(tmp_path.glob("live/*/cpu.arrows"))
    with pa.OSFile(str(live)) as source:
        assert RecordingFacts.from_json(pa.ipc.open_stream(source).schema.metadata[FACTS_KEY]) == FACTS
    writer.close()
    for path in tmp_path.glob("*/*.parquet"):
        assert RecordingFacts.from_json(pq.read_metadata(path).metadata[FACTS_KEY]) == FACTS
