"""The view of an audit: the verdict in a sentence, the texts of each judgement, and `exhume audit --json`."""

import shlex
from datetime import tzinfo
from typing import Any

from exhume.collect.containers.owner import logs_command
from exhume.diagnose.audit.explain import exit_text, hours_text
from exhume.diagnose.audit.traits import is_active, pace_per_hour
from exhume.model.audit import AUDIT_VERSION, Audit, Costs, History, Judged, Manager, Needed, Origin, Service, Trait
from exhume.model.clock import NANOS
from exhume.model.text import count, duration, listing, size
from exhume.model.times import format_moment
from exhume.present.serializer import Shape, Shapes, to_json

TRAIT_LABELS = {
    Trait.CRASH_LOOP: "crash loop",
    Trait.FLAPPING: "flapping",
    Trait.FAILED: "failed",
    Trait.DEPENDENCY_FAILED: "not started",
    Trait.UNHEALTHY: "unhealthy",
    Trait.CONDITION_FAILED: "condition",
    Trait.DEFAULT_ON: "on by default",
}
NEED_LABELS = {Needed.NO: "not needed here", Needed.YES: "needed", Needed.UNKNOWN: "need unknown"}
ORIGIN_LABELS = {
    Origin.IMAGE: "the base image",
    Origin.CONFIGURED: "configured since",
    Origin.RUNTIME: "made at run time",
    Origin.UNKNOWN: "not known",
}
# With fewer starts than this, a success rate is meaningless.
_FEW_STARTS = 3
# CPU seconds that reading a live cgroup may show even if it was only just created.
_NOTHING_S = 0.05
_VERBS = {
    Trait.CRASH_LOOP: "crash-loops",
    Trait.FLAPPING: "comes and goes",
    Trait.FAILED: "failed",
    Trait.DEPENDENCY_FAILED: "was not started",
    Trait.UNHEALTHY: "fails its health check",
}


def headline(audit: Audit) -> str:
    """The verdict in a sentence: the worst service, why it matters, and how many others are in trouble."""
    troubled = [each for each in audit.services if each.troubled]
    if not troubled:
        return f"none of {count(len(audit.services), 'service')} is in trouble"
    worst, trait = troubled[0].service, troubled[0].traits[0]
    # Show only the most telling figure.
    figure = ""
    if trait is Trait.DEPENDENCY_FAILED:
        figure = f" because {worst.wants.failed[-1]} failed" if worst.wants.failed else ""
    elif trait in (Trait.CRASH_LOOP, Trait.FLAPPING):
        pace = pace_per_hour(worst)
        figure = f" ({pace:,.0f} starts an hour)" if pace >= 1 else ""
    elif trait is not Trait.UNHEALTHY and (ended := exit_text(worst.last_exit, worst.manager)):
        figure = f" (it {ended})"
    needs = {Needed.NO: ", and nothing here needs it", Needed.YES: ", and it is needed"}
    more = f"; {count(len(troubled) - 1, 'more is', 'more are')} in trouble" if len(troubled) > 1 else ""
    return f"{worst.key} {_VERBS[trait]}{figure}{needs.get(troubled[0].need.needed, '')}{more}"


def last_exit_text(service: Service) -> str:
    """How the service ended last, for a column: `code 1` or `SIGKILL`."""
    return exit_text(service.last_exit, Manager.PODMAN).removeprefix("ended with ").removeprefix("was killed by ")


def pace_text(service: Service) -> str:
    """The restart rate, as `880/h`; the number of starts or restarts if the rate is unknown or the service is down
    now."""
    pace = pace_per_hour(service)
    if not is_active(service) and service.history is not None and service.history.starts > 1:
        return f"{service.history.starts:,}x"
    if pace >= 0.5:
        return f"{pace:,.0f}/h"
    return f"{service.restarts:,}x" if service.restarts else ""


def history_text(service: Service) -> str:
    history = service.history
    if history is None or history.starts < _FEW_STARTS:
        return ""
    rate = history.success_rate or 0.0
    return f"{rate:.0%} of {count(history.starts, 'start')} in {hours_text(history.hours)} went well"


def cost_text(costs: Costs | None) -> str:
    """What the service costs, as far as it is known; empty if nothing is known."""
    if costs is None:
        return ""
    parts, now = [], []
    if costs.memory_bytes is not None:
        now.append(f"{size(costs.memory_bytes)} of memory now")
    if costs.cpu_seconds is not None and (costs.source == "recording" or costs.cpu_seconds >= _NOTHING_S):
        parts.append(f"{costs.cpu_seconds:,.1f} s of CPU")
    if costs.cgroups_made or costs.cgroups_leaked:
        leaked = f" and {costs.cgroups_leaked:,} leaked" if costs.cgroups_leaked else ""
        parts.append(f"{count(costs.cgroups_made or 0, 'cgroup')} made{leaked}")
    if costs.forks:
        parts.append(f"{count(costs.forks, 'start')} of its program")
    if not parts:
        return ", ".join(now)
    spent = duration(round(costs.seconds * NANOS))
    where = f"in the last {spent} of the recording" if costs.source == "recording" else f"in the {spent} of its life"
    return ", ".join((f"{', '.join(parts)} {where}", *now))


def wanted_text(service: Service) -> str:
    """The units that want, require or start the service, without the dependencies that every unit has."""
    wants = service.wants
    dull = (".slice", ".mount", "sysinit.target", "basic.target")
    parts = {
        "by": wants.wanted_by,
        "required by": wants.required_by,
        "started by": wants.triggered_by,
        "started again by": wants.restarted_by,
        "requires": [name for name in wants.requires if not name.endswith(dull)],
        "made by": [service.owner] if service.owner else [],
    }
    return ", ".join(f"{what} {listing(list(names))}" for what, names in parts.items() if names)


def plan_command(judged: Judged) -> str:
    """The command that plans a fix."""
    return f"exhume fix plan {shlex.quote(judged.service.key)}"


def look_command(judged: Judged) -> str:
    """The command that shows the reason: the service's log, or the log of the unit that kept it from starting."""
    service = judged.service
    if service.manager is Manager.SYSTEMD:
        return f"journalctl -e -u {shlex.quote((*service.wants.failed[-1:], *service.wants.triggers, service.id)[0])}"
    if service.pod is not None:
        return logs_command(service.pod, service.name.rpartition("/")[2], previous=bool(service.restarts))
    if service.manager is Manager.CRI:
        return f"crictl logs --tail=50 {shlex.quote(service.id)}"
    return f"{service.manager.value} logs --tail=50 {shlex.quote(service.name)}"


def audit_json(audit: Audit, zone: tzinfo | None, *, everything: bool = False) -> dict[str, Any]:
    """The documented shape of `exhume audit --json`, sorted by name so that two nodes can be compared."""
    shown = [each for each in audit.services if everything or each.traits]
    shown.sort(key=lambda each: (each.service.manager, each.service.key, each.service.id))
    return {
        "version": AUDIT_VERSION,
        "node": audit.node,
        "taken_at": format_moment(audit.taken_at, zone),
        "sentence": headline(audit),
        "managers": to_json(audit.managers, zone),
        "audited": len(audit.services),
        "healthy": audit.healthy,
        "troubled": sum(each.troubled for each in audit.services),
        "services": [_judged_json(each, zone) for each in shown],
        "blind_spots": list(audit.blind_spots),
    }


def _judged_json(judged: Judged, zone: tzinfo | None) -> dict[str, Any]:
    return {
        "key": judged.service.key,
        **to_json(judged, zone, _SHAPES),
        "troubled": judged.troubled,
        "look": look_command(judged) if judged.troubled else None,
        "next": plan_command(judged) if judged.troubled else None,
        **to_json(judged.service, zone, _SHAPES),
    }


_SHAPES: Shapes = {
    Judged: Shape(omit=("service",)),
    Service: Shape(
        omit=("enabled", "preset", "starts", "directory", "published", "earlier"),
        rename={"age_s": "age_seconds", "fragment": "unit_file"},
    ),
    History: Shape(
        omit=("longest_s", "failing_s", "restarted_at"),
        add=lambda history, _: {"success_rate": history.success_rate},
    ),
}
