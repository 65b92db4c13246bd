"""The judge of an audit: takes services and facts of the node, returns judgements (where a service comes from, whether
anything needs it, what it costs). It touches no files."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from exhume.diagnose.audit.agents import Entry, describe, met, program_of, recognise
from exhume.diagnose.audit.explain import explain, hours_text
from exhume.diagnose.audit.traits import YOUNG_S, has_worked, is_active, pace_per_hour, traits_of
from exhume.diagnose.facts.leaks import COLUMNS, find_leakers
from exhume.model.audit import (
    Agent,
    Audit,
    Costs,
    FileFact,
    FirstBoot,
    Judged,
    Manager,
    Need,
    Needed,
    NodeFacts,
    Origin,
    Provenance,
    Service,
    ServiceList,
    Trait,
    Use,
)
from exhume.model.clock import NANOS, Window
from exhume.model.tables import RESTART
from exhume.model.text import count
from exhume.store.read.recording import Recording

_SHOWN = 3
# If a service has not worked for less than this, the boot may not be over, or something it waits for may be down.
LEAST_FAILED_HOURS = 1.0
LEAST_FAILED_STARTS = 10


@dataclass(frozen=True, slots=True)
class Matter:
    """Everything the rules may look at. `decisive`: the agent lacks something that it can't work without."""

    service: Service
    others: Mapping[str, Service]
    provenance: Provenance
    facts: NodeFacts
    troubled: bool
    entry: Entry | None = None
    agent: Agent | None = None
    decisive: bool = False


def need_of(matter: Matter) -> Need:
    """The answer of the first rule that applies."""
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
    # Active units that require it. A target only states a wish, not a use.
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
    # A service that was started a moment ago is not known to work.
    works = not matter.troubled and is_active(service) and (service.age_s is None or service.age_s >= YOUNG_S)
    if works and matter.provenance.origin is Origin.CONFIGURED:
        return Need(Needed.YES, "configured-and-works", "it was set up on this machine since, and it works")
    reasons = []
    if use.listens:
        reasons.append(f"it listens on {_some(use.listens)}, and no client is connected now")
    targets = tuple(name for name in service.wants.required_by if name.endswith(".target"))
    idle = tuple(name for name in service.wants.required_by if name not in targets)
    if idle:
        reasons.append(f"{_some(idle)} {_require(idle)} it, but {'is' if len(idle) == 1 else 'are'} not active")
    if targets:
        reasons.append(f"{_some(targets)} requires it")
    if agent is not None:
        reasons.append(f"{agent.title} {agent.purpose}" + (f", and lacks {lacks}" if lacks else ""))
    reasons.append("nothing on this node is seen to use it, but a client elsewhere may")
    return Need(Needed.UNKNOWN, "no-rule", "; ".join(reasons))


def _never_worked(matter: Matter, lacks: str) -> Need:
    """The service never worked as far as can be seen, nothing depends on it, and no request for it is known."""
    service, origin, history = matter.service, matter.provenance.origin, matter.service.history
    if history is not None and history.starts:
        unused = f"none of {count(history.starts, 'start')} in {hours_text(history.hours)} went well"
    elif is_active(service) or service.restarts:
        unused = f"none of {count((service.restarts or 0) + 1, 'start')} went well"
    else:
        unused = "it was not started since boot"
    kind = "unit" if service.manager is Manager.SYSTEMD else "service"
    unused += f", no active {kind} requires it and nothing is connected to it"
    # Managers create a new container each time: a young container is no sign of a new configuration.
    if origin is Origin.CONFIGURED and (service.manager is Manager.SYSTEMD or not lacks):
        why = f"{unused}{lacks}; but it was set up on this machine since, and may be relied on"
        return Need(Needed.UNKNOWN, "never-worked-but-configured", why)
    if origin is not Origin.IMAGE and not lacks:
        return Need(Needed.UNKNOWN, "never-worked-of-unknown-origin", f"{unused}; where it is from is not known")
    # The length of the journal is not the duration: what failed for a minute on a node that is up for a day failed for
    # a minute.
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


# The newest part of a recording shows what a service costs now.
WINDOW_NS = 900 * NANOS
_ID = re.compile(r"[0-9a-f]{64}")
_COMM = 15


@dataclass(slots=True)
class Bill:
    """The costs in the newest minutes of a recording, by owner: the name of a unit, or the id of a container. A count
    that is None was not recorded."""

    seconds: float
    cpu_us: Counter[str] | None = None
    made: Counter[str] | None = None
    leaked: Counter[str] = field(default_factory=Counter)
    # Number of starts of a program (by name) in an owner's cgroups.
    lives: Counter[tuple[str, str]] = field(default_factory=Counter)
    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def read(cls, recording: Recording) -> "Bill | None":
        """Read the costs from a recording; None if it is empty."""
        span = recording.span()
        if span is None or span.empty:
            return None
        window = Window(max(span.since, span.until - WINDOW_NS), span.until)
        bill = cls(window.seconds)
        sampled = recording.read("samples", window, columns=["pid", "weight_us"])
        wanted = ["pid", "cgroup", "container", "container_name"]
        known = recording.read("processes", window, columns=wanted).to_pydict()
        home: dict[int, str] = {}
        for pid, path, number, name in zip(*(known[column] for column in wanted), strict=True):
            if path:
                home[pid] = path
            if number and name:
                bill.ids[name].add(number)
        if len(sampled):
            sums = sampled.group_by("pid").aggregate([("weight_us", "sum")]).to_pydict()
            bill.cpu_us = Counter()
            for pid, weight in zip(sums["pid"], sums["weight_us_sum"], strict=True):
                bill.cpu_us.update(dict.fromkeys(_owners(home.get(pid, "")), weight))
        bill._add_births(recording, window)
        wanted = ["kind", "comm", "value", "pid", "container", "container_name"]
        rows = recording.read("events", window, columns=wanted).to_pydict()
        for kind, comm, value, pid, number, name in zip(*(rows[column] for column in wanted), strict=True):
            if number and name:
                bill.ids[name].add(number)
            if kind == RESTART and comm and value:
                # Other owners may run a program of that name as well, for example a shell.
                bill.lives.update({(owner, comm): round(value) for owner in _owners(home.get(pid, ""))})
        return bill

    def of(self, service: Service) -> Costs:
        """The costs of one service. A container is also looked up by name, as each new one has another id."""
        owners = {service.id}
        if service.manager is not Manager.SYSTEMD:
            owners |= self.ids.get(service.name, set())
        program = program_of(service.command)[:_COMM]
        return Costs(
            "recording",
            self.seconds,
            cpu_seconds=None if self.cpu_us is None else round(_sum(self.cpu_us, owners) / 1e6, 3),
            cgroups_made=None if self.made is None else _sum(self.made, owners),
            cgroups_leaked=None if self.made is None else _sum(self.leaked, owners),
            forks=sum(self.lives.get((owner, program), 0) for owner in owners) or None,
        )

    def _add_births(self, recording: Recording, window: Window) -> None:
        events = recording.read("cgroup_events", window, columns=["hierarchy", *COLUMNS]).to_pydict()
        rows: dict[int, list[int]] = defaultdict(list)
        for place, (hierarchy, path) in enumerate(zip(events["hierarchy"], events["path"], strict=True)):
            if path:
                rows[hierarchy].append(place)
        for places in rows.values():
            one = {name: [events[name][place] for place in places] for name in COLUMNS}
            made = _by_owner(path for op, path in zip(one["op"], one["path"], strict=True) if op == "mkdir")
            lives = (life.path for leaker in find_leakers(one, window.until).leakers for life in leaker.lives)
            # A cgroup is created in every hierarchy and leaks in one: take the highest count of each.
            self.made = made | (self.made or Counter())
            self.leaked |= _by_owner(lives)


def costs_of(service: Service, use: Use, bill: Bill | None) -> Costs | None:
    """The recorded costs with the memory that its cgroup holds now; without a recording, only what the cgroup shows."""
    if bill is not None:
        return replace(bill.of(service), memory_bytes=use.memory_bytes)
    if use.cpu_seconds is None and use.memory_bytes is None:
        return service.costs
    return Costs("live", service.age_s or 0.0, use.cpu_seconds, use.memory_bytes)


def _owners(path: str) -> set[str]:
    """All owners named in a cgroup's path: the units above it, and containers."""
    return {part for part in path.split("/") if "." in part} | set(_ID.findall(path))


def _by_owner(paths: Iterable[str]) -> Counter[str]:
    return Counter(owner for path in paths for owner in _owners(path))


def _sum(counted: Mapping[str, int], owners: set[str]) -> int:
    return sum(counted.get(owner, 0) for owner in owners)


# Presets are applied right after a first boot gave the machine its id, so what they enable still comes from the image.
FIRST_BOOT_NS = NANOS


def provenance_of(service: Service, facts: NodeFacts) -> Provenance:
    """Where a service comes from: units by their files and links, containers by their creation time."""
    if service.manager is not Manager.SYSTEMD:
        return _of_container(service, facts)
    file = facts.files.get(service.fragment or "")
    known = {"package": file.package if file else None, "enabled": service.enabled, "preset": service.preset}
    fragment, boot = service.fragment, facts.first_boot
    if not fragment:
        return Provenance(Origin.UNKNOWN, "systemd names no file that defines it", **known)
    if fragment.startswith("/run/"):
        return Provenance(Origin.RUNTIME, f"made while the machine runs: {fragment}", **known)
    if boot is None:
        return Provenance(Origin.UNKNOWN, "when this machine first ran is not known", **known)
    # Files written for it on this machine: those in /etc, which package updates don't bring. A drop-in of a fix that
    # holds it back doesn't request it.
    own = [path for path in (fragment, *service.drop_ins) if path.startswith("/etc/") and path != service.held_back]
    written = [fact for path in own if (fact := facts.files.get(path)) is not None and fact.package is None]
    since = [fact for fact in written if _is_later(fact, boot)]
    if since:
        return Provenance(Origin.CONFIGURED, _made_since(since[0], boot), **known)
    links = [facts.files[path] for path in facts.links.get(service.key, ()) if path in facts.files]
    late = [fact for fact in links if _is_later(fact, boot)]
    if late and len(late) == len(links):
        return Provenance(Origin.CONFIGURED, f"enabled since the image: {_made_since(late[0], boot)}", **known)
    if file is None or file.changed is None:
        return Provenance(Origin.UNKNOWN, f"when {fragment} was made is not known", **known)
    if not links and _is_later(file, boot):
        if file.package is None:
            return Provenance(Origin.CONFIGURED, _made_since(file, boot), **known)
        why = f"package {file.package} was installed or upgraded since {_first(boot)}: which of them isn't known"
        return Provenance(Origin.UNKNOWN, why, **known)
    owned = f"package {file.package}" if file.package else file.path
    if links:
        preset = " by its preset" if service.preset == "enabled" else ""
        return Provenance(Origin.IMAGE, f"{owned}, enabled{preset} before {_first(boot)}", **known)
    return Provenance(Origin.IMAGE, f"{owned} is older than {_first(boot)}", **known)


def _of_container(service: Service, facts: NodeFacts) -> Provenance:
    by, boot = f" by {service.owner}" if service.owner else "", facts.first_boot
    if service.manager is Manager.CRI:
        return Provenance(Origin.CONFIGURED, f"ordered{by} through Kubernetes")
    if service.created is None:
        return Provenance(Origin.UNKNOWN, "its manager does not report when it was created")
    made = f"made on {_day(service.created)}{by}"
    if boot is None:
        return Provenance(Origin.UNKNOWN, f"{made}; when this machine first ran is not known")
    if service.created <= boot.at:
        return Provenance(Origin.IMAGE, f"{made}, before {_first(boot)}")
    return Provenance(Origin.CONFIGURED, f"{made}, after {_first(boot)}")


def _is_later(fact: FileFact, boot: FirstBoot) -> bool:
    return fact.changed is not None and fact.changed > boot.at + FIRST_BOOT_NS


def _made_since(fact: FileFact, boot: FirstBoot) -> str:
    return f"{fact.path} is of {_day(fact.changed or 0)}, after {_first(boot)}"


def _first(boot: FirstBoot) -> str:
    return f"the first boot ({_day(boot.at)}, {boot.by})"


def _day(wall: int) -> str:
    return datetime.fromtimestamp(wall / NANOS, UTC).strftime("%Y-%m-%d %H:%M")


_RANK = {trait: place for place, trait in enumerate(Trait)}
_NEEDED = {Needed.NO: 0, Needed.UNKNOWN: 1, Needed.YES: 2}
_SWITCHED_ON = frozenset({"enabled", "enabled-runtime"})


def audit(
    seen: ServiceList, facts: NodeFacts, recording: Recording | None = None, managers: tuple[Manager, ...] | None = None
) -> Audit:
    """Judge every service. `managers` are those that responded; by default those that have services."""
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
    # Whether it starts by itself: enabled by a link, or a container that comes back by itself.
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
    """Sort key: the most severe trait first, then services that are not needed, those that keep others from starting
    (`keeps`), and those that are started most often and leak most. The start rate of a service that is down now is
    ignored."""
    worst = min((_RANK[trait] for trait in judged.traits), default=len(_RANK))
    service = judged.service
    pace = pace_per_hour(service) if is_active(service) else 0.0
    leaked = (service.costs.cgroups_leaked or 0) if service.costs else 0
    return worst, _NEEDED[judged.need.needed], -keeps, -pace, -leaked, service.key, service.id
