"""Options that several commands share. Those that are settings take their words from the registry."""

from typing import Annotated, Any

import typer

from exhume.model.settings import setting


def registered(name: str, *short: str) -> Any:
    """The option of a setting: flag, environment variable, help and default all come from the registry."""
    entry = setting(name)
    return typer.Option(
        entry.flag,
        *short,
        envvar=entry.variable,
        metavar=entry.kind.metavar or None,
        help=entry.help,
        show_default=entry.shown_default or bool(entry.default and entry.kind.metavar),
    )


Dir = Annotated[str, registered("dir", "-d")]
Color = Annotated[str, registered("color")]
Utc = Annotated[bool, registered("utc")]

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Begin of the window: RFC 3339, HH:MM:SS, '10m ago', @unix or now."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="End of the window (not inside it); same forms.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON (versioned, documented) instead of text.")]

NO_DIR = setting("dir").default
COLOR_AUTO = setting("color").default
