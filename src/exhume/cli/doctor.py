"""A verdict on this node in seconds, without a recording: a few seconds of sampling, and the counters that tell of its
state.

Works without root, and says what it can't see then. Exits with 0 when all is well, 1 with findings, 2 when it could
not run.
"""

import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exhume.cli import exits
from exhume.cli.options import add_setting, value_of
from exhume.model.clock import NANOS
from exhume.model.errors import UsageError

if TYPE_CHECKING:
    from exhume.model.checkup import Check
    from exhume.model.finding import Diagnosis
    from exhume.present.doctor_view import Checkup
    from exhume.store.read.recording import Recording

LOOK_S = "6s"
LEAST_NS, MOST_NS = 2 * NANOS, 600 * NANOS


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--for", metavar="DURATION", default=LOOK_S, help=f"How long to sample, 2s to 10m [default: {LOOK_S}]."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON (versioned, documented) instead of text.")
    add_setting(parser, "color")
    add_setting(parser, "utc")


def run(options: Namespace) -> int:
    from datetime import UTC

    from exhume.cli.speaking import suggest
    from exhume.model.checkup import Level
    from exhume.model.times import parse_duration

    length = parse_duration(getattr(options, "for"))
    if not LEAST_NS <= length <= MOST_NS:
        raise UsageError(f"--for {getattr(options, 'for')}: write between 2s and 10m")
    checkup = _checkup(length)
    zone = UTC if value_of(options, "utc") else None
    if options.json:
        import json

        from exhume.present.doctor_view import checkup_json

        print(json.dumps(checkup_json(checkup, zone)))
    else:
        from exhume.present.terminal.console import console
        from exhume.present.terminal.doctor import print_checkup

        print_checkup(console(value_of(options, "color")), checkup, zone)
    suggest("exhume record" if checkup.level is Level.WELL else "exhume record, and then exhume diagnose")
    return exits.OK if checkup.level is Level.WELL else exits.NOTHING


def _checkup(length: int) -> "Checkup":
    import platform

    from exhume.collect.vitals import oldest_processes, restarted_between
    from exhume.diagnose.node_checks import check_restarts
    from exhume.present.doctor_view import Checkup
    from exhume.procfs.host import Host
    from exhume.store.read.recording import Recording

    host = Host()
    before = oldest_processes(host)
    with tempfile.TemporaryDirectory(prefix="exhume-doctor-") as place:
        directory = Path(place) / "recording"
        _record(directory, length)
        recording = Recording.open(directory)
        found = _diagnosis(recording)
        restarted = restarted_between(before, oldest_processes(host))
        checks = [*_state(), _log(recording), check_restarts(restarted, length / NANOS)]
        missing = list(recording.facts.sources_missing)
    return Checkup(platform.node(), length / NANOS, checks, found, missing)


def _record(directory: Path, length: int) -> None:
    """Record this node for a while. A signal ends it, and leaves nothing behind."""
    from exhume.cli.record import SETTINGS
    from exhume.cli.speaking import ProgressBar
    from exhume.cli.stopping import stopped_by_signals
    from exhume.cli.wiring import node_recorder
    from exhume.model.clock import SystemClock
    from exhume.model.settings import setting

    values: dict[str, Any] = {name: setting(name).from_environment({}) for name in SETTINGS}
    values |= {"dir": directory, "for": length}
    with stopped_by_signals() as stop, ProgressBar("sampling") as bar:
        began = SystemClock().monotonic_ns()
        with node_recorder(values) as recorder:
            recorder.run(stop, lambda tick: bar(min(1.0, (tick.tick.end - began) / length)))
        if stop.is_set():
            raise KeyboardInterrupt


def _diagnosis(recording: "Recording") -> "Diagnosis":
    from exhume.cli.speaking import ProgressBar
    from exhume.diagnose.engine import diagnose
    from exhume.model.window import Window

    with ProgressBar("diagnosing") as bar:
        return diagnose(recording, recording.span() or Window(0, 0), progress=bar)


def _state() -> "list[Check]":
    from exhume.cli.speaking import patience
    from exhume.collect.cgroup.census import take_census
    from exhume.collect.vitals import read_vitals
    from exhume.diagnose.node_checks import check_state
    from exhume.diagnose.zombies import judge
    from exhume.procfs.host import Host

    with patience("counting"):
        census = take_census(Host())
        return check_state(read_vitals(Host()), census, judge(census, {}))


def _log(recording: "Recording") -> "Check":
    """The kernel log since boot: the recorder stores the lines that tell of trouble, also older ones."""
    from exhume.diagnose.node_checks import check_log
    from exhume.model.clock import SystemClock
    from exhume.model.events import KERNEL_LOG

    missing = [line for line in recording.facts.sources_missing if line.partition(":")[0] == KERNEL_LOG]
    return check_log(recording.events(), SystemClock().wall_ns(), "; ".join(missing))
