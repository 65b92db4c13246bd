"""What axe-core finds wrong on a page, in words that say where."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Page
from tests.parts import missing

SCRIPT = Path(__file__).resolve().parents[2] / "web/node_modules/axe-core/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# The two newer rules that the marks of the timeline don't keep yet: small, near each other, and short in words.
TIMELINE_LATER = {"target-size", "label-content-name-mismatch"}


def violations(page: Page) -> list[str]:
    """Each broken rule with the elements that break it. The page has to be opened with `bypass_csp=True`."""
    if not SCRIPT.exists():
        missing("axe-core (tools/page.py test installs it)")
    if not page.evaluate("typeof window.axe === 'object'"):
        page.add_script_tag(content=SCRIPT.read_text())
    found: dict[str, Any] = page.evaluate("rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", RULES)
    assert found["passes"], "axe looked at nothing"
    return [
        f"{broken['id']}: {' '.join(node['target'])}: {node['failureSummary']}"
        for broken in found["violations"]
        for node in broken["nodes"]
        if not (broken["id"] in TIMELINE_LATER and 'class="mark ' in node["html"])
    ]
