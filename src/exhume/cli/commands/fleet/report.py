"""Compare all nodes of a lake: which are sick, what sets them apart, when it begins and what changed before, who is
next, and what to do about it on which nodes first.

Every value of every attribute is compared, and pairs of them; what is reported is corrected for all that was tried.
"""

import sys
from argparse import ArgumentParser, Namespace
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exit_codes
from exhume.cli.args import TIME_FORMS, add_json, add_setting, option, value_of, zone_of
from exhume.cli.terminal import activity, say, show, write_file
from exhume.model.clock import SystemClock, Window
from exhume.model.errors import UsageError
from exhume.model.settings import S3_ENDPOINT, UTC
from exhume.model.times import Reference, parse_duration, parse_moment

if TYPE_CHECKING:
    from exhume.fleet.engines import Engine

SUMMARY = "Say which nodes are sick, what sets them apart, and what to do."
EXAMPLES = (
    "exhume fleet report --lake /srv/lake",
    "exhume fleet report --lake s3://fleet/exhume --since 14d --html fleet.html",
    "exhume fleet report --lake s3://fleet/exhume --s3-endpoint http://127.0.0.1:9000",
    "exhume fleet report --lake /srv/lake --engine ray --address auto --json",
)
ENGINES = ("local", "ray")


def add_options(parser: ArgumentParser) -> None:
    option(parser, "--lake LAKE", "The lake: a directory, s3://BUCKET/PATH or gs://BUCKET/PATH.", required=True)
    option(parser, "--engine ENGINE", "Where it is computed: local or ray.", choices=ENGINES, default="local")
    option(parser, "--address ADDRESS", "The Ray cluster for --engine ray.", default="auto")
    option(parser, "--since TIME", f"How far back: a duration, or {TIME_FORMS}.", default="7d")
    option(parser, "--until TIME", "Where the time ends (not inside it).", default="now")
    option(parser, "--by KEY", "Also count incidents by this attribute; can be repeated.", action="append", default=[])
    add_json(parser)
    option(parser, "--html FILE", "Also write a self-contained page.", type=Path)
    add_setting(parser, S3_ENDPOINT)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    from exhume.fleet.lake import Lake
    from exhume.fleet.report import report
    from exhume.present.fleet_view import report_json
    from exhume.present.terminal.fleet import print_fleet_report

    window = window_of(options)
    # Ray prints what happens to its nodes; that is not part of the report.
    with redirect_stdout(sys.stderr), activity("comparing nodes"), closing(open_engine(options)) as engine:
        found = report(Lake.open(options.lake, value_of(options, S3_ENDPOINT), make=False), window, engine)
    zone = zone_of(options)
    show(
        options,
        lambda: report_json(found, zone),
        lambda terminal: print_fleet_report(terminal, found, zone, options.by),
    )
    if options.html is not None:
        # Only here: few want it.
        from exhume.present.html.fleet import fleet_report

        content = fleet_report(found, zone, options.by).encode("utf-8", "replace")
        write_file(options.html, content, "--html")
        say(f"{options.html}: {len(content) / 1000:.0f} KB, self-contained")
    return exit_codes.FINDINGS if found.sick or found.at_risk else exit_codes.OK


def window_of(options: Namespace) -> Window:
    """The time that the options name; a duration ends at --until. Raises UsageError."""
    now = SystemClock().wall_ns()
    until = parse_moment(options.until, Reference(now, now, now, zone_of(options)))
    try:
        since = until - parse_duration(options.since)
    except UsageError:
        since = parse_moment(options.since, Reference(now, until, until, zone_of(options)))
    if since >= until:
        raise UsageError(f"--since {options.since} is not before --until {options.until}")
    return Window(max(0, since), until)


def open_engine(options: Namespace) -> "Engine":
    """Raises EngineError."""
    if options.engine == "ray":
        from exhume.fleet.engines.ray import RayEngine

        return RayEngine(options.address)
    from exhume.fleet.engines.local import LocalEngine

    return LocalEngine()
