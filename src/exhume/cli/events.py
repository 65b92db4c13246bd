"""exhume events: the kernel log and other events of a window, with wall time."""

from typing import Annotated

import typer

from exhume.cli import exits
from exhume.cli.options import COLOR_AUTO, NO_DIR, Color, Dir, Json, Since, Until, Utc
from exhume.model.settings import setting


def events(
    *,
    directory: Dir = NO_DIR,
    since: Since = None,
    until: Until = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Only events of this kind; can be repeated.")
    ] = None,
    as_json: Json = False,
    color: Color = COLOR_AUTO,
    utc: Utc = False,
) -> None:
    """List the kernel log and other events."""
    from exhume.cli.listing import print_listing
    from exhume.cli.looking import Look, directory_words
    from exhume.cli.speaking import patience, say, suggest

    look = Look.into(directory, utc)
    window = look.window(since, until)
    with patience("reading events"):
        found = look.recording.events(window, kind)
    print_listing(look, found, "events", as_json, setting("color").read(color))
    if not found:
        say(f"exhume: {look.nothing_in(window, 'events')}")
        raise typer.Exit(exits.NOTHING)
    suggest(f"exhume incidents{directory_words(look.recording.directory)}")
