"""The program that computes a lake's report for the fleet page and prints it as the page's JSON."""

import json
import math
import os
import sys
from contextlib import closing
from pathlib import Path

from exhume.fleet.cohort.jobs import JobView
from exhume.fleet.cohort.separators import Separator
from exhume.fleet.engines.local import LocalEngine
from exhume.fleet.lake import Lake
from exhume.fleet.report import FleetReport, report
from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.errors import ExhumeError
from exhume.model.settings import S3_ENDPOINT
from exhume.present.fleet.lake import HOUR_MS, LakeHandle
from exhume.present.fleet.schemas import FailedJobs, FleetReportShape, SeparatorShape

DAYS = 7
MAX_AT_RISK, MAX_CHANGES, MAX_SICK_CLUSTERS = 50, 5, 50
# Request handling has priority over the report.
_NICE = 10


def shape_of(found: FleetReport) -> FleetReportShape:
    """The report in the shape that the page expects."""
    common, hazard = found.common, found.hazard
    return {
        "state": "ready",
        "detail": "",
        "since": found.window.since // MILLIS,
        "until": found.window.until // MILLIS,
        "nodes": found.nodes,
        "sick": found.sick,
        "tried": found.tried,
        "separators": [_separator(each) for each in found.separators],
        "common": None
        if common is None
        else {
            "cause": common.cause,
            "nodes": common.nodes,
            "incidents": common.incidents,
            "leaker": common.leaker,
            "culprit": common.culprit,
            "function": common.function,
        },
        "uptime_days": None
        if hazard is None or hazard.from_days is None or hazard.to_days is None
        else (round(hazard.from_days, 1), round(hazard.to_days, 1)),
        "onset": None if found.onset is None else found.onset.at // MILLIS,
        "changes": [
            {
                "key": each.to.key,
                "before": each.before,
                "value": each.to.value,
                "sick": each.sick,
                "of_sick": each.of_sick,
            }
            for each in found.changes[:MAX_CHANGES]
        ],
        "at_risk": [{"node": each.node, "at": each.at // MILLIS} for each in found.at_risk[:MAX_AT_RISK]],
        "at_risk_total": len(found.at_risk),
        "clusters": [
            {
                "key": each.key,
                "values": each.clusters,
                "sick": list(each.sick[:MAX_SICK_CLUSTERS]),
                "coverage": each.coverage,
            }
            for each in found.clusters
        ],
        "jobs": None if found.jobs is None else _jobs(found.jobs),
        "steps": [{"text": each.text, "command": each.command, "nodes": each.total} for each in found.steps],
        "blind_spots": list(found.blind_spots),
    }


def _separator(each: Separator) -> SeparatorShape:
    return {
        "conditions": [{"key": one.key, "value": one.value} for one in each.conditions],
        "cause": each.cause,
        "nodes": each.nodes,
        "sick": each.sick,
        "risk_ratio": _finite(each.risk_ratio.value),
        "low": _finite(each.risk_ratio.low),
        "high": _finite(each.risk_ratio.high),
        "q": each.q,
        "coverage": each.coverage,
        "same_nodes": len(each.same_nodes),
        "explained": each.explained,
    }


def _jobs(found: JobView) -> FailedJobs:
    return {
        "failed": found.failed,
        "explained": found.explained,
        "within_s": found.within_s,
        "share": found.share.value,
        "low": found.share.low,
        "high": found.share.high,
        "expected": round(found.expected, 1),
        "p": found.p,
    }


def _finite(value: float) -> float | None:
    """A finite ratio, or None: the ratio is unbounded if no other node is sick."""
    return round(value, 2) if math.isfinite(value) else None


def main(argv: list[str]) -> int:
    os.nice(_NICE)
    lake = argv[0]
    try:
        # The report ends at the lake's newest hour: an old lake has no data for the days since.
        endpoint = S3_ENDPOINT.from_environment() if "://" in lake else None
        handle = LakeHandle(lake if "://" in lake else Path(lake), endpoint)
        until = (handle.hour_or_newest(None) + HOUR_MS) * MILLIS
        with closing(LocalEngine()) as engine:
            opened = Lake.open(lake, endpoint, make=False)
            found = report(opened, Window(until - DAYS * 86_400 * NANOS, until), engine)
    except ExhumeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(shape_of(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
