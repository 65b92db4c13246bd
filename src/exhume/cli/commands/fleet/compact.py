"""Make one file of the many that nodes wrote in each hour, sorted by node and minute; remove what is older than --keep.

Readers may go on meanwhile: in a directory they list the old files or the new one. Run it every hour.
"""

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime, timedelta

from exhume.cli import exit_codes
from exhume.cli.args import add_json, add_setting, option, value_of
from exhume.cli.terminal import show
from exhume.model.errors import UsageError
from exhume.model.settings import S3_ENDPOINT
from exhume.model.text import count, size
from exhume.model.times import parse_duration

SUMMARY = "Merge the small files of a lake; remove old ones."
EXAMPLES = ("exhume fleet compact --lake /srv/lake", "exhume fleet compact --lake s3://bucket/lake --keep 30d")
JSON_VERSION = 1


def add_options(parser: ArgumentParser) -> None:
    option(parser, "--lake LAKE", "The lake: a directory, s3://BUCKET/PATH or gs://BUCKET/PATH.", required=True)
    option(parser, "--keep DURATION", "Remove what is older, for example 30d [default: keep everything].")
    option(parser, "--settle DURATION", "Leave hours alone that ended less than this ago.", default="10m")
    add_json(parser)
    add_setting(parser, S3_ENDPOINT)


def run(options: Namespace) -> int:
    from exhume.fleet.lake import Lake

    keep = None if options.keep is None else parse_duration(options.keep)
    if keep is not None and keep < 3600 * 10**9:
        raise UsageError(f"--keep {options.keep} would remove what is being written; keep an hour or more")
    settle = timedelta(microseconds=parse_duration(options.settle) // 1000)
    lake, now = Lake.open(options.lake, value_of(options, S3_ENDPOINT)), datetime.now(UTC)
    removed = 0 if keep is None else lake.prune(now - timedelta(microseconds=keep // 1000))
    done = lake.compact(now, settle)
    known = {
        "version": JSON_VERSION,
        "partitions": done.partitions,
        "files": done.files,
        "rows": done.rows,
        "repeats": done.repeats,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
        "removed": removed,
        "damaged": [{"path": path, "reason": reason} for path, reason in done.damaged],
    }
    text = (
        f"{count(done.files, 'file')} of {count(done.partitions, 'partition')} merged: {size(done.bytes_before)} are "
        f"{size(done.bytes_after)} now, {count(done.rows, 'row')}, {count(done.repeats, 'repeat')} left out; "
        f"{count(removed, 'old partition or bundle', 'old partitions or bundles')} removed"
    )
    damaged = [f"can't be read, and stays where it is: {path}: {reason}" for path, reason in done.damaged]
    lines = "\n".join([text, *damaged])
    show(options, lambda: known, lambda terminal: terminal.print(lines, markup=False, highlight=False))
    return exit_codes.FINDINGS if damaged else exit_codes.OK
