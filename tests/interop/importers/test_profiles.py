"""Folded stacks, pprof and speedscope: what exhume and other tools write is read back."""

import gzip
import json

import pytest
from tests.interop.importers.made_up import START, imported, put, script

from exhume.interop.folded import render_folded
from exhume.interop.pprof import render_pprof
from exhume.interop.speedscope import render_speedscope
from exhume.model.clock import NANOS, Window
from exhume.store.read.flame_tree import build_tree

WINDOW = Window(START, START + 60 * NANOS)


def weights(recording, window=WINDOW):
    """CPU time of each stack in microseconds."""
    tree = build_tree(recording.profile(window))
    return {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) for line in render_folded(tree).splitlines()}


@pytest.fixture
def original(tmp_path):
    text = script(range(20)) + script(range(20, 25), comm="other one")
    _, recording = imported(tmp_path, put(tmp_path, "s", text), directory="original")
    return recording


@pytest.mark.parametrize("form", ["folded", "pprof", "plain pprof", "speedscope"])
def test_what_exhume_writes_comes_back(tmp_path, original, form):
    tree = build_tree(original.profile(WINDOW))
    content = {
        "folded": lambda: render_folded(tree).encode(),
        "pprof": lambda: render_pprof(tree, WINDOW),
        "plain pprof": lambda: gzip.decompress(render_pprof(tree, WINDOW)),
        "speedscope": lambda: render_speedscope(tree, "title").encode(),
    }[form]()
    result, recording = imported(tmp_path, put(tmp_path, "profile", content))
    assert result.complete
    expected, found = weights(original), weights(recording)
    assert found.keys() == expected.keys()
    assert sum(found.values()) == pytest.approx(sum(expected.values()), rel=0.001)
    for stack, weight in expected.items():
        assert found[stack] == pytest.approx(weight, rel=0.001)
    assert "cores" in {each.source for each in recording.facts.sources_missing}


def test_folded_of_other_tools(tmp_path):
    text = "swapper;default_idle_[k] 50\ntool;main;read;ksys_read_[k] 30\ntool;main;Lcom/Foo;::bar_[j] 20\n"
    _, recording = imported(tmp_path, put(tmp_path, "f", text))
    assert weights(recording)["tool;main;read;ksys_read"] == 300_000
    frames = {(row["kind"], row["name"]) for row in recording.read("frames").to_pylist()}
    assert ("kernel", "ksys_read") in frames
    # Half a second of fifty: every part of the time has its share.
    assert sum(weights(recording, Window(START, START + NANOS // 2)).values()) == pytest.approx(250_000, rel=0.2)


def test_pprof_of_counts_has_its_period(tmp_path):
    from tests.interop.importers.made_up import pprof_bytes

    content = pprof_bytes(stacks={("work", "main"): 10}, period_ns=10_000_000, since=START, nanos=2 * NANOS)
    _, recording = imported(tmp_path, put(tmp_path, "p", content), start=None)
    assert sum(weights(recording).values()) == 100_000
    assert recording.span().since >= START


@pytest.mark.parametrize("kind", ["sampled", "evented"])
def test_speedscope_has_time_and_cores(tmp_path, kind):
    frames = [{"name": "main"}, {"name": "work"}, {"name": "do_idle", "file": "[kernel.kallsyms]"}]
    sampled = {"type": "sampled", "samples": [[0], [0, 1], [0]], "weights": [1.0, 2.0, 1.0]}
    events = [("O", 0, 0.0), ("O", 1, 1.0), ("C", 1, 3.0), ("C", 0, 4.0)]
    evented = {"type": "evented", "events": [{"type": t, "frame": f, "at": at} for t, f, at in events]}
    shape = sampled if kind == "sampled" else evented
    profile = {"name": "CPU 3", "unit": "seconds", "startValue": 0, "endValue": 4, **shape}
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": frames},
        "profiles": [profile],
    }
    _, recording = imported(tmp_path, put(tmp_path, "x.json", json.dumps(document)))
    rows = recording.read("samples").sort_by("time_ms").to_pylist()
    assert [(row["time_ms"] - START // 10**6, row["cpu"], row["weight_us"]) for row in rows] == [
        (0, 3, 1_000_000),
        (1000, 3, 2_000_000),
        (3000, 3, 1_000_000),
    ]


def test_a_directory_of_flamescope(tmp_path):
    stacks = tmp_path / "stacks"
    stacks.mkdir()
    put(stacks, "perf.stacks01", script(range(5)))
    put(stacks, "perf.stacks02.gz", gzip.compress(script(range(5, 9)).encode()))
    put(stacks, "README", "not stacks\n")
    result, recording = imported(tmp_path, stacks)
    assert recording.read("samples").num_rows == 9 * 20
    assert [file.path.rsplit("/", 1)[1] for file in result.files if file.error] == ["README"]


def test_files_without_time_need_a_start(tmp_path, original):
    tree = build_tree(original.profile(WINDOW))
    paths = [
        put(tmp_path, "f", render_folded(tree)),
        put(tmp_path, "s", render_speedscope(tree, "x")),
        put(tmp_path, "p", render_pprof(tree, WINDOW)),
    ]
    result, _ = imported(tmp_path, *paths, start=None)
    assert [file.needs_start for file in result.files] == [True, True, False]
