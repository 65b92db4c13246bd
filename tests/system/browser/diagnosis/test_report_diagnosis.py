"""The HTML report of a diagnosis in a real browser: charts are drawn and answer the pointer, and nothing overflows."""

import pytest
from playwright.sync_api import Page, expect
from tests.diagnose.scenes import Scene, at

from exhume.diagnose.engine import diagnose
from exhume.model.times import UTC
from exhume.present.html.reports import diagnosis_report

pytestmark = pytest.mark.xdist_group("browser_diagnosis")

PATH = ["do_syscall_64", "vfs_read", "zorp_scan_table", "zorp_hash"]
NASTY = "</script><img src=x onerror=alert(1)>"
SECONDS, CORES = 60, 24


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> str:
    scene = Scene(cores=CORES, seconds=SECONDS).core(7, 30, 37, system=990).stack(7, 30, 37, 0.97, NASTY, 4711, PATH)
    for cpu in range(CORES):
        scene.core(cpu, 0, 30, user=300)
    scene.stack(7, 0, 30, 0.1, "idler", 12, ["main"])
    scene.event(36.6, "nic-tx-paused", f"eth0: {NASTY}", device="eth0", queue=5)
    recording = scene.write(tmp_path_factory.mktemp("scene"))
    return diagnosis_report(recording, diagnose(recording, scene.window), UTC)


def hover(page: Page, testid: str, second: float, row: float = 0.5) -> str:
    """The tooltip at a second, and at a share of the height."""
    chart = page.get_by_test_id(testid)
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": (second + 0.5) / SECONDS * box["width"], "y": row * box["height"]})
    return page.get_by_test_id("tip").inner_text()


def colour(page: Page, second: float, cpu: int) -> list[int]:
    found: list[int] = page.evaluate(
        """([x, y]) => {
            const canvas = document.querySelector('[data-testid=heat] canvas');
            const pen = canvas.getContext('2d');
            return [...pen.getImageData(x * canvas.width, y * canvas.height, 1, 1).data].slice(0, 3);
        }""",
        [(second + 0.5) / SECONDS, (cpu + 0.5) / CORES],
    )
    return found


def test_the_bad_core_is_drawn_and_described(open_report, report):
    page = open_report(report)
    bad, idle = colour(page, 33, 7), colour(page, 33, 8)
    assert bad[0] > 180  # orange
    assert bad[2] < 100
    assert max(idle) - min(idle) < 12  # nothing happened there
    moment = "20:27:33"
    assert at(33) % 86_400_000_000_000 // 1_000_000_000 == 20 * 3600 + 27 * 60 + 33
    assert hover(page, "heat", 33, 7.5 / CORES) == f"core 7 at {moment}\n99 % system"
    assert hover(page, "curve", 33) == f"{moment}: 99 % of core 7 in the kernel"
    assert hover(page, "curve", 36).endswith(f"◆ eth0: {NASTY}")


def test_the_calm_and_the_focus_are_framed_over_their_seconds(open_report, report):
    page = open_report(report)
    heat = page.get_by_test_id("heat").bounding_box()
    focus = page.locator("[data-testid=heat] .band-focus").bounding_box()
    calm = page.locator("[data-testid=heat] .band-baseline").bounding_box()
    assert heat and focus and calm
    since, until = ((edge - heat["x"]) / heat["width"] * SECONDS for edge in (focus["x"], focus["x"] + focus["width"]))
    assert since < 31 and until > 36
    assert calm["x"] + calm["width"] <= focus["x"] + 1


@pytest.mark.parametrize("width", [1280, 700])
def test_everything_is_in_it_and_nothing_overflows(open_report, report, width):
    page = open_report(report, width=width)
    expect(page.get_by_test_id("flame-canvas")).to_be_visible()
    headings = page.locator("h2").all_inner_texts()
    compared = "Stacks compared with the baseline"
    assert headings == ["Where the time went", "Cores", compared, "Events", "Ruled out", "Blind spots"]
    roles = page.get_by_test_id("finding").first.locator(".role").all_inner_texts()
    assert roles[0] == "symptom" and "mechanism" in roles
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("img").count() == 0
    assert page.locator(".badge").all_text_contents()[:2] == ["starved", "critical"]
    expect(page.locator(".culprit-facts").first).to_contain_text(f"{NASTY} (4711)")


def test_it_fits_on_paper(open_report, report):
    page = open_report(report)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 990})
    heat = page.get_by_test_id("heat").bounding_box()
    canvas = page.locator("[data-testid=heat] canvas").bounding_box()
    assert heat and canvas
    assert (canvas["x"], canvas["width"]) == pytest.approx((heat["x"], heat["width"]), abs=1)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_it_has_the_page_of_the_cause(open_report, report):
    page = open_report(report)
    about = page.get_by_test_id("about-cause").first
    about.locator("summary").click()
    expect(about.get_by_role("heading", name="How to fix it")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
