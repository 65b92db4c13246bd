"""Who ran, as a person uses it: rows of slices at short views, the process that is highlighted, and tracks."""

import re

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.axe import violations
from tests.system.browser.canvas import box, colour, filter_by, spot, state, until, wait_for_state
from tests.system.browser.conftest import drawn
from tests.system.browser.idle import at_rest

from exhume.model.clock import MILLIS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_timeline")]

AROUND_MS = 4000
LOOKS = {
    "light": {"bypass_csp": True, "color_scheme": "light"},
    "dark": {"bypass_csp": True, "color_scheme": "dark"},
    "phone": {"bypass_csp": True, "viewport": {"width": 390, "height": 844}, "has_touch": True},
}


@pytest.fixture(scope="module")
def short(incident) -> tuple[int, int]:
    """Four seconds inside of the incident."""
    since = incident.since // MILLIS + 1000
    return since, since + AROUND_MS


@pytest.fixture
def near(new_page, address, short) -> Page:
    page = new_page(f"{address}#since={short[0]}&until={short[1]}")
    drawn(page)
    slices_drawn(page)
    return page


def slices_drawn(page: Page) -> None:
    page.wait_for_function("() => document.querySelector('[data-testid=heatmap]')?.dataset.slices")
    at_rest(page)


def test_a_short_view_shows_who_ran_and_a_long_one_the_measure(near: Page, incident):
    heat = near.get_by_test_id("heatmap")
    expect(heat).to_have_attribute("aria-label", re.compile(rf"who ran on cores 0-15.*most: {incident.comm} \d+"))
    expect(near.get_by_role("list", name="colours of the slices")).to_contain_text("97 Hz")
    near.get_by_role("button", name="1 m", exact=True).click()
    expect(heat).to_have_attribute("aria-label", re.compile("cores 0-15 by time"))
    assert heat.evaluate("each => each.dataset.slices") == ""
    near.get_by_role("button", name="10 s", exact=True).click()
    slices_drawn(near)


def test_what_another_view_needs_is_requested_with_the_next_task(near: Page, short):
    # Not a frame later, which would be most of a tenth of what a person waits for.
    elsewhere = f"#since={short[0] - 60_000}&until={short[1] - 60_000}"
    sent = near.evaluate(
        """hash => new Promise(done => {
            const [sent, original] = [[], window.fetch];
            window.fetch = (...args) => {
                sent.push(String(args[0]));
                return original(...args);
            };
            // Registered last: it is called when the page knows the address.
            window.addEventListener('popstate', () => setTimeout(() => {
                window.fetch = original;
                done(sent);
            }), {once: true});
            location.hash = hash;
        })""",
        elsewhere,
    )
    assert any("api/slices?" in each for each in sent), sent
    slices_drawn(near)


def test_the_rows_can_show_the_measure_instead(near: Page):
    near.keyboard.press("w")
    wait_for_state(near, "slices=0")
    expect(near.get_by_test_id("heatmap")).to_have_attribute("aria-label", re.compile("cores 0-15 by time"))
    near.get_by_role("button", name="who ran", exact=True).click()
    wait_for_state(near, "!slices=0")
    slices_drawn(near)


def test_a_slice_has_its_process_and_function_in_its_tooltip(near: Page, short, incident):
    near.mouse.move(*spot(near, short, short[0] + 2000, incident.cpu).pair)
    tip = near.get_by_test_id("slice-tooltip")
    expect(tip).to_contain_text(f"core {incident.cpu}")
    expect(tip).to_contain_text(incident.comm)
    expect(tip).to_contain_text("kernel")
    expect(tip).to_contain_text(re.compile(r"process \d+"))
    # Its command line is read for it.
    expect(tip.locator(".clipped")).to_contain_text("kubelet")


def test_a_click_selects_the_slice_and_highlights_its_process(near: Page, short, incident):
    others = [cpu for cpu in range(16) if cpu != incident.cpu]
    places = [spot(near, short, short[0] + 100 * step, cpu) for cpu in others for step in range(1, 40, 3)]
    before = [colour(near, "heatmap", place) for place in places]
    mine = spot(near, short, short[0] + 2000, incident.cpu)
    held = colour(near, "heatmap", mine)
    near.mouse.click(*mine.pair)
    chosen = wait_for_state(near, "marked=", f"cpus={incident.cpu}")
    expect(near.get_by_test_id("marked")).to_contain_text(f"{incident.comm} {chosen['marked']}")
    # The samples of the slice are selected, and no others.
    expect(near.get_by_test_id("flame")).to_be_visible()
    until(near, lambda: colour(near, "heatmap", mine) == held)
    until(
        near,
        lambda: sum(colour(near, "heatmap", p) != b for p, b in zip(places, before, strict=True)) > len(places) / 8,
    )
    near.keyboard.press("Escape")
    near.keyboard.press("Escape")
    wait_for_state(near, "!marked=", "!s0=")


def test_a_slice_of_one_sample_selects_that_sample(near: Page, short, incident):
    """A sample stands for the time before it: the selection has to contain it, and not the one before."""
    answer = near.request.get(near.url.partition("#")[0] + f"api/slices?since={short[0]}&until={short[1]}")
    assert answer.ok
    heat = near.get_by_test_id("heatmap")
    heat.focus()
    near.keyboard.press("ArrowRight")
    # Another core, from slice to slice, until one that ran.
    near.keyboard.press("ArrowUp" if incident.cpu else "ArrowDown")
    spoken = near.get_by_test_id("announcement")
    for _ in range(20):
        near.keyboard.press("ArrowLeft")
        said = spoken.text_content() or ""
        if "idle" not in said and "not sampled" not in said:
            break
    name = re.search(r", ([^,]+) (\d+), (?:user code|kernel|interrupts)", said)
    assert name is not None, said
    near.keyboard.press("Enter")
    chosen = wait_for_state(near, "marked=", "s0=")
    assert chosen["marked"] == name[2]
    query = f"since={chosen['s0']}&until={chosen['s1']}&cpus={chosen['cpus']}"
    ran = near.request.get(near.url.partition("#")[0] + f"api/processes?{query}").json()["processes"]
    assert [str(each["pid"]) for each in ran] == [name[2]]


def test_a_filter_leaves_only_what_matches(near: Page, short, incident):
    filter_by(near, incident.comm)
    slices_drawn(near)
    expect(near.get_by_role("list", name="colours of the slices")).to_contain_text("only what matches")
    near.get_by_text("who ran in view, as a table").click()
    rows = near.get_by_role("table", name="processes by their time").locator("tbody tr")
    expect(rows.first).to_contain_text(incident.comm)
    assert all(incident.comm in text for text in rows.all_text_contents())


def test_a_process_has_a_track_of_its_threads(near: Page, short, incident):
    near.mouse.click(*spot(near, short, short[0] + 2000, incident.cpu).pair)
    pid = wait_for_state(near, "marked=")["marked"]
    near.keyboard.press("a")
    wait_for_state(near, f"tracks=pid:{pid}")
    expect(near.get_by_test_id("track-head")).to_contain_text(f"process {pid}")
    track = near.get_by_test_id("track")
    expect(track).to_have_attribute("aria-label", re.compile(rf"process {pid}: \d+ threads?; most: {incident.comm}"))
    near.get_by_text("threads as a table").click()
    expect(near.get_by_role("table", name="threads by their time").locator("tbody tr").first).to_contain_text(
        str(incident.cpu)
    )
    # The thread that held the core is the first row, over the whole view.
    place = box(near, "track")
    near.mouse.move(place["x"] + place["width"] / 2, place["y"] + 5)
    expect(near.get_by_test_id("slice-tooltip")).to_contain_text(f"core {incident.cpu}")
    # A longer view has its share, a link has its tracks, and it can be removed.
    near.get_by_role("button", name="1 m", exact=True).click()
    expect(track).to_have_attribute("aria-label", re.compile("the core on which it ran most"))
    near.reload()
    drawn(near)
    expect(near.get_by_test_id("track-head")).to_contain_text(f"process {pid}")
    near.get_by_role("button", name=f"remove the track of process {pid}").click()
    wait_for_state(near, "!tracks=")
    expect(near.get_by_test_id("track-head")).to_have_count(0)


def test_a_track_that_is_added_is_in_sight(new_page, address, short):
    page: Page = new_page(
        f"{address}#since={short[0]}&until={short[1]}&tall=1", viewport={"width": 1440, "height": 700}
    )
    drawn(page)
    slices_drawn(page)
    page.get_by_test_id("heatmap").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    wait_for_state(page, "marked=")
    page.keyboard.press("a")
    # Its edge may be on a part of a pixel.
    expect(page.get_by_test_id("track-head")).to_be_in_viewport(ratio=0.9)
    head, pane = page.get_by_test_id("track-head").bounding_box(), box(page, "pane-content")
    assert head["y"] >= pane["y"] - 1
    assert head["y"] + head["height"] <= pane["y"] + pane["height"] + 1


def test_a_filter_becomes_a_track(near: Page, incident):
    filter_by(near, f"comm:{incident.comm}")
    wait_for_state(near, "comm=")
    near.get_by_test_id("heatmap").focus()
    near.keyboard.press("a")
    wait_for_state(near, f"tracks=comm:{incident.comm}")
    near.get_by_role("button", name="remove the filter").click()
    wait_for_state(near, "!&comm=")
    expect(near.get_by_test_id("track")).to_be_visible()
    assert "comm" not in state(near)


@pytest.mark.parametrize("look", LOOKS)
def test_slices_and_tracks_are_accessible(new_page, address, short, incident, look):
    page = new_page(f"{address}#since={short[0]}&until={short[1]}&tracks=comm:{incident.comm}", **LOOKS[look])
    drawn(page)
    slices_drawn(page)
    page.get_by_text("who ran in view, as a table").click()
    assert not (broken := violations(page)), "\n".join(broken)
    assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("window.innerWidth")
