"""Show a recording in the browser: the second, the core and the stack, also while it is being recorded.

--dir may also name an incident bundle (`exhume export bundle`). The page is on loopback unless --listen says otherwise;
then a token is required to open it.
"""

import sys
from argparse import ArgumentParser, Namespace

from exhume.cli import exit_codes
from exhume.cli.args import add_server_options, add_setting, value_of
from exhume.model.settings import DIR


def add_options(parser: ArgumentParser) -> None:
    add_setting(parser, DIR, "-d")
    add_server_options(parser)


def run(options: Namespace) -> int:
    from exhume.cli.server import ServerOptions, serve
    from exhume.store.read.index import list_recording

    directory = value_of(options, DIR)
    if directory.is_file():
        from exhume.store.read.bundle import unpack

        # Removed when this process ends.
        directory = unpack(directory).directory
    # A directory without a recording is reported now, not on an empty page.
    list_recording(directory)
    server = ServerOptions.of(options.listen, options.token, options.name, options.tls_cert, options.tls_key)
    serve(directory, server, open_browser=not options.no_open and sys.stdout.isatty())
    return exit_codes.OK
