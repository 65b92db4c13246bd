"""Import folded stacks, `comm;frame;frame count`, as stackcollapse-perf.pl, bpftrace tools and exhume write them."""

import re

from exhume.collect.symbols.frame import JIT, KERNEL, USER, Frame
from exhume.collect.symbols.kernel import KERNEL_MODULE
from exhume.collect.symbols.parser.open_file import readable
from exhume.interop.importers.aggregate import CommPlaces, StackSum, put_sums
from exhume.interop.importers.files import InputFile, chunks
from exhume.interop.importers.form import NoWallTime, ReadOptions, StackBook, Unreadable
from exhume.interop.importers.spool import Intake

_LINE = re.compile(rb"(\S.*?) (\d{1,18})(?:\.\d+)?\s*$")
# Suffixes that stackcollapse-perf.pl --all appends: kernel, inlined, compiled at run time.
_KINDS = {"_[k]": KERNEL, "_[i]": USER, "_[j]": JIT}
# A count stands for one sample at 100 Hz, unless that adds up to more than a day. If even the smallest count is too
# large for a stack that was sampled once, the weights are microseconds, as exhume writes them.
_SAMPLE_US, _MOST_US = 10_000.0, 86_400e6
_LEAST_MICROSECONDS = 500
_MOST_STACKS = 2_000_000


def looks_like_folded(head: str) -> bool:
    lines = [line for line in head.split("\n")[:-1] if line.strip()][:200] or [head]
    matching = [line for line in lines if _LINE.match(line.encode("utf-8", "replace"))]
    return bool(lines) and len(matching) == len(lines) and any(";" in line for line in lines)


def read_folded(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read folded stacks into a spool. Raises Unreadable."""
    if options.start is None:
        raise NoWallTime("folded stacks have no time; give the time of the first sample with --start")
    book, comms = StackBook(), CommPlaces()
    counts: dict[tuple[int, int], int] = {}
    with file.open_unpacked() as content:
        for offset, chunk in chunks(content):
            for line in chunk.split(b"\n"):
                if not line.strip() or line.startswith(b"#"):
                    continue
                match = _LINE.match(line)
                if match is None:
                    intake.left_out.add("a line without a count", offset)
                    continue
                comm, *names = readable(match[1]).split(";")
                frames = [_frame(book, name) for name in reversed(names)]
                idle = comm.startswith("swapper")
                key = (book.add(frames, idle_task=idle), comms.of(comm))
                counts[key] = counts.get(key, 0) + int(match[2])
            if len(counts) > _MOST_STACKS:
                raise Unreadable(f"more than {_MOST_STACKS:,} different stacks", offset)
    each = 1.0 if min(counts.values(), default=0) >= _LEAST_MICROSECONDS else _SAMPLE_US
    unit = min(each, _MOST_US / max(1, sum(counts.values())))
    sums = [StackSum(stack, comm, count * unit) for (stack, comm), count in counts.items()]
    put_sums(intake, book, comms, sums, (options.start, 0))


def _frame(book: StackBook, name: str) -> Frame:
    kind = _KINDS.get(name[-4:])
    if kind is not None:
        name = name[:-4]
    module = KERNEL_MODULE if kind == KERNEL else "[unknown]"
    return book.frame(kind or USER, module, name or "[unknown]")
