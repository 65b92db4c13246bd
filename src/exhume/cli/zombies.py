"""Count zombies: cgroups that are gone for everybody but the kernel. Explain who holds and who made them.

Needs no recording; with one it tells growth and who made them. Exits with 0 when all is well, 1 with findings.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exits
from exhume.cli.options import add_setting, value_of

if TYPE_CHECKING:
    from exhume.cli.zombie_report import RecordedBoot
    from exhume.present.zombies_view import ZombieReport
    from exhume.procfs.host import Host

EVERY_S = 2.0


def add_options(parser: ArgumentParser) -> None:
    add_setting(parser, "dir", "-d")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--explain", action="store_true", help="Also tell which cgroups and files hold them, and who made them."
    )
    what.add_argument("--watch", action="store_true", help="Count again every two seconds until Ctrl-C.")
    parser.add_argument(
        "--since",
        metavar="TIME",
        default="24h ago",
        help="Who made them: read the recording from this moment on [default: 24h ago].",
    )
    parser.add_argument(
        "--docker-socket",
        type=Path,
        metavar="FILE",
        help="Docker's socket, for names of containers [default: DOCKER_HOST, else /var/run/docker.sock].",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON (versioned, documented) instead of text.")
    add_setting(parser, "color")
    add_setting(parser, "utc")


def run(options: Namespace) -> int:
    from datetime import UTC

    from exhume.cli.speaking import directory_words, suggest
    from exhume.cli.zombie_report import RecordedBoot, zombie_report
    from exhume.procfs.host import Host

    zone = UTC if value_of(options, "utc") else None
    if options.watch:
        return _watch(options)
    host, directory = Host(), value_of(options, "dir")
    boot = RecordedBoot(host, directory)
    report = zombie_report(host, boot)
    if options.explain:
        report = _explained(options, report, host, boot)
    if options.json:
        import json

        from exhume.present.zombies_view import zombies_json

        print(json.dumps(zombies_json(report, zone)))
    else:
        from exhume.present.terminal.console import console
        from exhume.present.terminal.zombies import print_zombies

        print_zombies(console(value_of(options, "color")), report, zone)
    if report.verdict.level == "unknown":
        return exits.FAILED
    if not options.explain and report.census.dying:
        suggest(f"exhume zombies --explain{directory_words(directory)}")
    elif report.census.dying:
        suggest("exhume fix plan zombies")
    return exits.NOTHING if report.verdict.is_finding else exits.OK


def _explained(options: Namespace, report: "ZombieReport", host: "Host", boot: "RecordedBoot") -> "ZombieReport":
    from datetime import UTC

    from exhume.cli.speaking import Doing
    from exhume.cli.zombie_report import explained
    from exhume.model.clock import SystemClock
    from exhume.model.times import Reference, parse_moment

    now = SystemClock().wall_ns()
    since = parse_moment(options.since, Reference(now, now, now, UTC if value_of(options, "utc") else None))
    with Doing() as progress:
        return explained(report, host, boot, since=since, socket=options.docker_socket, progress=progress)


def _watch(options: Namespace) -> int:
    """Count until a signal ends it; the last verdict decides the exit code."""
    from datetime import UTC

    from exhume.cli.stopping import stopped_by_signals
    from exhume.cli.zombie_report import watched_reports
    from exhume.present.terminal.zombie_watch import watch_surface
    from exhume.procfs.host import Host

    zone = UTC if value_of(options, "utc") else None
    surface = watch_surface(value_of(options, "color"), options.json, zone)
    level = "unknown"
    with stopped_by_signals() as stop:
        for report in watched_reports(Host(), EVERY_S, stop):
            surface(report)
            level = report.verdict.level
    return {"well": exits.OK, "unknown": exits.FAILED}.get(level, exits.NOTHING)
