"""The dashboards are those that the tool generates, and lead to the page."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("grafana_dashboards", ROOT / "tools/grafana_dashboards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module by its name.
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


grafana_dashboards = load()


def test_the_committed_dashboards_are_fresh() -> None:
    for name, dashboard in grafana_dashboards.dashboards().items():
        assert (grafana_dashboards.TARGET / name).read_text() == grafana_dashboards.text_of(dashboard)


def test_stale_dashboards_fail_the_check(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(grafana_dashboards, "TARGET", tmp_path / "deploy/grafana")
    assert grafana_dashboards.main(["--check"]) == 1
    assert grafana_dashboards.main([]) == 0
    assert grafana_dashboards.main(["--check"]) == 0


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    for dashboard in grafana_dashboards.dashboards().values():
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken
            taken |= cells
        assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
        known = {variable["name"] for variable in dashboard["templating"]["list"]}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard)))
        assert {name for name in used if not name.startswith("__")} <= known


def test_links_to_the_page_have_the_fields_of_its_address() -> None:
    fields = re.findall(r"^  (\w+): .*,$", (ROOT / "web/src/address.ts").read_text(), re.MULTILINE)
    used = re.findall(r"[#&](\w+)=", grafana_dashboards.PAGE)
    assert used == ["since", "until", "tab"]
    assert set(used) <= set(fields)
