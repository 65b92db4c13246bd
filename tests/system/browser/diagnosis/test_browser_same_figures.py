"""One incident has the same figures on the page, in the terminal, as JSON and as an HTML report."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.canvas import until
from tests.system.browser.conftest import drawn
from tests.system.browser.idle import PATIENCE_S, at_rest

from exhume.cli import exit_codes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_diagnosis")]

# What a person reads: the sentence, and of each finding its confidence, links, evidence and commands.
READ = """sentence => ({
    sentence: document.querySelector(sentence).textContent,
    findings: [...document.querySelectorAll('[data-testid=finding]')].map(finding => ({
        cause: finding.dataset.cause,
        confidence: Number(finding.querySelector('[data-testid=confidence]').dataset.value),
        links: [...finding.querySelectorAll('.chain > li:not(.chain-remedy) > div > p')].map(each => each.textContent),
        evidence: [...finding.querySelectorAll('.evidence > li')].map(each => each.textContent),
        commands: [...finding.querySelectorAll('code.command')].map(each => each.textContent),
    })),
})"""
# The line along a chain in the terminal, its marks, and the times at its left.
DRAWN = re.compile(r"[│●▶]|^ \d\d:\d\d:\d\d ", re.MULTILINE)


def exhume(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "exhume.cli.main", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == exit_codes.FINDINGS, done.stderr
    return done.stdout


def without_millis(found: Any) -> Any:
    """The page and reports have each time as a number, too."""
    if isinstance(found, dict):
        return {name: without_millis(each) for name, each in found.items() if not name.endswith("_ms")}
    return [without_millis(each) for each in found] if isinstance(found, list) else found


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def at_cause(new_page, address) -> Page:
    """The diagnosis of the incident on the page, opened by its key."""
    page: Page = new_page(f"{address}#utc=1&tab=diagnosis")
    drawn(page)
    page.keyboard.press("n")
    expect(page.get_by_test_id("diagnosis").get_by_test_id("finding").first).to_be_visible()
    at_rest(page)
    return page


def test_all_four_say_the_same(at_cause: Page, new_page, address: str, written, tmp_path: Path):

    def incident() -> Any:
        return at_cause.request.get(f"{address}api/incidents").json()["incidents"][0]

    def is_diagnosed() -> bool:
        at_cause.wait_for_timeout(1000)
        return incident()["cause"] is not None

    # The server diagnoses marks in the background, while it is not asked for anything else.
    until(at_cause, is_diagnosed)
    marked = incident()
    on_page = at_cause.request.get(f"{address}api/diagnosis?incident={marked['id']}").json()
    at = datetime.fromtimestamp(marked["at"] / 1000, UTC).isoformat()
    asked = ("diagnose", "--dir", str(written[0]), "--at", at, "--utc")
    found = json.loads(exhume(*asked, "--json"))
    assert found["findings"]
    assert without_millis(on_page) == found
    first = found["findings"][0]
    assert (marked["cause"], marked["confidence"], marked["summary"]) == (
        *(first["cause"], first["confidence"]),
        first["summary"],
    )
    seen = at_cause.evaluate(READ, "[data-testid=diagnosis] [data-testid=verdict]")
    verdict, _, sentence = seen["sentence"].partition(" ")
    assert (verdict, sentence) == (found["verdict"], found["sentence"])
    texts = terminal_texts(exhume(*asked))
    exhume(*asked, "--html", str(tmp_path / "report.html"))
    report = new_page((tmp_path / "report.html").as_uri()).evaluate(READ, "h1")
    assert report["sentence"] == sentence
    assert sentence in texts
    assert [each["cause"] for each in seen["findings"]] == [each["cause"] for each in found["findings"]]
    for shown, reported, finding in zip(seen["findings"], report["findings"], found["findings"], strict=True):
        assert shown == reported
        assert shown["confidence"] == finding["confidence"]
        assert f"confidence {finding['confidence']:.0%}" in texts
        links = [one_line(link["text"]) for link in finding["chain"]]
        # The page adds the culprit as a link of its own.
        assert set(links) <= {one_line(text) for text in shown["links"]}
        assert len(shown["evidence"]) == sum(len(link["evidence"]) for link in finding["chain"])
        if finding["severity"] != "info":
            assert [text for text in links if text not in texts] == []
            assert [command for command in shown["commands"] if one_line(command) not in texts] == []


def terminal_texts(printed: str) -> str:
    """What the terminal shows, without the drawing around it and its line breaks."""
    return one_line(DRAWN.sub(" ", printed))
