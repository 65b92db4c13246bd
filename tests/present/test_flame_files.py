"""Flame graphs as files: well-formed and self-contained whatever the names in them are."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from hypothesis import given, settings
from pydantic import TypeAdapter
from tests.store.profiles import hostile_rows, profile, random_profile, trees

from exhume.present.flame import FlameCaption, largest_changes, render_svg
from exhume.present.html.flame import MAX_FRAMES, flame_report
from exhume.present.html.schemas import FlameReport
from exhume.store.read.flame_tree import build_tree

PAGE = FlameCaption("node <1> & co", "03:14:02 – 03:14:09", baseline="before", blind_spots=["4 samples lost"])
SVG = "{http://www.w3.org/2000/svg}"


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
def test_svg_is_well_formed_and_without_scripts(rows):
    for tree in trees(rows):
        root = ElementTree.fromstring(render_svg(tree, PAGE).encode("utf-8", "replace"))
        assert root.findall(f".//{SVG}script") == []
        assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
        assert len(root.findall(f".//{SVG}g[@class='f']")) == len(tree)


@settings(deadline=None)
@given(hostile_rows)
def test_html_holds_its_data_as_data(rows):
    for tree in trees(rows):
        page = Elements(flame_report(tree, PAGE))
        assert page.tags.count("script") == 2
        text = "".join(page.content["script", "data"]).encode("utf-8", "replace")
        data = TypeAdapter(FlameReport).validate_json(text)
        assert data["title"] == PAGE.title
        assert len(data["flame"]["label"]) == len(tree)
        assert data["flame"]["weight"][0] == tree.weight[0]


def test_a_picture_grows_as_the_page_does():
    tree = build_tree(random_profile(200))
    frames = [
        ElementTree.fromstring(render_svg(tree, PAGE, up=up).encode()).findall(".//{*}g[@class='f']/{*}rect")
        for up in (False, True)
    ]
    down, up = ([float(rect.get("y")) for rect in rects] for rects in frames)
    # The root comes first; each row is as far from the other end.
    assert (down[0], up[0]) == (min(down), max(up))
    assert {one + other for one, other in zip(down, up, strict=True)} == {down[0] + up[0]}
    assert [rect.get("x") for rect in frames[0]] == [rect.get("x") for rect in frames[1]]


def test_files_ask_for_nothing_from_elsewhere():
    tree = build_tree(random_profile(200))
    svg = render_svg(tree, PAGE)
    html = flame_report(tree, PAGE)
    # Names of XML namespaces, which the drawing library writes, are no addresses.
    namespaces = {f"http://www.w3.org/{name}" for name in ("2000/svg", "1999/xhtml", "1998/Math/MathML")}
    assert set(re.findall(r"\w+://[^\s\"'`<);]+", svg + html)) <= namespaces
    assert not re.search(r"\bsrc=|@import|url\(", svg + html)
    assert re.findall(r"\bhref=\"([^\"]*)\"", svg + html) == ["data:,"]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    directives = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert "unsafe" not in policy
    assert {name for name in directives if name.endswith("-src")} == {
        *("default-src", "script-src", "style-src", "img-src"),
    }


def test_the_policy_allows_the_script_and_the_style_by_their_hash():
    html = flame_report(build_tree(profile({})), PAGE)
    for element, directive in (('script type="module"', "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{element}>(.*?)</{element.split(' ')[0]}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in html


def test_the_licences_of_bundled_packages_are_in_the_file():
    html = flame_report(build_tree(profile({})), PAGE)
    notices = html.rpartition("<!--")[2]
    assert {"preact", "@preact/signals", "@preact/signals-core"} == set(
        re.findall(r"^(\S+) [\d.]+ \(MIT\)$", notices, re.M)
    )
    assert notices.count("Permission is hereby granted") == 3


def test_a_report_of_seconds_is_small():
    html = flame_report(build_tree(random_profile(20_000)), PAGE)
    assert len(flame_report(build_tree(profile({})), PAGE)) < 150_000
    assert len(html) < 1_000_000


def test_frames_only_in_the_baseline_are_drawn_and_said():
    tree = build_tree(profile({("app", "stays"): 1}), profile({("app", "stays"): 1, ("app", "gone"): 1}))
    svg = render_svg(tree, PAGE)
    assert "gone" in svg
    assert "baseline 50.00%, -50.00 points" in svg


def test_an_empty_window_says_so():
    assert "no samples in this window" in render_svg(build_tree(profile({})), PAGE)


def test_an_enormous_report_keeps_its_widest_frames_and_counts_the_others():
    tree = build_tree(random_profile(20_000))
    assert len(tree) > MAX_FRAMES
    flame = json.loads("".join(Elements(flame_report(tree, PAGE)).content["script", "data"]))["flame"]
    kept = len(flame["label"])
    assert kept <= MAX_FRAMES
    assert flame["dropped"] == len(tree) - kept
    assert all(parent < node for node, parent in enumerate(flame["parent"]) if node)


def test_frames_too_thin_to_draw_are_counted():
    rows = {("app", "wide"): 1_000_000, ("app", "thin"): 1}
    assert "1 frame too thin to draw" in render_svg(build_tree(profile(rows)), PAGE)


def test_the_largest_changes_are_named_with_both_sides():
    lines = largest_changes(
        build_tree(profile({("a", "f"): 90, ("a", "g"): 10}), profile({("a", "f"): 10, ("a", "g"): 90}))
    )
    assert len(lines) == 2
    assert "f: 10.0% -> 90.0%" in lines[0]
    assert "+80.00 points" in lines[0]
    assert largest_changes(build_tree(profile({("a", "f"): 1}))) == []
