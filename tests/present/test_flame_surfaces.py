"""Flame graphs as files: well-formed and self-contained whatever the names in them are."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.present.profiles import profile, random_profile

from exhume.present.flame import build_tree
from exhume.present.flame_html import MOST_FRAMES, render_html
from exhume.present.flame_page import FlamePage
from exhume.present.flame_svg import render_svg
from exhume.present.folded import folded_lines, render_folded

PAGE = FlamePage("node <1> & co", "03:14:02 – 03:14:09", baseline="before", blind_spots=["4 samples lost"])
HOSTILE = [
    "<script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "</script><script>alert(1)//",
    "</title><g onload='alert(1)'>",
    "<!-- -->",
    "<!--data-->",
    "\"quoted\" 'single' & more",
    "a;b;c",
    "two\nlines\r\nthree",
    "nul\0 escape\x1b[31m",
    "naïve λ 名前 \U0001f525",
    "\ud800 lone",
    "operator<<(std::ostream&)",
    "\u2028separator",
    "",
]
SVG = "{http://www.w3.org/2000/svg}"
names = st.text(min_size=0, max_size=12) | st.sampled_from(HOSTILE)
hostile_rows = st.dictionaries(
    st.lists(names, min_size=1, max_size=4).map(tuple), st.integers(1, 9), min_size=1, max_size=8
)


def trees(rows):
    return build_tree(profile(rows)), build_tree(profile(rows), profile({("other", *HOSTILE): 3}))


class Elements(HTMLParser):
    """The elements of a page and the text inside each kind."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.content, self._open = [], {}, None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._open = (tag, dict(attrs).get("id"))

    def handle_data(self, data):
        self.content.setdefault(self._open, []).append(data)

    def handle_endtag(self, _):
        self._open = None


@settings(deadline=None)
@given(hostile_rows)
def test_svg_is_well_formed_and_only_its_own_script_is_in_it(rows):
    for tree in trees(rows):
        root = ElementTree.fromstring(render_svg(tree, PAGE).encode("utf-8", "replace"))
        assert len(root.findall(f".//{SVG}script")) == 1
        assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
        assert len(root.findall(f".//{SVG}g[@class='f']")) == len(tree)


@settings(deadline=None)
@given(hostile_rows)
def test_html_holds_its_data_as_data(rows):
    for tree in trees(rows):
        page = Elements(render_html(tree, PAGE))
        assert page.tags.count("script") == 2
        data = json.loads("".join(page.content["script", "data"]))
        assert len(data["nodes"]["label"]) == len(tree)
        assert data["nodes"]["weight"][0] == tree.weight[0]


def test_files_ask_for_nothing_from_elsewhere():
    tree = build_tree(random_profile(200))
    svg = render_svg(tree, PAGE)
    html = render_html(tree, PAGE)
    allowed = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
    assert set(re.findall(r"\w+://[^\s\"'<)]+", svg)) <= allowed
    assert not re.findall(r"\w+://", html)
    assert not re.search(r"\b(src|href)=|@import|url\(", svg + html)
    assert "default-src 'none'" in html


@settings(deadline=None)
@given(hostile_rows)
def test_folded_lines_can_be_taken_apart_again(rows):
    current, difference = trees(rows)
    total = 0
    for line in folded_lines(current):
        assert line.splitlines() == [line]
        stack, weight = line.rsplit(" ", 1)
        assert len(stack.split(";")) <= 4
        total += int(weight)
    assert total == current.weight[0]
    sides = [line.rsplit(" ", 2)[1:] for line in folded_lines(difference)]
    assert sum(int(now) for _, now in sides) == difference.weight[0]
    assert sum(int(before) for before, _ in sides) == difference.base_weight[0]


def test_folded_text_of_known_stacks():
    tree = build_tree(profile({("python3", "main", "k:read"): 2, ("python3", "main"): 1}, weight_us=5))
    assert sorted(render_folded(tree).splitlines()) == ["python3;main 5", "python3;main;read 10"]


def test_frames_only_in_the_baseline_are_drawn_and_said():
    tree = build_tree(profile({("app", "stays"): 1}), profile({("app", "stays"): 1, ("app", "gone"): 1}))
    svg = render_svg(tree, PAGE)
    assert "gone" in svg
    assert "baseline 50.00%, -50.00 points" in svg


@pytest.mark.parametrize("render", [render_svg, render_html])
def test_an_empty_window_says_so(render):
    assert "no samples in this window" in render(build_tree(profile({})), PAGE)


def test_an_enormous_page_keeps_its_widest_frames_and_says_what_is_missing():
    tree = build_tree(random_profile(20_000))
    assert len(tree) > MOST_FRAMES
    data = json.loads("".join(Elements(render_html(tree, PAGE)).content["script", "data"]))
    kept = len(data["nodes"]["label"])
    assert kept <= MOST_FRAMES
    assert data["leftOut"] == len(tree) - kept
    assert all(parent < node for node, parent in enumerate(data["nodes"]["parent"]) if node)


def test_frames_too_thin_to_draw_are_counted():
    rows = {("app", "wide"): 1_000_000, ("app", "thin"): 1}
    assert "1 frame too thin to draw" in render_svg(build_tree(profile(rows)), PAGE)
