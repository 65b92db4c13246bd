"""Render the score as text, tables and JSON, and fit the calibration of the confidence to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from exhume.lab.score.plan import AFTER_S, CALM_S, LENGTH_S, NOTHING, Noise, Outcome, machine_facts
from exhume.lab.score.tally import MUST, Step, Tally, Target

# Prior for the distance of the line from "as reported", before anything was judged: standard deviations.
_PRIOR_SHIFT, _PRIOR_STRETCH = 0.7, 0.35
_FEWEST = 20
_EDGE = 0.01


@dataclass(frozen=True, slots=True)
class Line:
    """log-odds of being right = shift + stretch x log-odds reported. `before` and `after` are the mean squared errors
    (Brier scores) of the confidence as reported, and as corrected by the line."""

    shift: float
    stretch: float
    findings: int
    before: float
    after: float


def fit(judged: Sequence[tuple[float, bool]]) -> Line | None:
    """Fit the line to findings (reported confidence, right); None if there are too few."""
    if len(judged) < _FEWEST:
        return None
    reported = np.clip(np.array([confidence for confidence, _ in judged]), _EDGE, 1 - _EDGE)
    right = np.array([float(was_right) for _, was_right in judged])
    odds = np.log(reported / (1 - reported))
    shift, stretch = np.meshgrid(np.linspace(-2, 2, 81), np.geomspace(0.25, 4, 61), indexing="ij")
    chance = 1 / (1 + np.exp(-(shift[..., None] + stretch[..., None] * odds)))
    likelihood = np.sum(right * np.log(chance) + (1 - right) * np.log(1 - chance), axis=-1)
    prior = -0.5 * (shift / _PRIOR_SHIFT) ** 2 - 0.5 * (np.log(stretch) / _PRIOR_STRETCH) ** 2
    best = np.unravel_index(np.argmax(likelihood + prior), shift.shape)
    before, after = (float(np.mean((each - right) ** 2)) for each in (reported, chance[best]))
    return Line(round(float(shift[best]), 2), round(float(stretch[best]), 2), len(judged), before, after)


SCORE_VERSION = 4
# With more other work than this during the runs, the results say more about that work.
QUIET_MACHINE = 0.1
METHOD = (
    f"The core, the seconds of calm before ({CALM_S[0]:.0f} to {CALM_S[1]:.0f}), the length of the trouble "
    f"({LENGTH_S[0]:.0f} to {LENGTH_S[1]:.0f} s), the names of processes and the healthy work next to it are random. "
    "`exhume record`, a process of its own with its default settings, records all of it and "
    f"{AFTER_S[0]:.0f} to {AFTER_S[1]:.0f} s more. Then another process, which gets nothing but the recording's "
    "directory, diagnoses the whole of it. A run is right when the first finding is the scenario's cause; on a healthy "
    "machine (quiet), when there is no finding above info; of healthy work that fills it, when nothing is critical. "
    "Of a pair, two scenarios that play at the same time, both causes have to be among the findings above info. A "
    "run that could not be played or answered counts as wrong. Noise is work next to it, from before the calm to the "
    "end: none (idle), half of each core (half), or three programs for each core (oversubscribed): there the "
    "scenario's cause among the findings above info, or overcommit as the first with a program of the run, is right."
)


def as_text(tally: Tally) -> str:
    """Render all tables as text."""
    return "\n\n".join(part for _, part in _parts(tally))


def as_document(tally: Tally, planned: int, seed: int) -> str:
    """Render the page for bench/DIAGNOSIS.md."""
    done = len(tally.outcomes)
    parts = [
        "# The diagnosis, judged by the lab",
        f"Written by `exhume lab score` on {datetime.now(UTC):%Y-%m-%d}: {done} runs, seed {seed}.",
    ]
    if done < planned:
        parts.append(f"**Unfinished**: {done} of {planned} runs.")
    busy = sorted(each.others_busy for each in tally.outcomes)
    if busy and busy[-1] > QUIET_MACHINE:
        often = sum(share > QUIET_MACHINE for share in busy)
        parts.append(
            f"**Not a quiet machine**: before {often} of {done} runs other work took more than {QUIET_MACHINE:.0%} of "
            f"it, up to {busy[-1]:.0%}."
        )
    missed = tally.missed()
    parts.append("**Missed**: " + "; ".join(missed) + "." if missed else "All that must be reached is reached.")
    parts += [METHOD, "\n".join(f"- {name}: {value}" for name, value in machine_facts().items())]
    for title, part in _parts(tally):
        parts += [f"## {title}", part]
    return "\n\n".join(parts) + "\n"


def as_json(tally: Tally, planned: int, seed: int) -> dict[str, Any]:
    answer = tally.answer_s
    return {
        "version": SCORE_VERSION,
        "seed": seed,
        "planned": planned,
        "targets": [
            {"measure": each.measure, "must": each.must, "aim": each.aim, "value": each.value, "runs": each.runs}
            | {"unit": each.unit, "missed": each.missed}
            for each in tally.targets
        ],
        "runs": [each.as_json() for each in tally.outcomes],
        "matrix": tally.matrix(),
        "scenarios": {
            each.scenario: {"runs": each.runs, "right": each.right, "failed": each.failed, "share": each.share}
            for each in tally.scenarios
        },
        "noise": {
            str(each.noise): {
                "single": {"runs": each.single[0], "right": each.single[1]},
                "pairs": {"runs": each.pairs[0], "both_found": each.pairs[1]},
                "healthy": {"runs": each.healthy[0], "right": each.healthy[1], "criticals": each.criticals},
                "lost_time_explained": each.explained,
            }
            for each in tally.noises
        },
        "causes": {each.cause: {"precision": each.precision, "recall": each.recall} for each in tally.causes},
        "share": tally.share,
        "false_criticals": tally.false_criticals,
        "answer_s": None if answer is None else {"median": answer[0], "max": answer[1]},
        "calibration": [
            {"since": step.since, "until": step.until, "reported": step.reported, "right": step.right}
            for step in tally.calibration()
        ],
        "missed": tally.missed(),
    }


def in_a_line(outcome: Outcome) -> str:
    """Describe one run in a line, for progress output and for the list of wrong runs."""
    plan = outcome.plan
    mark = "right" if outcome.right else "WRONG"
    where = f"core {plan.core}, {plan.seconds:.0f} s after {plan.calm_s:.0f} s, next to {plan.background}"
    where += "" if plan.noise is Noise.IDLE else f", noise: {plan.noise}"
    if outcome.failed:
        return f"{plan.name:<19} {mark}  ({where}): {outcome.failed}"
    best = outcome.best
    answer = NOTHING if best is None else f"{best.cause}, {best.severity}, {best.confidence:.2f}"
    if outcome.also_cause:
        answer = ", ".join(f"{each.cause} ({each.lost_s:.1f} s lost)" for each in outcome.findings) or NOTHING
    if outcome.core_right is False and best is not None:
        answer += f", but on core {best.cpu}"
    return f"{plan.name:<19} {mark}  ({where}): {answer}; {outcome.seconds or 0:.1f} s"


def _parts(tally: Tally) -> list[tuple[str, str]]:
    """The tables and lists, each with its title."""
    scenarios = [
        [
            *(score.scenario, score.runs, score.right, f"{score.share:.0%}"),
            f"{sum(score.cores)} of {len(score.cores)}" if score.cores else "",
            score.critical,
            "MISSED" if score.missed else "met",
        ]
        for score in tally.scenarios
    ]
    verdict = "met" if tally.share >= MUST else "MISSED"
    scenarios.append(["all", len(tally.outcomes), tally.right, f"{tally.share:.0%}", "", "", verdict])
    head = ["scenario", "runs", "right", "", "core right", "critical", f"must: {MUST:.0%}"]
    false = f"False criticals on a healthy machine: {tally.false_criticals} (must: 0)."
    matrix = [[scenario, *(count or "" for count in counts.values())] for scenario, counts in tally.matrix().items()]
    causes = [
        [each.cause, each.there, each.reported, each.right, _share(each.precision), _share(each.recall)]
        for each in tally.causes
    ]
    answer = tally.answer_s
    parts = [
        ("What must be reached", _targets(tally)),
        ("Scenarios", f"{_table(head, scenarios)}\n\n{false}"),
        ("Noise", _noise(tally)),
        ("What was taken for what", _table(["scenario \\ top finding", *tally.columns], matrix)),
        ("Causes", _table(["cause", "there", "reported", "right", "precision", "recall"], causes)),
        ("Confidence", _calibration(tally)),
        ("Time to answer", f"Median {answer[0]:.2f} s, longest {answer[1]:.2f} s." if answer else "No answers."),
    ]
    wrong = [f"- {in_a_line(each)}" for each in tally.outcomes if not each.right or each.core_right is False]
    return [*parts, ("What was wrong", "\n".join(wrong))] if wrong else parts


def _targets(tally: Tally) -> str:
    head = ["measure", "must", "aim", "result", "n", ""]
    rows = [
        [
            *(each.measure, _figure(each, each.must), _figure(each, each.aim)),
            *("not measured" if each.value is None else _figure(each, each.value), each.runs),
            "" if each.value is None else "MISSED" if each.missed else "met",
        ]
        for each in tally.targets
    ]
    return _table(head, rows)


def _figure(target: Target, value: float) -> str:
    return f"{value:.0%}" if target.unit == "%" else f"{value:.3g} {target.unit}".rstrip()


def _noise(tally: Tally) -> str:
    head = [
        "noise",
        "single causes right",
        "pairs: both found",
        "healthy right",
        "criticals there",
        "lost time explained",
    ]
    rows = [
        [each.noise, *map(_of, (each.single, each.pairs, each.healthy)), each.criticals, _share(each.explained)]
        for each in tally.noises
    ]
    return _table(head, rows)


def _of(counts: tuple[int, int]) -> str:
    runs, right = counts
    return f"{right} of {runs} ({right / runs:.0%})" if runs else ""


def _calibration(tally: Tally) -> str:
    rows = [
        [f"{top.since:.1f} to {min(top.until, 1.0):.1f}", *_step_cells(top), *_step_cells(all_of)]
        for top, all_of in zip(tally.calibration(), tally.calibration(every=True), strict=True)
    ]
    head = ["reported confidence", "top findings", "mean reported", "right", "all above info", "mean reported", "right"]
    line = fit(tally.judged())
    fitting = line and (
        f"\n\nThe line that fits the {line.findings} top findings: log-odds of being right = "
        f"{line.shift:+.2f} + {line.stretch:.2f} x log-odds reported (mean squared error {line.before:.3f} as "
        f"reported, {line.after:.3f} by the line)."
    )
    return _table(head, rows) + (fitting or "")


def _step_cells(step: Step) -> list[object]:
    return [step.reported, f"{step.mean:.2f}", f"{step.right / step.reported:.0%}"] if step.reported else [0, "", ""]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (head, ["---"] * len(head), *rows))
