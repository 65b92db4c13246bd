"""The tally of outcomes: which causes were taken for which, per scenario and cause, and whether the confidence is
right."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from exhume.lab.score.plan import FAILED, NOTHING, OVERCOMMIT, QUIET, Noise, Outcome

# Share of the runs of each scenario, and of all runs, that must be right.
MUST = 0.9
# With fewer runs, a scenario is not judged by itself: only all runs together are.
LEAST_RUNS = 3
# Ranges of reported confidence: from (inclusive) to (exclusive).
STEPS = ((0.3, 0.5), (0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01))


@dataclass(frozen=True, slots=True)
class ScenarioScore:
    """The runs of one scenario. `cores`: whether the core was right, for found causes that are bound to a core."""

    scenario: str
    runs: int
    right: int
    failed: int
    critical: int
    cores: tuple[bool, ...]

    @property
    def share(self) -> float:
        return self.right / self.runs

    @property
    def missed(self) -> bool:
        return self.runs >= LEAST_RUNS and self.share < MUST


@dataclass(frozen=True, slots=True)
class CauseScore:
    """The score of one cause: `reported` top findings name it, `right` of them are correct, and it was to be found
    `there` times. A share is None if there is nothing to divide by."""

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


# Seconds for the diagnosis of ten minutes of a large node.
LARGE_NODE_MUST_S, LARGE_NODE_AIM_S = 3.0, 1.5
# Per run of heavy healthy work: one in a hundred.
MOST_CRITICALS = 0.01


@dataclass(frozen=True, slots=True)
class Target:
    """One of the numbers that the diagnosis is judged by: what it must reach, what it should reach, and the number of
    `runs` it was measured in. `value` is None if there were none; `at_most`: less is better."""

    measure: str
    must: float
    aim: float
    value: float | None
    runs: int
    unit: str = "%"
    at_most: bool = False

    @property
    def missed(self) -> bool:
        return self.value is not None and (self.value > self.must if self.at_most else self.value < self.must)


@dataclass(frozen=True, slots=True)
class Step:
    """Findings reported with a confidence in this range, and how many of them were right."""

    since: float
    until: float
    reported: int
    right: int
    mean: float


@dataclass(frozen=True, slots=True)
class NoiseScore:
    """The runs at one level of noise: those of a single cause, pairs, and healthy ones, and how many of each are right.
    `explained` is the fraction of the lost time that findings account for, in runs with a cause; None without any."""

    noise: Noise
    single: tuple[int, int]
    pairs: tuple[int, int]
    healthy: tuple[int, int]
    criticals: int
    explained: float | None


def causes_of(outcome: Outcome) -> set[str]:
    """The causes to find in a run."""
    causes = {outcome.cause, outcome.also_cause} - {""}
    return causes | {OVERCOMMIT} if outcome.plan.noise is Noise.OVERSUBSCRIBED else causes


def reported_by(outcome: Outcome) -> set[str]:
    """The cause of the top finding; for a pair also that of the second finding, and any other that was to be found."""
    if outcome.also_cause:
        own = {outcome.cause, outcome.also_cause} & {finding.cause for finding in outcome.grave}
        return own | {finding.cause for finding in outcome.grave[:2]}
    return {outcome.best.cause} if outcome.best is not None else set()


def _counts(runs: Sequence[Outcome]) -> tuple[int, int]:
    return len(runs), sum(each.right for each in runs)


def _share_target(measure: str, must: float, aim: float, counts: tuple[int, int] | None) -> Target:
    runs, right = counts or (0, 0)
    return Target(measure, must, aim, right / runs if runs else None, runs)


class Tally:
    """The outcomes so far. `answer_s` is the median and the longest time to an answer; `columns` are all results that
    were ever on top: the causes first, then no finding and failed runs. `large_node_s` are the times that ten minutes
    of a large node took."""

    def __init__(self, outcomes: Sequence[Outcome], large_node_s: Sequence[float] = ()) -> None:
        self.outcomes = list(outcomes)
        self.large_node_s = tuple(large_node_s)
        self.right = sum(each.right for each in outcomes)
        self.share = self.right / len(outcomes) if outcomes else 0.0
        self.false_criticals = sum(each.false_critical for each in outcomes)
        known = [each.seconds for each in outcomes if each.seconds is not None]
        self.answer_s = (median(known), max(known)) if known else None
        tops = {each.top for each in outcomes}
        found = tops - {NOTHING, FAILED}
        self.columns = [*sorted(found), *[name for name in (NOTHING, FAILED) if name in tops]]
        names = sorted({each.plan.name for each in outcomes}, key=lambda name: (name == QUIET, "+" in name, name))
        self.noises = [self._noise(noise) for noise in Noise if any(each.plan.noise is noise for each in outcomes)]
        self.scenarios = [self._scenario(name) for name in names]
        self.causes = [
            CauseScore(
                name,
                sum(name in causes_of(each) for each in outcomes),
                sum(name in reported_by(each) for each in outcomes),
                sum(name in causes_of(each) and name in reported_by(each) for each in outcomes),
            )
            for name in sorted({name for each in outcomes for name in causes_of(each) | reported_by(each)})
        ]

    def _noise(self, noise: Noise) -> NoiseScore:
        runs = [each for each in self.outcomes if each.plan.noise is noise]
        troubles = [each for each in runs if each.cause and not each.also_cause]
        pairs, healthy = [each for each in runs if each.also_cause], [each for each in runs if not each.cause]
        lost = sum(each.lost_s for each in runs if each.cause)
        explained = sum(each.explained_s for each in runs if each.cause)
        return NoiseScore(
            noise,
            _counts(troubles),
            _counts(pairs),
            _counts(healthy),
            sum(each.false_critical for each in runs),
            explained / lost if lost else None,
        )

    def _scenario(self, name: str) -> ScenarioScore:
        runs = [each for each in self.outcomes if each.plan.name == name]
        return ScenarioScore(
            name,
            len(runs),
            sum(each.right for each in runs),
            sum(bool(each.failed) for each in runs),
            sum(each.best is not None and each.best.severity == "critical" for each in runs),
            tuple(each.core_right for each in runs if each.core_right is not None),
        )

    @property
    def targets(self) -> list[Target]:
        """The numbers that the diagnosis is judged by."""
        singles = {each.noise: each.single for each in self.noises}
        pairs = next((each.pairs for each in self.noises if each.noise is Noise.IDLE), (0, 0))
        heavy = [each for each in self.outcomes if each.heavy]
        times = self.large_node_s
        return [
            _share_target("right first cause, quiet machine", 0.97, 1.0, singles.get(Noise.IDLE)),
            _share_target("right first cause, 50% background load", 0.93, 0.98, singles.get(Noise.HALF)),
            _share_target(
                "oversubscribed 3x: cause, or overcommit with its owner", 0.85, 0.95, singles.get(Noise.OVERSUBSCRIBED)
            ),
            _share_target("both causes of a pair found, quiet machine", 0.85, 0.95, pairs),
            Target(
                "criticals on healthy heavy work",
                # One is allowed, however few runs there are.
                max(1.0, MOST_CRITICALS * len(heavy)),
                0.0,
                float(sum(each.false_critical for each in heavy)) if heavy else None,
                len(heavy),
                unit="",
                at_most=True,
            ),
            Target(
                "diagnosis of ten minutes, 96 cores",
                LARGE_NODE_MUST_S,
                LARGE_NODE_AIM_S,
                median(times) if times else None,
                len(times),
                unit="s",
                at_most=True,
            ),
        ]

    def matrix(self) -> dict[str, dict[str, int]]:
        """Number of runs by scenario and by top finding."""
        rows = {score.scenario: dict.fromkeys(self.columns, 0) for score in self.scenarios}
        for each in self.outcomes:
            rows[each.plan.name][each.top] += 1
        return rows

    def judged(self, every: bool = False) -> list[tuple[float, bool]]:
        """Top findings (with `every`, all above info) as confidence and whether it was right. On a healthy machine
        every finding above info is wrong; in a scenario, every cause but the scenario's own is wrong too. On an
        oversubscribed machine, overcommit is right."""
        return [
            (finding.confidence, finding.cause in causes_of(each))
            for each in self.outcomes
            for finding in (each.grave if every else [each.best] if each.best else [])
        ]

    def calibration(self, every: bool = False) -> list[Step]:
        """The judged findings by reported confidence."""
        steps = []
        for since, until in STEPS:
            inside = [(confidence, right) for confidence, right in self.judged(every) if since <= confidence < until]
            mean = fmean(confidence for confidence, _ in inside) if inside else 0.0
            steps.append(Step(since, until, len(inside), sum(right for _, right in inside), mean))
        return steps

    def missed(self) -> list[str]:
        """The targets that the diagnosis missed, a sentence each."""
        counts = [(score.scenario, score.right, score.runs) for score in self.scenarios if score.missed]
        if self.outcomes and self.share < MUST:
            counts.append(("all together", self.right, len(self.outcomes)))
        missed = [f"{what}: {right} of {runs} right, {MUST:.0%} must be" for what, right, runs in counts]
        missed += [
            f"{each.measure}: {each.value:.0%} of {each.runs}, {each.must:.0%} must be"
            if each.unit == "%"
            else f"{each.measure}: {each.value:.1f} {each.unit}".rstrip() + f", {each.must:g} may be"
            for each in self.targets
            if each.missed
        ]
        if self.false_criticals:
            missed.append(f"a healthy machine was called starved in {self.false_criticals} runs, none may be")
        return missed
