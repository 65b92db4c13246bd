"""Make pathologies and recordings on purpose: to try the tools, and to measure them."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exits
from exhume.cli.options import Parser, add_setting, value_of, whole_number
from exhume.model.errors import LabError, UsageError

SCENARIOS = {
    "zombies": "removed memory cgroups that the kernel keeps, by the kind of page that pins them",
    "zombie-storm": "one core spinning in the kernel over those zombies",
    "synth": "a synthetic recording of a large node, with a starved core planted in it",
}
SYNTH = "Write a synthetic recording in the real format: a busy fleet's stacks, and an incident to find."
ZOMBIES = "Make zombie memory cgroups, below a cgroup of the lab's own. They stay until they are cleaned. Needs root."
STORM = "Make one core spin in the kernel over the lab's zombies, for a while. Needs root."
CLEAN = "Remove all that the lab made on this machine: zombies, cgroups, mounts, swapfile, processes and files."
PINS = ("tmpfs", "ext4", "shared", "metadata", "swap", "mlock", "mapped")
MOST_ZOMBIES = 1_000_000


def add_options(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    listing = "List what the lab can make, and what it left here."
    actions.add_parser("list", help=listing, description=listing)
    running = actions.add_parser("run", help="Make a pathology on this machine.", description="Make a pathology.")
    scenarios = running.add_subparsers(
        title="scenarios", dest="scenario", metavar="NAME", required=True, parser_class=Parser
    )
    _add_zombies(scenarios.add_parser("zombies", help=SCENARIOS["zombies"], description=ZOMBIES))
    _add_storm(scenarios.add_parser("zombie-storm", help=SCENARIOS["zombie-storm"], description=STORM))
    _add_work(actions.add_parser("clean", help="Remove all that the lab made.", description=CLEAN))
    _add_synth(actions.add_parser("synth", help="Write a synthetic recording.", description=SYNTH))


def _add_zombies(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--count", type=whole_number(1, MOST_ZOMBIES), metavar="N", default=1000, help="How many [default: 1000]."
    )
    parser.add_argument("--pin", choices=PINS, default="tmpfs", help="What keeps them alive [default: tmpfs].")
    parser.add_argument("--parent", metavar="NAME", help="Name of the cgroup to make them in [default: exhume-lab].")
    _add_work(parser)


def _add_storm(parser: ArgumentParser) -> None:
    parser.add_argument("--core", type=whole_number(0, 8191), metavar="N", help="Core to spin on [default: the last].")
    parser.add_argument("--for", dest="seconds", metavar="DURATION", default="10s", help="How long [default: 10s].")
    parser.add_argument("--parent", metavar="NAME", help="Cgroup whose zombies to spin over [default: the newest].")
    _add_work(parser)


def _add_work(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="Directory for the lab's files and the list of its traces [default: /var/lib/exhume-lab].",
    )


def _add_synth(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        "-d",
        type=Path,
        metavar="DIR",
        default=Path("exhume-synth"),
        help="Directory to write to; it must be new or empty [default: exhume-synth].",
    )
    parser.add_argument(
        "--cores", type=whole_number(1, 4096), metavar="N", default=96, help="Cores of the node [default: 96]."
    )
    parser.add_argument("--hours", metavar="H", default="12", help="Hours to write [default: 12].")
    parser.add_argument(
        "--seed", type=whole_number(0, 2**63 - 1), metavar="N", default=1, help="The same seed writes the same rows."
    )
    add_setting(parser, "utc")


def run(options: Namespace) -> int:
    if options.action == "run":
        return _zombies(options) if options.scenario == "zombies" else _storm(options)
    return {"list": _list, "clean": _clean, "synth": _synth}[options.action](options)


def _list(_: Namespace) -> int:
    from exhume.lab.traces import DEFAULT_WORK, Traces, labs_in
    from exhume.present.words import count

    for name, description in SCENARIOS.items():
        print(f"{name:<13} {description}")
    for traces in filter(None, map(Traces.read, labs_in(DEFAULT_WORK))):
        if traces.of_this_boot:
            state = f"{count(traces.zombies, 'zombie')}, {traces.pin}" if traces.finished else "unfinished"
            print(f"left here: {traces.cgroup}: {state}; remove it with exhume lab clean")
    return exits.OK


def _zombies(options: Namespace) -> int:
    from time import monotonic_ns

    from exhume.cli.speaking import ProgressBar, say, suggest
    from exhume.lab.pins import PINS as KINDS
    from exhume.lab.zombies import make_zombies
    from exhume.present.words import count, duration

    began = monotonic_ns()
    with ProgressBar("making zombies") as bar:
        lab = make_zombies(
            options.count,
            options.pin,
            work=options.work,
            parent=options.parent,
            progress=lambda done, total: bar(done / total),
        )
    lab.keep()
    took = duration(monotonic_ns() - began)
    print(f"{count(lab.made, 'zombie')} below {lab.parent}, each pinned by {KINDS[lab.pin].description}; took {took}")
    if lab.holder_pid is not None:
        say(f"process {lab.holder_pid} holds {lab.files[0]}")
    suggest(f"exhume lab run zombie-storm{_work_words(options)}, or exhume lab clean{_work_words(options)}")
    return exits.OK


def _storm(options: Namespace) -> int:
    from exhume.cli.speaking import ProgressBar, say, suggest
    from exhume.lab.storm import raise_storm
    from exhume.model.clock import NANOS
    from exhume.model.times import parse_duration
    from exhume.present.words import count, percent

    with ProgressBar("storm") as bar:
        storm = raise_storm(
            options.core,
            parse_duration(options.seconds) / NANOS,
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
    suggest(f"exhume lab clean{_work_words(options)}")
    return exits.OK


def _clean(options: Namespace) -> int:
    from exhume.cli.speaking import patience, say
    from exhume.lab.clean import clean
    from exhume.lab.traces import DEFAULT_WORK
    from exhume.present.words import count

    with patience("removing what the lab made"):
        cleaned = clean(options.work or DEFAULT_WORK)
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
    if not cleaned.removed:
        print("nothing to remove")
    return exits.OK


def _work_words(options: Namespace) -> str:
    from shlex import quote

    return f" --work {quote(str(options.work))}" if options.work else ""


def _synth(options: Namespace) -> int:
    from datetime import UTC

    from exhume.cli.speaking import ProgressBar, directory_words, say, suggest
    from exhume.lab.synth import write_synthetic
    from exhume.model.clock import NANOS
    from exhume.model.times import format_moment
    from exhume.present.words import count, size

    with ProgressBar("writing") as bar:
        written = write_synthetic(
            options.dir,
            cores=options.cores,
            hours=_hours(options.hours),
            seed=options.seed,
            progress=lambda done, total: bar(done / total),
        )
    zone, incident = UTC if value_of(options, "utc") else None, written.incident
    begin, end = (format_moment(moment, zone, digits=0) for moment in (incident.since, incident.until + NANOS))
    print(
        f"{options.dir}: {count(written.cores, 'core')}, {count(written.seconds, 'second')}, "
        f"{count(written.samples, 'sample')}, {size(written.bytes)}"
    )
    say(f"the incident: core {incident.cpu}, {incident.comm}, {incident.function}, from {begin}")
    where = directory_words(options.dir)
    suggest(f"exhume flame{where} --since {begin} --until {end} --cpu {incident.cpu} -o incident.html")
    return exits.OK


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    # 0.0005 hours are the shortest recording there is: two seconds.
    if not 0.0005 <= hours <= 10_000:
        raise UsageError(f"{text!r} is not a number of hours: write one above 0, for example 12 or 0.5")
    return hours
