"""Make pathologies and recordings on purpose: to try the tools, and to measure them."""

import json
import os
import random
import shlex
import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from pathlib import Path
from time import monotonic_ns

from exhume.cli import exit_codes
from exhume.cli.args import TIME_FORMS, Parser, add_json, add_setting, option, whole_number, zone_of
from exhume.cli.signals import ended_by_signals
from exhume.cli.terminal import ProgressBar, StagedProgress, activity, dir_args, say, suggest
from exhume.lab.leftovers import DEFAULT_WORK, clean, left_here
from exhume.lab.pins import PINS as PIN_KINDS
from exhume.lab.scenarios import SCENARIOS, scenario_named
from exhume.lab.score import document
from exhume.lab.score.judge import judge, judge_again, kept_runs, large_node_seconds
from exhume.lab.score.plan import PAIRS, QUIET, Noise, Outcome, draw
from exhume.lab.score.tally import Tally
from exhume.lab.stage import perform
from exhume.lab.synth import write_synthetic
from exhume.lab.zombies import make_zombies, raise_storm
from exhume.model.clock import NANOS, SystemClock
from exhume.model.errors import LabError, UsageError
from exhume.model.settings import UTC
from exhume.model.text import count, duration, listed, percent, size
from exhume.model.times import Reference, format_moment, parse_duration, parse_moment

# Made by other means than a scenario, with options of their own.
ZOMBIES, STORM = "zombies", "zombie-storm"
OTHERS = {
    ZOMBIES: "removed memory cgroups that the kernel keeps, by the kind of page that pins them; they stay",
    STORM: "one core spinning in the kernel over those zombies",
}
# Each action: what it does, and examples.
ACTIONS = {
    "list": ("List what the lab can make, and what it left here.", "exhume lab list"),
    "run": (
        "Make a pathology on this machine. `exhume lab list` shows the names. Needs root.",
        "exhume lab run softirq-storm --core 3 --for 20s",
        "exhume lab run zombies --count 5000 --pin tmpfs",
    ),
    "clean": (
        "Remove all that the lab made on this machine: zombies, cgroups, mounts, swapfile, processes and files.",
        "exhume lab clean",
    ),
    "score": (
        "Run randomised scenarios, diagnose each without hints, and report the accuracy. Needs root.",
        "exhume lab score --runs 1 --quiet-runs 2",
        "exhume lab score --sample 12 -o score.md",
        "exhume lab score --only fork-storm quiet --seed 7",
        "exhume lab score --only cfs-throttling+mount-storm --noise half oversubscribed",
    ),
    "synth": (
        "Write a synthetic recording in the real format: the stacks of a busy node, and an incident to find.",
        "exhume lab synth --cores 96 --hours 1 --dir /tmp/recording",
    ),
    "fleet": (
        "Write a synthetic lake of a fleet, with a cause planted in it for exhume fleet report to find.",
        "exhume lab fleet --nodes 1000 --days 7 --dir /tmp/lake",
        "exhume lab fleet --nodes 1000 --no-cause --dir /tmp/lake",
        "exhume lab fleet --nodes 1000 --no-cause --clusters rack --cluster-size 40 --dir /tmp/lake",
    ),
}
# The kinds of exhume.lab.fleet, which is not loaded for --help.
_CLUSTERS = ("rack", "job", "wave")
SEED, RUNS = whole_number(0, 2**63 - 1), whole_number(0, 1000)


def add_options(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    for action, (summary, *examples) in ACTIONS.items():
        added = actions.add_parser(action, help=summary, description=summary, examples=examples)
        if action in OPTIONS:
            OPTIONS[action](added)
        if action not in ("synth", "fleet"):
            work = f"Directory for the lab's files and the list of its traces [default: {DEFAULT_WORK}]."
            option(added, "--work DIR", work, type=Path)


def _add_run(parser: ArgumentParser) -> None:
    parser.add_argument("scenario", metavar="NAME", help="The pathology.")
    option(parser, "--core N", "Core [default: random; zombie-storm: the last].", type=whole_number(0, 8191))
    option(parser, "--for DURATION", "How long [default: 10s for most].", dest="seconds")
    option(parser, "--seed N", "Seed of all that is random [default: random].", type=SEED)
    option(parser, "--name COMM", "Name of its processes [default: random].")
    option(parser, "--count N", "zombies: how many [default: 1000].", type=whole_number(1, 1_000_000))
    pins = f"zombies: the pages that pin them: {listed(list(PIN_KINDS), 9)} [default: tmpfs]."
    option(parser, "--pin KIND", pins, choices=tuple(PIN_KINDS))
    parent = (
        "zombies: name of the cgroup to make them in [default: exhume-lab]; zombie-storm: the cgroup of the "
        "zombies to spin over [default: the newest]."
    )
    option(parser, "--parent NAME", parent)


def _add_score(parser: ArgumentParser) -> None:
    option(parser, "--runs N", "Runs of each scenario.", type=RUNS, default=5)
    option(parser, "--quiet-runs N", "Runs of a healthy machine.", type=RUNS, default=20)
    option(parser, "--pair-runs N", "Runs of each pair of scenarios that play at the same time.", type=RUNS, default=1)
    option(parser, "--only NAME", "Only these scenarios and pairs (quiet, A+B).", nargs="+", default=[])
    noise = f"How busy the machine is with other work: {listed(list(Noise), 9)}; idle if not given, all with --sample."
    option(parser, "--noise LEVEL", noise, nargs="+", choices=tuple(map(str, Noise)), default=None)
    sample = "Instead of all, so many random scenarios, pairs and healthy runs at each level of noise."
    option(parser, "--sample N", sample, type=whole_number(1, 1000))
    option(parser, "--seed N", "Seed of all that is random [default: random].", type=SEED)
    add_json(parser)
    option(parser, "--output -o FILE", "Also write the tables to this Markdown file, run by run.", type=Path)
    option(parser, "--keep DIR", "Keep the recordings there, next to the truth.", type=Path)
    option(parser, "--again DIR", "Run nothing: diagnose the recordings kept there. Needs no root.", type=Path)


def _add_synth(parser: ArgumentParser) -> None:
    place = "Directory to write to; it must be new or empty."
    option(parser, "--dir -d DIR", place, type=Path, default=Path("exhume-synth"))
    option(parser, "--cores N", "Cores of the node.", type=whole_number(1, 4096), default=96)
    option(parser, "--hours H", "Hours to write.", default="12")
    option(parser, "--seed N", "Seed of the rows.", type=SEED, default=1)
    add_setting(parser, UTC)


def _add_fleet(parser: ArgumentParser) -> None:
    place = "Directory to write to; it must be new or empty. What is planted is in DIR.truth.json."
    option(parser, "--dir -d DIR", place, type=Path, default=Path("exhume-lake"))
    option(parser, "--nodes N", "Nodes of the fleet.", type=whole_number(1, 1_000_000), default=1000)
    option(parser, "--days D", "Days of minutes.", type=float, default=7.0)
    option(parser, "--sick SHARE", "Share of nodes that become sick.", type=float, default=0.2)
    option(parser, "--no-cause", "Plant none: sick nodes are drawn at random.")
    option(parser, "--any-cause", "Plant any attributes, instead of an agent of an image in one zone.")
    option(
        parser, "--clusters KIND", "Trouble without a cause comes in clusters: rack, job or wave.", choices=_CLUSTERS
    )
    option(parser, "--cluster-size N", "Nodes of a cluster, on average.", type=whole_number(2, 100_000), default=20)
    option(parser, "--until TIME", f"Where the lake ends: {TIME_FORMS}.", default="now")
    option(parser, "--seed N", "Seed of the rows.", type=SEED, default=1)
    add_setting(parser, UTC)


OPTIONS = {"run": _add_run, "score": _add_score, "synth": _add_synth, "fleet": _add_fleet}


def run(options: Namespace) -> int:
    actions = {"list": _list, "run": _run, "clean": _clean, "score": _score, "synth": _synth, "fleet": _fleet}
    return actions[options.action](options)


def _list(options: Namespace) -> int:
    rows = [("name", "to be found", "what happens")]
    rows += [(each.name, each.cause or "nothing", each.summary) for each in SCENARIOS.values()]
    rows += [(name, "", summary) for name, summary in OTHERS.items()]
    rows.append(("synth", "", "(exhume lab synth) a synthetic recording of a large node, with an incident in it"))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lead = sum(widths) + 4
    # A pipe gets one line for each.
    room = max(30, shutil.get_terminal_size().columns - lead) if sys.stdout.isatty() else 1000
    for name, cause, summary in rows:
        lines = textwrap.wrap(summary, room, break_on_hyphens=False)
        print(f"{name:<{widths[0]}}  {cause:<{widths[1]}}  {lines[0]}", *lines[1:], sep="\n" + " " * lead)
    for line in left_here(options.work or DEFAULT_WORK):
        print(f"left here: {line}")
    return exit_codes.OK


def _run(options: Namespace) -> int:
    for_zombies, for_storm, for_others = {"count", "pin", "parent"}, {"core", "seconds", "parent"}, {"seed", "name"}
    allowed = {ZOMBIES: for_zombies, STORM: for_storm}.get(options.scenario, {"core", "seconds"} | for_others)
    for name in sorted((for_zombies | for_storm | for_others) - allowed):
        if getattr(options, name) is not None:
            flag = "--for" if name == "seconds" else f"--{name}"
            raise UsageError(f"{flag} is not for {options.scenario}; see exhume lab run --help")
    return {ZOMBIES: _make_zombies, STORM: _raise_storm}.get(options.scenario, _perform)(options)


def _perform(options: Namespace) -> int:
    scenario = scenario_named(options.scenario)
    seconds = None if options.seconds is None else parse_duration(options.seconds) / NANOS
    try:
        with ended_by_signals(), StagedProgress() as progress:
            stage = perform(
                scenario,
                seconds=seconds,
                core=options.core,
                name=options.name,
                seed=options.seed,
                work=options.work,
                progress=progress,
            )
    except KeyboardInterrupt:
        say(f"{scenario.name} was stopped, and all that it made is removed")
        return exit_codes.INTERRUPTED
    where = f"on core {stage.core}" if scenario.on_core else "on this machine"
    print(f"{scenario.name}: {stage.seconds:g} s {where}, by {stage.name}; all that it made is removed")
    suggest(f"exhume diagnose --last {shlex.quote(f'{round(stage.seconds) + 30}s')}, where a recorder ran meanwhile")
    return exit_codes.OK


def _make_zombies(options: Namespace) -> int:
    began = monotonic_ns()
    with ProgressBar("making zombies") as bar:
        lab = make_zombies(
            options.count or 1000,
            options.pin or "tmpfs",
            work=options.work,
            parent=options.parent,
            progress=lambda done, total: bar(done / total),
        )
    lab.keep()
    pin, took = PIN_KINDS[lab.pin].description, duration(monotonic_ns() - began)
    print(f"{count(lab.made, 'zombie')} below {lab.parent}, each pinned by {pin}; took {took}")
    if lab.holder_pid is not None:
        say(f"process {lab.holder_pid} holds {lab.files[0]}")
    suggest(f"exhume lab run zombie-storm{_work_args(options)}, or exhume lab clean{_work_args(options)}")
    return exit_codes.OK


def _raise_storm(options: Namespace) -> int:
    with ProgressBar("storm") as bar:
        storm = raise_storm(
            options.core,
            parse_duration(options.seconds or "10s") / NANOS,
            work=options.work,
            parent=options.parent,
            progress=lambda done, total: bar(done / total),
        )
    print(
        f"core {storm.core}: {storm.system_s:.1f} s of system time in {storm.elapsed_s:.1f} s "
        f"({percent(storm.system_s / storm.elapsed_s)}), {count(storm.passes, 'whole pass', 'whole passes')} over "
        f"{count(storm.zombies, 'zombie')} through {storm.file.name}, the longest {storm.longest_s * 1000:,.1f} ms"
    )
    if storm.left < storm.zombies:
        say(f"{count(storm.zombies - storm.left, 'zombie')} went meanwhile")
    suggest(f"exhume lab clean{_work_args(options)}")
    return exit_codes.OK


def _work_args(options: Namespace) -> str:
    return f" --work {shlex.quote(str(options.work))}" if options.work else ""


def _clean(options: Namespace) -> int:
    with activity("removing what the lab made"):
        cleaned = clean(options.work or DEFAULT_WORK)
    for directory, what in cleaned.removed.items():
        print(f"removed {what} and {directory}")
    if cleaned.zombies:
        print(f"{count(cleaned.zombies[0], 'zombie')} on this machine before, {cleaned.zombies[1]:,} now")
    for mount in cleaned.used:
        say(f"{mount} is in use; what it pins is freed when the process that uses it releases it")
    if cleaned.busy:
        cleaned.failed.insert(0, f"a process still works on {', '.join(map(str, cleaned.busy))}; end it first")
    if cleaned.failed:
        raise LabError("; ".join(cleaned.failed))
    if not cleaned.removed:
        print("nothing to remove")
    return exit_codes.OK


def _score(options: Namespace) -> int:
    seed = random.SystemRandom().getrandbits(31) if options.seed is None else options.seed
    if options.again is None:
        single = [scenario_named(name).name for name in options.only if "+" not in name]
        pairs = [_pair(name) for name in options.only if "+" in name]
        if not options.only:
            single, pairs = list(SCENARIOS), list(PAIRS)
        runs = {name: options.quiet_runs if name == QUIET else options.runs for name in single}
        levels = ["idle"] if options.sample is None else list(Noise)
        noises = [Noise(each) for each in dict.fromkeys(options.noise or levels)]
        cores = sorted(os.sched_getaffinity(0))
        healthy = {name for name in single if SCENARIOS[name].healthy}
        counts = dict.fromkeys(pairs, options.pair_runs)
        plans = draw(runs, cores, seed, pairs=counts, noises=noises, sample=options.sample, healthy=healthy)
        if not plans:
            raise UsageError("nothing to run; request at least one run")
        planned = len(plans)
        judged = judge(plans, options.work, options.keep)
        say(f"{planned} runs of about 25 s each: {planned * 25 / 60:.0f} minutes; seed {seed}")
    else:
        planned = len(kept_runs(options.again))
        if not planned:
            raise UsageError(f"{options.again} holds no kept recordings; make some with exhume lab score --keep")
        judged = judge_again(options.again)
    outcomes: list[Outcome] = []
    times: list[float] = []
    interrupted = False
    try:
        with ended_by_signals():
            if options.again is None and not options.only:
                times = large_node_seconds(options.work)
            for outcome in judged:
                outcomes.append(outcome)
                say(f"{len(outcomes):>3}/{planned} {document.in_a_line(outcome)}")
                _write_document(options.output, document.as_document(Tally(outcomes, times), planned, seed))
    except KeyboardInterrupt:
        interrupted = True
        say(f"stopped after {len(outcomes)} of {planned} runs")
    tally = Tally(outcomes, times)
    print(json.dumps(document.as_json(tally, planned, seed)) if options.json else document.as_text(tally))
    for line in tally.missed():
        say(f"MISSED: {line}")
    return exit_codes.INTERRUPTED if interrupted else exit_codes.FINDINGS if tally.missed() else exit_codes.OK


def _pair(name: str) -> tuple[str, str]:
    """The two scenarios of `A+B`."""
    one, other, *more = (scenario_named(each).name for each in name.split("+"))
    if more:
        raise UsageError(f"{name!r} are more than two scenarios; a pair is A+B")
    return one, other


def _write_document(path: Path | None, text: str) -> None:
    """Replace the file atomically: an interrupted run leaves a complete page."""
    if path is None:
        return
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.rename(path)
    except OSError as error:
        raise UsageError(f"can't write {path}: {(error.strerror or '').lower()}") from None


def _synth(options: Namespace) -> int:
    with ProgressBar("writing") as bar:
        written = write_synthetic(
            options.dir,
            cores=options.cores,
            hours=_hours(options.hours),
            seed=options.seed,
            progress=lambda done, total: bar(done / total),
        )
    zone, incident = zone_of(options), written.incident
    begin, end = (format_moment(moment, zone, digits=0) for moment in (incident.since, incident.until + NANOS))
    print(
        f"{options.dir}: {count(written.cores, 'core')}, {count(written.seconds, 'second')}, "
        f"{count(written.samples, 'sample')}, {size(written.bytes)}"
    )
    say(f"the incident: core {incident.cpu}, {incident.comm}, {incident.function}, from {begin}")
    window = f"--since {begin} --until {end}"
    suggest(f"exhume flame{dir_args(options.dir)} {window} --cpu {incident.cpu} -o incident.html")
    return exit_codes.OK


def _fleet(options: Namespace) -> int:
    # DuckDB and the fleet's tables are for this action alone.
    from exhume.lab.fleet import FleetPlan, last_full_hour, write_fleet

    now = SystemClock().wall_ns()
    until = parse_moment(options.until, Reference(now, now, now, zone_of(options)))
    plan = FleetPlan(
        options.nodes,
        options.days,
        last_full_hour(until),
        options.seed,
        options.sick,
        cause=not options.no_cause,
        agent=not options.any_cause,
        clusters=options.clusters or "",
        cluster_size=options.cluster_size,
    )
    with ProgressBar("writing") as bar:
        written = write_fleet(options.dir, plan, progress=lambda done, total: bar(done / total))
    print(
        f"{options.dir}: {count(written.nodes, 'node')}, {count(written.rows, 'row')}, "
        f"{count(written.files, 'file')}, {size(written.bytes)}"
    )
    say(f"what was planted is in {written.truth_file}")
    place = shlex.quote(str(options.dir))
    suggest(f"exhume fleet report --lake {place} --since {options.days:g}d --until @{plan.until // NANOS}")
    return exit_codes.OK


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    # 0.0005 hours are the shortest recording there is: two seconds.
    if not 0.0005 <= hours <= 10_000:
        raise UsageError(f"{text!r} is not a number of hours: write one above 0, for example 12 or 0.5")
    return hours
