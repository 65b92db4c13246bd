"""What became of one run: the truth beside what was told."""

from dataclasses import asdict, dataclass
from typing import Any

from exhume.lab.score.plan import Plan
from exhume.model.finding import Severity, Verdict

NOTHING = "nothing"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Told:
    """One finding, as far as it is judged."""

    cause: str
    severity: Severity
    confidence: float
    cpu: int | None
    comm: str | None
    summary: str

    @classmethod
    def of(cls, found: dict[str, Any]) -> "Told":
        return cls(**(found | {"severity": Severity(found["severity"])}))


@dataclass(frozen=True, slots=True)
class Outcome:
    """`cause` is what was to be found (empty: nothing); `seconds` how long the answer took; `failed` why there is no
    answer, in words; `others_busy` the share of the machine that other work took before the run. `core_right` is None
    where the scenario isn't bound to a core, or its cause wasn't found."""

    plan: Plan
    cause: str
    findings: tuple[Told, ...] = ()
    seconds: float | None = None
    failed: str = ""
    on_core: bool = False
    others_busy: float = 0.0
    verdict: str = ""

    @property
    def grave(self) -> tuple[Told, ...]:
        """Those that are more than worth knowing."""
        return tuple(told for told in self.findings if told.severity is not Severity.INFO)

    @property
    def best(self) -> Told | None:
        """The top finding. On a healthy machine only those above info count: that's what would wake somebody."""
        told = self.findings if self.cause else self.grave
        return told[0] if told and not self.failed else None

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
        critical = any(told.severity is Severity.CRITICAL for told in self.findings)
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
            "findings": [asdict(told) for told in self.findings],
        }
