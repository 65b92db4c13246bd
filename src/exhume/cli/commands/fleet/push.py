"""Send what was recorded since the last push: a summary of each minute, attributes that changed, incidents with their
bundles, job failures.

TARGET is a hub (https://HOST:PORT), s3://BUCKET/PATH, gs://BUCKET/PATH or a directory. What can't be sent stays in the
spool, in the directory `push` of the recording, and is sent with the next push; nothing is sent twice. A second target
needs a spool of its own (--spool). A recorder pushes by itself with --push.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_setting, option, push_settings, value_of
from exhume.cli.terminal import say
from exhume.model.errors import NoData, UsageError
from exhume.model.settings import DIR, PUSH, PUSH_CA_FILE, PUSH_TOKEN_FILE, S3_ENDPOINT
from exhume.model.text import count
from exhume.model.times import parse_duration, parse_size

SUMMARY = "Send what was recorded to a hub or a lake."
EXAMPLES = (
    "exhume fleet push https://hub.example:8460 --push-token-file /etc/exhume/token",
    "exhume fleet push s3://bucket/lake --since 7d",
    "exhume fleet push /srv/lake --follow",
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        PUSH.name,
        nargs="?",
        metavar="TARGET",
        default=PUSH.text(),
        help=f"Hub or lake [{PUSH.variable}].",
    )
    add_setting(parser, DIR, "-d")
    add_setting(parser, PUSH_TOKEN_FILE)
    add_setting(parser, PUSH_CA_FILE)
    add_setting(parser, S3_ENDPOINT)
    option(parser, "--since DURATION", "How far back a recording is sent that was never pushed.", default="1h")
    option(parser, "--follow", "Go on until it is stopped.")
    option(parser, "--final", "Also send a last minute that is not over: nothing is recorded any more.")
    option(parser, "--spool DIR", "Where it is kept until it is sent [default: push in the recording].", type=Path)
    option(parser, "--max-spool SIZE", "What may wait on this disk; the oldest goes first.", default="64M")


def run(options: Namespace) -> int:
    from exhume.cli.push_child import check_push, open_pusher
    from exhume.cli.signals import stopped_by_signals
    from exhume.fleet.spool import Spool
    from exhume.store.format.names import PUSH_NAME
    from exhume.store.read.index import list_recording

    settings = push_settings(options)
    if settings.target is None:
        raise UsageError("name where to push to: a hub (https://...), s3://..., gs://... or a directory")
    check_push(settings)
    first_ns, most = parse_duration(options.since), parse_size(options.max_spool)
    directory = value_of(options, DIR)
    if not directory.is_dir():
        raise NoData(f"{directory} is not a recording that can be pushed; record with exhume record --dir {directory}")
    list_recording(directory)
    with stopped_by_signals() as stop:
        spool = Spool(options.spool or directory / PUSH_NAME, max_bytes=most)
        try:
            pusher = open_pusher(settings, directory, spool, first_ns)
            if options.follow:
                pusher.follow(stop)
                return exit_codes.OK
            minutes = pusher.collect(stop, final=options.final)
            sent = pusher.send(stop)
        finally:
            spool.close()
    say(
        f"{count(minutes, 'minute')} summarised; {count(sent.minutes, 'minute')} "
        f"and {count(sent.bundles, 'bundle')} sent"
    )
    if sent.refused:
        say(f"exhume: {count(sent.refused, 'batch', 'batches')} refused by the receiver, and dropped; see the log")
    if sent.problem:
        say(f"exhume: {sent.problem}; the rest stays in {spool.directory}, push again")
        return exit_codes.ERROR
    return exit_codes.OK
