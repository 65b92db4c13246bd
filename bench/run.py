"""Runs every benchmark, prints what it found, and writes bench/RESULTS.md (a quick run: build/bench-quick.md).

    python -m bench.run [--quick] [--only NAME ...]

Exit code 1 when a bound is missed, 2 when something could not be measured. What was measured is kept in any case: where
a section fails, or the run is interrupted, the sections that are complete replace the earlier ones.
"""

import argparse
import compileall
import fcntl
import os
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import exhume
from bench import (
    command_start,
    diagnose_speed,
    disk,
    flame_query,
    flamescope,
    fleet_hub,
    fleet_page,
    fleet_report,
    high_rate,
    import_speed,
    page_speed,
    page_unusual,
    platform_cost,
    recorder_cost,
    scale_curves,
)
from bench.processes import EXHUME, BenchError, NotMeasured
from bench.report import QUIET, RESULTS, Section, as_document, as_table, machine_speed, with_sections
from exhume.lab.score.plan import others_busy

BENCHMARKS = {
    "recorder-cost": recorder_cost.measure,
    "scale": scale_curves.measure,
    "platform": platform_cost.measure,
    "high-rate": high_rate.measure,
    "disk": disk.measure,
    "flame": flame_query.measure,
    "diagnose": diagnose_speed.measure,
    "page": page_speed.measure,
    "unusual": page_unusual.measure,
    "flamescope": flamescope.measure,
    "import": import_speed.measure,
    "command": command_start.measure,
    "fleet-hub": fleet_hub.measure,
    "fleet-report": fleet_report.measure,
    "fleet-page": fleet_page.measure,
}
ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "bench"
QUICK_RESULTS = ROOT / "build" / "bench-quick.md"
# The largest lake and the synthetic recording, at the same time.
ROOM_BYTES = 10 << 30


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure costs and speeds.")
    parser.add_argument("--quick", action="store_true", help="shorter runs and a smaller synthetic recording")
    parser.add_argument(
        "--only",
        choices=BENCHMARKS,
        nargs="+",
        help="only these; of RESULTS.md their sections alone are replaced",
    )
    arguments = parser.parse_args()
    problem = cannot_run()
    if problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    with (ROOT / "build" / "bench.lock").open("w") as alone:
        try:
            fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("bench: another benchmark is running; both would measure each other", file=sys.stderr)
            return 2
        return _run(arguments)


@dataclass(slots=True)
class Measured:
    """The sections of a run so far, the most that other work took of the machine meanwhile, and whether all sections
    were measured."""

    sections: list[Section] = field(default_factory=list)
    busy: float = 0.0
    complete: bool = False


def _run(arguments: argparse.Namespace) -> int:
    # An installed program is compiled; a tree that was just changed would be compiled at every start.
    compileall.compile_dir(Path(exhume.__file__).parent, quiet=1)
    run = Measured()
    try:
        run.complete = _measure(arguments, run)
    finally:
        # After an unexpected error, too: an hour of measuring must not be lost.
        _clear()
        _write(arguments, run)
    missed = [row.measure for section in run.sections for row in section.rows if row.missed]
    for measure in missed:
        print(f"MISSED: {measure}", file=sys.stderr)
    return int(bool(missed)) if run.complete else 2


def _measure(arguments: argparse.Namespace, run: Measured) -> bool:
    """Measure section by section; returns whether all could be measured."""
    complete = True
    for name in arguments.only or BENCHMARKS:
        print(f"{name} ..", flush=True)
        _clear()
        run.busy = max(run.busy, others_busy())
        try:
            section = BENCHMARKS[name](WORK, arguments.quick)
        except NotMeasured as error:
            print(f"  not measured: {error}", file=sys.stderr)
            if arguments.only:
                complete = False
            else:
                run.sections.append(Section(error.title, f"Not measured: {error}.", []))
        except BenchError as error:
            print(f"  could not be measured: {error}", file=sys.stderr)
            complete = False
        except KeyboardInterrupt:
            print("  interrupted", file=sys.stderr)
            return False
        else:
            section = replace(section, rows=[*section.rows, machine_speed()])
            run.sections.append(section)
            print(as_table(section.rows), flush=True)
    return complete


def _write(arguments: argparse.Namespace, run: Measured) -> None:
    """Write what was measured. Figures of a quick run are not for keeping."""
    results = QUICK_RESULTS if arguments.quick else RESULTS
    if run.complete and not arguments.only:
        results.write_text(as_document(run.sections, arguments.quick, run.busy))
        print(f"written to {results}")
    elif (measured := [section for section in run.sections if section.rows]) and not arguments.quick:
        results.write_text(with_sections(results.read_text(), measured, run.busy))
        print(f"replaced in {results}: {', '.join(section.title for section in measured)}")
    if run.busy > QUIET:
        print(f"other work took up to {run.busy:.0%} of the machine: measure again when it is quiet", file=sys.stderr)


def cannot_run() -> str:
    if os.geteuid() != 0:
        return "recording the whole node needs root: sudo make bench"
    for command in ("perf", "mpstat"):
        if shutil.which(command) is None:
            return f"{command} is missing: exhume is compared with it; install it"
    if not EXHUME.exists():
        return "the program is not set up: make setup"
    WORK.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(WORK).free < ROOM_BYTES:
        return f"the benchmarks need {ROOM_BYTES >> 30} GB of free disk"
    return ""


def _clear() -> None:
    """Remove what an earlier benchmark recorded; the synthetic recording stays for the next run."""
    for path in WORK.iterdir():
        if path.name.startswith("synthetic-"):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
