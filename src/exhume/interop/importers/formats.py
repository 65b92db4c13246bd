"""The supported import formats: how each is recognised, how its start time is found, and which reader it has."""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.interop.importers import folded, kernel_log, perf_script, pprof, speedscope, sysstat
from exhume.interop.importers.files import InputFile
from exhume.interop.importers.form import ReadOptions, Unreadable
from exhume.interop.importers.perf_data.header import FOREIGN_MAGIC, MAGIC, OLD_MAGIC
from exhume.interop.importers.perf_data.reader import probe_perf_data, read_perf_data
from exhume.interop.importers.spool import Intake


@dataclass(frozen=True, slots=True)
class Probe:
    """What the beginning of a file shows. `boot_time` is its first sample in nanoseconds since boot if it has no wall
    time, `log_time` its first log line likewise, and `length` its duration; `offset` is wall time minus that clock;
    `per_second` is the number of samples per second."""

    format: "Format"
    boot_time: int | None = None
    length: int = 0
    offset: int | None = None
    per_second: float = 0.0
    log_time: int | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """`cut` returns offsets at which a file can be split into about the requested number of parts, to be read
    separately. All functions raise Unreadable."""

    name: str
    matches: Callable[[InputFile], bool]
    read: Callable[[InputFile, Intake, ReadOptions], None]
    probe: Callable[[InputFile], Probe] | None = None
    cut: Callable[[InputFile, int], list[int]] | None = None


def _text(file: InputFile) -> str:
    """The beginning of a file as text; empty if it is not text."""
    return "" if b"\0" in file.head else file.head.decode("utf-8", "replace")


PERF_DATA: Format = Format(
    "perf.data",
    lambda file: file.head[:8] in (MAGIC, FOREIGN_MAGIC, OLD_MAGIC),
    read_perf_data,
    lambda file: Probe(PERF_DATA, *probe_perf_data(file)),
)
PERF_SCRIPT: Format = Format(
    "perf script",
    lambda file: b"\0" not in file.head[:4096] and perf_script.looks_like_script(file.head),
    perf_script.read_script,
    lambda file: Probe(PERF_SCRIPT, perf_script.first_boot_time(file.head)),
    perf_script.cut_points,
)
KERNEL_LOG: Format = Format(
    "kernel log",
    lambda file: kernel_log.looks_like_log(_text(file)),
    kernel_log.read_log,
    lambda file: Probe(KERNEL_LOG, log_time=kernel_log.first_boot_time(file)),
)
FORMATS: tuple[Format, ...] = (
    PERF_DATA,
    Format("sadc", lambda file: file.head[:2] == sysstat.SADC_MAGIC, sysstat.read_sadc),
    Format("sysstat JSON", lambda file: sysstat.looks_like_json(_text(file)), sysstat.read_json),
    Format("mpstat", lambda file: sysstat.looks_like_mpstat(_text(file)), sysstat.read_text),
    PERF_SCRIPT,
    KERNEL_LOG,
    Format("speedscope", lambda file: speedscope.looks_like_speedscope(_text(file)), speedscope.read_speedscope),
    Format("folded stacks", lambda file: folded.looks_like_folded(_text(file)), folded.read_folded),
    Format("pprof", pprof.looks_like_pprof, pprof.read_pprof),
)


def recognise(file: InputFile) -> Probe:
    """Recognise the format of a file. Raises Unreadable if it has none of the formats."""
    if not file.size:
        raise Unreadable("empty")
    for form in FORMATS:
        if form.matches(file):
            return form.probe(file) if form.probe is not None else Probe(form)
    raise Unreadable("none of the formats that can be imported; see exhume import --help")
