"""Flame graphs for other tools: what pprof and speedscope read is what was sampled."""

import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.interop.pprof_reader import read_pprof
from tests.store.profiles import profile, random_profile

from exhume.interop.pprof import render_pprof
from exhume.interop.speedscope import SCHEMA, render_speedscope
from exhume.model.clock import Window
from exhume.store.read.flame_tree import build_tree

WINDOW = Window(1_780_000_000_000_000_000, 1_780_000_007_500_000_000)
KNOWN = {("python3", "main", "k:read"): 2, ("python3", "main"): 1, ("nginx", "main", "j:handler"): 4}

names = st.text(min_size=1, max_size=8)
rows = st.dictionaries(st.lists(names, min_size=1, max_size=5).map(tuple), st.integers(1, 900), min_size=1, max_size=9)


def test_pprof_has_every_stack_with_its_samples_and_time():
    read = read_pprof(render_pprof(build_tree(profile(KNOWN, weight_us=5)), WINDOW))
    assert read.types == [("samples", "count"), ("cpu", "nanoseconds")]
    assert sorted(read.samples) == [
        (["handler", "main", "[nginx]"], [4, 20_000]),
        (["main", "[python3]"], [1, 5_000]),
        (["read", "main", "[python3]"], [2, 10_000]),
    ]
    assert (read.time, read.duration) == (WINDOW.since, WINDOW.nanos)
    assert read.modules["read"] == "[kernel]"
    assert read.modules["main"] == "/usr/lib/libc.so.6"


@settings(deadline=None)
@given(rows)
def test_pprof_sums_are_those_of_the_recording(given_rows):
    tree = build_tree(profile(given_rows, weight_us=7))
    samples = read_pprof(render_pprof(tree, WINDOW)).samples
    assert sum(values[0] for _, values in samples) == sum(given_rows.values())
    assert sum(values[1] for _, values in samples) == sum(given_rows.values()) * 7_000


def test_pprof_of_a_busy_node():
    tree = build_tree(random_profile(3000))
    read = read_pprof(render_pprof(tree, WINDOW))
    assert sum(values[1] for _, values in read.samples) == int(tree.weight[0]) * 1000
    assert len({tuple(stack) for stack, _ in read.samples}) == len(read.samples)


def test_speedscope_has_every_stack_with_its_time():
    document = json.loads(render_speedscope(build_tree(profile(KNOWN, weight_us=5)), "node-1"))
    assert document["$schema"] == SCHEMA
    (found,) = document["profiles"]
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    stacks = Counter()
    for sample, weight in zip(found["samples"], found["weights"], strict=True):
        stacks[tuple(frames[each] for each in sample)] += weight
    assert stacks == {("python3", "main", "read"): 10, ("python3", "main"): 5, ("nginx", "main", "handler"): 20}
    assert (found["type"], found["unit"]) == ("sampled", "microseconds")
    assert (found["startValue"], found["endValue"]) == (0, 35)


@settings(deadline=None)
@given(rows)
def test_speedscope_sums_are_those_of_the_recording(given_rows):
    (found,) = json.loads(render_speedscope(build_tree(profile(given_rows, weight_us=7)), "n"))["profiles"]
    assert sum(found["weights"]) == found["endValue"] == sum(given_rows.values()) * 7
