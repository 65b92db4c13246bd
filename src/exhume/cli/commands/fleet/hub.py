"""Take summaries, incidents and bundles of nodes over HTTP, and write them to a lake: only the hub needs credentials of
the object store.

Each node has a token (exhume fleet token add NODE) and can write its own rows only. What is acknowledged is on the
disk of the hub. On an address that others can reach, TLS is required.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_setting, option, value_of
from exhume.cli.terminal import say
from exhume.model.errors import UsageError
from exhume.model.settings import LISTEN, S3_ENDPOINT, is_loopback
from exhume.model.times import parse_duration

SUMMARY = "Take what nodes push, and write it to a lake."
EXAMPLES = (
    "exhume fleet hub --lake /srv/lake",
    "exhume fleet hub --lake /srv/lake --bind 0.0.0.0:8460 --tls-cert cert.pem --tls-key key.pem",
    "exhume fleet hub --lake s3://bucket/lake --state /var/lib/exhume-hub",
)
ADDRESS = "127.0.0.1:8460"


def add_options(parser: ArgumentParser) -> None:
    option(parser, "--lake LAKE", "The lake: a directory, s3://BUCKET/PATH or gs://BUCKET/PATH.", required=True)
    option(parser, "--bind HOST:PORT", "Address to take batches at.", default=ADDRESS)
    option(parser, "--tls-cert FILE", "Certificate (PEM); required unless the address is loopback.", type=Path)
    option(parser, "--tls-key FILE", "The certificate's key (PEM).", type=Path)
    add_state(parser)
    option(parser, "--fold-every DURATION", "How often what was taken is written to the lake.", default="30s")
    add_setting(parser, S3_ENDPOINT)


def add_state(parser: ArgumentParser) -> None:
    option(parser, "--state DIR", "Directory of the hub for its log and tokens [default: _hub in the lake].", type=Path)


def run(options: Namespace) -> int:
    from exhume.cli.server import check_certificate, listen
    from exhume.fleet.hub import BODY_TIMEOUT_S, Hub, create_app, default_state
    from exhume.fleet.lake import Lake
    from exhume.present.web.http_server import serve_bounded

    host, port = LISTEN.read(options.bind)
    check_certificate(options.tls_cert, options.tls_key)
    if options.tls_cert is None and not is_loopback(host):
        raise UsageError(f"{host} can be reached by others, and tokens must not: give --tls-cert and --tls-key")
    fold_s = parse_duration(options.fold_every) / 1e9
    if fold_s <= 0:
        raise UsageError("--fold-every must be greater than 0, for example 30s")
    lake = Lake.open(options.lake, value_of(options, S3_ENDPOINT))
    hub = Hub(lake, options.state or default_state(lake), fold_s=fold_s)
    listener = listen(host, port)
    scheme = "http" if options.tls_cert is None else "https"
    print(f"exhume: taking batches at {scheme}://{host}:{listener.getsockname()[1]} for {options.lake}", flush=True)
    if not hub.tokens.listed():
        say("exhume: no node has a token yet; see exhume fleet token add")
    serve_bounded(create_app(hub), listener, options.tls_cert, options.tls_key, BODY_TIMEOUT_S)
    counts = hub.counts
    print(
        f"{counts.rows:,} rows in {counts.batches:,} batches stored, {counts.duplicates:,} sent again, "
        f"{counts.refused:,} refused"
    )
    return exit_codes.OK
