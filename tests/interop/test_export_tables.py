"""Tables and figures for other tools, read back by pyarrow, the csv module, and Prometheus' own parser."""

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import exhume
from exhume.interop.openmetrics import render_openmetrics
from exhume.interop.tables import write_tables
from exhume.model.clock import NANOS
from exhume.model.tables import TABLES


def written(form: str, table: pa.Table) -> bytes:
    sink = io.BytesIO()
    halves = [table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)]
    assert write_tables(form, halves, table.schema, sink) == table.num_rows
    return sink.getvalue()


READERS = {
    "parquet": lambda content: pq.read_table(pa.BufferReader(content)),
    "arrow": lambda content: pa.ipc.open_file(pa.BufferReader(content)).read_all(),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_survives(synthetic, name):
    table = exhume.open(synthetic.directory).table(name).slice(0, 4000)
    for form, read in READERS.items():
        found = read(written(form, table))
        assert found.schema.names == table.schema.names
        assert found.to_pydict() == table.to_pydict(), form
    rows = list(csv.DictReader(io.StringIO(written("csv", table).decode())))
    assert len(rows) == table.num_rows
    assert not rows or list(rows[0]) == table.schema.names


def test_lists_in_csv_are_joined(synthetic):
    flame = exhume.open(synthetic.directory).flame()
    rows = list(csv.DictReader(io.StringIO(written("csv", flame).decode())))
    expected = [[name.replace(";", ":") for name in frames] for frames in flame.column("frames").to_pylist()]
    assert [row["frames"].split(";") for row in rows] == expected
    assert [int(row["cpu_us"]) for row in rows] == flame.column("cpu_us").to_pylist()


def test_names_can_not_end_a_cell():
    names = ['a,b"c', "two\nlines", "=cmd()", ""]
    table = pa.table({"comm": names, "frames": [["x", 'y"'], [], ["z;"], ["\n"]]})
    rows = list(csv.DictReader(io.StringIO(written("csv", table).decode(), newline="")))
    assert [row["comm"] for row in rows] == names


def test_figures_of_every_core_and_second(recording, window):
    cores, node = (recording.read(table, window).sort_by("wall") for table in ("cpu", "node"))
    families = {family.name: family for family in text_string_to_metric_families(render_openmetrics(cores, node))}
    found = {
        (int(sample.labels["cpu"]), sample.labels["state"], round(float(sample.timestamp) * 1000)): sample.value
        for sample in families["exhume_core_state_ratio"].samples
    }
    assert len(found) == cores.num_rows * 8
    for row in cores.to_pylist():
        assert found[row["cpu"], "system", row["wall"] // 1_000_000] == row["system"] / 1000
        total = sum(found[row["cpu"], state, row["wall"] // 1_000_000] for state in ("user", "system", "idle", "irq"))
        assert 0 <= total <= 1.001
    stalls = families["exhume_node_psi_cpu_some_ratio"]
    expected = [row["psi_cpu_some"] / row["span_ms"] / 1000 for row in node.to_pylist()]
    assert np.allclose([sample.value for sample in stalls.samples], expected)
    memory = families["exhume_node_mem_free_bytes"].samples
    assert [sample.value for sample in memory] == [row["mem_free"] * 1024 for row in node.to_pylist()]
    rates = families["exhume_node_forks_per_second"].samples
    assert np.allclose([s.value for s in rates], [r["forks"] * 1000 / r["span_ms"] for r in node.to_pylist()])


def test_what_is_unknown_is_missing_and_time_only_grows():
    walls = [NANOS, 3 * NANOS, 2 * NANOS, 4 * NANOS]
    node = pa.table(
        {"time": walls, "wall": walls, "span_ms": [1000] * 4, "forks": [1, None, 3, 4], "load1": [None] * 4}
    )
    node = node.set_column(4, "load1", pa.nulls(4, pa.float64()))
    (family,) = text_string_to_metric_families(render_openmetrics(_no_cores(), node))
    assert [(sample.value, float(sample.timestamp)) for sample in family.samples] == [(1, 1), (3, 2), (4, 4)]
    assert render_openmetrics(_no_cores(), node.slice(0, 0)) == "# EOF\n"


def _no_cores() -> pa.Table:
    from exhume.store.format.schema import schema_of

    empty = schema_of("cpu").empty_table()
    return empty.append_column("wall", empty.column("time"))
