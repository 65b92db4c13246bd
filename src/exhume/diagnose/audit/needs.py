"""Whether anything on this node needs a service: rules, each with a name and the facts it went by. That nothing runs
here right now which could use it is no rule, and not to know is an answer."""

from collections.abc import Mapping
from dataclasses import dataclass

from exhume.diagnose.audit.agents import Entry, met
from exhume.diagnose.audit.explain import hours_text
from exhume.diagnose.audit.traits import YOUNG_S, has_worked, is_active
from exhume.model.audit import Agent, Manager, Need, Needed, NodeFacts, Origin, Provenance, Service, Use
from exhume.model.text import count

_SHOWN = 3
# That a service did not work for less than this may be a boot that isn't over, or an outage of what it waits for.
LEAST_FAILED_HOURS = 1.0
LEAST_FAILED_STARTS = 10


@dataclass(frozen=True, slots=True)
class Matter:
    """Everything that the rules may look at. `decisive` is whether the agent lacks what it can't do without."""

    service: Service
    others: Mapping[str, Service]
    provenance: Provenance
    facts: NodeFacts
    troubled: bool
    entry: Entry | None = None
    agent: Agent | None = None
    decisive: bool = False


def need_of(matter: Matter) -> Need:
    """The answer of the first rule that has one."""
    service, agent = matter.service, matter.agent
    use = matter.facts.uses.get(service.key, Use())
    lacks = "; and ".join(f"{lack.what} ({lack.seen})" for lack in agent.lacks) if agent is not None else ""
    if agent is not None and agent.protected:
        if lacks and matter.troubled:
            why = f"{agent.title} {agent.purpose}, so it is left alone; but it lacks {lacks}"
            return Need(Needed.UNKNOWN, "protected", why)
        return Need(Needed.YES, "protected", f"{agent.title} {agent.purpose}")
    if use.holds:
        return Need(Needed.YES, "holds-others", f"it holds {_some(use.holds)}")
    # Active units that require it. A target is a wish, not a use.
    active = tuple(
        name
        for name in service.wants.required_by
        if not name.endswith((".target", ".slice")) and (other := matter.others.get(name)) and is_active(other)
    )
    if active:
        why = f"{_some(active)} {_require(active)} it and {'is' if len(active) == 1 else 'are'} active"
        return Need(Needed.YES, "required-by-active", why)
    if use.connections:
        return Need(Needed.YES, "in-use", f"it is in use now: {_some(use.connections)}")
    if agent is not None and matter.decisive:
        return Need(Needed.NO, "agent-lacks", f"{agent.title} lacks {lacks}")
    if has_worked(service) is False and matter.troubled:
        return _never_worked(matter, f"; {agent.title} lacks {lacks}" if agent is not None and lacks else "")
    seen = met(service, matter.entry, matter.facts) if matter.entry is not None else ()
    if agent is not None and seen:
        return Need(Needed.YES, "agent-set-up", f"{agent.title} was given what it needs: {_some(seen)}")
    # That it was started a moment ago does not say that it works.
    works = not matter.troubled and is_active(service) and (service.age_s is None or service.age_s >= YOUNG_S)
    if works and matter.provenance.origin is Origin.CONFIGURED:
        return Need(Needed.YES, "configured-and-works", "it was set up on this machine since, and it works")
    said = []
    if use.listens:
        said.append(f"it listens on {_some(use.listens)}, and no client is connected now")
    targets = tuple(name for name in service.wants.required_by if name.endswith(".target"))
    idle = tuple(name for name in service.wants.required_by if name not in targets)
    if idle:
        said.append(f"{_some(idle)} {_require(idle)} it, but {'is' if len(idle) == 1 else 'are'} not active")
    if targets:
        said.append(f"{_some(targets)} requires it")
    if agent is not None:
        said.append(f"{agent.title} {agent.purpose}" + (f", and lacks {lacks}" if lacks else ""))
    said.append("nothing on this node is seen to use it, but a client elsewhere may")
    return Need(Needed.UNKNOWN, "no-rule", "; ".join(said))


def _never_worked(matter: Matter, lacks: str) -> Need:
    """It never worked as far as can be seen, nothing hangs on it, and no request for it is known."""
    service, origin, history = matter.service, matter.provenance.origin, matter.service.history
    if history is not None and history.starts:
        unused = f"none of {count(history.starts, 'start')} in {hours_text(history.hours)} went well"
    elif is_active(service) or service.restarts:
        unused = f"none of {count((service.restarts or 0) + 1, 'start')} went well"
    else:
        unused = "it was not started since boot"
    kind = "unit" if service.manager is Manager.SYSTEMD else "service"
    unused += f", no active {kind} requires it and nothing is connected to it"
    # A container is created each time by its manager: a young one is no new configuration.
    if origin is Origin.CONFIGURED and (service.manager is Manager.SYSTEMD or not lacks):
        why = f"{unused}{lacks}; but it was set up on this machine since, and may be relied on"
        return Need(Needed.UNKNOWN, "never-worked-but-configured", why)
    if origin is not Origin.IMAGE and not lacks:
        return Need(Needed.UNKNOWN, "never-worked-of-unknown-origin", f"{unused}; where it is from is not known")
    # Not how long the journal is: what failed for a minute on a node that is up for a day failed for a minute.
    failing = 0.0
    if history is not None and history.failures >= LEAST_FAILED_STARTS:
        failing = history.hours if history.failing_s is None else min(history.failing_s / 3600, history.hours)
    if failing < LEAST_FAILED_HOURS:
        return Need(Needed.UNKNOWN, "never-worked-yet", f"{unused}{lacks}; it may yet come to work")
    asked = "; it came with the image, and was not set up since" if origin is Origin.IMAGE else ""
    return Need(Needed.NO, "never-worked", f"{unused}{lacks}{asked}")


def _some(items: tuple[str, ...]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


def _require(names: tuple[str, ...]) -> str:
    return "requires" if len(names) == 1 else "require"
