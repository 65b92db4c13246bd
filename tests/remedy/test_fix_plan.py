"""What a target stands for: services by name, the remedies of a finding, or everything that is not needed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from exhume.model.audit import Audit, Judged, Manager, Need, Needed, Origin, Provenance, Service, Trait
from exhume.model.finding import Action, Finding, Remedy, Severity
from exhume.procfs.host import Host
from exhume.remedy import plan
from exhume.remedy.plan import PlanRequest, resolve


def test_of_a_finding_services_are_resolved_and_the_rest_is_for_a_person(monkeypatch):
    remedies = (
        Remedy("stop-container", "stop it", Action.APPLY, "agent", "docker:{target}"),
        Remedy("free", "free them", Action.PLAN, "agent", "zombies"),
        Remedy("watch", "watch it", Action.RUN, template="exhume zombies --watch"),
    )
    finding = Finding("zombie-memcgs", "t", Severity.WARNING, 0.9, "summary", (), remedies=remedies)
    monkeypatch.setattr(plan, "_audited", lambda node, request: Audit("node", 0, ()))
    node = SimpleNamespace(controls=None)
    found = resolve(node, PlanRequest("zombie-memcgs", Path("/work"), find=lambda cause: finding))
    assert found.zombies
    assert [(step.id, step.automatic) for step in found.by_hand] == [("watch", False)]
    assert len(found.refusals) == 1
    assert "docker:agent" in found.refusals[0]


@pytest.mark.root
def test_without_a_target_what_only_never_worked_is_listed_and_left(monkeypatch):
    service = Service(Manager.SYSTEMD, "zarf.service", "zarf.service", state="activating")
    need = Need(Needed.NO, "never-worked", "none of 400 starts in 3 h went well")
    row = Judged(service, (Trait.CRASH_LOOP,), ("it crash-loops",), Provenance(Origin.IMAGE, ""), need)
    monkeypatch.setattr(plan, "_audited", lambda node, request: Audit("node", 0, (row,)))
    node = SimpleNamespace(root=SimpleNamespace(host=Host()))
    found = resolve(node, PlanRequest(None, Path("/work"), find=lambda cause: None))
    assert found.selected == () and [each.target for each in found.not_included] == ["zarf.service"]
    assert "unless it is named: 1 service is" in plan.summary_of(found, ())
