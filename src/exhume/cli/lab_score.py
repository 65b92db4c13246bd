"""exhume lab score: the diagnosis, judged by scenarios that are drawn by lot."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exits
from exhume.cli.options import whole_number

if TYPE_CHECKING:
    from exhume.lab.score.plan import Outcome

MOST_RUNS = 1000


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--runs", type=whole_number(0, MOST_RUNS), metavar="N", default=5, help="Runs of each scenario [default: 5]."
    )
    parser.add_argument(
        "--quiet-runs",
        type=whole_number(0, MOST_RUNS),
        metavar="N",
        default=20,
        help="Runs of a healthy machine [default: 20].",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=[], help="Only these scenarios (quiet is one of them)."
    )
    parser.add_argument(
        "--seed", type=whole_number(0, 2**63 - 1), metavar="N", help="The same seed draws the same [default: by lot]."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON (versioned, documented) instead of text.")
    parser.add_argument(
        "--output", "-o", type=Path, metavar="FILE", help="Also write the tables to this Markdown file, run by run."
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="Keep the recordings there, with the truth beside them."
    )
    parser.add_argument(
        "--again",
        type=Path,
        metavar="DIR",
        help="Play nothing: diagnose the recordings kept there anew. Needs no root.",
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="Directory for the lab's files and the list of its traces [default: /var/lib/exhume-lab].",
    )


def run(options: Namespace) -> int:
    import json
    import os
    import random

    from exhume.cli.speaking import say
    from exhume.cli.stopping import ended_by_signals
    from exhume.lab.score import document
    from exhume.lab.score.judge import judge, judge_again, kept_runs
    from exhume.lab.score.plan import draw
    from exhume.lab.score.tally import Tally
    from exhume.model.errors import UsageError

    seed = random.SystemRandom().getrandbits(31) if options.seed is None else options.seed
    if options.again is None:
        plans = draw(_wanted(options), sorted(os.sched_getaffinity(0)), seed)
        if not plans:
            raise UsageError("nothing to run; ask for one run at least")
        planned = len(plans)
        judged = judge(plans, options.work, options.keep)
        say(f"{planned} runs of about 22 s each; seed {seed}")
    else:
        planned = len(kept_runs(options.again))
        if not planned:
            raise UsageError(f"{options.again} holds no kept recordings; make some with exhume lab score --keep")
        judged = judge_again(options.again)
    outcomes: list[Outcome] = []
    interrupted = False
    try:
        with ended_by_signals():
            for outcome in judged:
                outcomes.append(outcome)
                say(f"{len(outcomes):>3}/{planned} {document.in_a_line(outcome)}")
                _write(options.output, document.as_document(Tally(outcomes), planned, seed))
    except KeyboardInterrupt:
        interrupted = True
        say(f"stopped after {len(outcomes)} of {planned} runs")
    tally = Tally(outcomes)
    print(json.dumps(document.as_json(tally, planned, seed)) if options.json else document.as_text(tally))
    for line in tally.missed():
        say(f"MISSED: {line}")
    return exits.INTERRUPTED if interrupted else exits.NOTHING if tally.missed() else exits.OK


def _wanted(options: Namespace) -> dict[str, int]:
    """How many runs of each scenario."""
    from exhume.lab.perform import scenario_named
    from exhume.lab.scenarios import SCENARIOS
    from exhume.lab.score.plan import QUIET

    chosen = [scenario_named(name).name for name in options.only] or list(SCENARIOS)
    return {name: options.quiet_runs if name == QUIET else options.runs for name in chosen}


def _write(path: Path | None, text: str) -> None:
    """Whole or not at all: a run that is cut short leaves a readable page."""
    if path is None:
        return
    from exhume.model.errors import UsageError

    beside = path.with_name(f".{path.name}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.rename(path)
    except OSError as error:
        raise UsageError(f"can't write {path}: {(error.strerror or '').lower()}") from None
