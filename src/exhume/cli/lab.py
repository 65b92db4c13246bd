"""exhume lab: recordings made on purpose, to try the tools and to measure them."""

from pathlib import Path
from typing import Annotated

import typer

from exhume.cli.options import Utc

SCENARIOS = {"synth": "a synthetic recording of a large node, with a starved core planted in it"}

lab = typer.Typer(
    help="Make recordings to try the tools with.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@lab.command("list")
def list_scenarios() -> None:
    """List what the lab can make."""
    for name, description in SCENARIOS.items():
        print(f"{name:<8} {description}")


@lab.command()
def synth(
    *,
    directory: Annotated[
        Path, typer.Option("--dir", "-d", metavar="DIR", help="Directory to write to; it must be new or empty.")
    ] = Path("exhume-synth"),
    cores: Annotated[int, typer.Option("--cores", metavar="N", min=1, max=4096, help="Cores of the node.")] = 96,
    hours: Annotated[float, typer.Option("--hours", metavar="H", help="Hours to write.")] = 12.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed writes the same rows.")] = 1,
    utc: Utc = False,
) -> None:
    """Write a synthetic recording in the real format: a busy fleet's stacks, and an incident to find."""
    from datetime import UTC

    from exhume.cli.looking import directory_words
    from exhume.cli.speaking import ProgressBar, say, suggest
    from exhume.lab.synth import write_synthetic
    from exhume.model.clock import NANOS
    from exhume.model.times import format_moment
    from exhume.present.words import count, size

    with ProgressBar("writing") as bar:
        written = write_synthetic(
            directory, cores=cores, hours=hours, seed=seed, progress=lambda done, total: bar(done / total)
        )
    zone, incident = UTC if utc else None, written.incident
    begin, end = (format_moment(moment, zone, digits=0) for moment in (incident.since, incident.until + NANOS))
    print(
        f"{directory}: {count(written.cores, 'core')}, {count(written.seconds, 'second')}, "
        f"{count(written.samples, 'sample')}, {size(written.bytes)}"
    )
    say(f"the incident: core {incident.cpu}, {incident.comm}, {incident.function}, from {begin}")
    where = directory_words(directory)
    suggest(f"exhume flame{where} --since {begin} --until {end} --cpu {incident.cpu} -o incident.html")
