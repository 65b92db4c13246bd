"""Count dying cgroups (zombies): removed, but kept by the kernel because something is still charged to them.

Needs no recording; with one it shows their growth, and with --explain which processes and containers made them.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_json, add_setting, value_of, zone_of
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import StagedProgress, dir_args, suggest
from exhume.diagnose.zombie_report import RecordedBoot, ZombieReport, explain, watched_reports, zombie_report
from exhume.diagnose.zombies import UNKNOWN, WELL, Verdict
from exhume.model.clock import SystemClock
from exhume.model.settings import COLOR, DIR, UTC
from exhume.model.times import Reference, parse_moment
from exhume.present.terminal.console import console
from exhume.present.terminal.zombie_watch import watch_surface
from exhume.present.terminal.zombies import print_zombies
from exhume.present.zombies_view import zombies_json
from exhume.procfs.host import Host

EVERY_S = 2.0


def add_options(parser: ArgumentParser) -> None:
    add_setting(parser, DIR, "-d")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--explain", action="store_true", help="Also show which cgroups and files hold them, and what made them."
    )
    what.add_argument("--watch", action="store_true", help="Count again every two seconds until Ctrl-C.")
    parser.add_argument(
        "--since",
        metavar="TIME",
        default="24h ago",
        help="Read the recording from this moment on, for what made them [default: 24h ago].",
    )
    parser.add_argument(
        "--docker-socket",
        type=Path,
        metavar="FILE",
        help="Docker's socket, for names of containers [default: DOCKER_HOST, else /var/run/docker.sock].",
    )
    add_json(parser)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    zone = zone_of(options)
    if options.watch:
        surface = watch_surface(value_of(options, COLOR), options.json, zone)
        with stopped_by_signals() as stop:
            code = exit_codes.NO_DATA
            for report in watched_reports(Host(), EVERY_S, stop):
                surface(report)
                code = exit_code(report.verdict)
        return code
    host, directory = Host(), value_of(options, DIR)
    boot = RecordedBoot(host, directory)
    report = zombie_report(host, boot)
    if options.explain:
        report = _explained(options, report, host, boot)
    if options.json:
        print(json.dumps(zombies_json(report, zone)))
    else:
        print_zombies(console(value_of(options, COLOR)), report, zone)
    if report.census.dying:
        suggest("exhume fix plan zombies" if options.explain else f"exhume zombies --explain{dir_args(directory)}")
    return exit_code(report.verdict)


def exit_code(verdict: Verdict) -> int:
    """3 where they can't be counted."""
    return {WELL: exit_codes.OK, UNKNOWN: exit_codes.NO_DATA}.get(verdict.level, exit_codes.FINDINGS)


def _explained(options: Namespace, report: ZombieReport, host: Host, boot: RecordedBoot) -> ZombieReport:
    now = SystemClock().wall_ns()
    since = parse_moment(options.since, Reference(now, now, now, zone_of(options)))
    with StagedProgress() as progress:
        return explain(report, host, boot, since=since, socket=options.docker_socket, progress=progress)
