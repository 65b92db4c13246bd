"""exhume lab synth: a synthetic recording of a large node."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exits
from exhume.cli.options import add_setting, value_of, whole_number
from exhume.model.errors import UsageError


def add_options(parser: ArgumentParser) -> None:
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
    from datetime import UTC

    from exhume.cli.speaking import ProgressBar, directory_words, say, suggest
    from exhume.lab.synth import write_synthetic
    from exhume.model.clock import NANOS
    from exhume.model.text import count, size
    from exhume.model.times import format_moment

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
