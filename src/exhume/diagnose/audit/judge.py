"""The judge of an audit: rows of services and facts of the node in, judgements out. It touches no files."""

from collections import Counter
from dataclasses import replace

from exhume.diagnose.audit.agents import describe, recognise
from exhume.diagnose.audit.costs import Bill, costs_of
from exhume.diagnose.audit.explain import explain
from exhume.diagnose.audit.needs import Matter, need_of
from exhume.diagnose.audit.provenance import provenance_of
from exhume.diagnose.audit.traits import is_active, pace_per_hour, traits_of
from exhume.model.audit import Audit, Judged, Manager, Needed, NodeFacts, Origin, Service, ServiceList, Trait, Use
from exhume.store.read.recording import Recording

_RANK = {trait: place for place, trait in enumerate(Trait)}
_NEEDED = {Needed.NO: 0, Needed.UNKNOWN: 1, Needed.YES: 2}
_SWITCHED_ON = frozenset({"enabled", "enabled-runtime"})


def audit(
    seen: ServiceList, facts: NodeFacts, recording: Recording | None = None, managers: tuple[Manager, ...] | None = None
) -> Audit:
    """Judge every service. `managers` are those that answered; without it those that have services."""
    others = {service.key: service for service in seen.services}
    bill = Bill.read(recording) if recording is not None else None
    judged = [_judge(service, others, facts, bill) for service in seen.services]
    causes = Counter(name for each in seen.services for name in each.wants.failed[-1:])
    judged.sort(key=lambda each: _worst_first(each, causes[each.service.key]))
    spoke = tuple(sorted({service.manager for service in seen.services})) if managers is None else managers
    return Audit(
        facts.node,
        facts.taken_at,
        tuple(judged),
        sum(not each.traits for each in judged),
        spoke,
        tuple(dict.fromkeys((*seen.blind_spots, *facts.blind_spots))),
    )


def _judge(service: Service, others: dict[str, Service], facts: NodeFacts, bill: Bill | None) -> Judged:
    provenance = provenance_of(service, facts)
    traits = traits_of(service, facts.taken_at)
    entry = recognise(service)
    agent, decisive = describe(service, entry, facts) if entry is not None else (None, False)
    # Whether it is started without being asked for: enabled by a link, or a container that comes back by itself.
    if service.manager is Manager.SYSTEMD:
        switched_on = service.enabled in _SWITCHED_ON
    else:
        switched_on = is_active(service) and service.restart_policy not in ("", "no")
    if provenance.origin is Origin.IMAGE and switched_on:
        traits = (*traits, Trait.DEFAULT_ON)
    troubled = any(trait.troubled for trait in traits)
    matter = Matter(service, others, provenance, facts, troubled, entry, agent, decisive)
    priced = replace(service, costs=costs_of(service, facts.uses.get(service.key, Use()), bill))
    return Judged(priced, traits, explain(service, traits, others), provenance, need_of(matter), agent)


def _worst_first(judged: Judged, keeps: int) -> tuple[int, int, int, float, int, str, str]:
    """The most severe trait; of those what is not needed, what `keeps` others from starting, what is started most
    often and leaks most. How fast one that is down was started before says nothing any more."""
    worst = min((_RANK[trait] for trait in judged.traits), default=len(_RANK))
    service = judged.service
    pace = pace_per_hour(service) if is_active(service) else 0.0
    leaked = (service.costs.cgroups_leaked or 0) if service.costs else 0
    return worst, _NEEDED[judged.need.needed], -keeps, -pace, -leaked, service.key, service.id
