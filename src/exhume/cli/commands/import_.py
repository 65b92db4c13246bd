"""Import files of other tools as a recording: perf.data and perf script, mpstat and sadf, kernel logs, folded
stacks, pprof, speedscope.

Many files become one timeline, in any order; more can be added later, and the same file twice adds nothing. A directory
stands for the files in it, - for standard input. What can't be read is named with its file, place and reason, the rest
is kept, and the exit code is 2.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import TIME_FORMS, add_json, add_setting, option, value_of, zone_of
from exhume.cli.terminal import StagedProgress, dir_args, say, suggest
from exhume.interop.importers.form import CORES, LOG, SAMPLES, FileSummary, LeftOut, ReadOptions
from exhume.interop.importers.importer import ImportRequest, ImportResult, StoppedAtFirst, import_files
from exhume.model.clock import NANOS, SystemClock
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.settings import DIR, UTC
from exhume.model.times import Reference, format_moment, parse_moment
from exhume.present.events_view import visible

JSON_VERSION = 1
_UNITS = {SAMPLES: "samples", CORES: "figures of cores", LOG: "log lines"}
# Problems of one file that are listed one by one.
_LISTED = 10


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="Files, directories of files, or - for standard input."
    )
    add_setting(parser, DIR, "-d")
    start = "Time of the first sample or line in files that only have time since boot"
    option(parser, "--start TIME", f"{start}: {TIME_FORMS}.")
    option(parser, "--event NAME", "Event to import, of files with several; default: cpu-clock or cycles.")
    option(parser, "--kallsyms FILE", "Symbols of the recorded kernel: a copy of /proc/kallsyms, or System.map.")
    option(parser, "--strict", "Stop at the first thing that can't be read, and import nothing.")
    add_json(parser)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    directory = value_of(options, DIR)
    kallsyms = Path(options.kallsyms) if options.kallsyms else None
    if kallsyms is not None and not kallsyms.is_file():
        raise UsageError(f"--kallsyms {kallsyms}: no such file")
    read = ReadOptions(event=options.event, kallsyms=kallsyms, zone=zone_of(options))
    request = ImportRequest(tuple(options.files), directory, _start(options), options.strict, read)
    try:
        with StagedProgress() as progress:
            result = import_files(request, progress)
    except StoppedAtFirst as stopped:
        raise ExhumeError(f"{_problem(stopped.file, stopped.left_out)}; nothing was imported (--strict)") from None
    if options.json:
        print(json.dumps(_as_json(result, directory)))
    else:
        _report(result, directory, options)
    return exit_codes.OK if result.complete else exit_codes.ERROR


def _start(options: Namespace) -> int | None:
    if options.start is None:
        return None
    now = SystemClock().wall_ns()
    return parse_moment(options.start, Reference(now, now, now, zone_of(options)))


def _problem(file: FileSummary, problem: LeftOut) -> str:
    where = "" if problem.offset is None else f" at byte {problem.offset}"
    often = "" if problem.count == 1 else f" ({problem.count} times)"
    return visible(f"{file.path}{where}: {problem.reason}{often}")


def _report(result: ImportResult, directory: Path, options: Namespace) -> None:
    zone = zone_of(options)
    for file in result.files:
        if file.known:
            say(visible(f"{file.path}: already imported"))
        elif file.spans:
            counts = ", ".join(
                f"{file.rows.get(kind, 0):,} {unit}" for kind, unit in _UNITS.items() if kind in file.rows
            )
            say(visible(f"{file.path}: {file.format}, {counts}"))
            for name, count in file.others.items():
                say(
                    visible(
                        f"  also has {count:,} samples of {name}: import them apart with --event {name} --dir OTHER"
                    )
                )
        for source, reason, remedy in file.missing:
            say(visible(f"  no {source}: {reason}; {remedy}"))
        for problem in file.left_out[:_LISTED]:
            say(f"  left out: {_problem(file, problem)}")
        if file.error is not None:
            say(f"not imported: {_problem(file, file.error)}")
    for loss in result.losses[:_LISTED]:
        say(f"{loss.kind}: {visible(loss.text)}, {format_moment(loss.time, zone, digits=0)}")
    if len(result.losses) > _LISTED:
        say(f"{len(result.losses) - _LISTED} more gaps or overlaps; see exhume info{dir_args(directory)}")
    if result.segments:
        since, until = (format_moment(moment, zone, digits=0) for moment in (result.since, result.until))
        seconds = (result.until - result.since) / NANOS
        say(f"{directory}: {since} to {until} ({seconds:,.0f} s), {result.bytes / 1e6:.1f} MB")
        suggest(f"exhume diagnose{dir_args(directory)}")


def _as_json(result: ImportResult, directory: Path) -> dict[str, object]:
    def described(problem: LeftOut) -> dict[str, object]:
        return {"reason": problem.reason, "offset": problem.offset, "count": problem.count}

    return {
        "version": JSON_VERSION,
        "directory": str(directory),
        "complete": result.complete,
        "segments": result.segments,
        "bytes": result.bytes,
        "files": [
            {
                "file": file.path,
                "format": file.format,
                "known": file.known,
                "rows": file.rows,
                "others": file.others,
                "missing": [dict(zip(("source", "reason", "remedy"), each, strict=True)) for each in file.missing],
                "left_out": [described(each) for each in file.left_out],
                "error": None if file.error is None else described(file.error),
            }
            for file in result.files
        ],
        "losses": [{"kind": loss.kind, "milliseconds": loss.count, "text": loss.text} for loss in result.losses],
    }
