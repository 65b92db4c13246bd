"""A diagnosis as a story: step by step, as Markdown for a ticket, and with the page of its cause."""

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.axe import violations
from tests.system.browser.canvas import state, wait_for_state
from tests.system.browser.conftest import drawn
from tests.system.browser.idle import at_rest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_diagnosis")]

ROLES = ["symptom", "mechanism", "culprit", "root_cause", "remedy"]


@pytest.fixture
def page(new_page, address) -> Page:
    opened: Page = new_page(address, bypass_csp=True, viewport={"width": 1440, "height": 900})
    drawn(opened)
    opened.keyboard.press("n")
    wait_for_state(opened, "s0=")
    expect(opened.get_by_test_id("story-next")).to_be_visible()
    at_rest(opened)
    return opened


def test_the_chain_is_walked_from_the_symptom_to_the_remedy_and_back(page: Page):
    before = state(page)
    sentence = page.get_by_test_id("answer-headline").inner_text()
    page.get_by_test_id("story-next").click()
    step, place = page.get_by_test_id("story-step"), page.get_by_test_id("story-place")
    expect(place).to_contain_text("1 of ")
    steps = int(place.inner_text().rpartition(" ")[2])
    roles, views = [], []
    for number in range(1, steps + 1):
        wait_for_state(page, f"step={number}", f"d0={before['s0']}")
        expect(place).to_have_text(f"{number} of {steps}")
        expect(step).to_be_in_viewport()
        expect(page.get_by_test_id("announcement")).to_contain_text(f"step {number} of {steps}")
        here = state(page)
        roles.append(step.get_attribute("data-role"))
        views.append((here["s0"], here["s1"]))
        # The timeline shows the evidence.
        assert int(here["since"]) <= int(here["s0"]) < int(here["until"])
        assert page.get_by_test_id("answer-headline").inner_text() == sentence
        page.keyboard.press("j")
    assert roles == sorted(roles, key=ROLES.index)
    assert {roles[0], roles[-1]} == {"symptom", "remedy"}
    assert len(set(views)) > 2
    # The remedy is about the whole; beyond it is nothing.
    assert views[-1] == (before["s0"], before["s1"])
    expect(page.get_by_test_id("announcement")).to_have_text("that was the last step")
    expect(step).to_contain_text("exhume fix")
    assert not (broken := violations(page)), "\n".join(broken)
    page.keyboard.press("k")
    wait_for_state(page, f"step={steps - 1}")
    # A link holds the step; one key takes it back.
    page.reload()
    expect(place).to_have_text(f"{steps - 1} of {steps}")
    page.get_by_role("button", name="end", exact=True).click()
    after = wait_for_state(page, "!step=", "!d0=")
    assert [after[name] for name in ("s0", "s1", "cpus")] == [before[name] for name in ("s0", "s1", "cpus")]


def test_a_step_is_seen_from_wherever_one_is(page: Page):
    page.evaluate("scrollTo(0, 600)")
    page.keyboard.press("j")
    expect(page.get_by_test_id("story-step")).to_be_in_viewport(ratio=1)


def test_other_evidence_ends_the_story(page: Page):
    page.keyboard.press("j")
    wait_for_state(page, "step=1")
    page.get_by_test_id("aside").get_by_test_id("evidence").last.click()
    wait_for_state(page, "!step=", "d0=")


def test_evidence_opens_the_lane_that_draws_its_value(page: Page):
    """Where a lane was opened by itself it takes its place, so that nothing moves; one key takes all of it back."""
    lanes = page.get_by_role("group", name="more lanes").get_by_role("button")
    before = lanes.and_(page.locator("[aria-pressed=true]")).all_inner_texts()
    height = timeline_height(page)
    page.get_by_test_id("aside").get_by_role("button", name="cgroups.kernel").first.click()
    wait_for_state(page, "lanes=memcgs", "d0=")
    expect(lanes.and_(page.locator("[aria-pressed=true]"))).to_have_text(["memcgs"])
    expect(page.get_by_role("group", name="memcgs")).to_be_in_viewport()
    at_rest(page)
    assert timeline_height(page) == height
    page.go_back()
    wait_for_state(page, "!lanes=", "!d0=")
    expect(lanes.and_(page.locator("[aria-pressed=true]"))).to_have_text(before)


def timeline_height(page: Page) -> float:
    """From the first core to the splitter below the lanes."""
    return page.get_by_role("separator").bounding_box()["y"] - page.get_by_test_id("heatmap").bounding_box()["y"]


def test_the_diagnosis_is_copied_as_markdown(page: Page, incident):
    before = state(page)
    page.keyboard.press("j")
    wait_for_state(page, "step=1")
    at_rest(page)
    page.get_by_test_id("copy-markdown").click()
    expect(page.get_by_test_id("copy-markdown")).to_have_text("copied")
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith("## STARVED: ")
    assert f"- **Core**: `{incident.cpu}`" in text
    assert f"- **Process**: `{incident.comm} ({incident.pid})`" in text
    assert "(`zombie-memcgs`), confidence " in text
    for role in ("symptom", "mechanism", "root cause"):
        assert f"**{role}**" in text
    assert "`exhume fix " in text
    # The link is to the incident, not to the step.
    link = parse_qs(urlsplit(text.rpartition("](<")[2].rstrip(">)\n")).fragment)
    assert [link[name] for name in ("s0", "s1", "cpus")] == [[before[name]] for name in ("s0", "s1", "cpus")]
    assert int(link["since"][0]) < int(before["s0"]) < int(before["s1"]) < int(link["until"][0])
    assert not link.keys() & {"step", "d0"}
    page.keyboard.press("c")
    expect(page.get_by_test_id("announcement")).to_contain_text("copied as Markdown")


def test_without_a_clipboard_it_is_saved(page: Page, tmp_path):
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('none')); }")
    with page.expect_download() as saving:
        page.get_by_test_id("copy-markdown").click()
    saving.value.save_as(tmp_path / "ticket.md")
    assert (tmp_path / "ticket.md").read_text().startswith("## STARVED")


def test_the_page_of_a_cause_opens_in_the_page(page: Page):
    page.get_by_test_id("aside").get_by_test_id("cause-link").click()
    dialog = page.get_by_test_id("cause-page")
    expect(dialog.get_by_role("heading", level=2)).to_have_text("Zombie memory cgroups (zombie-memcgs)")
    expect(dialog).to_contain_text("How to fix it")
    at_rest(page)
    assert not (broken := violations(page)), "\n".join(broken)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert "s0" in state(page)
