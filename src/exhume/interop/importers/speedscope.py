"""Import speedscope profiles: JSON with sampled or evented profiles (speedscope, src/lib/file-format-spec.ts)."""

import json
import re
from typing import Any

import numpy as np

from exhume.collect.symbols.frame import KERNEL, USER, Frame
from exhume.collect.symbols.kernel import KERNEL_MODULE
from exhume.interop.importers.aggregate import NO_CORES, CommPlaces
from exhume.interop.importers.files import InputFile
from exhume.interop.importers.form import NoWallTime, ReadOptions, SampleBatch, StackBook, Unreadable
from exhume.interop.importers.spool import Intake

_MOST_BYTES = 64 << 20
_MOST_DEPTH = 4096
_TO_NS = {"nanoseconds": 1.0, "microseconds": 1e3, "milliseconds": 1e6, "seconds": 1e9, "none": 1e7, "bytes": 0.0}
_CORE = re.compile(r"\b(?:core|cpu) ?#?(\d{1,5})\b", re.IGNORECASE)
_LONGEST_NS = 7 * 86_400 * 10**9


def looks_like_speedscope(head: str) -> bool:
    start = head.lstrip()[:1]
    return start == "{" and ("speedscope" in head or ('"profiles"' in head and '"shared"' in head))


def read_speedscope(file: InputFile, intake: Intake, options: ReadOptions) -> None:
    """Read profiles into a spool. Raises Unreadable."""
    if options.start is None:
        raise NoWallTime("its times begin at zero; give the time of the first sample with --start")
    whole = file.read_all(_MOST_BYTES)
    try:
        document = json.loads(whole)
        book, comms = StackBook(), CommPlaces()
        frames = [_frame(book, each) for each in document["shared"]["frames"]]
        # exhume writes threads as outermost frames.
        own = str(document.get("exporter", "")).startswith("exhume")
        profiles = [(profile, _TO_NS[profile.get("unit", "none")]) for profile in document["profiles"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"not a file of speedscope: {type(error).__name__} {error}") from error
    origin = min((_value(profile, "startValue") * unit for profile, unit in profiles), default=0.0)
    cores = False
    for number, (profile, unit) in enumerate(profiles):
        name = str(profile.get("name", ""))
        core = _CORE.search(name)
        cores |= core is not None
        if not unit:
            intake.left_out.add("a profile of bytes rather than time")
            continue
        try:
            spans = _sampled(profile) if profile.get("type") == "sampled" else _evented(profile)
            rows = []
            for begin, length, stack in spans:
                chain = [frames[each] for each in reversed(stack)]
                comm = chain.pop().name if own and chain else "[unknown]" if core else name or "[unknown]"
                # An empty stack means that nothing was sampled.
                if length > 0 and stack:
                    place = book.add(chain, idle_task=comm == "swapper")
                    rows.append((begin * unit - origin, length * unit, place, comms.of(comm)))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            intake.left_out.add(f"profile {number} makes no sense: {type(error).__name__}")
            continue
        intake.spool.add_samples(_batch(rows, int(core[1]) if core else 0, options.start), book, comms.names)
    if not cores:
        intake.summary.missing.append(NO_CORES)
    intake.summary.origin.event, intake.summary.origin.cores = "cpu", max(1, intake.summary.origin.cores)
    intake.spool.finish(book, comms.names)


def _batch(rows: list[tuple[float, float, int, int]], core: int, start: int) -> SampleBatch:
    """Build samples from rows of begin, length, stack and thread."""
    begin, length = (np.array([row[place] for row in rows], np.float64) for place in (0, 1))
    if (
        not np.isfinite(begin).all()
        or not np.isfinite(length).all()
        or not ((begin >= 0) & (begin < _LONGEST_NS)).all()
    ):
        raise Unreadable("times of more than a week")
    stack, comm = (np.array([row[place] for row in rows], np.int64) for place in (2, 3))
    cores, unknown = (np.full(len(rows), value, np.int64) for value in (min(core, 65_535), -1))
    weight = np.clip(np.round(length / 1000), 1, 2**32 - 1).astype(np.int64)
    return SampleBatch(start + begin.astype(np.int64), cores, unknown, unknown, comm, stack, weight)


def _value(profile: Any, name: str) -> float:
    value = profile.get(name, 0) if isinstance(profile, dict) else 0
    return float(value) if isinstance(value, int | float) else 0.0


def _sampled(profile: Any) -> list[tuple[float, float, list[int]]]:
    at = _value(profile, "startValue")
    spans = []
    for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
        if len(stack) > _MOST_DEPTH or any(each < 0 for each in stack):
            raise ValueError("an impossible stack")
        spans.append((at, float(weight), stack))
        at += float(weight)
    return spans


def _evented(profile: Any) -> list[tuple[float, float, list[int]]]:
    spans: list[tuple[float, float, list[int]]] = []
    stack: list[int] = []
    last = _value(profile, "startValue")
    for event in profile["events"]:
        at = float(event["at"])
        if at < last:
            raise ValueError("events out of order")
        if stack and at > last:
            spans.append((last, at - last, stack.copy()))
        last = at
        if event["type"] == "O":
            if len(stack) >= _MOST_DEPTH or int(event["frame"]) < 0:
                raise ValueError("an impossible stack")
            stack.append(int(event["frame"]))
        elif not stack or stack.pop() != event["frame"]:
            raise ValueError("a frame is closed that is not open")
    return spans


def _frame(book: StackBook, frame: Any) -> Frame:
    name, file = str(frame["name"]), str(frame.get("file") or "")
    in_kernel = file.startswith("[kernel") or file.endswith((".ko", "/vmlinux"))
    return book.frame(KERNEL, KERNEL_MODULE, name) if in_kernel else book.frame(USER, file or "[unknown]", name)
