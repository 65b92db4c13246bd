"""Write a window of a recording in the formats of other tools: profiles, traces, tables and metrics.

Without --since it writes the last ten minutes before --until (or before the end of the recording). Profiles are pprof,
folded, speedscope, firefox, perfetto and otlp; csv, parquet and arrow take any table (--table); openmetrics has the
figures of each second. bundle packs the minutes around an incident (--at) with its diagnosis and a page into one file,
which exhume serve, diagnose and others open with --dir.
"""

import gzip
import json
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import urlsplit

import pyarrow as pa

from exhume import __version__
from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options, add_setting, option, value_of
from exhume.cli.commands.diagnose import find_target
from exhume.cli.recording_args import (
    DEFAULT_SPAN,
    EMPTY,
    STACKS,
    RecordingView,
    add_filters,
    filter_labels,
    profile_filter,
    refuse_two_windows,
    report_damaged,
)
from exhume.cli.terminal import ProgressBar, activity, cannot_write, say, suggest
from exhume.diagnose.engine import diagnose
from exhume.interop.folded import render_folded, render_folded_parts
from exhume.interop.pprof import render_pprof, render_pprof_parts
from exhume.interop.receivers import check_receiver, request_for
from exhume.interop.speedscope import render_speedscope, render_speedscope_tracks
from exhume.interop.tracks import BY, CORE, parts
from exhume.library import Recording, with_busy
from exhume.model.clock import NANOS, Window
from exhume.model.errors import UsageError
from exhume.model.finding import Diagnosis
from exhume.model.settings import TO_TOKEN, TO_TOKEN_FILE
from exhume.model.tables import TABLES, columns_of
from exhume.model.text import count, listing, size
from exhume.present.diagnosis_view import verdict_text
from exhume.store.format.schema import DIMENSIONS
from exhume.store.read.bundle import SUFFIX
from exhume.store.read.cached import CachedRecording
from exhume.store.read.flame_tree import build_tree
from exhume.store.read.profile import ProfileFilter, SampleTable
from exhume.store.read.redacted import RedactedRecording

# Of formats that list every sample; beyond that no viewer opens the file.
MOST_SAMPLES = 3_000_000
# Of one that has every frame of them, 100 bytes each.
MOST_SLICED = 1_000_000
TABLE_FORMATS = ("csv", "parquet", "arrow")
# Tables that are made of others.
DERIVED = ("cores", "flame")
TEXT = ("folded", "speedscope", "firefox", "perfetto", "csv", "openmetrics")
DASH = Path("-")
# What a bundle has before and after the seconds that its diagnosis is about: enough to diagnose it again.
BEFORE_NS, AFTER_NS = 300 * NANOS, 60 * NANOS
# Rows of so much time are in memory at once, where a table is written.
PIECE_NS = 300 * NANOS
# What opens a file, for the next step.
OPENED_BY = {
    "pprof": "go tool pprof -http=: {file}",
    "speedscope": "npx speedscope {file}",
    "firefox": "open https://profiler.firefox.com and drop {file} there",
    "perfetto": "open https://ui.perfetto.dev and drop {file} there",
}


@dataclass(frozen=True)
class Job:
    """What to export: a window of a recording, the samples that count, and how they are split."""

    view: RecordingView
    window: Window
    selected: ProfileFilter
    by: str | None
    most_samples: int

    @property
    def title(self) -> str:
        return f"{self.view.recording.facts.node}, {self.view.format(self.window)}"

    @cached_property
    def samples(self) -> SampleTable:
        return self.view.recording.sample_table(self.window, self.selected, self.most_samples)

    @property
    def cores(self) -> pa.Table:
        """The rows of the cores in the order of time, with `wall` in nanoseconds."""
        rows = self.view.recording.read("cpu", self.window, None, self.selected.cpus)
        return with_busy(rows.sort_by([("wall", "ascending"), ("cpu", "ascending")]))


def _pprof(job: Job) -> bytes:
    if job.by is not None:
        return render_pprof_parts(parts(job.samples, job.by), job.window)
    return render_pprof(build_tree(job.view.recording.profile(job.window, job.selected)), job.window)


def _folded(job: Job) -> str:
    if job.by is not None:
        return render_folded_parts(parts(job.samples, job.by))
    return render_folded(build_tree(job.view.recording.profile(job.window, job.selected)))


def _speedscope(job: Job) -> str:
    if job.by is not None:
        return render_speedscope_tracks(job.samples, job.by, job.window, job.title)
    return render_speedscope(build_tree(job.view.recording.profile(job.window, job.selected)), job.title)


def _firefox(job: Job) -> str:
    from exhume.interop.firefox import render_firefox

    events = job.view.recording.events(job.window)
    return render_firefox(job.samples, job.by or CORE, job.window, events, job.view.recording.facts)


def _perfetto(job: Job) -> Iterator[str]:
    from exhume.interop.trace_events import trace_event_parts

    recording = job.view.recording
    events = recording.events(job.window)
    node = recording.facts.node
    return trace_event_parts(job.samples, job.by or CORE, job.window, cores=job.cores, events=events, node=node)


def _otlp(job: Job) -> bytes:
    from exhume.interop.otlp import render_otlp

    return render_otlp(job.samples, job.window, job.view.recording.facts)


PROFILES: dict[str, Callable[[Job], bytes | str | Iterator[str]]] = {
    "pprof": _pprof,
    "folded": _folded,
    "speedscope": _speedscope,
    "firefox": _firefox,
    "perfetto": _perfetto,
    "otlp": _otlp,
}
FORMATS = (*PROFILES, *TABLE_FORMATS, "openmetrics", "bundle")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("format", metavar="FORMAT", choices=FORMATS, help=f"One of {', '.join(FORMATS)}.")
    option(parser, "--output -o FILE", "File to write; - is stdout.", type=Path, default=DASH)
    add_recording_options(parser, json=False)
    add_filters(parser)
    by = "core or thread: split a profile by it, into tracks on the time axis where the format has one."
    option(parser, "--by WHAT", by, choices=BY)
    tables = "The table of csv, parquet and arrow: one of the recording, or cores or flame [default: cpu]."
    option(parser, "--table NAME", tables, choices=(*TABLES, *DERIVED))
    to = "Send pprof to Pyroscope (.../ingest) or Parca (.../profiles/writeraw), or otlp to a collector, over HTTP."
    option(parser, "--to URL", to)
    add_setting(parser, TO_TOKEN_FILE)
    option(parser, "--at TIME", "bundle: the incident nearest to this moment [default: the newest one].")
    option(parser, "--no-redact", "bundle: keep secrets in command lines and events as they were recorded.")


def run(options: Namespace) -> int:
    _check(options)
    view = RecordingView.open(options)
    if options.format == "bundle":
        return _export_bundle(view, options)
    window = view.window(options, default_ns=DEFAULT_SPAN)
    most = MOST_SLICED if options.format == "perfetto" else MOST_SAMPLES
    job = Job(view, window, profile_filter(options, view.recording), options.by, most)
    if options.format in TABLE_FORMATS:
        code = _export_table(job, options)
    elif options.format == "openmetrics":
        code = _export_metrics(job, options)
    else:
        code = _export_profile(job, options)
    report_damaged(view.recording)
    if code == exit_codes.OK and (spots := view.recording.blind_spots(window)):
        say(f"blind spots: {listing(spots)}")
    return code


def _check(options: Namespace) -> None:
    """Raise UsageError for options that don't go together."""
    form = options.format
    if options.by is not None and form not in PROFILES:
        raise UsageError(f"--by splits profiles; {form} has rows of its own, without it")
    if options.by is not None and form == "otlp":
        raise UsageError("otlp has core and thread with every sample; leave --by out")
    if options.table is not None and form not in TABLE_FORMATS:
        raise UsageError(f"--table is for {', '.join(TABLE_FORMATS)}; {form} has no choice of tables")
    if options.to is not None:
        check_receiver(options.to, form)
    if form == "bundle":
        _check_bundle(options)
    elif options.at is not None or options.no_redact:
        raise UsageError(f"{'--at' if options.at is not None else '--no-redact'} is for bundle, not for {form}")
    if form not in TEXT and options.output == DASH and options.to is None and sys.stdout.isatty():
        raise UsageError(f"{form} is binary, and stdout is a terminal; name a file with -o")


def _check_bundle(options: Namespace) -> None:
    refuse_two_windows(options)
    _refuse_filters(options, "a bundle", cores=False)
    if options.output == DASH:
        raise UsageError(f"a bundle is a file: name it with -o, for example -o incident{SUFFIX}")


def _export_bundle(view: RecordingView, options: Namespace) -> int:
    """The rows around an incident, its diagnosis and its page in one file."""
    from exhume.present.diagnosis_view import diagnosis_json
    from exhume.present.html.reports import diagnosis_report
    from exhume.store.write.bundle import write_bundle

    target = find_target(view, options)
    if target.window.empty:
        return view.no_data(EMPTY, "incident")
    # What reads from here on sees no secrets: the diagnosis and the page quote command lines too.
    recording = (CachedRecording if options.no_redact else RedactedRecording)(view.recording)
    with ProgressBar("diagnosing") as bar:
        found = diagnose(recording, target.window, at=target.at, progress=bar)
    window = bundle_window(found).clamp(view.span)
    with activity("packing"):
        documents = {
            "README.txt": _bundle_text(view, found, window, redacted=not options.no_redact),
            "report.html": diagnosis_report(recording, found, view.zone),
            "diagnosis.json": json.dumps(diagnosis_json(found, view.zone), indent=1),
        }
        encoded = {name: text.encode("utf-8", "replace") for name, text in documents.items()}
        try:
            amount = write_bundle(options.output, recording, window, encoded)
        except OSError as error:
            raise cannot_write(options.output, error, "-o") from error
    report_damaged(recording)
    say(f"{options.output}: {size(amount)}, {view.format(window)}")
    if options.no_redact:
        say("command lines are in it as they were recorded; look before you give it away")
    suggest(f"exhume serve --dir {shlex.quote(str(options.output))}")
    return exit_codes.OK


def bundle_window(found: Diagnosis) -> Window:
    """What a bundle holds: the window of the diagnosis and its baseline, and some minutes around both."""
    ends = [found.window, *([found.baseline] if found.baseline[1] > found.baseline[0] else [])]
    return Window(min(since for since, _ in ends) - BEFORE_NS, max(until for _, until in ends) + AFTER_NS)


def _bundle_text(view: RecordingView, found: Diagnosis, window: Window, *, redacted: bool) -> str:
    secrets = (
        "Secrets in command lines are replaced by ***." if redacted else "Command lines are as they were recorded."
    )
    return f"""An incident that exhume {__version__} recorded on {found.node}.

{verdict_text(found)}

report.html      the diagnosis with pictures; it needs nothing but a browser
diagnosis.json   the same for programs
recording/       the rows, {view.format(window)}

exhume opens this file as it is:

    exhume serve --dir incident{SUFFIX}
    exhume diagnose --dir incident{SUFFIX}

{secrets}
"""


def _export_profile(job: Job, options: Namespace) -> int:
    with activity("reading stacks"):
        content = PROFILES[options.format](job) if _has_samples(job) else None
    if content is None:
        what = "samples that match" if filter_labels(options) else "samples"
        return job.view.no_data(job.window, what, sources=[STACKS])
    if options.output != DASH or options.to is None:
        with activity("writing"), _sink(options) as sink:
            written = sum(map(sink.write, _encoded(content)))
        _say_written(job, options, size(written))
    if options.to is not None:
        _send(job, options, b"".join(_encoded(content)))
    return exit_codes.OK


def _encoded(content: bytes | str | Iterator[str]) -> Iterator[bytes]:
    """Names come from other programs: bytes in them that are not Unicode are replaced."""
    if isinstance(content, bytes):
        yield content
    else:
        yield from (part.encode("utf-8", "replace") for part in ([content] if isinstance(content, str) else content))


def _send(job: Job, options: Namespace, content: bytes) -> None:
    """Give a profile to the server of --to. Raises UploadFailed."""
    # What speaks HTTP and TLS is loaded for this alone.
    from exhume.notify.upload import upload

    request = request_for(options.to, options.format, content, job.window, job.view.recording.facts)
    with activity("sending"):
        attempts = upload(request, _token(options), report=lambda problem: say(f"exhume: {problem}"))
    tries = "" if attempts == 1 else f", at the attempt {attempts}"
    say(f"sent {size(len(content))} to {urlsplit(request.url).netloc}{tries}: {job.view.format(job.window)}")


def _token(options: Namespace) -> str | None:
    file = value_of(options, TO_TOKEN_FILE)
    if file is None:
        return TO_TOKEN.from_environment()
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token can't be read from {file}: {error}; name another file") from None


def _has_samples(job: Job) -> bool:
    return next(job.view.recording.samples(job.window, job.selected, ["cpu"]), None) is not None


def _export_metrics(job: Job, options: Namespace) -> int:
    from exhume.interop.openmetrics import render_openmetrics

    _refuse_filters(options, "openmetrics")
    with activity("reading figures"):
        cores = job.cores
        node = job.view.recording.read("node", job.window).sort_by("wall")
        content = render_openmetrics(cores, node).encode()
    if not cores.num_rows and not node.num_rows:
        return job.view.no_data(job.window, "figures")
    with _sink(options) as sink:
        sink.write(content)
    _say_written(job, options, size(len(content)))
    return exit_codes.OK


def _export_table(job: Job, options: Namespace) -> int:
    from exhume.interop.tables import write_tables

    name = options.table or "cpu"
    if name not in ("samples", "flame"):
        with_cores = name == "cores" or any(column.name == "cpu" for column in columns_of(name))
        _refuse_filters(options, f"table {name}", cores=with_cores)
    found = _parts_of(job, name)
    with activity("reading rows"):
        first = next(found, None)
        if first is None:
            return job.view.no_data(job.window, f"rows of {name}")
        with _sink(options) as sink:
            rows = write_tables(options.format, chain([first], found), first.schema, sink)
    _say_written(job, options, count(rows, "row"))
    return exit_codes.OK


def _refuse_filters(options: Namespace, what: str, *, cores: bool = True) -> None:
    """Raise UsageError for filters of samples where there are none."""
    names = ("comm", "pid", "container", "pod", "stack", *(() if cores else ("cpu",)))
    given = next((name for name in names if getattr(options, name) is not None), None)
    if given is not None:
        raise UsageError(f"--{given} filters samples; {what} has none")


def _parts_of(job: Job, name: str) -> Iterator[pa.Table]:
    """The rows of a table, some minutes at a time where they are not summed: memory follows those, not the window."""
    recording = Recording(job.view.recording.directory, stored=job.view.recording)
    reading: dict[str, Callable[[int, int], pa.Table]] = {
        **{table: partial(recording.table, table, cpus=job.selected.cpus) for table in TABLES},
        "cores": partial(recording.cores, cpus=job.selected.cpus),
        "flame": partial(recording.flame, where=job.selected),
        "samples": partial(recording.samples, where=job.selected),
    }
    for part in [job.window] if name in ("flame", *DIMENSIONS) else _pieces(job.window):
        rows = reading[name](part.since, part.until)
        if rows.num_rows:
            yield rows


def _pieces(window: Window) -> Iterator[Window]:
    for since in range(window.since, window.until, PIECE_NS):
        yield Window(since, min(since + PIECE_NS, window.until))


@contextmanager
def _sink(options: Namespace) -> Iterator[BinaryIO]:
    """What is written to: the file, compressed where its name says so, or stdout. Raises ExhumeError for a file that
    can't be written."""
    output: Path = options.output
    packed = options.format in TEXT and output.suffix == ".gz"
    if output == DASH:
        yield sys.stdout.buffer
        return
    try:
        with output.open("wb") as file:
            if not packed:
                yield file
                return
            # Without the time: the same rows give the same file.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
                yield cast(BinaryIO, compressed)
    except OSError as error:
        raise cannot_write(output, error, "-o") from error


def _say_written(job: Job, options: Namespace, amount: str) -> None:
    if options.output != DASH:
        say(f"{options.output}: {amount}, {job.view.format(job.window)}")
    hint = OPENED_BY.get(options.format)
    if hint is not None and options.output != DASH:
        suggest(hint.format(file=shlex.quote(str(options.output))))
