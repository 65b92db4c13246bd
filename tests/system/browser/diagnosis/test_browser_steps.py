"""Sequences of actions: keys after the mouse, a baseline next to the selection, undo."""

import base64
import re

import pytest
from playwright.sync_api import Page, Route, expect
from tests.diagnose.scenes import Scene
from tests.system.browser.axe import violations
from tests.system.browser.canvas import CORES, box, drag, spot, state, until, wait_for_state
from tests.system.browser.idle import at_rest

from exhume.model.clock import MILLIS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_diagnosis")]


def test_keys_work_after_the_mouse_was_in_the_heatmap(at_incident: Page):
    heat = box(at_incident, "heatmap")
    at_incident.mouse.click(heat["x"] + 40, heat["y"] + 40)
    at_incident.keyboard.press("5")
    wait_for_state(at_incident, "tab=events")
    at_incident.keyboard.press("n")
    wait_for_state(at_incident, "cpus=")
    at_incident.keyboard.press("/")
    expect(at_incident.get_by_test_id("events-search")).to_be_focused()
    at_incident.keyboard.press("Escape")
    at_incident.keyboard.press("4")
    at_incident.keyboard.press("/")
    expect(at_incident.get_by_test_id("flame-search")).to_be_focused()


def test_a_baseline_is_drawn_next_to_the_selection(at_incident: Page, incident):
    before = state(at_incident)
    view = (int(before["since"]), int(before["until"]))
    at_incident.keyboard.press("2")
    at_incident.get_by_test_id("baseline").select_option("window")
    expect(at_incident.get_by_test_id("pick-base")).to_have_attribute("aria-pressed", "true")
    since = incident.since // MILLIS
    drag(at_incident, spot(at_incident, view, since - 30_000, 2), spot(at_incident, view, since - 20_500, 5))
    after = wait_for_state(at_incident, "b0=", "b1=")
    assert [after[name] for name in ("s0", "s1", "cpus")] == [before[name] for name in ("s0", "s1", "cpus")]
    assert abs(int(after["b0"]) - (since - 30_000)) <= 1500
    assert abs(int(after["b1"]) - (since - 20_500)) <= 1500
    expect(at_incident.get_by_test_id("base")).to_be_visible()
    expect(at_incident.locator(".flame-summary")).to_contain_text("the selected baseline window")
    # The next box is a selection again.
    drag(at_incident, spot(at_incident, view, since - 10_000, 2), spot(at_incident, view, since - 5_500, 2))
    assert wait_for_state(at_incident, "cpus=2")["b0"] == after["b0"]


def test_escape_gives_up_picking_and_keeps_the_selection(at_incident: Page):
    at_incident.keyboard.press("2")
    at_incident.get_by_test_id("baseline").select_option("window")
    picking = at_incident.get_by_test_id("pick-base")
    picking.focus()
    at_incident.keyboard.press("Escape")
    expect(picking).to_have_attribute("aria-pressed", "false")
    assert "s0" in state(at_incident)


def test_one_core_of_many_in_the_sub_second_view(at_incident: Page, incident):
    at_incident.keyboard.press("3")
    cores = at_incident.get_by_test_id("one-core")
    expect(cores).to_have_value(str(incident.cpu))
    cores.select_option("")
    wait_for_state(at_incident, "!cpus=")
    expect(at_incident.get_by_test_id("scope")).to_contain_text("all cores")
    cores.select_option("2")
    wait_for_state(at_incident, "cpus=2")


def test_evidence_is_left_in_one_step(at_incident: Page):
    at_incident.keyboard.press("6")
    before = wait_for_state(at_incident, "tab=diagnosis")
    at_incident.get_by_test_id("evidence").first.click()
    wait_for_state(at_incident, f"!s0={before['s0']}")
    at_incident.keyboard.press("Backspace")
    assert wait_for_state(at_incident, f"s0={before['s0']}") == before


def test_evidence_is_left_for_an_event(at_incident: Page):
    at_incident.get_by_test_id("aside").get_by_test_id("evidence").first.click()
    wait_for_state(at_incident, "d0=")
    at_incident.get_by_test_id("marks").get_by_role("button").first.click()
    found = wait_for_state(at_incident, "tab=events")
    assert "d0" not in found
    assert "d1" not in found


def test_evidence_is_left_for_another_core(at_incident: Page):
    at_incident.get_by_role("tab", name="Sub-second").click()
    at_incident.get_by_test_id("aside").get_by_test_id("evidence").first.click()
    wait_for_state(at_incident, "d0=")
    at_incident.get_by_test_id("one-core").select_option("3")
    assert "d0" not in wait_for_state(at_incident, "cpus=3")


@pytest.mark.parametrize("panel", ["1", "6"])
def test_a_diagnosis_stays_while_its_evidence_is_followed(at_incident: Page, panel):
    at_incident.keyboard.press(panel)
    where = at_incident.get_by_test_id("diagnosis" if panel == "6" else "aside")
    expect(where.get_by_test_id("verdict")).to_be_visible()
    at_rest(at_incident)

    def read() -> list[str]:
        finding = where.get_by_test_id("finding").first
        return [where.get_by_test_id("verdict").inner_text(), finding.inner_text()]

    before, chosen = read(), state(at_incident)
    for place in range(2):
        where.get_by_test_id("evidence").nth(place).click()
        wait_for_state(at_incident, f"d0={chosen['s0']}", f"d1={chosen['s1']}")
        at_rest(at_incident)
        assert read() == before
    expect(at_incident.get_by_test_id("heatmap")).to_be_in_viewport()
    where.get_by_test_id("pinned-diagnosis").get_by_role("button", name="back to it").click()
    after = wait_for_state(at_incident, f"s0={chosen['s0']}", "!d0=")
    assert after["cpus"] == chosen["cpus"]
    assert read() == before
    # A selection by hand is another question.
    where.get_by_test_id("evidence").first.click()
    wait_for_state(at_incident, "d0=")
    heat = box(at_incident, "heatmap")
    at_incident.mouse.click(heat["x"] + 0.2 * heat["width"], heat["y"] + 2.5 * heat["height"] / CORES)
    wait_for_state(at_incident, "!d0=", "cpus=2")


def test_an_outdated_flame_request_is_aborted(at_incident: Page):
    aborted: dict[str, str | None] = {}
    at_incident.on("requestfailed", lambda request: aborted.update({request.url: request.failure}))
    # The server's answers are held back.
    at_incident.route("**/api/flame?*", lambda route: None)
    heat = box(at_incident, "heatmap")
    requested = []
    for share, row in ((0.2, 2), (0.5, 5)):
        with at_incident.expect_request("**/api/flame?*") as asking:
            at_incident.mouse.click(heat["x"] + share * heat["width"], heat["y"] + (row + 0.5) * heat["height"] / CORES)
        requested.append(asking.value.url)
        assert f"cpus={row}&" in requested[-1]
    # The first is given up for the second, the second for another panel.
    at_incident.keyboard.press("5")
    until(at_incident, lambda: aborted.keys() >= set(requested))
    assert [aborted.get(url) for url in requested] == ["net::ERR_ABORTED"] * 2
    at_incident.unroute("**/api/flame?*")


def test_a_slow_request_shows_its_progress_and_can_be_stopped(at_incident: Page):
    requested: list[str] = []

    def hold(route: Route) -> None:
        requested.append(route.request.headers["x-exhume-request"])

    # The server's answer is held back; its progress is faked.
    at_incident.route("**/api/flame?*", hold)
    at_incident.route(
        "**/api/progress?*",
        lambda route: route.fulfill(json={"requests": {name: {"done": 3, "of": 1200} for name in requested}}),
    )
    heat = box(at_incident, "heatmap")
    at_incident.mouse.click(heat["x"] + 0.2 * heat["width"], heat["y"] + 2.5 * heat["height"] / CORES)
    flame = at_incident.get_by_test_id("flame")
    expect(flame).to_contain_text("reading the stacks … 3 of 1,200 segments")
    expect(flame.get_by_role("progressbar", name="reading the stacks")).to_have_attribute("value", "3")
    with at_incident.expect_event("requestfailed", lambda request: "/api/flame?" in request.url):
        flame.get_by_role("button", name="stop").click()
    # What was there before is no answer to this.
    expect(flame).to_contain_text("Stopped.")
    expect(at_incident.get_by_test_id("flame-canvas")).to_have_count(0)
    at_incident.unroute("**/api/flame?*")
    at_incident.unroute("**/api/progress?*")
    flame.get_by_role("button", name="read the stacks").click()
    expect(at_incident.get_by_test_id("flame-canvas")).to_be_visible()


def test_repeated_events_are_folded_and_counted_as_on_the_timeline(new_page, served, tmp_path):
    scene = Scene(cores=2, seconds=60)
    for second in range(10, 40):
        scene.event(second, "link", f"eth0: renamed from veth{second:06x}", "info")
    scene.event(41, "nic-reset", "eth0: reset", device="eth0")
    scene.event(41, "incident", "kernel-log: eth0: reset", source="recorder", trigger="nic-reset", device="eth0")
    scene.row("losses", 55, source="perf", kind="overrun", count=31, text="the buffer was full")
    scene.write(tmp_path / "r")
    page = new_page(f"{served(tmp_path / 'r')}#tab=events", bypass_csp=True)
    # Marks close to each other are one incident: the panel counts the former, the lane the latter.
    expect(page.get_by_role("group", name="incidents", exact=True)).to_contain_text("1 incident")
    rows = page.get_by_role("table", name="events of the window").locator("tbody tr")
    expect(rows).to_have_count(3)
    # The lane counts the same: neither marks of incidents nor losses.
    expect(page.get_by_test_id("events-counted")).to_have_text("31 events · 1 loss")
    expect(page.get_by_role("group", name="events", exact=True).first).to_contain_text("31 events")
    expect(rows.nth(1).locator(".severity")).to_have_class(re.compile("critical"))
    expect(rows.nth(1)).to_contain_text("incident")
    fold = rows.first.get_by_role("button", name="×30")
    expect(fold).to_have_attribute("aria-expanded", "false")
    fold.click()
    expect(rows.first.locator(".folded li")).to_have_count(30)
    at_rest(page)
    assert not (broken := violations(page, ".panels")), "\n".join(broken)
    page.keyboard.press("e")
    wait_for_state(page, "fold=0")
    expect(rows).to_have_count(32)


def test_events_are_searched_chosen_by_kind_and_filtered(new_page, served, tmp_path):
    scene = Scene(cores=2, seconds=60)
    for second in range(10, 40):
        scene.event(second, "nic-reset", f"eth{second % 2}: reset")
    scene.event(50, "oom", "Out of memory: Killed process 7 (app)", comm="app", pid=7)
    scene.row("losses", 55, source="perf", kind="overrun", count=31, text="the buffer was full")
    scene.write(tmp_path / "r")
    page = new_page(f"{served(tmp_path / 'r')}#tab=events&fold=0", bypass_csp=True)
    rows = page.get_by_role("table", name="events of the window").locator("tbody tr")
    kinds, marks = page.get_by_test_id("kinds"), page.get_by_test_id("marks").get_by_role("button")
    expect(rows).to_have_count(32)
    expect(rows.last).to_contain_text("perf: 31 overrun, the buffer was full")
    expect(kinds.get_by_role("button")).to_have_text(["every kind 32", "lost 1", "nic-reset 30", "oom 1"])
    expect(marks.filter(has_text="lost: perf: 31 overrun")).to_contain_text("▒")
    signs = page.get_by_test_id("mark-legend").get_by_role("listitem")
    expect(signs).to_have_text(["◆ critical", "▲ warning", "○ info", "▒ lost"])
    # Marks that stand close are wide enough to be hit, and are called what is seen.
    at_rest(page)
    assert marks.count() > 10
    assert not (broken := violations(page)), "\n".join(broken)

    page.keyboard.press("/")
    expect(page.get_by_test_id("events-search")).to_be_focused()
    page.keyboard.type("ETH1")
    expect(rows).to_have_count(15)
    expect(kinds.get_by_role("button", name="nic-reset")).to_have_text("nic-reset 15")
    kinds.get_by_role("button", name="nic-reset").click()
    wait_for_state(page, "find=ETH1", "kinds=nic-reset")
    page.get_by_test_id("events-search").fill("memory")
    expect(page.get_by_test_id("events")).to_contain_text("1 of other kinds")
    kinds.get_by_role("button", name="oom").click()
    expect(rows).to_have_count(1)
    # A link holds it, and one step back takes the last choice away.
    page.reload()
    expect(rows).to_have_count(1)
    expect(kinds.get_by_role("button", name="oom")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_test_id("events-search")).to_have_value("memory")
    page.keyboard.press("Backspace")
    wait_for_state(page, "!oom")
    kinds.get_by_role("button", name="every kind").click()
    page.get_by_test_id("events-search").fill("")
    expect(rows).to_have_count(32)

    page.keyboard.press("Escape")
    page.keyboard.press("f")
    expect(page.get_by_role("combobox", name="filter")).to_be_focused()
    page.keyboard.type("comm:kubelet")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(31)
    expect(page.get_by_test_id("elsewhere")).to_contain_text("1 event")
    expect(marks.filter(has_text="Out of memory")).to_have_count(0)


def test_the_timeline_is_saved_as_a_picture(at_incident: Page, incident, tmp_path):
    with at_incident.expect_download() as saving:
        at_incident.get_by_test_id("timeline-png").click()
    assert saving.value.suggested_filename.endswith("-timeline.png")
    saving.value.save_as(tmp_path / "timeline.png")
    picture = base64.b64encode((tmp_path / "timeline.png").read_bytes()).decode()
    heat, screen = box(at_incident, "heatmap"), at_incident.viewport_size
    assert screen is not None
    # The incident's core is a line of the kernel's colour in the saved picture, too.
    seen = at_incident.evaluate(
        """async data => {
            const image = new Image();
            image.src = `data:image/png;base64,${data}`;
            await image.decode();
            const canvas = document.createElement('canvas');
            [canvas.width, canvas.height] = [image.width, image.height];
            const pen = canvas.getContext('2d');
            pen.drawImage(image, 0, 0);
            const bytes = pen.getImageData(0, 0, image.width, image.height).data;
            const rows = new Array(image.height).fill(0);
            for (let i = 0; i < bytes.length; i += 4) {
                if (bytes[i] > 180 && bytes[i + 1] < 130 && bytes[i + 2] < 60) rows[Math.floor(i / 4 / image.width)]++;
            }
            return [image.width, image.height, Math.max(...rows)];
        }""",
        picture,
    )
    width, height, orange_pixels = seen
    assert heat["width"] < width <= screen["width"] + 24
    assert height > heat["height"]
    assert orange_pixels > heat["width"] * 0.03
