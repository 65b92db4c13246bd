"""Make recordings on purpose: to try the tools, and to measure them."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exits
from exhume.cli.options import Parser, add_setting, value_of, whole_number
from exhume.model.errors import UsageError

SCENARIOS = {"synth": "a synthetic recording of a large node, with a starved core planted in it"}
SYNTH = "Write a synthetic recording in the real format: a busy fleet's stacks, and an incident to find."


def add_options(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    listing = "List what the lab can make."
    actions.add_parser("list", help=listing, description=listing)
    synth = actions.add_parser("synth", help="Write a synthetic recording.", description=SYNTH)
    synth.add_argument(
        "--dir",
        "-d",
        type=Path,
        metavar="DIR",
        default=Path("exhume-synth"),
        help="Directory to write to; it must be new or empty [default: exhume-synth].",
    )
    synth.add_argument(
        "--cores", type=whole_number(1, 4096), metavar="N", default=96, help="Cores of the node [default: 96]."
    )
    synth.add_argument("--hours", metavar="H", default="12", help="Hours to write [default: 12].")
    synth.add_argument(
        "--seed", type=whole_number(0, 2**63 - 1), metavar="N", default=1, help="The same seed writes the same rows."
    )
    add_setting(synth, "utc")


def run(options: Namespace) -> int:
    return _list() if options.action == "list" else _synth(options)


def _list() -> int:
    for name, description in SCENARIOS.items():
        print(f"{name:<8} {description}")
    return exits.OK


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
