"""exhume incidents: the moments that the recorder marked by itself."""

import typer

from exhume.cli import exits
from exhume.cli.options import COLOR_AUTO, NO_DIR, Color, Dir, Json, Since, Until, Utc
from exhume.model.settings import setting


def incidents(
    *,
    directory: Dir = NO_DIR,
    since: Since = None,
    until: Until = None,
    as_json: Json = False,
    color: Color = COLOR_AUTO,
    utc: Utc = False,
) -> None:
    """List the moments that the recorder marked.

    Cores that were starved, ksoftirqd threads that had to wait, log lines that tell of it, leaking cgroups.
    """
    from exhume.cli.listing import print_listing
    from exhume.cli.looking import Look, directory_words
    from exhume.cli.speaking import patience, say, suggest
    from exhume.model.clock import NANOS
    from exhume.model.events import INCIDENT
    from exhume.model.times import format_moment

    look = Look.into(directory, utc)
    window = look.window(since, until)
    with patience("reading events"):
        found = look.recording.events(window, [INCIDENT])
    print_listing(look, found, "incidents", as_json, setting("color").read(color))
    where = directory_words(look.recording.directory)
    if not found:
        say(f"exhume: {look.nothing_in(window, 'incidents')}")
        suggest(f"exhume cores{where}")
        raise typer.Exit(exits.NOTHING)
    first = found[0]
    begin, end = (format_moment(first.wall + offset * NANOS, look.zone, digits=0) for offset in (-5, 5))
    core = "" if first.cpu is None else f" --cpu {first.cpu}"
    suggest(f"exhume flame{where} --since {begin} --until {end}{core} -o incident.html")
