"""Count dying cgroups (zombies): removed, but kept by the kernel because something is still charged to them.

Needs no recording; with one it shows their growth, and with --explain which processes and containers made them.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_json, add_setting, option, value_of, zone_of
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import StagedProgress, dir_args, show, suggest
from exhume.diagnose.zombie_report import UNKNOWN, WELL, RecordedBoot, Verdict, explain, watched_reports, zombie_report
from exhume.model.clock import SystemClock
from exhume.model.settings import COLOR, DIR, UTC
from exhume.model.times import Reference, parse_moment
from exhume.present.terminal.zombies import print_zombies, watch_surface
from exhume.present.zombies_view import zombies_json
from exhume.procfs.host import Host

EVERY_S = 2.0


def add_options(parser: ArgumentParser) -> None:
    add_setting(parser, DIR, "-d")
    what = parser.add_mutually_exclusive_group()
    option(what, "--explain", "Also show which cgroups and files hold them, and what made them.")
    option(what, "--watch", "Count again every two seconds until Ctrl-C.")
    since = "Read the recording from this moment on, for what made them."
    option(parser, "--since TIME", since, default="24h ago")
    socket = "Docker's socket, for names of containers [default: DOCKER_HOST, else /var/run/docker.sock]."
    option(parser, "--docker-socket FILE", socket, type=Path)
    add_json(parser)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    host, zone = Host(), zone_of(options)
    if options.watch:
        surface = watch_surface(value_of(options, COLOR), options.json, zone)
        code = exit_codes.NO_DATA
        with stopped_by_signals() as stop:
            for report in watched_reports(host, EVERY_S, stop):
                surface(report)
                code = exit_code(report.verdict)
        return code
    directory = value_of(options, DIR)
    boot = RecordedBoot(host, directory)
    report = zombie_report(host, boot)
    if options.explain:
        now = SystemClock().wall_ns()
        since = parse_moment(options.since, Reference(now, now, now, zone))
        with StagedProgress() as progress:
            report = explain(report, host, boot, since=since, socket=options.docker_socket, progress=progress)
    show(options, lambda: zombies_json(report, zone), lambda terminal: print_zombies(terminal, report, zone))
    if report.census.dying:
        suggest("exhume fix plan zombies" if options.explain else f"exhume zombies --explain{dir_args(directory)}")
    return exit_code(report.verdict)


def exit_code(verdict: Verdict) -> int:
    """3 where they can't be counted."""
    return {WELL: exit_codes.OK, UNKNOWN: exit_codes.NO_DATA}.get(verdict.level, exit_codes.FINDINGS)
