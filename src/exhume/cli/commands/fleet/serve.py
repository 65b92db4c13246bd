"""Show a fleet in the browser: every node of a lake as a cell, grouped by any attribute and coloured by any measure,
hour by hour; its incidents, and the recording of each.

LAKE is a directory, or an address such as s3://bucket/fleet. The page is on loopback unless --listen says otherwise;
then a token is required to open it.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_server_options, add_setting, option, value_of
from exhume.model.errors import NoData, UsageError
from exhume.model.settings import S3_ENDPOINT

SUMMARY = "Show a fleet in the browser."
EXAMPLES = (
    "exhume fleet serve --lake /srv/lake",
    "exhume fleet serve --lake s3://bucket/fleet --listen 0.0.0.0:8420 --tls-cert hub.pem --tls-key hub.key",
    "exhume fleet serve --lake s3://bucket/fleet --s3-endpoint http://minio:9000",
)
PACKAGE = "exhume.present.fleet"
STORES = ("s3://", "gs://")


def add_options(parser: ArgumentParser) -> None:
    option(parser, "--lake LAKE", "The lake: a directory, s3:// or gs://.", required=True)
    add_setting(parser, S3_ENDPOINT)
    add_server_options(parser)


def run(options: Namespace) -> int:
    from exhume.cli.server import ServerOptions, serve

    lake: Path | str = options.lake
    # What is wrong with it is reported now, not on an empty page.
    if "://" not in options.lake:
        lake = Path(options.lake).expanduser().absolute()
        if not lake.is_dir():
            raise NoData(f"{lake} is not a directory; name the lake that exhume fleet push or hub writes to")
    elif not options.lake.startswith(STORES):
        raise UsageError(f"{options.lake} is not a lake: name a directory, s3://BUCKET/PATH or gs://BUCKET/PATH")
    elif (endpoint := value_of(options, S3_ENDPOINT)) is not None:
        # The processes that read the lake find it there.
        os.environ[S3_ENDPOINT.variable] = endpoint
    server = ServerOptions.of(options.listen, options.token, options.name, options.tls_cert, options.tls_key)
    serve(lake, server, open_browser=not options.no_open and sys.stdout.isatty(), package=PACKAGE)
    return exit_codes.OK
