"""The parameters of a run drawn at random, the machine it ran on, and its outcome."""

import importlib.metadata
import os
import platform
import random
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from exhume.lab.scenarios.cpu import BACKGROUNDS
from exhume.model.finding import Severity, Verdict
from exhume.procfs.flat_keyed import parse_meminfo
from exhume.procfs.stat import parse_machine_times


def machine_facts() -> dict[str, str]:
    """Facts about this machine, to print next to figures that were measured here."""
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
    """The share of the machine that is busy while nothing is measured."""
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


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: so many seconds of calm, the scenario, and some seconds after it, next to background work."""

    number: int
    scenario: str
    seed: int
    core: int
    calm_s: float
    seconds: float
    after_s: float
    background: str


def draw(runs: dict[str, int], cores: list[int], seed: int | None = None) -> list[Plan]:
    """So many runs of each scenario, in a random order: what a run leaves behind meets different ones after it."""
    rng = random.Random(seed)
    order = [name for name, count in runs.items() for _ in range(count)]
    rng.shuffle(order)
    return [
        Plan(
            number=number,
            scenario=name,
            seed=rng.getrandbits(31),
            core=rng.choice(cores),
            calm_s=round(rng.uniform(*CALM_S), 1),
            seconds=round(rng.uniform(*LENGTH_S), 1),
            after_s=round(rng.uniform(*AFTER_S), 1),
            background=rng.choice(list(BACKGROUNDS)),
        )
        for number, name in enumerate(order, 1)
    ]


NOTHING = "nothing"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ReportedFinding:
    """One finding, as far as it is judged."""

    cause: str
    severity: Severity
    confidence: float
    cpu: int | None
    comm: str | None
    summary: str

    @classmethod
    def of(cls, found: dict[str, Any]) -> "ReportedFinding":
        return cls(**(found | {"severity": Severity(found["severity"])}))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run.

    `cause` is what was to be found (empty: nothing); `seconds` how long the answer took; `failed` why there is no
    answer; `others_busy` the share of the machine that other work took before the run. `core_right` is None where the
    scenario isn't bound to a core, or its cause wasn't found.
    """

    plan: Plan
    cause: str
    findings: tuple[ReportedFinding, ...] = ()
    seconds: float | None = None
    failed: str = ""
    on_core: bool = False
    others_busy: float = 0.0
    verdict: str = ""

    @property
    def grave(self) -> tuple[ReportedFinding, ...]:
        """Those that are more than worth knowing."""
        return tuple(finding for finding in self.findings if finding.severity is not Severity.INFO)

    @property
    def best(self) -> ReportedFinding | None:
        """The top finding. On a healthy machine only those above info count, which would raise an alert."""
        findings = self.findings if self.cause else self.grave
        return findings[0] if findings and not self.failed else None

    @property
    def top(self) -> str:
        return FAILED if self.failed else self.best.cause if self.best else NOTHING

    @property
    def right(self) -> bool:
        return not self.failed and self.top == (self.cause or NOTHING)

    @property
    def core_right(self) -> bool | None:
        if not (self.on_core and self.right and self.best):
            return None
        return self.best.cpu == self.plan.core

    @property
    def false_critical(self) -> bool:
        """Whether a healthy machine was called starved, in a finding or as a whole."""
        critical = any(finding.severity is Severity.CRITICAL for finding in self.findings)
        return not self.cause and (critical or self.verdict == Verdict.STARVED)

    def as_json(self) -> dict[str, Any]:
        return asdict(self.plan) | {
            "cause": self.cause or NOTHING,
            "top": self.top,
            "right": self.right,
            "core_right": self.core_right,
            "answer_s": self.seconds,
            "others_busy": round(self.others_busy, 3),
            "failed": self.failed or None,
            "findings": [asdict(finding) for finding in self.findings],
        }
