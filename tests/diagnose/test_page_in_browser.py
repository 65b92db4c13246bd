"""The page of a diagnosis in a real browser: its pictures are drawn, answer the mouse, and nothing overflows."""

import html
import json
import re
import subprocess

import pytest
from tests.diagnose.scenes import Scene, at

from exhume.diagnose.engine import diagnose
from exhume.model.times import UTC
from exhume.present.diagnosis_html import render_page
from exhume.present.diagnosis_page import read_page

pytestmark = pytest.mark.needs("chromium")

PATH = ["do_syscall_64", "vfs_read", "zorp_scan_table", "zorp_hash"]
NASTY = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    scene = Scene(cores=24, seconds=60).core(7, 30, 37, system=990).stack(7, 30, 37, 0.97, NASTY, 4711, PATH)
    for cpu in range(24):
        scene.core(cpu, 0, 30, user=300)
    scene.event(36.6, "nic-tx-paused", f"eth0: {NASTY}", device="eth0", queue=5)
    recording = scene.write(tmp_path_factory.mktemp("scene"))
    return render_page(read_page(recording, diagnose(recording, scene.window), UTC))


@pytest.fixture
def browse(tmp_path):
    """Open a page, run a function in it, and give what it returned."""

    def run(content: str, script: str, width: int = 1280):
        told = f"document.documentElement.setAttribute('data-told', JSON.stringify((() => {{ {script} }})()))"
        before, _, after = content.rpartition("</body>")
        target = tmp_path / "page.html"
        target.write_text(f"{before}<script>{told}</script></body>{after}")
        flags = (
            "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
            f"--disable-component-update --disable-sync --virtual-time-budget=5000 --window-size={width},900 --dump-dom"
        )
        command = ["chromium", *flags.split(), f"--user-data-dir={tmp_path / 'browser'}", target.as_uri()]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        return json.loads(html.unescape(re.search(r'data-told="(.*?)"', shown)[1]))

    return run


HELPERS = """
    const heat = document.getElementById("heat"), curve = document.getElementById("curve");
    const colour = (canvas, x, y) => {
        const ratio = canvas.width / canvas.clientWidth;
        return [...canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3);
    };
    const across = (second) => 46 + (second + 0.5) / 60 * (heat.clientWidth - 58);
    const hover = (canvas, x, y) => {
        const box = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + x, clientY: box.top + y }));
        return document.getElementById("tip").textContent;
    };
"""


def test_the_bad_core_is_seen_and_told(browse, page):
    script = (
        HELPERS
        + """
        return [colour(heat, across(33), 7 * 20 + 9), colour(heat, across(33), 8 * 20 + 9),
            hover(heat, across(33), 7 * 20 + 9), hover(curve, across(33), 60), hover(curve, across(36), 60)];
    """
    )
    bad, idle, told, kernel, marked = browse(page, script)
    assert bad[0] > 180  # orange
    assert bad[2] < 100
    assert max(idle) - min(idle) < 12  # nothing happened there
    moment = "20:27:33"
    assert at(33) % 86_400_000_000_000 // 1_000_000_000 == 20 * 3600 + 27 * 60 + 33
    assert told == f"core 7 at {moment}\n99% busy, mostly system"
    assert kernel == f"{moment}: 99% of core 7 in the kernel"
    assert marked.endswith(f"◆ eth0: {NASTY}")


@pytest.mark.parametrize("width", [1280, 700])
def test_everything_is_on_the_page_and_nothing_overflows(browse, page, width):
    script = """
        const texts = (selector) => [...document.querySelectorAll(selector)].map((e) => e.textContent);
        return [texts("h2").map((text) => text.trim()), texts(".chain > li .role").filter(Boolean),
            document.documentElement.scrollWidth <= innerWidth, document.querySelectorAll("img").length,
            document.querySelectorAll("iframe[srcdoc]").length, texts(".badge")];
    """
    headings, roles, fits, images, frames, badges = browse(page, script, width)
    assert headings[-5:] == [
        "The cores",
        "What changed in the stacks",
        "Log and marks",
        "Ruled out",
        "Could not be seen",
    ]
    assert roles[:2] == ["symptom", "mechanism"]
    assert (fits, images, frames) == (True, 0, 1)
    assert badges[:2] == ["starved", "critical"]
