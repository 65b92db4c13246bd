"""Show a recording in the browser: the second, the core and the stack, also while it is being recorded.

--dir may also name an incident bundle (`exhume export bundle`). The page is on loopback unless --listen says otherwise;
then a token is required to open it.
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_server_options, add_setting, option, value_of
from exhume.model.settings import DIR


def add_options(parser: ArgumentParser) -> None:
    add_setting(parser, DIR, "-d")
    about = "another recording or bundle (of another time, or another node), shown below the first on one axis"
    option(parser, "--compare-with DIR", about, type=Path)
    add_server_options(parser)


def run(options: Namespace) -> int:
    from exhume.cli.server import ServerOptions, serve
    from exhume.present.web.source import RecordingSource

    directory = _opened(value_of(options, DIR))
    compared = None if options.compare_with is None else _opened(options.compare_with)
    server = ServerOptions.of(options.listen, options.token, options.name, options.tls_cert, options.tls_key)
    source = RecordingSource(directory, compared)
    serve(source, server, open_browser=not options.no_open and sys.stdout.isatty())
    return exit_codes.OK


def _opened(path: Path) -> Path:
    """The directory of a recording or a bundle. Raises RecordingError where it has none: reported now, not on an empty
    page."""
    from exhume.store.read.index import list_recording

    if path.is_file():
        from exhume.store.read.bundle import unpack

        # Removed when this process ends.
        path = unpack(path).directory
    list_recording(path)
    return path
