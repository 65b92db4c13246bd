"""What is compared with FlameScope is read right, and wrong answers are not compared."""

import json
import struct
from collections import Counter
from pathlib import Path

import pytest
from bench.flamescope import TITLE, measure
from bench.processes import BenchError, NotMeasured
from bench.report import Section, as_document
from bench.stack_answers import (
    Graph,
    check_alike,
    check_recorded,
    exhume_graph,
    exhume_heatmap,
    flamescope_graph,
    flamescope_heatmap,
    read_script,
)

SCRIPT = """\
# captured on : a day
sh   818 [001] 100.900000:   10309278 cpu-clock:ppp: 
\tffffffff81000010 vfs_read+0x10 ([kernel.kallsyms])

swapper     0 [000] 101.000000:   10309278 cpu-clock:ppp: 
\tffffffff81000020 do_idle+0x10 ([kernel.kallsyms])

python3   814 [001] 102.500000:   10309278 cpu-clock:ppp: 
\t            4cd5 [unknown] (/usr/lib/libz.so)

"""  # noqa: W291


def frame(name: str, kind: str, samples: int, *inner: dict) -> dict:
    return {"n": name, "l": kind, "v": samples, "c": list(inner)}


# sh;read;read is one call of itself, in five samples; sh;main in three.
NESTED = frame(
    "root", "", 0, frame("sh", "", 0, frame("read", "kernel", 1, frame("read", "kernel", 4)), frame("main", "user", 3))
)
COLUMNS = {
    "samples": 8,
    "labels": {"name": ["all", "sh", "read", "main"], "kind": ["all", "comm", "kernel", "user"]},
    "label": [0, 1, 2, 3, 2],
    "parent": [0, 0, 1, 1, 2],
    "samples_of": [8, 8, 5, 3, 4],
}


def test_the_times_of_perf_script_are_read_and_idle_ones_known(tmp_path: Path):
    text = tmp_path / "stacks"
    text.write_text(SCRIPT)
    samples = read_script(text)
    assert samples.all == [100.9, 101.0, 102.5] and samples.first_second == 100
    assert samples.bounds(100.9, 102.0) == (1, 2)
    check_recorded("it", 1, (1, 2))
    for wrong in (0, 3):
        with pytest.raises(BenchError, match="perf recorded 1 to 2"):
            check_recorded("it", wrong, (1, 2))


def test_both_kinds_of_flame_graph_tell_the_same():
    nested, columns = (
        read(json.dumps(answer).encode()) for read, answer in ((flamescope_graph, NESTED), (exhume_graph, COLUMNS))
    )
    assert nested == columns == Graph(8, Counter(read=5))
    check_alike(columns, nested)


@pytest.mark.parametrize(
    ("ours", "why"),
    [
        (Graph(4, Counter(read=3)), "4 samples"),
        (Graph(8, Counter(write=5)), "read has 0%"),
        (Graph(8, Counter(read=2)), "read has 25%"),
    ],
)
def test_answers_that_differ_are_not_compared(ours: Graph, why: str):
    with pytest.raises(BenchError, match=why):
        check_alike(ours, Graph(8, Counter(read=5)))


def test_both_kinds_of_heatmap_are_added_up():
    assert flamescope_heatmap(json.dumps({"values": [[0, 2], [1, 0]]}).encode()) == 3
    header = b'{"rows":2,"columns":2}  '
    cells, in_kernel = struct.pack("<4I", 0, 2, 1, 0), struct.pack("<4I", 0, 1, 1, 0)
    assert exhume_heatmap(struct.pack("<I", len(header)) + header + cells + in_kernel) == 3


def test_without_a_checkout_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FLAMESCOPE", raising=False)
    with pytest.raises(NotMeasured, match="set FLAMESCOPE to a checkout") as raised:
        measure(tmp_path, quick=True)
    text = as_document([Section(raised.value.title, f"Not measured: {raised.value}.", [])], quick=False, busy=0.0)
    assert f"## {TITLE}\n\nNot measured: set FLAMESCOPE" in text and text.count("| measure |") == 1


def test_a_folder_that_is_no_checkout_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FLAMESCOPE", str(tmp_path))
    with pytest.raises(BenchError, match="no checkout of FlameScope"):
        measure(tmp_path / "bench", quick=True)
