"""Flame graphs in a real browser: what is drawn can be searched, zoomed and reset."""

import html
import json
import re
import subprocess

import pytest
from tests.present.profiles import profile, random_profile

from exhume.present.flame import build_tree
from exhume.present.flame_html import render_html
from exhume.present.flame_page import FlamePage
from exhume.present.flame_svg import render_svg

pytestmark = pytest.mark.needs("chromium")

PAGE = FlamePage("node", "now", baseline="before")
STACKS = {
    ("kubelet", "main", "k:read", "k:mem_cgroup"): 60,
    ("kubelet", "main", "k:read", "k:read"): 10,
    ("python3", "main", "<script>alert(1)</script>"): 30,
}
BASELINE = {("kubelet", "main"): 50, ("python3", "main", "gone"): 50}


@pytest.fixture
def browse(tmp_path):
    """Open a file in a browser, run a function in it, and give what it returned."""

    def run(content: str, ending: str, script: str):
        told = f"document.documentElement.setAttribute('data-told', JSON.stringify((() => {{ {script} }})()))"
        closing = {"html": "</body>", "svg": "</svg>"}[ending]
        before, _, after = content.rpartition(closing)
        wrapped = f"<script>{told}</script>" if ending == "html" else f"<script><![CDATA[{told}]]></script>"
        target = tmp_path / f"flame.{ending}"
        target.write_text(f"{before}{wrapped}{closing}{after}")
        flags = (
            "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
            "--disable-component-update --disable-sync --virtual-time-budget=5000 --window-size=1300,800 --dump-dom"
        )
        command = ["chromium", *flags.split(), f"--user-data-dir={tmp_path / 'browser'}", target.as_uri()]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stdout
        return json.loads(html.unescape(re.search(r'data-told="(.*?)"', shown)[1]))

    return run


TYPE = """
    const field = document.getElementById("search");
    const type = (text) => { field.value = text; field.dispatchEvent(new Event("input")); };
    const said = () => document.getElementById("matched").textContent;
"""


def test_svg_search_zoom_and_reset(browse):
    script = (
        TYPE
        + """
        const frames = [...document.querySelectorAll(".f")];
        const named = (name) => frames.find((f) => f.querySelector("title").textContent.startsWith(name));
        const wide = (f) => +f.querySelector("rect").getAttribute("width");
        const found = [];
        type("^read$"); found.push(said(), frames.filter((f) => f.classList.contains("match")).length);
        type("("); found.push(said());
        document.getElementById("reset").dispatchEvent(new MouseEvent("click", { bubbles: true })); found.push(said());
        const before = wide(named("mem_cgroup"));
        named("kubelet").querySelector("rect").dispatchEvent(new MouseEvent("click", { bubbles: true }));
        found.push(Math.round(wide(named("kubelet"))), wide(named("mem_cgroup")) > before);
        found.push(named("python3").classList.contains("away"));
        document.getElementById("reset").dispatchEvent(new MouseEvent("click", { bubbles: true }));
        found.push(wide(named("mem_cgroup")) === before, named("python3").classList.contains("away"));
        found.push(named("<script>") !== undefined);
        return found;
    """
    )
    found = browse(render_svg(build_tree(profile(STACKS)), PAGE), "svg", script)
    # Two frames called read, one inside the other: the share counts what either covers, once.
    assert found == ["2 frames, 70.00%", 2, "not a regular expression", "", 1180, True, True, True, False, True]


def test_html_search_zoom_and_functions(browse):
    script = (
        TYPE
        + """
        const cells = (row) => [...row.cells].map((cell) => cell.textContent);
        const rows = () => [...document.querySelectorAll("#functions tr")].map(cells);
        const details = () => document.getElementById("details").textContent;
        const canvas = document.getElementById("flame");
        const found = [details(), rows()[0], rows().find((r) => r[0] === "read")];
        type("^read$"); found.push(said());
        type("SCRIPT"); found.push(said());
        document.getElementById("reset").click(); found.push(said());
        const box = canvas.getBoundingClientRect();
        const at = (x, row) => ({ clientX: box.left + x, clientY: box.top + 10 + row * 19 });
        const click = (x, row) => canvas.dispatchEvent(new MouseEvent("click", at(x, row)));
        click(box.width - 5, 1); found.push(details().split(" · ")[0]);
        click(5, 1); found.push(details().split(" · ")[0]);
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" })); found.push(details().split(" · ")[0]);
        dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" })); found.push(details().split(" · ")[0]);
        return found;
    """
    )
    found = browse(render_html(build_tree(profile(STACKS)), PAGE), "html", script)
    assert found == [
        "all · 100.00% · 100 samples · 1,000 ms CPU",
        ["mem_cgroup", "60.00%", "60.00%"],
        ["read", "10.00%", "70.00%"],
        "2 frames, 70.00%",
        "1 frame, 30.00%",
        "",
        "python3",
        # Zoomed into python3, there is nothing else at the left.
        "python3",
        "main",
        "all",
    ]


def test_html_difference_tells_both_sides(browse):
    script = (
        TYPE
        + """
        const rows = [...document.querySelectorAll("#functions tr")].map((r) => [...r.cells].map((c) => c.textContent));
        type("gone"); const gone = said();
        type("mem_cgroup"); return [gone, said(), rows.length, rows[0]];
    """
    )
    tree = build_tree(profile(STACKS), profile(BASELINE))
    gone, grown, rows, first = browse(render_html(tree, PAGE), "html", script)
    assert gone == "1 frame, 0.00% against 50.00%, −50.00 points"
    assert grown == "1 frame, 60.00% against 0.00%, +60.00 points"
    assert rows == 5
    assert first == ["mem_cgroup", "+60.00", "+60.00"]


@pytest.mark.alone
def test_html_stays_fluid_with_tens_of_thousands_of_frames(browse):
    tree = build_tree(random_profile(3_000))
    assert len(tree) > 20_000
    script = (
        TYPE
        + """
        const times = [];
        for (let letters = 1; letters <= "function_1".length; letters++) {
            const began = performance.now();
            type("function_1".slice(0, letters));
            times.push(performance.now() - began);
        }
        return [said().split(" ")[0], times];
    """
    )
    found, milliseconds = browse(render_html(tree, PAGE), "html", script)
    assert int(found.replace(",", "")) > 1_000
    # Letter by letter; the median, since others may take the machine while one of them is typed.
    assert sorted(milliseconds)[len(milliseconds) // 2] < 500, milliseconds


def test_an_empty_page_works(browse):
    script = TYPE + 'type("x"); return [said(), document.getElementById("nothing").hidden];'
    assert browse(render_html(build_tree(profile({})), PAGE), "html", script) == ["0 frames, 0.00%", False]
