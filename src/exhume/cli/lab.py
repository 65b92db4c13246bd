"""Make pathologies and recordings on purpose: to try the tools, and to measure them."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exits, lab_score, lab_synth
from exhume.cli.options import Parser, whole_number
from exhume.model.errors import LabError, UsageError

# What is made by other means than a scenario on a stage, and which options it has.
ZOMBIES, STORM = "zombies", "zombie-storm"
OTHERS = {
    ZOMBIES: "removed memory cgroups that the kernel keeps, by the kind of page that pins them; they stay",
    STORM: "one core spinning in the kernel over those zombies",
}
LIST = "List what the lab can make, and what it left here."
RUN = "Make a pathology on this machine, for real. exhume lab list shows the names. Needs root."
CLEAN = "Remove all that the lab made on this machine: zombies, cgroups, mounts, swapfile, processes and files."
SYNTH = "Write a synthetic recording in the real format: a busy fleet's stacks, and an incident to find."
SCORE = "Play the scenarios with everything drawn by lot, diagnose each blindly, and count what was right. Needs root."
PINS = ("tmpfs", "ext4", "shared", "metadata", "swap", "mlock", "mapped")
MOST_ZOMBIES = 1_000_000
MOST_CORES = 8191
MOST_SEED = 2**63 - 1


def add_options(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    add_work(actions.add_parser("list", help=LIST, description=LIST))
    _add_run(actions.add_parser("run", help="Make a pathology on this machine.", description=RUN))
    add_work(actions.add_parser("clean", help="Remove all that the lab made.", description=CLEAN))
    lab_score.add_options(actions.add_parser("score", help="Judge the diagnosis by the lab.", description=SCORE))
    lab_synth.add_options(actions.add_parser("synth", help="Write a synthetic recording.", description=SYNTH))


def _add_run(parser: ArgumentParser) -> None:
    parser.add_argument("scenario", metavar="NAME", help="What to make.")
    parser.add_argument(
        "--core",
        type=whole_number(0, MOST_CORES),
        metavar="N",
        help="Core where it happens [default: drawn by lot; zombie-storm: the last].",
    )
    parser.add_argument("--for", dest="seconds", metavar="DURATION", help="How long [default: 10s for most].")
    parser.add_argument("--seed", type=whole_number(0, MOST_SEED), metavar="N", help="The same seed draws the same.")
    parser.add_argument("--name", metavar="COMM", help="Name of its processes [default: drawn by lot].")
    parser.add_argument(
        "--count", type=whole_number(1, MOST_ZOMBIES), metavar="N", help="zombies: how many [default: 1000]."
    )
    parser.add_argument("--pin", choices=PINS, help="zombies: what keeps them alive [default: tmpfs].")
    parser.add_argument(
        "--parent",
        metavar="NAME",
        help="zombies: name of the cgroup to make them in [default: exhume-lab]; zombie-storm: the cgroup of the "
        "zombies to spin over [default: the newest].",
    )
    add_work(parser)


def add_work(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="Directory for the lab's files and the list of its traces [default: /var/lib/exhume-lab].",
    )


def run(options: Namespace) -> int:
    actions = {"list": _list, "run": _run, "clean": _clean, "score": lab_score.run, "synth": lab_synth.run}
    return actions[options.action](options)


def _run(options: Namespace) -> int:
    from exhume.cli import lab_scenarios, lab_zombies

    for_zombies, for_storm, for_others = {"count", "pin", "parent"}, {"core", "seconds", "parent"}, {"seed", "name"}
    allowed = {ZOMBIES: for_zombies, STORM: for_storm}.get(options.scenario, {"core", "seconds"} | for_others)
    for name in sorted((for_zombies | for_storm | for_others) - allowed):
        if getattr(options, name) is not None:
            flag = "--for" if name == "seconds" else f"--{name}"
            raise UsageError(f"{flag} is not for {options.scenario}; see exhume lab run --help")
    if options.scenario == ZOMBIES:
        return lab_zombies.make(options)
    if options.scenario == STORM:
        return lab_zombies.storm(options)
    return lab_scenarios.run(options)


def _list(options: Namespace) -> int:
    import shutil
    import sys
    import textwrap

    from exhume.lab.leftovers import left_in
    from exhume.lab.scenarios import SCENARIOS
    from exhume.lab.traces import DEFAULT_WORK, Traces, labs_in
    from exhume.model.text import count

    told = [("name", "to be found", "what happens")]
    told += [(each.name, each.cause or "nothing", each.summary) for each in SCENARIOS.values()]
    told += [(name, "", summary) for name, summary in OTHERS.items()]
    told.append(("synth", "", "(exhume lab synth) a synthetic recording of a large node, with an incident in it"))
    widths = [max(len(row[column]) for row in told) for column in (0, 1)]
    lead = sum(widths) + 4
    # For a pipe each stays one line.
    room = max(30, shutil.get_terminal_size().columns - lead) if sys.stdout.isatty() else 1000
    for name, cause, summary in told:
        lines = textwrap.wrap(summary, room, break_on_hyphens=False)
        print(f"{name:<{widths[0]}}  {cause:<{widths[1]}}  {lines[0]}", *lines[1:], sep="\n" + " " * lead)
    work = options.work or DEFAULT_WORK
    for traces in filter(None, map(Traces.read, labs_in(work))):
        if traces.of_this_boot:
            state = f"{count(traces.zombies, 'zombie')}, {traces.pin}" if traces.finished else "unfinished"
            print(f"left here: {traces.cgroup}: {state}; remove it with exhume lab clean")
    for directory in left_in(work):
        print(f"left here: {directory}; if it is not running any more, remove it with exhume lab clean")
    return exits.OK


def _clean(options: Namespace) -> int:
    from exhume.cli.speaking import patience, say
    from exhume.lab.clean import clean
    from exhume.lab.traces import DEFAULT_WORK
    from exhume.model.text import count

    with patience("removing what the lab made"):
        cleaned = clean(options.work or DEFAULT_WORK)
    for directory in cleaned.runs:
        print(f"removed what {directory.name} left, and {directory}")
    for traces in cleaned.removed:
        print(f"removed {traces.cgroup} and {traces.directory}")
    if cleaned.zombies:
        print(f"{count(cleaned.zombies[0], 'zombie')} on this machine before, {cleaned.zombies[1]:,} now")
    for mount in cleaned.used:
        say(f"{mount} is in use; what it pins goes when the process that uses it lets go")
    if cleaned.busy:
        cleaned.failed.insert(0, f"a process still works on {', '.join(map(str, cleaned.busy))}; end it first")
    if cleaned.failed:
        raise LabError("; ".join(cleaned.failed))
    if not cleaned.removed and not cleaned.runs:
        print("nothing to remove")
    return exits.OK
