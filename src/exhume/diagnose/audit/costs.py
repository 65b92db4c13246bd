"""What a service costs: from a recording where there is one, else from its cgroup as it stands."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from exhume.diagnose.audit.agents import program_of
from exhume.diagnose.facts.leaks import COLUMNS, find_leakers
from exhume.model.audit import Costs, Manager, Service, Use
from exhume.model.clock import NANOS, Window
from exhume.model.tables import RESTART
from exhume.store.read.recording import Recording

# The newest part of a recording says what it costs now.
WINDOW_NS = 900 * NANOS
_ID = re.compile(r"[0-9a-f]{64}")
_COMM = 15


@dataclass(slots=True)
class Bill:
    """The costs in the newest minutes of a recording, by owner: the name of a unit, or the id of a container. None of a
    count means that it was not recorded."""

    seconds: float
    cpu_us: Counter[str] | None = None
    made: Counter[str] | None = None
    leaked: Counter[str] = field(default_factory=Counter)
    lives: Counter[str] = field(default_factory=Counter)
    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def read(cls, recording: Recording) -> "Bill | None":
        """None for a recording that is empty."""
        span = recording.span()
        if span is None or span.empty:
            return None
        window = Window(max(span.since, span.until - WINDOW_NS), span.until)
        bill = cls(window.seconds)
        sampled = recording.read("samples", window, columns=["pid", "weight_us"])
        if len(sampled):
            known = recording.read("processes", window, columns=["pid", "cgroup"]).to_pydict()
            home = {pid: path for pid, path in zip(known["pid"], known["cgroup"], strict=True) if path}
            sums = sampled.group_by("pid").aggregate([("weight_us", "sum")]).to_pydict()
            bill.cpu_us = Counter()
            for pid, weight in zip(sums["pid"], sums["weight_us_sum"], strict=True):
                bill.cpu_us.update(dict.fromkeys(_owners(home.get(pid, "")), weight))
        bill._add_births(recording, window)
        wanted = ["kind", "comm", "value", "container", "container_name"]
        rows = recording.read("events", window, columns=wanted).to_pydict()
        for kind, comm, value, number, name in zip(*(rows[column] for column in wanted), strict=True):
            if number and name:
                bill.ids[name].add(number)
            if kind == RESTART and comm and value:
                bill.lives[comm] += round(value)
        return bill

    def of(self, service: Service) -> Costs:
        """What one service cost. A container is known by its name too: each new one has another id."""
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
            forks=self.lives.get(program),
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
            # A cgroup is made in each hierarchy alike, and leaks in one: of each the highest count.
            self.made = made | (self.made or Counter())
            self.leaked |= _by_owner(lives)


def costs_of(service: Service, use: Use, bill: Bill | None) -> Costs | None:
    """The recorded costs with the memory that its cgroup holds now; else what the cgroup alone has."""
    if bill is not None:
        return replace(bill.of(service), memory_bytes=use.memory_bytes)
    if use.cpu_seconds is None and use.memory_bytes is None:
        return service.costs
    return Costs("live", service.age_s or 0.0, use.cpu_seconds, use.memory_bytes)


def _owners(path: str) -> set[str]:
    """Everything that a cgroup's path names: units above it, and containers."""
    return {part for part in path.split("/") if "." in part} | set(_ID.findall(path))


def _by_owner(paths: Iterable[str]) -> Counter[str]:
    return Counter(owner for path in paths for owner in _owners(path))


def _sum(counted: Mapping[str, int], owners: set[str]) -> int:
    return sum(counted.get(owner, 0) for owner in owners)
