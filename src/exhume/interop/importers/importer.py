"""Import files into a recording: each is read into a spool, then all are merged into one timeline."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from exhume import __version__
from exhume.collect.incidents import IncidentMarks
from exhume.interop.importers.files import InputFile, expand, spool_stdin
from exhume.interop.importers.form import (
    CORES,
    LOG,
    SAMPLES,
    FileSummary,
    LeftOut,
    LeftOutLog,
    NoWallTime,
    Origin,
    ReadOptions,
    Unreadable,
)
from exhume.interop.importers.formats import Format, Probe, recognise
from exhume.interop.importers.spool import Intake, Spool, spooled_segments
from exhume.interop.importers.timeline import (
    GAP,
    IMPORT,
    OVERLAP,
    ImportedFile,
    ImportList,
    Measured,
    Piece,
    Plan,
    assemble,
    commit,
    complete,
    finish,
    mark,
    segment_number,
)
from exhume.model.clock import MILLIS, NANOS
from exhume.model.errors import RecordingError
from exhume.model.facts import MissingSource, RecordingFacts
from exhume.model.process import give_back
from exhume.model.tables import Losses
from exhume.model.times import format_moment
from exhume.store.format.names import IMPORT_STAGING_NAME, LIVE_DIRECTORY
from exhume.store.read.index import sealed_segments
from exhume.store.write.lock import DirectoryLock, cannot_write

# For smaller files, starting another process takes longer than it saves.
_WORTH_SHARING = 4 << 20
_MOST_PROCESSES = 8
_SEGMENT_S, _LONG_SEGMENT_S, _FEW_SAMPLES = 60, 300, 1000
# The buffers of one perf record may overlap the next file a little; a larger overlap is another recording of that time.
_OVERLAP_NS = NANOS
_GAP_NS = NANOS
_WITH_EXHUME = "record with exhume"
# Sources that no imported file has.
_NEVER = tuple(
    MissingSource(source, "an imported file does not have it", _WITH_EXHUME)
    for source in ("run-queue wait", "node", "cgroups", "softnet", "interrupts", "threads", "throttling", "containers")
)
_BY_FAMILY = {
    SAMPLES: MissingSource("stacks", "no samples were imported", "import perf.data of the same time"),
    CORES: MissingSource(
        "cpu",
        "the figures of cores are estimated from samples, without steal, I/O wait and interrupts",
        "import mpstat -P ALL or sadf -j -- -P ALL of the same time",
    ),
    LOG: MissingSource("kernel-log", "no kernel log was imported", "import dmesg or journalctl -k"),
}


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """A request to import files into a directory. `start` is the wall time at which files with only time since boot
    begin."""

    paths: tuple[str, ...]
    directory: Path
    start: int | None = None
    strict: bool = False
    options: ReadOptions = field(default_factory=ReadOptions)
    processes: int | None = None


@dataclass(slots=True)
class ImportResult:
    """The result of an import: each file with what was imported and left out. `losses` are gaps and overlaps."""

    files: list[FileSummary]
    segments: int = 0
    bytes: int = 0
    since: int = 0
    until: int = 0
    losses: tuple[Losses, ...] = ()

    @property
    def complete(self) -> bool:
        return not any(file.error or file.left_out for file in self.files)


class StoppedAtFirst(Exception):
    """Something was left out with --strict: the file, the place, and the reason. Nothing was imported."""

    def __init__(self, file: FileSummary, left_out: LeftOut) -> None:
        super().__init__(left_out.reason)
        self.file = file
        self.left_out = left_out


Progress = Callable[[str, float], None]


def import_files(request: ImportRequest, progress: Progress = lambda stage, share: None) -> ImportResult:
    """Import files. Raises RecordingError if the directory can't be written to or contains a recording of another kind,
    and StoppedAtFirst."""
    lock = DirectoryLock(request.directory)
    with closing(lock):
        try:
            (request.directory / LIVE_DIRECTORY).mkdir(exist_ok=True)
            complete(request.directory)
            known = ImportList.read(request.directory)
            if known is None and sealed_segments(request.directory):
                raise RecordingError(
                    f"{request.directory} is the recording of a node; import into another directory with --dir"
                )
            staging = request.directory / LIVE_DIRECTORY / IMPORT_STAGING_NAME
            (staging / LIVE_DIRECTORY).mkdir(parents=True)
            try:
                return _import(request, known, staging, progress)
            finally:
                complete(request.directory)
        except OSError as error:
            raise cannot_write(request.directory, error) from error
        except BrokenProcessPool as error:
            raise RecordingError("a process that imported was killed: is there enough memory?") from error


@dataclass(frozen=True, slots=True)
class _Job:
    """A file to read, or a part of one."""

    path: Path
    name: str
    spool: Path
    segment_s: int
    options: ReadOptions
    known: frozenset[str]
    size: int
    part: int = 0
    span: tuple[int, int] | None = None


def _import(request: ImportRequest, known: ImportList | None, staging: Path, progress: Progress) -> ImportResult:
    stdin = staging / "stdin"
    if "-" in request.paths:
        spool_stdin(stdin)
    found, failed = _probed(list(expand(list(request.paths), stdin)))
    if request.strict and failed:
        raise StoppedAtFirst(failed[0], failed[0].error or LeftOut("unreadable"))
    segment_s = known.segment_s if known else _segment_s([probe for _, _, probe in found])
    offset = _boot_offset(request, [probe for _, _, probe in found])
    options = replace(request.options, offset=offset, start=request.start)
    digests = frozenset(file.digest for file in known.files) if known else frozenset[str]()
    total = sum(file.whole_size for _, file, _ in found) or 1
    processes = _processes(request, total)
    jobs = [
        _Job(file.path, file.name, staging / f"spool{place}", segment_s, options, digests, file.whole_size)
        for place, (_, file, _) in enumerate(found)
    ]
    with _workers(processes) as run:
        parts = [
            part
            for job, (_, file, probe) in zip(jobs, found, strict=True)
            for part in _parts(job, file, probe, processes // len(jobs))
        ]
        by_spool: dict[Path, FileSummary] = {}
        read = 0
        for part, answer in zip(parts, run(_read_one, parts), strict=True):
            read += part.size
            progress("reading files", read / total)
            whole = by_spool.setdefault(part.spool, answer)
            if whole is not answer:
                whole.merge(answer)
            _raise_if_strict(request, whole)
        summaries = list(by_spool.values())
        for summary, (_, file, probe) in zip(summaries, found, strict=True):
            if not summary.spans and not summary.known and summary.error is None:
                summary.error = LeftOut("nothing in it that can be imported")
            if summary.needs_start and summary.error is not None and probe.length:
                about = format_moment(file.mtime_ns - probe.length, request.options.zone, digits=0)
                summary.error.reason += f"; by its last change that was about {about}"
            _raise_if_strict(request, summary)
        _leave_repeated(summaries)
        result = ImportResult([*summaries, *failed])
        fresh = [
            (job, summary) for job, summary in zip(jobs, summaries, strict=True) if summary.spans and not summary.known
        ]
        if fresh:
            plan, imports, numbers = _plan(request, known, segment_s, fresh)
            result.segments, result.bytes = _write(plan, imports, numbers, run, progress)
            spans = [span for _, summary in fresh for span in summary.spans.values()]
            result.since, result.until = min(since for since, _ in spans), max(until for _, until in spans)
            result.losses = plan.losses
    return result


def _probed(paths: list[tuple[str, Path]]) -> tuple[list[tuple[str, InputFile, Probe]], list[FileSummary]]:
    found, failed = [], []
    for name, path in paths:
        try:
            file = InputFile(path, name)
            found.append((name, file, recognise(file)))
        except Unreadable as error:
            failed.append(FileSummary(name, error=LeftOut(str(error), error.offset)))
    return found, failed


def _segment_s(probes: list[Probe]) -> int:
    """Segments with few samples are long, as in the recorder: their stacks take most of the space."""
    densest = max((probe.per_second for probe in probes), default=0)
    return _LONG_SEGMENT_S if 0 < densest < _FEW_SAMPLES else _SEGMENT_S


def _boot_offset(request: ImportRequest, probes: list[Probe]) -> int | None:
    """Wall time minus time since boot, as given by the user or found in one of the files."""
    if request.start is not None:
        firsts = [probe.boot_time for probe in probes if probe.boot_time is not None and probe.offset is None]
        # A log begins at boot, whereas the time that a user knows is the beginning of the samples.
        firsts = firsts or [probe.log_time for probe in probes if probe.log_time is not None]
        return request.start - min(firsts) if firsts else None
    return next((probe.offset for probe in probes if probe.offset is not None), None)


def _raise_if_strict(request: ImportRequest, summary: FileSummary) -> None:
    problem = summary.error or next(iter(summary.left_out), None)
    if request.strict and problem is not None:
        raise StoppedAtFirst(summary, problem)


def _processes(request: ImportRequest, total: int) -> int:
    """The number of processes worth using to read this many bytes."""
    if total < _WORTH_SHARING:
        return 1
    return request.processes or min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)


def _parts(job: _Job, file: InputFile, probe: Probe, most: int) -> list[_Job]:
    """Split a file into as many parts as are read in parallel, if its format can be cut."""
    most = min(most, file.size // max(1, _WORTH_SHARING))
    cuts = probe.format.cut(file, most) if probe.format.cut is not None and most > 1 else []
    if not cuts:
        return [job]
    return [
        replace(job, part=number, span=(begin, end), size=end - begin)
        for number, (begin, end) in enumerate(pairwise([0, *cuts, file.size]))
    ]


@contextmanager
def _workers(processes: int) -> Iterator[Callable[[Any, Iterable[Any]], Iterable[Any]]]:
    """Yield a function that maps another one over arguments, in order, in this many processes."""
    if processes == 1:
        yield map
        return
    # Start them before anything that creates threads: a forked process has the modules that this one has loaded.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, _prepare_process) as pool:
        yield pool.map


def _prepare_process() -> None:
    # The importing process handles Ctrl-C, and stops the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)


def _read_one(job: _Job) -> FileSummary:
    """Read a file, or a part of one, into its spool."""
    summary = FileSummary(job.name)
    left_out = LeftOutLog()
    try:
        file = InputFile(job.path, job.name, job.span)
        # If the file may be known already, every part has to find out.
        hashed = not job.part or bool(job.known)
        with _digest_of(file, summary, at_once=bool(job.known)) if hashed else nullcontext():
            form = recognise(file).format
            summary.format = form.name
            if summary.digest in job.known:
                summary.known = True
                return summary
            _read_as(form, file, Intake(Spool(job.spool, job.segment_s, job.part), summary, left_out), job.options)
    except NoWallTime as error:
        summary.needs_start = True
        summary.spans = {}
        summary.error = LeftOut(str(error), error.offset)
    except Unreadable as error:
        summary.error = LeftOut(str(error), error.offset)
    summary.left_out = list(left_out)
    give_back()
    return summary


def _read_as(form: Format, file: InputFile, intake: Intake, options: ReadOptions) -> None:
    spool, summary = intake.spool, intake.summary
    try:
        form.read(file, intake, options)
    except OverflowError as error:
        raise Unreadable(str(error)) from error
    finally:
        if spool.odd_samples:
            intake.left_out.add("samples with an impossible time or core", None, spool.odd_samples)
        summary.spans, summary.rows, summary.cpus = spool.spans, spool.rows, spool.cpus


@contextmanager
def _digest_of(file: InputFile, summary: FileSummary, *, at_once: bool) -> Iterator[None]:
    """Set the digest of a file: in parallel while it is read, or before that if the file may turn out to be known."""
    if at_once:
        summary.digest = file.digest()
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        digest = pool.submit(file.digest)
        try:
            yield
        finally:
            summary.digest = digest.result()


def _leave_repeated(summaries: list[FileSummary]) -> None:
    """Of files with the same content, keep the first."""
    seen: set[str] = set()
    for summary in summaries:
        summary.known |= summary.digest in seen
        if summary.spans:
            seen.add(summary.digest)


def _plan(
    request: ImportRequest, known: ImportList | None, segment_s: int, fresh: list[tuple[_Job, FileSummary]]
) -> tuple[Plan, ImportList, list[int]]:
    """Plan the timeline: its parameters, the pieces that it consists of, and the segments that change."""
    old = known.files if known else []
    added = [
        ImportedFile(
            Path(summary.path).name, summary.format, summary.digest, summary.spans, tuple(sorted(summary.cpus))
        )
        for _, summary in fresh
    ]
    taken = {family: _taken(family, old, added) for family in (SAMPLES, CORES)}
    boot_id = known.boot_id if known else blake2b(fresh[0][1].digest.encode(), digest_size=16).hexdigest()
    imports = ImportList(boot_id, segment_s, [*old, *added])
    before = _gaps(old)
    losses = (*_gaps(imports.files), *(loss for _, overlaps in taken.values() for loss in overlaps))
    plan = Plan(
        request.directory,
        _facts(request, known, imports, [summary for _, summary in fresh]),
        segment_s,
        tuple(
            Piece(
                job.spool,
                tuple(taken[SAMPLES][0][place]),
                tuple(taken[CORES][0][place]),
                (summary.spans.get(SAMPLES, (0, 0))[0], summary.spans.get(CORES, (0, 0))[0]),
                frozenset(spooled_segments(job.spool)),
            )
            for place, (job, summary) in enumerate(fresh)
        ),
        tuple(_measured(imports.files)),
        tuple(_measured(old)),
        losses,
        only_logs=not {SAMPLES, CORES} & {family for file in imports.files for family in file.spans},
    )
    numbers = {number for piece in plan.pieces for number in piece.segments} | _stale(before, losses, segment_s)
    sealed = sealed_segments(request.directory)
    only_logs = not {SAMPLES, CORES} & {family for file in old for family in file.spans}
    # The facts of a recording are those of its newest segment; if it had only logs and now gets more, all segments
    # change.
    changed = sealed if only_logs and not plan.only_logs else sealed[-1:]
    numbers |= {segment_number(segment, segment_s) for segment in changed}
    return plan, imports, sorted(numbers)


def _write(
    plan: Plan,
    imports: ImportList,
    numbers: list[int],
    run: Callable[[Any, Iterable[Any]], Iterable[Any]],
    progress: Progress,
) -> tuple[int, int]:
    """Write the segments that change; return their number and size in bytes."""
    marks = IncidentMarks()
    names: list[str] = []
    replaced: list[str] = []

    def finished() -> Iterator[tuple[Plan, Path | None, pa.Table, pa.Table]]:
        for place, segment in enumerate(run(_Assemble(plan), numbers)):
            progress("writing the recording", place / len(numbers))
            if segment is not None:
                replaced.extend(segment.replaces)
                yield plan, segment.live, mark(marks, segment), segment.outside

    size = 0
    for sealed in run(_finish, finished()):
        names += [name for name, _ in sealed]
        size += sum(each for _, each in sealed)
    commit(plan, names, replaced, imports)
    return len(names), size


@dataclass(frozen=True, slots=True)
class _Assemble:
    """Assembles segments; can be sent to another process."""

    plan: Plan

    def __call__(self, number: int) -> Any:
        assembled = assemble(self.plan, number)
        give_back()
        return assembled


def _finish(job: tuple[Plan, Path | None, pa.Table, pa.Table]) -> list[tuple[str, int]]:
    sealed = finish(*job)
    give_back()
    return sealed


def _taken(
    family: str, old: list[ImportedFile], added: list[ImportedFile]
) -> tuple[list[list[tuple[int, int]]], list[Losses]]:
    """The times of each new file that count, and the overlaps: time covered by two files counts once, for the file that
    was imported before or begins earlier."""
    earlier = [(*file.spans[family], frozenset(file.cpus), file.name) for file in old if family in file.spans]
    taken: list[list[tuple[int, int]]] = [[] for _ in added]
    losses = []
    places = [place for place, file in enumerate(added) if family in file.spans]
    for place in sorted(places, key=lambda each: added[each].spans[family]):
        file = added[place]
        spans = [file.spans[family]]
        for since, until, cpus, name in earlier:
            if cpus.isdisjoint(file.cpus):
                continue
            begin, end = max(since, file.spans[family][0]), min(until, file.spans[family][1])
            if end - begin <= _OVERLAP_NS:
                continue
            spans = [part for span in spans for part in _without(span, (begin, end))]
            seconds = (end - begin) / NANOS
            text = f"{file.name} overlaps {name} by {seconds:.1f} s: what it has of {family} there is left out"
            losses.append(Losses(begin, IMPORT, OVERLAP, (end - begin) // MILLIS, text))
        earlier.append((*file.spans[family], frozenset(file.cpus), file.name))
        taken[place] = spans
    return taken, losses


def _without(span: tuple[int, int], hole: tuple[int, int]) -> list[tuple[int, int]]:
    parts = [(span[0], min(span[1], hole[0] - 1)), (max(span[0], hole[1] + 1), span[1])]
    return [part for part in parts if part[0] < part[1]]


def _gaps(files: list[ImportedFile]) -> list[Losses]:
    """The gaps between files of one kind."""
    losses = []
    for family in (SAMPLES, CORES):
        reach: int | None = None
        for since, until in sorted(file.spans[family] for file in files if family in file.spans):
            if reach is not None and since - reach > _GAP_NS:
                text = f"no {family} for {(since - reach) / NANOS:.1f} s: no file has them"
                losses.append(Losses(reach, IMPORT, GAP, (since - reach) // MILLIS, text))
            reach = max(until, reach or 0)
    return losses


def _stale(before: Iterable[Losses], now: Iterable[Losses], segment_s: int) -> set[int]:
    """The segments whose losses change."""
    known, present = ({(loss.time, loss.text) for loss in losses} for losses in (before, now))
    return {time // NANOS // segment_s for time, _ in known ^ present}


def _measured(files: Iterable[ImportedFile]) -> Iterator[Measured]:
    return ((*file.spans[CORES], frozenset(file.cpus)) for file in files if CORES in file.spans)


def _facts(
    request: ImportRequest, known: ImportList | None, imports: ImportList, fresh: list[FileSummary]
) -> RecordingFacts:
    origin = Origin()
    before: list[MissingSource] = []
    if known is not None:
        # The import takes 25 ms, which a first import of files doesn't need.
        from exhume.store.read.recording import Recording

        facts = Recording.open(request.directory).facts
        origin = Origin(
            facts.node, facts.kernel, facts.arch, facts.cores, facts.event_source, facts.rate_hz, facts.timezone
        )
        own = {each.source for each in (*_NEVER, *_BY_FAMILY.values())}
        before = [each for each in facts.sources_missing if each.source not in own]
    for summary in fresh:
        origin.merge(summary.origin)
        origin.cores = max(origin.cores, max(summary.cpus, default=-1) + 1)
    families = {family for file in imports.files for family in file.spans}
    missing = [entry for family, entry in _BY_FAMILY.items() if family not in families]
    missing += [MissingSource(*each) for summary in fresh for each in summary.missing]
    return RecordingFacts(
        node=origin.node or "imported",
        boot_id=imports.boot_id,
        cores=max(1, origin.cores),
        kernel=origin.kernel,
        arch=origin.arch,
        event_source=origin.event,
        rate_hz=origin.rate_hz,
        sources_missing=list(dict.fromkeys((*missing, *before, *_NEVER))),
        exhume_version=__version__,
        timezone=origin.timezone or "UTC",
    )
