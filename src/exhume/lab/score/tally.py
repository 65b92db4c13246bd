"""The tally of outcomes: what was taken for what, per scenario and cause, and whether the confidence is right."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from exhume.lab.score.plan import FAILED, NOTHING, QUIET, Outcome

# Of the runs of each scenario, and of all of them, so many have to be right.
MUST = 0.9
# Steps of reported confidence: from (including) to (excluding).
STEPS = ((0.3, 0.5), (0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01))


@dataclass(frozen=True, slots=True)
class ScenarioScore:
    """The runs of one scenario. `cores_right` of `cores_judged`: where it was found, and is bound to a core."""

    scenario: str
    runs: int
    right: int
    failed: int
    cores_judged: int
    cores_right: int
    critical: int

    @property
    def share(self) -> float:
        return self.right / self.runs if self.runs else 0.0

    @property
    def missed(self) -> bool:
        return self.share < MUST


@dataclass(frozen=True, slots=True)
class CauseScore:
    """The score of one cause: `reported` of all top findings name it, `right` of them rightly, and it was to be found
    `there` times. A share of nothing is None."""

    cause: str
    there: int
    reported: int
    right: int

    @property
    def precision(self) -> float | None:
        return self.right / self.reported if self.reported else None

    @property
    def recall(self) -> float | None:
        return self.right / self.there if self.there else None


@dataclass(frozen=True, slots=True)
class Step:
    """Findings reported with a confidence in this step, and how many of them were right."""

    since: float
    until: float
    reported: int
    right: int
    mean: float

    @property
    def share(self) -> float | None:
        return self.right / self.reported if self.reported else None


class Tally:
    """The outcomes so far."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = list(outcomes)

    @property
    def scenarios(self) -> list[ScenarioScore]:
        names = sorted({each.plan.scenario for each in self.outcomes}, key=lambda name: (name == QUIET, name))
        return [self._scenario(name) for name in names]

    @property
    def columns(self) -> list[str]:
        """Everything that was ever the top finding: the causes first."""
        tops = {each.top for each in self.outcomes}
        return [*sorted(tops - {NOTHING, FAILED}), *[name for name in (NOTHING, FAILED) if name in tops]]

    def matrix(self) -> dict[str, dict[str, int]]:
        """Runs by scenario and by top finding."""
        rows: dict[str, dict[str, int]] = {score.scenario: dict.fromkeys(self.columns, 0) for score in self.scenarios}
        for each in self.outcomes:
            rows[each.plan.scenario][each.top] += 1
        return rows

    @property
    def causes(self) -> list[CauseScore]:
        wanted = {each.cause for each in self.outcomes if each.cause}
        reported = {each.top for each in self.outcomes} - {NOTHING, FAILED}
        return [self._cause(name) for name in sorted(wanted | reported)]

    @property
    def right(self) -> int:
        return sum(each.right for each in self.outcomes)

    @property
    def share(self) -> float:
        return self.right / len(self.outcomes) if self.outcomes else 0.0

    @property
    def false_criticals(self) -> int:
        return sum(each.false_critical for each in self.outcomes)

    @property
    def answer_s(self) -> tuple[float, float] | None:
        """The median and the longest time to an answer."""
        known = [each.seconds for each in self.outcomes if each.seconds is not None]
        return (median(known), max(known)) if known else None

    def calibration(self, every: bool = False) -> list[Step]:
        """Top findings by their reported confidence; with `every`, all findings above info. On a healthy machine every
        finding above info is wrong; in a scenario, any but the scenario's own is counted as wrong too."""
        judged = self.judged(every)
        return [_step(since, until, judged) for since, until in STEPS]

    def judged(self, every: bool = False) -> list[tuple[float, bool]]:
        """Each of those findings: its confidence, and whether it was right."""
        reported: list[tuple[float, bool]] = []
        for each in self.outcomes:
            chosen = each.grave if every else [each.best] if each.best else []
            reported += [(finding.confidence, bool(each.cause) and finding.cause == each.cause) for finding in chosen]
        return reported

    def missed(self) -> list[str]:
        """What the diagnosis had to reach and didn't, a sentence each."""
        said = [
            f"{score.scenario}: {score.right} of {score.runs} right, {MUST:.0%} must be"
            for score in self.scenarios
            if score.missed
        ]
        if self.outcomes and self.share < MUST:
            said.append(f"all together: {self.right} of {len(self.outcomes)} right, {MUST:.0%} must be")
        if self.false_criticals:
            said.append(f"a healthy machine was called starved in {self.false_criticals} runs, none may be")
        return said

    def _scenario(self, name: str) -> ScenarioScore:
        runs = [each for each in self.outcomes if each.plan.scenario == name]
        judged = [each.core_right for each in runs if each.core_right is not None]
        return ScenarioScore(
            name,
            len(runs),
            sum(each.right for each in runs),
            sum(bool(each.failed) for each in runs),
            len(judged),
            sum(judged),
            sum(each.best is not None and each.best.severity == "critical" for each in runs),
        )

    def _cause(self, name: str) -> CauseScore:
        return CauseScore(
            name,
            sum(each.cause == name for each in self.outcomes),
            sum(each.top == name for each in self.outcomes),
            sum(each.right and each.top == name for each in self.outcomes),
        )


def _step(since: float, until: float, reported: list[tuple[float, bool]]) -> Step:
    inside = [(confidence, right) for confidence, right in reported if since <= confidence < until]
    mean = sum(confidence for confidence, _ in inside) / len(inside) if inside else 0.0
    return Step(since, until, len(inside), sum(right for _, right in inside), mean)
