"""Recordings damaged at random: every kind of file cut, flipped, exchanged or made a bomb. Commands end in time, in
bounded memory, without a crash or a traceback; an answer that differs from the intact one's says what was not read.

A sample by default; all cases with EXHUME_FUZZ_CASES=500. Longer with EXHUME_FUZZ_SECONDS; another sequence with
EXHUME_FUZZ_SEED.
"""

import io
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.parts import address_space
from tests.store.store_rows import FACTS, MONO, OFFSET, cpu_rows, loss_row, recorder, sample_rows, tick_at

from exhume.cli.main import main
from exhume.model.clock import NANOS, Window
from exhume.model.errors import ExhumeError
from exhume.model.tables import TABLES, columns_of
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.handlers.timeline import pool_measure
from exhume.store.read.recording import Recording
from exhume.store.write.seal import leftovers
from exhume.store.write.writer import SegmentWriter

CASES = int(os.environ.get("EXHUME_FUZZ_CASES", "60"))
WHOLE = 500
SECONDS = float(os.environ.get("EXHUME_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("EXHUME_FUZZ_SEED", "20260714"))
LONGEST_S = 60
MORE_MEMORY = 1 << 30
# A sample takes one of them in turn.
COMMANDS = ("info", "diagnose", "flame")
TICKS, SEGMENT_S = 25, 10
# One child takes so many cases: what it has loaded it need not load again.
CASES_A_CHILD = 30
BOMB_ROWS = 50_000_000

Damage = Callable[[Path, "Recordings", random.Random], None]


def changed(change: Callable[[bytearray, random.Random], bytearray]) -> Damage:
    def damage(victim: Path, _whole: "Recordings", chance: random.Random) -> None:
        content = bytearray(victim.read_bytes())
        victim.write_bytes(change(content, chance) if content else b"\0")

    return damage


def flip(content: bytearray, chance: random.Random) -> bytearray:
    for _ in range(chance.choice((1, 1, 1, 8))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return content


def truncate(content: bytearray, chance: random.Random) -> bytearray:
    return content[: chance.randrange(len(content))]


def zero_page(content: bytearray, chance: random.Random) -> bytearray:
    begin = chance.randrange(len(content)) // 512 * 512
    content[begin : begin + 4096] = bytes(len(content[begin : begin + 4096]))
    return content


def zero_tail(content: bytearray, chance: random.Random) -> bytearray:
    begin = chance.randrange(len(content))
    return content[:begin] + bytes(len(content) - begin)


def swap_segment(victim: Path, whole: "Recordings", chance: random.Random) -> None:
    """The same table of another segment."""
    others = [path for path in whole.files(victim.suffix) if path.name == victim.name and path.parent != victim.parent]
    swap(victim, [path for path in others if path.parent.name != victim.parent.name], chance)


def swap_table(victim: Path, whole: "Recordings", chance: random.Random) -> None:
    """Another table of the same segment."""
    alike = [path for path in victim.parent.iterdir() if path.suffix == victim.suffix and path.is_file()]
    swap(victim, [path for path in alike if path != victim], chance)


def swap_recording(victim: Path, whole: "Recordings", chance: random.Random) -> None:
    """The same table of the same minute of another node."""
    swap(victim, [path for path in whole.files(victim.suffix, foreign=True) if path.name == victim.name], chance)


def swap(victim: Path, others: list[Path], chance: random.Random) -> None:
    victim.write_bytes(chance.choice(others).read_bytes() if others else b"something else")


def bomb(victim: Path, _whole: "Recordings", chance: random.Random) -> None:
    """A few kilobytes that are hundreds of megabytes once they are decoded."""
    table = victim.stem if victim.stem in TABLES else "cpu"
    one = chance.choice([column.name for column in columns_of(table) if column.kind in ("int64", "uint64", "string")])
    kind = pa.string() if next(c for c in columns_of(table) if c.name == one).kind == "string" else pa.int64()
    values = pa.array(["A" * (1 << 20) if kind == pa.string() else 1], kind)
    column = pa.DictionaryArray.from_arrays(pa.nulls(BOMB_ROWS // 100, pa.int8()).fill_null(0), values)
    if victim.suffix == ".arrows":
        with pa.OSFile(str(victim), "wb") as sink:
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            with pa.ipc.new_stream(sink, pa.schema([(one, column.type)]), options=options) as writer:
                writer.write_batch(pa.record_batch([column], names=[one]))
        return
    metadata = pq.read_metadata(victim).metadata if victim.suffix == ".parquet" else {}
    rows = pa.table({one: column}).replace_schema_metadata(metadata)
    pq.write_table(rows, victim, compression="zstd", store_schema=False)


def not_a_file(victim: Path, _whole: "Recordings", chance: random.Random) -> None:
    victim.unlink()
    match chance.randrange(5):
        case 0:
            os.mkfifo(victim)
        case 1:
            victim.mkdir()
        case 2:
            victim.symlink_to("/dev/zero")
        case 3:
            victim.symlink_to(victim.name)
        case 4:
            victim.symlink_to("nowhere")


DAMAGES: dict[str, Damage] = {
    "flip": changed(flip),
    "truncate": changed(truncate),
    "swap segment": swap_segment,
    "zero page": changed(zero_page),
    "swap table": swap_table,
    "bomb": bomb,
    "swap recording": swap_recording,
    "zero tail": changed(zero_tail),
    "not a file": not_a_file,
}


class Recordings:
    """An intact recording, and one of another node in the same minutes."""

    def __init__(self, top: Path) -> None:
        self.whole, self.foreign = top / "whole", top / "foreign"

    def files(self, suffix: str, *, foreign: bool = False) -> list[Path]:
        return sorted((self.foreign if foreign else self.whole).rglob(f"*{suffix}"))

    def kinds(self) -> list[Path]:
        """A file of each kind, relative to the recording."""
        return sorted(path.relative_to(self.whole) for path in self.whole.rglob("*") if path.is_file())


def write_rows(writer: SegmentWriter, salt: int) -> None:
    """25 seconds: two sealed segments, and a live one. All tables have rows."""
    for index in range(TICKS):
        tick = tick_at(index)
        for number in range(4):
            name = f"function_{number + salt}"
            frame = {"frame": [number + salt], "kind": ["kernel"], "module": ["[kernel]"], "name": [name]}
            writer.append("frames", frame)
        stacks = [1 + salt, 2 + salt, 3 + salt + index // SEGMENT_S]
        writer.append("stacks", {"stack": stacks, "frames": [[salt, salt + 1], [salt, salt + 2], [salt + 3]]})
        writer.append("cpu", cpu_rows(tick, cores=4, system=index + salt))
        samples = [(cpu, cpu + 1, f"comm-{cpu}", stack) for cpu, stack in enumerate(stacks)]
        writer.append("samples", sample_rows(tick, samples))
        process = {"pid": [1 + salt], "comm": ["a"], "cmdline": [f"a --segment {index // SEGMENT_S}"]}
        writer.append("processes", {"time": [tick.start], **process})
        event = {"source": ["kernel-log"], "kind": ["incident" if index % 8 == 0 else "line"], "severity": ["info"]}
        writer.append("events", {"time": [tick.start], **event, "text": [f"line {index + salt}"]})
        writer.append("losses", loss_row(tick, 1 + salt))
        for table in set(TABLES) - {"frames", "stacks", "cpu", "samples", "processes", "events", "losses", "anchors"}:
            values: dict[str, Any] = {"string": f"text {salt}", "float64": 0.5, "list<uint64>": [1]}
            row = {column.name: [values.get(column.kind, (index + salt) % 200)] for column in columns_of(table)}
            writer.append(table, {**row, "time": [tick.start]})
        writer.commit(tick)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    top = tmp_path_factory.mktemp("fuzz")
    found = Recordings(top)
    for directory, salt in ((found.whole, 0), (found.foreign, 100)):
        facts = FACTS if not salt else replace(FACTS, node="node-2", boot_id="2" * 32)
        writer = recorder(top / "writing", segment_s=SEGMENT_S)
        writer._facts, writer._boot = facts, facts.boot_id[:8]
        write_rows(writer, salt)
        writer._sealer.close()
        # As a killed recorder leaves it.
        shutil.copytree(top / "writing", directory)
        (directory / "live/reserve").write_bytes(bytes(4096))
        writer.close()
        shutil.rmtree(top / "writing")
    return found


def answers(directory: Path) -> tuple[dict[str, Any], list[str]]:
    """What a recording says, question by question, and what it says that it did not read."""
    recording = Recording.open(directory)
    window = Window(MONO + OFFSET, MONO + OFFSET + TICKS * NANOS)
    found: dict[str, Any] = {table: sorted(map(repr, recording.read(table).to_pylist())) for table in TABLES}
    profile = recording.profile(window)
    names = [[profile.frames.names[frame] for frame in stack] for stack in profile.stacks]
    rows = zip(profile.comm_index, profile.stack_index, profile.weights_us, strict=True)
    found["flame"] = sorted((profile.comms[comm], names[stack], int(weight)) for comm, stack, weight in rows)
    found["cores"] = recording.cores(window, TICKS).values.tolist()
    handle = RecordingHandle(directory)
    found["overview"] = pool_measure(handle, handle.span(), 5, "busy").values.tolist()
    info = recording.info()
    found["info"] = [info.facts, info.span, info.samples, info.losses, info.rate_hz, info.cost]
    found["events"] = recording.events()
    return found, [str(each.path) for each in recording.skipped] + profile.blind_spots


def check(directory: Path, intact: tuple[dict[str, Any], list[str]], seed: int, *, may_differ: bool) -> str:
    """Run the commands, and ask the reader; returns what was wrong."""
    for command in COMMANDS if CASES >= WHOLE else COMMANDS[seed // len(DAMAGES) % 3 :][:1]:
        args = ["-o", str(directory.with_suffix(".folded"))] if command == "flame" else []
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            code = main([command, "--dir", str(directory), *args])
        if code not in range(4) or "Traceback" in said.getvalue():
            return f"{command} exits with {code}: {said.getvalue()[-2000:]!r}"
    try:
        found, stated = answers(directory)
    except ExhumeError:
        # An error that is one sentence is an answer.
        return ""
    differing = [question for question, answer in found.items() if answer != intact[0][question]]
    if differing and not may_differ and not Counter(stated) - Counter(intact[1]):
        return f"silently differs in {', '.join(differing)}"
    return ""


def looks_cut_off(whole: Path, damaged: Path) -> bool:
    """Whether a live file may look as a killed recorder leaves it: it ends early, or its last message says that it
    is longer than it is."""
    if not damaged.is_file():
        return False
    before, after = whole.read_bytes(), damaged.read_bytes()
    return before.startswith(after) or before[: last_message(before)] == after[: last_message(before)]


def last_message(content: bytes) -> int:
    """Where the last message of a live file begins."""
    source = pa.BufferReader(content)
    stream, begin = pa.ipc.open_stream(source), 0
    while source.tell() < len(content):
        begin = source.tell()
        stream.read_next_batch()
    return begin


def run_cases(recordings: Recordings, work: Path, seeds: range, log: Path) -> None:
    """In a child: damage a copy for each seed, and look at it. The log says how far it came, and what was wrong."""
    limit = address_space() + MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.alarm(LONGEST_S)
    kinds, damages = recordings.kinds(), list(DAMAGES)
    intact = answers(recordings.whole)
    with log.open("w", buffering=1) as said:
        # Where a traceback goes.
        os.dup2(said.fileno(), 2)
        for seed in seeds:
            # Moved, so that paths in messages and answers are the same.
            directory = work / str(seed)
            shutil.copytree(recordings.whole, directory)
            chance = random.Random(seed)
            kind, damage = chance.choice(kinds), damages[seed % len(damages)]
            DAMAGES[damage](directory / kind, recordings, chance)
            said.write(f"{seed} {damage} {kind}\n")
            signal.alarm(LONGEST_S)
            may_differ = kind.suffix == ".arrows" and looks_cut_off(recordings.whole / kind, directory / kind)
            if wrong := check(directory, intact, seed, may_differ=may_differ):
                said.write(f"WRONG {seed} {damage} {kind}: {wrong}\n")
            if seed % 20 == 0:
                # A recorder that seals what was left starts a process of its own, which takes a while.
                seal_again(directory)
            signal.alarm(0)
            shutil.rmtree(directory)


def seal_again(directory: Path) -> None:
    try:
        recorder(directory).close()
    except ExhumeError:
        return
    assert leftovers(directory) == []


def in_child(recordings: Recordings, work: Path, seeds: range) -> tuple[int | None, str]:
    """Run cases in a forked child; returns its exit code, and what it did."""
    log = work / f"log-{seeds.start}"
    child = multiprocessing.get_context("fork").Process(target=run_cases, args=(recordings, work, seeds, log))
    child.start()
    child.join()
    return child.exitcode, log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_damage_crashes_hangs_escapes_or_changes_an_answer_silently(recordings: Recordings, tmp_path: Path) -> None:
    began, first, wrong = time.monotonic(), SEED, list[str]()
    while first < SEED + CASES or time.monotonic() - began < SECONDS:
        seeds = range(first, first + CASES_A_CHILD)
        code, log = in_child(recordings, tmp_path, seeds)
        assert code == 0, f"ended with {code}: {log[-3000:]}"
        wrong += [line for line in log.splitlines() if line.startswith("WRONG")]
        first += CASES_A_CHILD
    sys.stderr.write(f"{first - SEED} cases in {time.monotonic() - began:.0f} s\n")
    assert not wrong
