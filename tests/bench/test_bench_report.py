"""The benchmarks' own arithmetic: verdicts, documents, folding, counting; and a load that stops on request."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from bench.flame_query import collapse
from bench.load import load
from bench.processes import BenchError, NotMeasured, start, watch
from bench.report import RESULTS, Row, Section, as_document, machine_facts, with_sections
from bench.run import BENCHMARKS

from bench import run
from exhume.lab.score.plan import others_busy

PATIENCE_S = 60.0


def until(what: str, happened: Callable[[], bool]) -> None:
    """Wait until it happened; fails when it doesn't."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"did not happen within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.02)


SCRIPT = """\
python3  4242
\tffffffff81000010 vfs_read
\t    7f0000001000 main

sh  4243
\t    7f0000002000 main

python3  4242
\tffffffff81000010 vfs_read
\t    7f0000001000 main
"""


@pytest.mark.parametrize(
    ("measured", "verdict"), [(0.4, "aim met"), (0.41, "must met"), (1.0, "must met"), (1.01, "MISSED")]
)
def test_bounds_are_upper_bounds(measured: float, verdict: str):
    assert Row("x", measured, "", 1.0, 0.4).verdict == verdict


def test_a_row_without_a_bound_only_informs():
    row = Row("x", 1e9, "B")
    assert row.verdict == "" and not row.missed


def test_the_document_tells_every_row_and_nothing_that_names_the_machine():
    rows = [Row("first measure", 1.5, "ms", 2.0, 1.0), Row("for information", 3.0, "s", note="why")]
    text = as_document([Section("Title", "how  it\n was taken", rows)], quick=True, busy=0.0)
    assert text.count("| first measure | 2.00 ms | 1.00 ms | 1.50 ms | 0.75 | must met |") == 2
    assert "- for information: why" in text and "how it was taken" in text and "A quick run" in text
    assert socket.gethostname() not in " ".join(machine_facts().values()).split()


def test_sections_of_a_run_of_their_own_replace_the_earlier_ones():
    sections = [Section(title, "how", [Row(f"of {title}", 1.0, "s", 2.0)]) for title in ("One", "Two")]
    document = as_document(sections, quick=False, busy=0.0)
    again = Section("One", "how again", [Row("of One", 1.5, "s", 2.0), Row("for information", 1.0)])
    text = with_sections(document, [again, Section("Three", "new", [Row("of Three", 1.0, "s", 2.0)])], busy=0.0)
    whole = [again, sections[1], Section("Three", "new", [Row("of Three", 1.0, "s", 2.0)])]
    assert re.sub(r"\(Taken by a later run, on [0-9-]+\.\) ", "", text) == as_document(whole, quick=False, busy=0.0)
    assert "other work took up to 40%" in with_sections(document, [again], busy=0.4)


def test_the_results_that_are_kept_come_from_a_whole_run():
    text = RESULTS.read_text()
    assert "QUICK" not in text
    assert "Not measured" not in text
    first, *sections = text.partition("## All at once")[2].split("\n## ")
    assert len(sections) == len(BENCHMARKS)
    bound = [row for section in sections for row in rows_of(section) if row.split(" | ")[1]]
    assert rows_of(first) == bound, "what has a bound is listed at the top, as it is below"
    assert len(bound) >= 19


def rows_of(table: str) -> list[str]:
    """The measures of a table, without its heading."""
    return [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| measure |")]


@pytest.mark.slow
def test_other_work_on_the_machine_is_reported():
    assert "Not a quiet machine" not in as_document([], quick=False, busy=0.01)
    assert "other work took up to 40% of it" in as_document([], quick=False, busy=0.4)
    with load(1):
        until("the load has begun", lambda: others_busy(0.5) > 0.5)


def test_perf_script_is_folded_by_command_and_function():
    assert collapse(SCRIPT) == {"python3;main;vfs_read": 2, "sh;main": 1}


@pytest.mark.slow
def test_cpu_and_memory_of_a_process_are_counted(tmp_path: Path):
    began = time.monotonic()
    spinning = start("spin", [sys.executable, "-c", "while True: sum(range(1000))"], tmp_path / "log")
    used: list[float] = []

    def counted() -> bool:
        """It had some of a core, more than the kernel's clock ticks are apart; never more than one."""
        since = time.monotonic()
        used.extend(watch(0.5, spinning))
        assert used[-1] <= time.monotonic() - since + 0.1
        return used[-1] > 0.1

    until("it gets a core", counted)
    assert spinning.rss and spinning.rss[0] > 1 << 20
    assert sum(used) - 0.1 <= spinning.finish() <= time.monotonic() - began + 0.1


def test_a_process_that_ends_while_it_is_measured_is_reported_with_its_last_line(tmp_path: Path):
    ended = start("short", [sys.executable, "-c", "print('my last line')"], tmp_path / "log")
    until("it has spoken", lambda: "my last line" in ended.output.read_text())
    # First it is a zombie, without memory; then it is gone.
    with pytest.raises(BenchError, match="my last line"):
        watch(PATIENCE_S, ended)
    ended.process.wait()
    with pytest.raises(BenchError, match="my last line"):
        ended.cpu()


def test_the_load_forks_and_ends():
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(children.read_text().split())
    with load(20):
        cores = len(os.sched_getaffinity(0))
        until("each core has a worker", lambda: len(set(children.read_text().split()) - before) >= cores)

    def has_ended() -> bool:
        left = set(children.read_text().split()) - before
        return all(b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left)

    until("its processes are gone", has_ended)


@pytest.mark.slow
def test_every_benchmark_can_be_asked_for_by_name():
    said = subprocess.run(
        [sys.executable, "-m", "bench.run", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert all(name in said for name in BENCHMARKS)


@pytest.mark.parametrize("arguments", [["--only", "first", "second", "third"], []], ids=["named", "all"])
@pytest.mark.parametrize(
    "failure",
    [BenchError("it did not stop"), KeyboardInterrupt(), KeyError("a bug")],
    ids=["failed", "interrupted", "unexpected"],
)
def test_a_section_that_fails_does_not_cost_those_that_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], failure: BaseException
):
    def measured(_work: Path, _quick: bool) -> Section:
        return Section("First", "by counting", [Row("a measure", 2.0, "s", 3.0)])

    def failing(_work: Path, _quick: bool) -> Section:
        raise failure

    def not_measured(_work: Path, _quick: bool) -> Section:
        raise NotMeasured("Third", "a part is missing")

    kept = [Section(title, "earlier", [Row("a measure", 1.0, "s", 3.0)]) for title in ("First", "Second", "Third")]
    results = tmp_path / "RESULTS.md"
    results.write_text(as_document(kept, quick=False, busy=0.0))
    monkeypatch.setattr(run, "RESULTS", results)
    monkeypatch.setattr(run, "BENCHMARKS", {"first": measured, "second": failing, "third": not_measured})
    monkeypatch.setattr(run, "cannot_run", lambda: "")
    monkeypatch.setattr(run, "_clear", lambda: None)
    monkeypatch.setattr(run, "others_busy", lambda: 0.0)
    monkeypatch.setattr(run, "machine_speed", lambda: Row("the machine", 0.1, "s"))
    monkeypatch.setattr(run, "ROOT", tmp_path)
    (tmp_path / "build").mkdir()
    monkeypatch.setattr(sys, "argv", ["bench.run", *arguments])
    with pytest.raises(KeyError) if isinstance(failure, KeyError) else nullcontext():
        assert run.main() == 2
    _, _, first, second, third = results.read_text().split("\n## ")
    assert "2.00 s" in first
    assert "1.00 s" in second and "earlier" in second
    assert "1.00 s" in third and "earlier" in third
