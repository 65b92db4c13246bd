"""Import pprof profiles: a protocol buffer, gzipped or not (google/pprof, proto/profile.proto)."""

from functools import cache
from typing import TYPE_CHECKING, Any

from exhume.collect.symbols.frame import KERNEL, USER, Frame
from exhume.collect.symbols.kernel import KERNEL_MODULE
from exhume.interop.importers.aggregate import CommPlaces, StackSum, put_sums
from exhume.interop.importers.files import InputFile
from exhume.interop.importers.form import UNKNOWN_FRAME, NoWallTime, ReadOptions, StackBook, Unreadable
from exhume.interop.importers.spool import MOST_CORES, Intake

if TYPE_CHECKING:
    from google.protobuf import message

_MOST_BYTES = 128 << 20
_INT, _UINT, _BOOL, _STRING, _MESSAGE = 3, 4, 8, 9, 11
_ONE, _MANY = 1, 3
# The fields to read, by message: name, number, type, and whether repeated.
_SCHEMA: dict[str, tuple[tuple[str, int, int | str, int], ...]] = {
    "Profile": (
        *(("sample_type", 1, "ValueType", _MANY), ("sample", 2, "Sample", _MANY), ("mapping", 3, "Mapping", _MANY)),
        *(("location", 4, "Location", _MANY), ("function", 5, "Function", _MANY), ("string_table", 6, _STRING, _MANY)),
        *(("time_nanos", 9, _INT, _ONE), ("duration_nanos", 10, _INT, _ONE), ("period_type", 11, "ValueType", _ONE)),
        ("period", 12, _INT, _ONE),
    ),
    "ValueType": (("type", 1, _INT, _ONE), ("unit", 2, _INT, _ONE)),
    "Sample": (("location_id", 1, _UINT, _MANY), ("value", 2, _INT, _MANY), ("label", 3, "Label", _MANY)),
    "Label": (("key", 1, _INT, _ONE), ("str", 2, _INT, _ONE), ("num", 3, _INT, _ONE)),
    "Mapping": (("id", 1, _UINT, _ONE), ("filename", 5, _INT, _ONE)),
    "Location": (
        *(("id", 1, _UINT, _ONE), ("mapping_id", 2, _UINT, _ONE), ("address", 3, _UINT, _ONE)),
        ("line", 4, "Line", _MANY),
    ),
    "Line": (("function_id", 1, _UINT, _ONE), ("line", 2, _INT, _ONE)),
    "Function": (("id", 1, _UINT, _ONE), ("name", 2, _INT, _ONE)),
}
_THREAD_LABELS = ("thread", "thread_name", "comm", "thread name")
_TO_US = {"nanoseconds": 1e-3, "microseconds": 1.0, "milliseconds": 1e3, "seconds": 1e6}


@cache
def _profile_class() -> "type[message.Message]":
    """The message class, built from the fields above: uses protobuf's own parser without a compiled file."""
    # Takes 30 ms, which other formats don't need.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="exhume_pprof.proto", package="exhume.pprof", syntax="proto3")
    for name, fields in _SCHEMA.items():
        described = file.message_type.add(name=name)
        for field, number, kind, label in fields:
            added = described.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = _MESSAGE, f".exhume.pprof.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: type[message.Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName("exhume.pprof.Profile"))
    return found


def parse_pprof(content: bytes) -> Any | None:
    """Parse a profile from bytes; None if they are not a profile."""
    from google.protobuf import message

    try:
        profile: Any = _profile_class().FromString(content)
    except (message.DecodeError, RecursionError):
        return None
    named = bool(profile.string_table) and not profile.string_table[0]
    return profile if named and len(profile.sample_type) and len(profile.sample) else None


def looks_like_pprof(file: InputFile) -> bool:
    """Whether a file is a profile. There is no magic, so the whole file must be read. Its first byte is nearly always
    that of a field of the message."""
    if not file.head or file.head[0] not in (0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x32):
        return False
    return parse_pprof(file.read_all(_MOST_BYTES)) is not None


def read_pprof(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read a profile into a spool. Raises Unreadable."""
    profile = parse_pprof(file.read_all(_MOST_BYTES))
    if profile is None:
        raise Unreadable("not a profile of pprof")
    texts = _Texts(profile.string_table)
    since = profile.time_nanos if profile.time_nanos > 0 else options.start
    if since is None:
        raise NoWallTime("does not say when it was recorded; give that with --start")
    which, scale = _value(profile, texts)
    book, comms = StackBook(), CommPlaces()
    frames = _frames(profile, texts, book)
    sums = []
    for sample in profile.sample:
        if which >= len(sample.value) or any(each not in frames for each in sample.location_id):
            intake.left_out.add("a sample with a value or place that is not there")
            continue
        labels = {texts[label.key]: texts[label.str] or label.num for label in sample.label}
        chain = [frame for each in sample.location_id for frame in frames[each]]
        comm = next((str(labels[name]) for name in _THREAD_LABELS if labels.get(name)), "")
        if not comm and chain and chain[-1].name.startswith("[") and chain[-1].name.endswith("]") and len(chain) > 1:
            # exhume and other tools write the thread as the outermost frame.
            comm = chain.pop().name[1:-1]
        pid, tid = (_number(labels.get(name)) for name in ("pid", "tid"))
        cpu = labels.get("cpu")
        core = cpu if isinstance(cpu, int) and 0 <= cpu < MOST_CORES else None
        stack, weight = book.add(chain, idle_task=comm == "swapper"), max(0, sample.value[which]) * scale
        sums.append(StackSum(stack, comms.of(comm or "[unknown]"), weight, pid, tid, core))
    intake.summary.origin.event = texts[profile.sample_type[which].type]
    put_sums(intake, book, comms, sums, (since, profile.duration_nanos))


def _number(value: Any) -> int:
    return value if isinstance(value, int) and -(2**31) <= value < 2**31 else -1


class _Texts:
    """The string table; an index outside of it yields an empty string."""

    def __init__(self, table: Any) -> None:
        self._table = list(table)

    def __getitem__(self, place: int) -> str:
        return self._table[place] if 0 <= place < len(self._table) else ""


def _value(profile: Any, texts: _Texts) -> tuple[int, float]:
    """The index of the value that is CPU time, and its factor to microseconds."""
    kinds = [(texts[each.type], texts[each.unit]) for each in profile.sample_type]
    for place, (_, unit) in enumerate(kinds):
        if unit in _TO_US:
            return place, _TO_US[unit]
    period_unit = texts[profile.period_type.unit]
    # A count of samples: each stands for a period, or for 10 ms if the period is not a time.
    return 0, profile.period * _TO_US[period_unit] if period_unit in _TO_US and profile.period > 0 else 10_000.0


def _frames(profile: Any, texts: _Texts, book: StackBook) -> dict[int, list[Frame]]:
    """The frames of each location, innermost first: several if functions were inlined."""
    modules = {mapping.id: texts[mapping.filename] for mapping in profile.mapping}
    names = {function.id: texts[function.name] for function in profile.function}
    result = {}
    for location in profile.location:
        module = modules.get(location.mapping_id, "")
        in_kernel = module.startswith(("[kernel", "[guest.kernel")) or module.endswith((".ko", "/vmlinux"))
        kind, shown = (KERNEL, KERNEL_MODULE) if in_kernel else (USER, module or "[unknown]")
        found = [
            book.frame(kind, shown, names[line.function_id]) for line in location.line if names.get(line.function_id)
        ]
        if not found and location.address:
            base = shown.rsplit("/", 1)[-1]
            found = [book.frame(kind, shown, f"{base}+0x{location.address:x}")]
        result[location.id] = found or [UNKNOWN_FRAME]
    return result
