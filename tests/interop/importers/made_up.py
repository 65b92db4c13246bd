"""Files of other tools, written by hand, and what an import makes of them."""

from pathlib import Path
from typing import Any

from exhume.interop.importers.form import ReadOptions
from exhume.interop.importers.importer import ImportRequest, ImportResult, import_files
from exhume.model.clock import NANOS
from exhume.store.read.recording import Recording

# 2026-03-01T03:00:00Z
START = 1_772_334_000 * NANOS
STACK = """\
\tffffffff81633bb1 __kmalloc+0x421 ([kernel.kallsyms])
\tffffffff81796f0f ext4_dir_open+0x1f ([ext4])
\t           81584 _IO_file_xsputn@@GLIBC_2.2.5+0x54 (/usr/lib/libc.so.6)
\t          146f7c [unknown] (/usr/bin/tool)
"""


def script(seconds: range, *, comm: str = "tool", cores: int = 2, hz: int = 10, base: float = 1000.0) -> str:
    """Text of perf script: every core busy in some seconds since `base`."""
    period = 10**9 // hz
    return "".join(
        f"{comm:>16} {7 + cpu:5d}/{7 + cpu} [{cpu:03d}] "
        f"{base + second + tick / hz + cpu / 1000:.6f}: {period:10d} cpu-clock: \n" + STACK + "\n"
        for second in seconds
        for tick in range(hz)
        for cpu in range(cores)
    )


def mpstat_text(seconds: range, rows: dict[int, tuple[float, ...]]) -> str:
    """Text of mpstat -P ALL from START on: for each core usr, sys, soft; the rest is idle."""
    names = "%usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle"
    lines = ["Linux 6.1.0 (node-1) \t2026-03-01 \t_x86_64_\t(2 CPU)", ""]
    for second in seconds:
        clock = f"{3 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        lines.append(f"{clock}     CPU    {names}")
        for core, (usr, sys, soft) in rows.items():
            idle = 100 - usr - sys - soft
            lines.append(f"{clock}  {core:6d}  {usr:.2f} 0.00 {sys:.2f} 0.00 0.00 {soft:.2f} 0.00 0.00 0.00 {idle:.2f}")
        lines.append("")
    return "\n".join(lines) + "\n"


def imported(
    tmp_path: Path, *paths: Path, directory: str = "recording", **options: Any
) -> tuple[ImportResult, Recording]:
    """The result of an import, and the recording."""
    given = {"start": START, "processes": 1, **options}
    read = given.pop("read", ReadOptions())
    request = ImportRequest(tuple(map(str, paths)), tmp_path / directory, options=read, **given)
    result = import_files(request)
    return result, Recording.open(tmp_path / directory)


def put(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def pprof_bytes(stacks: dict[tuple[str, ...], int], *, period_ns: int, since: int, nanos: int) -> bytes:
    """A profile of counts, leaf first, as Go's runtime writes it."""
    from exhume.interop.importers.pprof import _profile_class

    profile: Any = _profile_class()()
    texts = [""]

    def text(value: str) -> int:
        if value not in texts:
            texts.append(value)
        return texts.index(value)

    profile.sample_type.add(type=text("samples"), unit=text("count"))
    profile.period_type.type, profile.period_type.unit = text("cpu"), text("nanoseconds")
    profile.period, profile.time_nanos, profile.duration_nanos = period_ns, since, nanos
    names = list(dict.fromkeys(name for stack in stacks for name in stack))
    for number, name in enumerate(names, 1):
        profile.function.add(id=number, name=text(name))
        profile.location.add(id=number).line.add(function_id=number)
    for stack, count in stacks.items():
        profile.sample.add(location_id=[names.index(name) + 1 for name in stack], value=[count])
    profile.string_table.extend(texts)
    content: bytes = profile.SerializeToString()
    return content
