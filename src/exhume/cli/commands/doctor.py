"""Check this node in seconds, without a recording: a few seconds of sampling, and the counters of its state.

Works without root, and names what it can't see then.
"""

import platform
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_json, add_setting, option, zone_of
from exhume.cli.recorder import node_recorder
from exhume.cli.recording_args import EMPTY
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import ProgressBar, activity, show, suggest
from exhume.collect.cgroup.census import take_census
from exhume.collect.vitals import oldest_processes, read_vitals, restarted_between
from exhume.diagnose.engine import diagnose
from exhume.diagnose.node_checks import check_log, check_restarts, check_state
from exhume.diagnose.zombie_report import judge
from exhume.model.clock import NANOS, SystemClock
from exhume.model.errors import UsageError
from exhume.model.finding import Level, Verdict
from exhume.model.settings import UTC, RecorderSettings
from exhume.model.tables import KERNEL_LOG
from exhume.model.times import parse_duration
from exhume.present.diagnosis_view import Checkup, checkup_json
from exhume.present.terminal.diagnosis import print_checkup
from exhume.procfs.host import Host
from exhume.store.read.recording import Recording

LEAST_NS, MOST_NS = 2 * NANOS, 600 * NANOS


def add_options(parser: ArgumentParser) -> None:
    option(parser, "--for DURATION", "How long to sample, 2s to 10m.", default="6s")
    add_json(parser)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    given = getattr(options, "for")
    length = parse_duration(given)
    if not LEAST_NS <= length <= MOST_NS:
        raise UsageError(f"--for {given}: must be between 2s and 10m")
    checkup, zone = _check(length), zone_of(options)
    show(options, lambda: checkup_json(checkup, zone), lambda terminal: print_checkup(terminal, checkup, zone))
    suggest("exhume record" if checkup.level is Level.WELL else "exhume record, and then exhume diagnose")
    return exit_code(checkup)


def exit_code(checkup: Checkup) -> int:
    """1 unless all is well; 3 where nothing could be seen."""
    unseen = all(check.level is Level.UNSEEN for check in checkup.checks)
    if unseen and checkup.diagnosis.verdict is Verdict.UNKNOWN:
        return exit_codes.NO_DATA
    return exit_codes.OK if checkup.level is Level.WELL else exit_codes.FINDINGS


def _check(length: int) -> Checkup:
    host = Host()
    before = oldest_processes(host)
    with tempfile.TemporaryDirectory(prefix="exhume-doctor-") as place:
        directory = Path(place) / "recording"
        # A signal ends it, and leaves nothing behind.
        with stopped_by_signals() as stop, ProgressBar("sampling") as bar:
            began = SystemClock().monotonic_ns()
            with node_recorder(RecorderSettings(directory, length)) as recorder:
                recorder.run(stop, lambda tick: bar(min(1.0, (tick.tick.end - began) / length)))
            if stop.is_set():
                raise KeyboardInterrupt
        recording = Recording.open(directory)
        with ProgressBar("diagnosing") as bar:
            found = diagnose(recording, recording.span() or EMPTY, progress=bar)
        restarted = restarted_between(before, oldest_processes(host))
        with activity("counting"):
            census = take_census(host)
            checks = check_state(read_vitals(host), census, judge(census, {}))
        # The kernel log since boot: the recorder stores lines about trouble, also older ones.
        missing = "; ".join(map(str, recording.facts.missing(KERNEL_LOG)))
        checks.append(check_log(recording.events(), SystemClock().wall_ns(), missing))
        checks.append(check_restarts(restarted, length / NANOS))
        return Checkup(platform.node(), length / NANOS, checks, found, list(recording.facts.sources_missing))
