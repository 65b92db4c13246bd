"""Whether anything on this node needs a service: rules, each with a name and the facts it went by. That nothing runs
here right now which could use it is no rule, and not to know is an answer."""

from collections.abc import Callable, Mapping
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

    @property
    def use(self) -> Use:
        return self.facts.uses.get(self.service.key, Use())

    @property
    def active_dependents(self) -> list[str]:
        """Active units that require it. A target is a wish, not a use."""
        return [
            name
            for name in self.service.wants.required_by
            if not name.endswith((".target", ".slice")) and (other := self.others.get(name)) and is_active(other)
        ]


def need_of(matter: Matter) -> Need:
    """The answer of the first rule that has one."""
    for rule in RULES:
        need = rule(matter)
        if need is not None:
            return need
    raise AssertionError("the last rule always answers")


def _protected(matter: Matter) -> Need | None:
    if matter.agent is None or not matter.agent.protected:
        return None
    agent = matter.agent
    if agent.lacks and matter.troubled:
        lacks = _lacks(agent)
        return Need(
            Needed.UNKNOWN, "protected", f"{agent.title} {agent.purpose}, so it is left alone; but it lacks {lacks}"
        )
    return Need(Needed.YES, "protected", f"{agent.title} {agent.purpose}")


def _holds_others(matter: Matter) -> Need | None:
    if not matter.use.holds:
        return None
    return Need(Needed.YES, "holds-others", f"it holds {_some(matter.use.holds)}")


def _required_by_active(matter: Matter) -> Need | None:
    names = matter.active_dependents
    if not names:
        return None
    verb = "requires" if len(names) == 1 else "require"
    return Need(Needed.YES, "required-by-active", f"{_some(tuple(names))} {verb} it and {_be(names)} active")


def _in_use(matter: Matter) -> Need | None:
    if not matter.use.connections:
        return None
    return Need(Needed.YES, "in-use", f"it is in use now: {_some(matter.use.connections)}")


def _agent_lacks(matter: Matter) -> Need | None:
    if matter.agent is None or not matter.decisive:
        return None
    agent = matter.agent
    return Need(Needed.NO, "agent-lacks", f"{agent.title} lacks {_lacks(agent)}")


def _never_worked(matter: Matter) -> Need | None:
    """It did not work once in a good while, nothing hangs on it, and no request for it is known."""
    service, origin = matter.service, matter.provenance.origin
    if has_worked(service) is not False or not matter.troubled:
        return None
    unused = _unused(matter)
    lacks = f"; {matter.agent.title} lacks {_lacks(matter.agent)}" if matter.agent and matter.agent.lacks else ""
    # A container is created each time by its manager: a young one is no new configuration.
    ordered = origin is Origin.CONFIGURED and (service.manager is Manager.SYSTEMD or not lacks)
    if ordered:
        why = f"{unused}{lacks}; but it was set up on this machine since, and may be relied on"
        return Need(Needed.UNKNOWN, "never-worked-but-configured", why)
    if origin is not Origin.IMAGE and not lacks:
        return Need(Needed.UNKNOWN, "never-worked-of-unknown-origin", f"{unused}; where it is from is not known")
    if not _for_long(service):
        return Need(Needed.UNKNOWN, "never-worked-yet", f"{unused}{lacks}; it may yet come to work")
    asked = "; it came with the image, and was not set up since" if origin is Origin.IMAGE else ""
    return Need(Needed.NO, "never-worked", f"{unused}{lacks}{asked}")


def _agent_is_set_up(matter: Matter) -> Need | None:
    if matter.entry is None or matter.agent is None or not matter.entry.needs:
        return None
    seen = met(matter.service, matter.entry, matter.facts)
    if not seen:
        return None
    return Need(Needed.YES, "agent-set-up", f"{matter.agent.title} was given what it needs: {_some(seen)}")


def _configured_and_works(matter: Matter) -> Need | None:
    if matter.provenance.origin is not Origin.CONFIGURED or matter.troubled or not is_active(matter.service):
        return None
    # That it was started a moment ago does not say that it works.
    if matter.service.age_s is not None and matter.service.age_s < YOUNG_S:
        return None
    return Need(Needed.YES, "configured-and-works", "it was set up on this machine since, and it works")


def _not_known(matter: Matter) -> Need:
    said = []
    if matter.use.listens:
        said.append(f"it listens on {_some(matter.use.listens)}, and no client is connected now")
    idle = [name for name in matter.service.wants.required_by if not name.endswith(".target")]
    if idle:
        said.append(
            f"{_some(tuple(idle))} {'requires' if len(idle) == 1 else 'require'} it, but {_be(idle)} not active"
        )
    targets = [name for name in matter.service.wants.required_by if name.endswith(".target")]
    if targets:
        said.append(f"{_some(tuple(targets))} requires it")
    if matter.agent is not None:
        lacks = f", and lacks {_lacks(matter.agent)}" if matter.agent.lacks else ""
        said.append(f"{matter.agent.title} {matter.agent.purpose}{lacks}")
    said.append("nothing on this node is seen to use it, but a client elsewhere may")
    return Need(Needed.UNKNOWN, "no-rule", "; ".join(said))


RULES: tuple[Callable[[Matter], Need | None], ...] = (
    _protected,
    _holds_others,
    _required_by_active,
    _in_use,
    _agent_lacks,
    _never_worked,
    _agent_is_set_up,
    _configured_and_works,
    _not_known,
)


def _for_long(service: Service) -> bool:
    history = service.history
    if history is None or history.failures < LEAST_FAILED_STARTS:
        return False
    # Not how long the journal is: what failed for a minute on a node that is up for a day failed for a minute.
    failing = history.hours if history.failing_s is None else history.failing_s / 3600
    return min(failing, history.hours) >= LEAST_FAILED_HOURS


def _unused(matter: Matter) -> str:
    """That it never worked, as far as can be seen, and that nothing hangs on it."""
    history = matter.service.history
    if history is not None and history.starts:
        unused = f"none of {count(history.starts, 'start')} in {hours_text(history.hours)} went well"
    elif is_active(matter.service) or matter.service.restarts:
        unused = f"none of {count((matter.service.restarts or 0) + 1, 'start')} went well"
    else:
        unused = "it was not started since boot"
    kind = "unit" if matter.service.manager is Manager.SYSTEMD else "service"
    return f"{unused}, no active {kind} requires it and nothing is connected to it"


def _lacks(agent: Agent) -> str:
    return "; and ".join(f"{lack.what} ({lack.seen})" for lack in agent.lacks)


def _some(items: tuple[str, ...]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


def _be(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
