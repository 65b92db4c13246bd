"""Violations that axe-core finds on a page, with their elements."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Page
from tests.parts import missing

SCRIPT = Path(__file__).resolve().parents[3] / "web/node_modules/axe-core/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# Rules of these that axe leaves out unless they are named.
NAMED = ["target-size", "label-content-name-mismatch"]


def violations(page: Page, within: str = "html") -> list[str]:
    """Each broken rule with the elements that break it. The page has to be opened with `bypass_csp=True`."""
    if not SCRIPT.exists():
        missing("axe-core (tools/page.py test installs it)")
    if not page.evaluate("typeof window.axe === 'object'"):
        page.add_script_tag(content=SCRIPT.read_text())
    # Of what is well, one element of a rule is described, not all of them: that takes longest.
    found: dict[str, Any] = page.evaluate(
        """([within, tags, named]) => axe.run(within, {
            runOnly: {type: 'tag', values: tags},
            rules: Object.fromEntries(named.map(rule => [rule, {enabled: true}])),
            resultTypes: ['violations'],
        })""",
        [within, RULES, NAMED],
    )
    checked = {rule["id"] for kind in ("passes", "violations", "incomplete", "inapplicable") for rule in found[kind]}
    assert checked >= set(NAMED), f"axe knows {sorted(checked)} only"
    assert found["passes"], "axe looked at nothing"
    return [
        f"{broken['id']}: {' '.join(node['target'])}: {node['failureSummary']}"
        for broken in found["violations"]
        for node in broken["nodes"]
    ]
