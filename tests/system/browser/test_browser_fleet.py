"""The fleet page as it is used: cells, grouping, hours, incidents, and down to the recording of one."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect
from tests.fleet.lakes import plan, planted
from tests.present.fleet.conftest import bundle
from tests.present.fleet.small_lake import NODES, Lake, is_sick, write_lake
from tests.system.browser.axe import violations
from tests.system.browser.canvas import Spot, box, colour, orange, state, wait_for_state
from tests.system.browser.conftest import drawn
from tests.system.browser.idle import PATIENCE_S, at_rest

__all__ = ["bundle"]
pytestmark = pytest.mark.slow

LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}, "has_touch": True},
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory, bundle) -> Lake:
    return write_lake(tmp_path_factory.mktemp("fleet") / "lake", bundle)


@pytest.fixture(scope="module")
def fleet_address(lake) -> Iterator[str]:
    with served(lake.directory) as address:
        yield address


@pytest.fixture(scope="module")
def planted_address(tmp_path_factory) -> Iterator[str]:
    """A fleet with a cause in it: its report has all of its parts."""
    made = planted(tmp_path_factory.mktemp("planted") / "lake", plan(300, 2.0, seed=4))
    damaged = next(made.directory.glob("summaries/*/*/*.parquet"))
    damaged.write_bytes(b"PAR1 and no more")
    with served(made.directory) as address:
        yield address


@contextmanager
def served(lake: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "exhume.cli.main", "fleet", "serve", "--lake", str(lake)]
    server = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--no-open"], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert server.stdout is not None
    try:
        assert select.select([server.stdout], [], [], 2 * PATIENCE_S)[0], "the server printed nothing"
        yield server.stdout.readline().removeprefix("exhume: ").strip()
    finally:
        server.terminate()
        server.wait(PATIENCE_S)
        server.stdout.close()


def opened(new_page, address: str, **context: object) -> Page:
    page: Page = new_page(address, timezone_id="UTC", **context)
    cells_drawn(page)
    return page


def cells_drawn(page: Page, **wanted: str) -> None:
    """Wait until the grid shows all nodes, grouped and coloured as it should be."""
    page.wait_for_function(
        """wanted => {
            const cells = document.querySelector('[data-testid=cells]');
            return cells && Number(cells.dataset.nodes) > 0
                && Object.entries(wanted).every(([name, value]) =>
                    cells.dataset.drawnBy.split(' ').includes(`${name}=${value}`));
        }""",
        arg=wanted,
    )
    at_rest(page)


def labels(page: Page) -> list[str]:
    return page.locator(".group-labels strong").all_inner_texts()


def cell(page: Page, band: int, position: int) -> Spot:
    """The middle of a cell of the first row of a band."""
    grid = box(page, "cells")
    label = page.locator(".group-labels li").nth(band).bounding_box()
    assert label is not None
    size = float(page.get_by_test_id("cells").get_attribute("data-size") or 0)
    return Spot(grid["x"] + (position + 0.4) * size, label["y"] + 0.4 * size)


def test_every_node_is_a_cell_and_the_sick_ones_are_coloured(new_page, fleet_address, lake):
    page = opened(new_page, f"{fleet_address}#at={lake.hour(1)}")
    assert page.get_by_test_id("cells").get_attribute("data-nodes") == str(len(NODES) + 1)
    assert labels(page) == ["a", "b", "c"]
    zone_b = [node for node in NODES if NODES.index(node) % 3 == 1]
    seen = [orange(colour(page, "cells", cell(page, 1, i))) for i in range(len(zone_b))]
    assert seen == [is_sick(node) for node in zone_b]
    assert not orange(colour(page, "cells", cell(page, 0, 0)))
    expect(page.get_by_test_id("blind-spots")).to_contain_text("1 node silent")


def test_the_grouping_changes_without_a_request(new_page, fleet_address, lake):
    page = opened(new_page, f"{fleet_address}#at={lake.hour(1)}")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label("group by").select_option("pool")
    cells_drawn(page, group="pool")
    assert labels(page) == ["p1", "not set"]
    page.keyboard.press("Escape")
    page.get_by_test_id("cells").focus()
    page.keyboard.press("o")
    wait_for_state(page, "order=worst")
    assert [url for url in asked if "/api/cells" in url or "/api/attributes" in url] == []
    assert state(page)["group"] == "pool"


def test_the_slider_moves_by_hours_and_keys_find_the_one_with_incidents(new_page, fleet_address, lake):
    page = opened(new_page, fleet_address)
    cells_drawn(page, at=str(lake.hour(2)))
    expect(page.get_by_test_id("histogram")).to_have_attribute("data-read", "true")
    page.keyboard.press("p")
    cells_drawn(page, at=str(lake.hour(1)))
    expect(page.get_by_test_id("hour")).to_contain_text("2026-07-14 23:00")
    expect(page.get_by_test_id("hour")).to_contain_text("6 incidents")
    slider = page.get_by_test_id("slider")
    slider.focus()
    slider.press("ArrowLeft")
    cells_drawn(page, at=str(lake.hour(0)))
    expect(slider).to_have_attribute("aria-valuetext", "2026-07-14 22:00 UTC, 0 incidents")
    page.get_by_label("colour by").select_option("memcgs_dying")
    cells_drawn(page, measure="memcgs_dying")


def test_a_group_selects_its_incidents_and_one_leads_to_its_recording(new_page, fleet_address, lake):
    page = opened(new_page, f"{fleet_address}#at={lake.hour(1)}")
    stream = page.get_by_test_id("stream").locator("li")
    expect(stream).to_have_count(6)
    page.locator(".group-labels button").nth(2).click()
    wait_for_state(page, "pick=zone;c")
    expect(stream).to_have_count(1)
    page.locator(".group-labels button").nth(1).click()
    expect(stream).to_have_count(5)
    page.get_by_role("button", name="zombie memcgs").click()
    expect(stream).to_have_count(3)
    node, incident = lake.with_bundle
    page.get_by_role("link", name=f"recording of {node}").click()
    drawn(page)
    assert page.url.endswith(f"/node/{node}/incident/{incident}/")
    expect(page.get_by_test_id("heatmap")).to_be_visible()
    page.go_back()
    cells_drawn(page, group="zone")


def test_a_node_is_found_selected_and_described_by_keyboard(new_page, fleet_address, lake):
    page = opened(new_page, f"{fleet_address}#at={lake.hour(1)}")
    page.get_by_test_id("cells").focus()
    page.keyboard.press("ArrowDown")
    spoken = page.get_by_test_id("announcement")
    # The first key goes to the worst.
    expect(spoken).to_contain_text(lake.with_bundle[0])
    expect(spoken).to_contain_text("6.5 s")
    page.keyboard.press("Enter")
    assert wait_for_state(page, "node=")["node"] == lake.with_bundle[0]
    panel = page.get_by_test_id("node")
    expect(panel).to_contain_text("at most 6.5 s in minute 2")
    panel.get_by_text("5 attributes").click()
    expect(panel).to_contain_text(f"sn-{lake.with_bundle[0]}")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    table = page.get_by_text("groups as a table")
    table.click()
    expect(page.get_by_role("table", name="nodes by zone")).to_contain_text("5 (50 %)")


@pytest.mark.parametrize("look", LOOKS)
def test_no_rule_of_access_is_broken(new_page, fleet_address, lake, look):
    link = f"{fleet_address}#at={lake.hour(1)}&node={lake.with_bundle[0]}"
    page = opened(new_page, link, bypass_csp=True, **LOOKS[look])
    page.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert not (broken := violations(page)), "\n".join(broken)
    page.evaluate("() => document.querySelectorAll('details.popover').forEach(each => { each.open = false; })")
    if look == "phone":
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert not (broken := violations(page)), "\n".join(broken)


def reported(page: Page) -> None:
    expect(page.get_by_test_id("report")).to_have_attribute("data-state", "ready", timeout=1000 * PATIENCE_S)
    at_rest(page)


@pytest.mark.parametrize("look", LOOKS)
def test_no_rule_of_access_is_broken_by_a_finished_report(new_page, planted_address, look):
    page = opened(new_page, planted_address, bypass_csp=True, **LOOKS[look])
    reported(page)
    panel = page.get_by_test_id("report")
    expect(panel).to_contain_text("ecs-agent")
    parts = ("explained by the first", "days after boot", "at risk", "What to do next", "blind spot")
    for part in (*parts, "had a member on a node with an incident within 60 s before"):
        expect(panel).to_contain_text(part)
    page.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert not (broken := violations(page)), "\n".join(broken)
    page.keyboard.press("Escape")
    if look == "phone":
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_clusters_of_sick_nodes_are_named_and_selected(new_page, tmp_path):
    """Racks, none of whose attributes explains which are sick."""
    made = planted(tmp_path / "lake", plan(400, 0.2, seed=3, cause=False, clusters="rack", cluster_size=16))
    key = made.truth.clustered_by
    with served(made.directory) as address:
        page = opened(new_page, address)
        reported(page)
        panel = page.get_by_test_id("report")
        clusters = panel.get_by_role("listitem").filter(has_text=f"Sick nodes come in clusters by {key}")
        named = clusters.locator("button[title*='and select']")
        value = named.first.inner_text()
        assert {each.inner_text() for each in named.all()} <= set(made.truth.sick_clusters)
        named.first.click()
        wait_for_state(page, f"pick={key}")
        assert state(page)["pick"] == f"{key};{value}"
        cells_drawn(page, group=key)
        clusters.get_by_role("button", name=key, exact=True).click()
        wait_for_state(page, "order=worst")


def test_on_a_phone_the_answer_is_above_the_nodes_and_leads_to_the_report(new_page, planted_address):
    page = opened(new_page, planted_address, **LOOKS["phone"])
    reported(page)
    answer = page.get_by_test_id("answer")
    expect(answer).to_contain_text("zombie memcgs by ecs-agent on image ami-0b22 and zone b")
    expect(answer).to_be_in_viewport()
    title = page.get_by_role("heading", name="What sets sick nodes apart")
    expect(title).not_to_be_in_viewport()
    answer.get_by_role("button").click()
    expect(title).to_be_in_viewport()
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(answer).to_be_hidden()


def test_there_is_one_list_of_blind_spots(new_page, planted_address):
    """What the header counts is what the report's panel counts, and both lead to the same list."""
    page = opened(new_page, planted_address)
    reported(page)
    summary, panel = page.get_by_test_id("blind-spots"), page.get_by_test_id("report")
    button = panel.get_by_role("button", name="of this report")
    count = button.inner_text().split()[0]
    expect(summary).to_contain_text(f"{count} blind spot")
    expect(summary).not_to_contain_text("no blind spots")
    popover = page.locator("details.popover")
    button.click()
    expect(popover).to_have_attribute("open", "")
    expect(popover.get_by_role("heading", name="In the report")).to_be_visible()
    expect(popover.locator("h3 + ul li")).to_have_count(int(count))
    page.keyboard.press("Escape")
    expect(popover).not_to_have_attribute("open", "")
    page.keyboard.press("b")
    expect(popover).to_have_attribute("open", "")


def test_every_action_has_a_key(new_page, planted_address):
    page = opened(new_page, planted_address)
    reported(page)
    page.keyboard.press("2")
    first = page.get_by_test_id("report").locator(".separators button").first.inner_text()
    page.keyboard.press("1")
    key, value = first.split(" and ")[0].split(" ", 1)
    assert wait_for_state(page, "pick=")["pick"] == f"{key};{value}"
    cells_drawn(page, group=key)
    before = state(page)["pick"]
    page.keyboard.press("]")
    page.wait_for_function("before => !location.hash.includes(`pick=${before}`)", arg=before)
    page.keyboard.press("[")
    assert wait_for_state(page, f"pick={before}")["pick"] == before
    page.keyboard.press("x")
    expect(page.get_by_role("table", name=f"nodes by {key}")).to_be_visible()
    page.keyboard.press("t")
    page.keyboard.press("c")
    assert wait_for_state(page, "cause=")["cause"]
    page.keyboard.press("?")
    listed = page.get_by_role("dialog").inner_text()
    for title in ("blind spots", "copy a link", "newest recording", "table of the groups", "next cause", "next group"):
        assert title in listed


def test_from_the_cell_of_a_node_to_its_recording_by_keys(new_page, fleet_address, lake):
    page = opened(new_page, f"{fleet_address}#at={lake.hour(1)}")
    page.keyboard.press("w")
    node, incident = lake.with_bundle
    assert wait_for_state(page, "node=")["node"] == node
    # Its incidents come right after it, before what is about all nodes.
    order = page.locator(".fleet-side > section").evaluate_all("all => all.map(each => each.dataset.testid)")
    assert order == ["node", "incidents", "report"]
    expect(page.get_by_test_id("stream").locator("li")).to_have_count(1)
    page.keyboard.press("r")
    drawn(page)
    assert page.url.endswith(f"/node/{node}/incident/{incident}/")
    # And back to the node among the others; this recording is of another day than the lake, so it is only looked at.
    back = urlsplit(page.get_by_role("link", name="fleet", exact=True).evaluate("link => link.href"))
    assert f"{back.scheme}://{back.netloc}{back.path}" == urlsplit(fleet_address)._replace(fragment="").geturl()
    assert back.fragment.endswith(f"&node={node}")
