"""The answer above the timeline: of the whole recording, and of what is selected."""

import pytest
from playwright.sync_api import Page, Route, expect
from tests.diagnose.scenes import Scene
from tests.system.browser.axe import violations
from tests.system.browser.canvas import box, wait_for_state
from tests.system.browser.conftest import drawn, shown

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_diagnosis")]

PHONE = {"viewport": {"width": 390, "height": 844}}


def test_the_first_view_names_the_incident_one_click_away(page: Page, incident):
    landing = page.get_by_test_id("landing")
    expect(landing).to_contain_text("1 incident in 6 m")
    expect(landing.locator(".badge")).to_have_text("starved")
    row = page.get_by_test_id("incident-list").get_by_role("button")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("Zombie memory cgroups")
    expect(row).to_contain_text(f"core {incident.cpu}")
    expect(row.locator("meter")).to_be_visible()
    row.click()
    assert wait_for_state(page, "s0=")["cpus"] == str(incident.cpu)
    answer = page.get_by_test_id("answer")
    expect(answer.locator(".badge")).to_have_text("starved")
    expect(answer).to_contain_text(f"core {incident.cpu}")
    expect(answer.get_by_label("the finding")).to_contain_text(f"{incident.comm} ({incident.pid})")
    page.get_by_role("button", name="all incidents").click()
    wait_for_state(page, "!s0=")
    expect(landing).to_be_visible()


def test_what_arrives_later_and_what_is_selected_moves_nothing(new_page, address):
    page = new_page(address)
    held: list[Route] | None = []

    def later(route: Route) -> None:
        route.continue_() if held is None else held.append(route)

    page.route("**/api/incidents", later)
    page.reload()
    shown(page)
    before = page.get_by_test_id("heatmap").bounding_box()
    waiting, held = held, None
    for route in waiting:
        route.continue_()
    drawn(page)
    expect(page.get_by_test_id("incident-list")).to_be_visible()
    assert box(page, "heatmap") == before
    page.keyboard.press("n")
    expect(page.get_by_test_id("answer").locator(".badge")).to_be_visible()
    assert box(page, "heatmap")["y"] == before["y"]


def test_a_healthy_recording_says_what_was_checked_and_since_when(new_page, served, tmp_path):
    Scene(cores=2, seconds=90).write(tmp_path / "r")
    page = new_page(served(tmp_path / "r"), bypass_csp=True, timezone_id="UTC")
    drawn(page)
    landing = page.get_by_test_id("landing")
    expect(landing.locator(".badge")).to_have_text("healthy")
    expect(page.get_by_test_id("landing-headline")).to_contain_text("No incident in 1 m 30 s")
    since = page.evaluate("fetch('./api/recording').then(answer => answer.json()).then(known => known.since)")
    first = page.evaluate("at => new Date(at).toISOString().slice(0, 19).replace('T', ' ')", since)
    expect(page.get_by_test_id("checked")).to_contain_text(f"since {first}")
    expect(page.get_by_test_id("checked")).to_contain_text("causes ruled out")
    expect(page.get_by_role("list", name="causes that were ruled out")).to_contain_text("zombie-memcgs")
    assert not (broken := violations(page)), "\n".join(broken)


def test_the_state_of_the_node_is_never_better_than_the_diagnosis_of_the_view(new_page, served, tmp_path):
    Scene(cores=2, seconds=90).write(tmp_path / "r")
    address = served(tmp_path / "r")
    page: Page = new_page(f"{address}api/recording")
    recorded = page.evaluate("fetch('./recording').then(answer => answer.json())")
    since, until = recorded["since"] + 20_000, recorded["since"] + 50_000

    def degraded(route: Route) -> None:
        answer = route.fetch().json()
        if answer["window"]["until_ms"] <= until:
            answer.update(verdict="degraded", sentence="The disk was slow.")
        route.fulfill(json=answer)

    page.route("**/api/diagnosis?*", degraded)
    page.goto(f"{address}#since={since}&until={until}")
    drawn(page)
    expect(page.get_by_test_id("verdict").locator(".badge")).to_have_text("degraded")
    expect(page.get_by_test_id("landing").locator(".badge")).to_have_text("degraded")
    expect(page.get_by_test_id("landing-headline")).to_contain_text("The disk was slow.")
    expect(page.get_by_test_id("landing-headline")).not_to_contain_text("No incident")
    # Another view, whose diagnosis is that of the whole recording.
    page.keyboard.press("0")
    expect(page.get_by_test_id("landing").locator(".badge")).to_have_text("healthy")
    expect(page.get_by_test_id("landing-headline")).to_contain_text("No incident in 1 m 30 s")


def test_an_incident_that_waits_for_its_diagnosis_is_not_called_healthy(new_page, address):
    page = new_page(address)

    def waiting(route: Route) -> None:
        answer = route.fetch().json()
        for each in answer["incidents"]:
            each.update(state="waiting", cause=None, title=None, severity=None, confidence=None, summary=None)
        route.fulfill(json=answer)

    page.route("**/api/incidents", waiting)
    page.reload()
    shown(page)
    expect(page.get_by_test_id("landing").locator(".badge")).to_have_text("diagnosing")
    expect(page.get_by_test_id("incident-list")).to_contain_text("diagnosing …")


def test_on_a_phone_the_answer_comes_first(new_page, address, incident):
    page = new_page(address, **PHONE)
    drawn(page)
    page.get_by_test_id("incident-list").get_by_role("button").click()
    assert wait_for_state(page, "s0=")["cpus"] == str(incident.cpu)
    expect(page.get_by_test_id("answer").get_by_label("the finding")).to_be_in_viewport(ratio=1)
    answer, heat = box(page, "answer"), box(page, "heatmap")
    assert answer["y"] + answer["height"] < heat["y"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_below_a_long_sentence_the_finding_is_seen(new_page, address):
    page = new_page(address, viewport={"width": 950, "height": 900})
    drawn(page)
    page.get_by_test_id("incident-list").get_by_role("button").click()
    sentence, finding = (
        page.get_by_test_id("answer-headline"),
        page.get_by_test_id("answer").get_by_label("the finding"),
    )
    expect(finding).to_be_visible()
    assert sentence.evaluate("each => each.scrollHeight > each.clientHeight"), "not long enough to be cut"
    assert sentence.get_attribute("title") == sentence.locator("strong").inner_text()
    card, facts = box(page, "answer"), finding.bounding_box()
    assert facts["y"] + facts["height"] <= card["y"] + card["height"]


def test_the_answer_does_not_wait_until_the_cores_are_drawn(new_page, address):
    page: Page = new_page(f"{address}api/recording")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/api/cores?*", hold)
    page.goto(address)
    expect(page.get_by_test_id("landing").locator(".badge")).to_be_visible()
    assert held
    assert page.get_by_test_id("heatmap").get_attribute("data-drawn") != "true"
    # Those that are held go on.
    page.unroute("**/api/cores?*")
    drawn(page)
