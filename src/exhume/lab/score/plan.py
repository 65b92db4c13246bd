"""The randomly drawn parameters of a run, the machine that it ran on, and its outcome."""

import importlib.metadata
import os
import platform
import random
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from exhume.lab.scenarios.cpu import BACKGROUNDS
from exhume.model.finding import Severity, Verdict
from exhume.procfs.flat_keyed import parse_meminfo
from exhume.procfs.stat import parse_machine_times


def machine_facts() -> dict[str, str]:
    """Facts about this machine, to print next to measurements made on it."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = parse_meminfo(Path("/proc/meminfo").read_bytes())["MemTotal"]
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("exhume", "pyarrow", "numpy"))
    return {
        "CPU": f"{model[1] if model else platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "kernel": f"Linux {platform.release().split('-')[0]}, {platform.machine()}",
        "Python": f"{platform.python_version()}; {packages}",
    }


def others_busy(seconds: float = 3.0) -> float:
    """The busy share of the machine while nothing is measured."""
    before = parse_machine_times(Path("/proc/stat").read_bytes())
    time.sleep(seconds)
    after = parse_machine_times(Path("/proc/stat").read_bytes())
    # Guest time is part of user time already.
    spent = [end - start for start, end in zip(before[:8], after[:8], strict=True)]
    return 1 - (spent[3] + spent[4]) / max(1, sum(spent))


QUIET = "quiet"
CALM_S = (6.0, 10.0)
LENGTH_S = (6.0, 12.0)
AFTER_S = (2.0, 3.0)


# Pairs of unrelated scenarios, to be played at the same time on different cores.
PAIRS = (
    ("cfs-throttling", "zombie-memcgs"),
    ("cfs-throttling", "mount-storm"),
    ("cfs-throttling", "fork-storm"),
    ("cfs-throttling", "negative-dentries"),
    ("cfs-throttling", "softirq-storm"),
    ("rt-hog", "mount-storm"),
    ("rt-hog", "conntrack-pressure"),
    ("crash-loop", "iptables-churn"),
    ("crash-loop", "page-fault-storm"),
    ("crash-loop", "cgroup-excess"),
    ("oom-thrash", "mount-storm"),
    ("user-hog", "negative-dentries"),
    ("user-hog", "iptables-churn"),
    ("fork-storm", "page-fault-storm"),
)


class Noise(StrEnum):
    """How busy the machine is with other work, before and during the trouble."""

    IDLE = "idle"
    HALF = "half"
    OVERSUBSCRIBED = "oversubscribed"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: some seconds of calm, the scenario, and some seconds after it, next to background work. `also` is a
    second scenario that plays at the same time, on `also_core`; both are empty if there is none."""

    number: int
    scenario: str
    seed: int
    core: int
    calm_s: float
    seconds: float
    after_s: float
    background: str
    also: str = ""
    also_core: int | None = None
    noise: Noise = Noise.IDLE

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Plan":
        """Parse the plan in a run's JSON; for runs kept before a field existed, it has its default."""
        known = {field.name: content[field.name] for field in fields(cls) if field.name in content}
        return cls(**(known | {"noise": Noise(known.get("noise", Noise.IDLE))}))

    @property
    def name(self) -> str:
        """The name of the scenario, or of both."""
        return f"{self.scenario}+{self.also}" if self.also else self.scenario

    @property
    def suffix(self) -> str:
        """The suffix of the directory of a kept run."""
        return "" if self.noise is Noise.IDLE else f"-{self.noise}"


def draw(
    runs: dict[str, int],
    cores: list[int],
    seed: int | None = None,
    *,
    pairs: Mapping[tuple[str, str], int] = MappingProxyType({}),
    noises: Sequence[Noise] = (Noise.IDLE,),
    sample: int | None = None,
    healthy: Collection[str] = (QUIET,),
) -> list[Plan]:
    """Draw this many runs of each scenario and pair at each level of noise, in random order, as a run may be affected
    by what the one before left behind. With `sample`, draw this many runs at each level from scenarios with a cause,
    from pairs and from healthy ones, at random; none is played twice before all were played once."""
    rng = random.Random(seed)
    counts = [((name, ""), count) for name, count in runs.items()] + list(pairs.items())
    if sample is None:
        order = [(pair, noise) for pair, count in counts for noise in noises for _ in range(count)]
    else:
        kinds: dict[str, list[tuple[str, str]]] = {}
        for (name, also), count in counts:
            kind = "pair" if also else "healthy" if name in healthy else "cause"
            kinds.setdefault(kind, []).extend([(name, also)] if count else [])
        order = [(each, noise) for noise in noises for known in kinds.values() for each in _some(known, sample, rng)]
    rng.shuffle(order)
    plans = []
    for number, ((name, also), noise) in enumerate(order, 1):
        plan = Plan(
            number=number,
            scenario=name,
            seed=rng.getrandbits(31),
            core=rng.choice(cores),
            calm_s=round(rng.uniform(*CALM_S), 1),
            seconds=round(rng.uniform(*LENGTH_S), 1),
            after_s=round(rng.uniform(*AFTER_S), 1),
            background=rng.choice(list(BACKGROUNDS)),
            noise=noise,
        )
        if also:
            others = [core for core in cores if core != plan.core]
            plan = replace(plan, also=also, also_core=rng.choice(others or cores))
        plans.append(plan)
    return plans


def _some(known: list[tuple[str, str]], count: int, rng: random.Random) -> list[tuple[str, str]]:
    """This many of these, at random: each is drawn once before any is drawn again."""
    found: list[tuple[str, str]] = []
    while known and len(found) < count:
        found += rng.sample(known, min(len(known), count - len(found)))
    return found


NOTHING = "nothing"
OVERCOMMIT = "cpu-overcommit"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ReportedFinding:
    """One finding, as far as it is judged. `named` are the names of the culprits in its chain, `cgroup` is the
    culprit's."""

    cause: str
    severity: Severity
    confidence: float
    cpu: int | None
    comm: str | None
    summary: str
    lost_s: float = 0.0
    named: tuple[str, ...] = ()
    cgroup: str | None = None

    @classmethod
    def of(cls, found: dict[str, Any]) -> "ReportedFinding":
        return cls(**(found | {"severity": Severity(found["severity"]), "named": tuple(found.get("named", ()))}))

    def is_about(self, names: Collection[str]) -> bool:
        """Whether its culprit is one of these; if there are several alike, whether the first is."""
        return self.comm in names if self.comm is not None else bool(self.named) and self.named[0] in names

    def blames(self, owners: Collection[str]) -> bool:
        """Whether it blames one of these: a process, or a cgroup by its name anywhere in a path."""
        places = {part for name in (*self.named, self.cgroup or "") for part in name.split("/")}
        return self.comm in owners or not places.isdisjoint(owners)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run.

    `cause` is what was to be found (empty: nothing), `also_cause` the cause of the second scenario of a pair; `seconds`
    is how long the answer took; `failed` is why there is no answer; `others_busy` is the share of the machine that
    other work took before the run. `core_right` is None if the scenario isn't bound to a core, or if its cause wasn't
    found. `heavy`: healthy work that fills the machine, for which a warning is acceptable. `names` are those of the
    run's own processes; `owners` and `also_owners` are to blame for the scenario and for the second one (None if not
    recorded: then they are not judged). `lost_s` and `explained_s`: the lost time, and the part of it that findings
    account for.
    """

    plan: Plan
    cause: str
    findings: tuple[ReportedFinding, ...] = ()
    seconds: float | None = None
    failed: str = ""
    on_core: bool = False
    others_busy: float = 0.0
    verdict: str = ""
    also_cause: str = ""
    heavy: bool = False
    names: tuple[str, ...] = ()
    owners: tuple[str, ...] | None = None
    also_owners: tuple[str, ...] | None = None
    lost_s: float = 0.0
    explained_s: float = 0.0

    @property
    def grave(self) -> tuple[ReportedFinding, ...]:
        """The findings above info."""
        return tuple(finding for finding in self.findings if finding.severity is not Severity.INFO)

    @property
    def best(self) -> ReportedFinding | None:
        """The top finding. On a healthy machine only findings above info count, as they would raise an alert."""
        findings = self.findings if self.cause else self.grave
        return findings[0] if findings and not self.failed else None

    @property
    def top(self) -> str:
        return FAILED if self.failed else self.best.cause if self.best else NOTHING

    @property
    def right(self) -> bool:
        """Whether the first finding is the scenario's cause; for a pair, whether both causes are among the findings
        above info, each with its owner. On an oversubscribed machine, it is right to find the cause with its owner, or
        to name what oversubscribes the machine. On a healthy machine, whether nothing is above info; for heavy work,
        whether nothing is critical."""
        if self.failed:
            return False
        if self.also_cause:
            return self.both_found
        if self.heavy:
            return not self.false_critical
        if self.plan.noise is Noise.OVERSUBSCRIBED:
            return self._right_oversubscribed
        return self.top == (self.cause or NOTHING)

    @property
    def both_found(self) -> bool:
        """Whether both causes of a pair are among the findings above info, each with its owner: info findings are not
        read."""
        return self._finds(self.cause, self.owners) and self._finds(self.also_cause, self.also_owners)

    def _finds(self, cause: str, owners: Collection[str] | None) -> bool:
        """Whether a finding above info has this cause and blames one of its owners."""
        return any(each.cause == cause and (owners is None or each.blames(owners)) for each in self.grave)

    @property
    def _right_oversubscribed(self) -> bool:
        if not self.cause:
            return all(finding.cause == OVERCOMMIT for finding in self.grave)
        named = self.best is not None and self.best.cause == OVERCOMMIT and self.best.is_about(self.names)
        return named or self._finds(self.cause, self.owners)

    @property
    def core_right(self) -> bool | None:
        if not (self.on_core and not self.also_cause and self.best and self.best.cause == self.cause):
            return None
        return self.best.cpu == self.plan.core

    @property
    def false_critical(self) -> bool:
        """Whether a healthy machine was called starved, in a finding or in the verdict. A machine with three times as
        much work as cores may be called starved because of that."""
        criticals = [finding.cause for finding in self.findings if finding.severity is Severity.CRITICAL]
        if self.plan.noise is Noise.OVERSUBSCRIBED:
            return not self.cause and any(cause != OVERCOMMIT for cause in criticals)
        return not self.cause and (bool(criticals) or self.verdict == Verdict.STARVED)

    def as_json(self) -> dict[str, Any]:
        return asdict(self.plan) | {
            "cause": self.cause or NOTHING,
            "top": self.top,
            "also_cause": self.also_cause or None,
            "right": self.right,
            "core_right": self.core_right,
            "answer_s": self.seconds,
            "others_busy": round(self.others_busy, 3),
            "failed": self.failed or None,
            "names": self.names,
            "owners": self.owners,
            "also_owners": self.also_owners,
            "lost_s": round(self.lost_s, 3),
            "explained_s": round(self.explained_s, 3),
            "findings": [asdict(finding) for finding in self.findings],
        }
