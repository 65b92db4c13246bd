"""The command line: one verb per file, and the edge where errors become one sentence."""

import sys
from typing import Annotated

import typer

from exhume import __version__
from exhume.cli import exits
from exhume.cli.cores import cores
from exhume.cli.events import events
from exhume.cli.flame import flame
from exhume.cli.incidents import incidents
from exhume.cli.info import info
from exhume.cli.lab import lab
from exhume.cli.record import record, record_by_default
from exhume.model.errors import ExhumeError

app = typer.Typer(
    name="exhume",
    help="A flight recorder for CPU starvation: every core, every second, every stack.",
    epilog="Exit codes: 0 all is well, 1 nothing found, 2 could not run. Settings can be given as EXHUME_* variables.",
    # Plain help: drawing boxes around it would cost more time than everything else together.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
for verb in (record, info, incidents, cores, flame, events):
    app.command()(verb)
app.add_typer(lab, name="lab")


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"exhume {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def exhume(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A flight recorder for CPU starvation: every core, every second, every stack.

    Without a command it records this node into the default directory until it is stopped.
    """
    if context.invoked_subcommand is None:
        record_by_default()


def run() -> None:
    """The entry point: errors that a person can do something about are one sentence, and exit with 2."""
    try:
        app()
    except ExhumeError as error:
        print(f"exhume: {error}", file=sys.stderr)
        sys.exit(exits.FAILED)


if __name__ == "__main__":
    run()
