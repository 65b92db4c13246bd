"""Check that the recorder is working, for probes and monitoring. It reads two small files, not the recording.

Healthy is a recorder whose last tick is recent and that lost nothing in the last five minutes.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from exhume.cli import exit_codes
from exhume.cli.args import add_json, add_setting, option, value_of
from exhume.model.clock import NANOS, SystemClock, read_boot_id
from exhume.model.errors import ExhumeError, RecordingError, UsageError, os_reason
from exhume.model.settings import DIR
from exhume.model.text import duration, percent, size
from exhume.model.times import format_moment, parse_duration
from exhume.store.format.names import LOCK_NAME
from exhume.store.read.health import LOSSES_NS, HealthReport, State, UnreadableHealth, judge, read_health, recorder_pid
from exhume.store.write.lock import being_recorded

JSON_VERSION = 1
CODES = {State.HEALTHY: exit_codes.OK, State.DEGRADED: exit_codes.FINDINGS, State.STOPPED: exit_codes.NO_DATA}
DEFAULT_LATE_AFTER = "5s"


def add_options(parser: ArgumentParser) -> None:
    add_setting(parser, DIR, "-d")
    option(parser, "--late-after DURATION", "Age from which the last tick is late.", default=DEFAULT_LATE_AFTER)
    option(parser, "--allow-losses", "Losses alone are healthy; for liveness probes, as a restart would not mend them.")
    add_json(parser)


def run(options: Namespace) -> int:
    directory = value_of(options, DIR)
    max_age = parse_duration(options.late_after)
    if max_age <= 0:
        raise UsageError(f"--late-after {options.late_after}: must be greater than 0, for example {DEFAULT_LATE_AFTER}")
    report = health_of(directory, max_age, allow_losses=options.allow_losses)
    print(json.dumps(health_json(report, directory)) if options.json else "\n".join(health_lines(report, directory)))
    return CODES[report.state]


def health_of(directory: Path, max_age_ns: int, *, allow_losses: bool) -> HealthReport:
    """The verdict on a directory now. Raises ExhumeError where its files can't be read."""
    try:
        directory.stat()
        health = read_health(directory)
    except (FileNotFoundError, NotADirectoryError):
        health = None
    except UnreadableHealth as error:
        raise RecordingError(
            f"{directory}/live/health.json can't be used: {error}; a running recorder writes it again within seconds"
        ) from None
    except OSError as error:
        reason = os_reason(error)
        raise ExhumeError(f"cannot read {directory}: {reason}; run as root or as a member of its group") from None
    return judge(
        health,
        recording=being_recorded(directory),
        recorder=recorder_pid(directory / LOCK_NAME),
        boot_id=read_boot_id(),
        now=SystemClock().monotonic_ns(),
        max_age_ns=max_age_ns,
        allow_losses=allow_losses,
    )


def health_json(report: HealthReport, directory: Path) -> dict[str, Any]:
    """The documented shape of `exhume health --json`."""
    known = report.health
    return {
        "version": JSON_VERSION,
        "directory": str(directory),
        "state": report.state.value,
        "problems": list(report.problems),
        "recording": report.recording,
        "last_tick": None if known is None else format_moment(known.wall),
        "age_seconds": None if report.age_ns is None else round(report.age_ns / NANOS, 3),
        "uptime_seconds": None if known is None else round((known.tick - known.began) / NANOS, 3),
        "losses": dict(report.losses),
        "losses_seconds": LOSSES_NS // NANOS,
        "rate_hz": known and known.rate_hz,
        "requested_rate_hz": known and known.requested_rate_hz,
        "cpu_percent": known and round(known.cpu * 100, 3),
        "rss_bytes": known and known.rss_bytes,
        "pid": known and known.pid,
        "exhume_version": known and known.exhume_version,
        "sources_missing": [
            {"source": each.source, "reason": each.reason, "remedy": each.remedy}
            for each in (known.sources_missing if known else ())
        ],
    }


def health_lines(report: HealthReport, directory: Path) -> list[str]:
    """The same as text, the verdict first."""
    known, age = report.health, "" if report.age_ns is None else duration(report.age_ns)
    if not report.recording:
        since = f"; the last tick was {age} ago" if age else ""
        return [f"not recording: no recorder holds {directory}{since}; start one with exhume record --dir {directory}"]
    reasons = {
        "late": f"the last tick was {age} ago",
        "no-tick": "no tick yet",
        "losses": f"losses in the last {duration(LOSSES_NS)}",
    }
    why = ", ".join(reasons[problem] for problem in report.problems)
    lines = [f"{report.state.value}: {why}" if why else f"{report.state.value}: recording, the last tick {age} ago"]
    for kind, count in sorted(report.losses.items()):
        lines.append(f"lost: {kind} {count:,}")
    if known is None:
        return lines
    lowered = f" (lowered from {known.requested_rate_hz} Hz)" if known.rate_hz < known.requested_rate_hz else ""
    rate = f"{known.rate_hz} Hz{lowered}" if known.rate_hz else "no stack samples"
    lines.append(f"rate: {rate}")
    lines.append(f"own cost: {percent(known.cpu)} of one core, {size(known.rss_bytes)} of memory")
    lines += [f"source unavailable: {missing}" for missing in known.sources_missing]
    return lines
