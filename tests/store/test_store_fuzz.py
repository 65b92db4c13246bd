"""Recordings damaged at random: commands end in time, without a crash or a traceback, in bounded memory.

Longer with EXHUME_FUZZ_SECONDS; another sequence with EXHUME_FUZZ_SEED.
"""

import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest
from tests.store.store_rows import cpu_rows, loss_row, recorder, sample_rows, tick_at

from exhume.cli.main import main
from exhume.model.errors import ExhumeError
from exhume.store.write.seal import leftovers

CASES = 200
SECONDS = float(os.environ.get("EXHUME_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("EXHUME_FUZZ_SEED", "20260714"))
LONGEST_S = 60
MOST_MEMORY = 2 << 30
COMMANDS = ("info", "cores", "events", "incidents", "flame", "diagnose")
TICKS, SEGMENT_S = 25, 10
# One child takes so many cases: what it has loaded it need not load again.
CASES_A_CHILD = 25


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


DAMAGES: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (
    flip,
    flip,
    flip,
    truncate,
    zero_page,
    zero_tail,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sealed segments, and a live one of a recorder that was killed."""
    directory = tmp_path_factory.mktemp("fuzz")
    writer = recorder(directory / "writing", segment_s=SEGMENT_S)
    for index in range(TICKS):
        tick = tick_at(index)
        for number in range(3):
            frame = {"frame": [number], "kind": ["kernel"], "module": ["[kernel]"], "name": [f"function_{number}"]}
            writer.append("frames", frame)
        writer.append("stacks", {"stack": [1, 2], "frames": [[0, 1], [0, 2]]})
        writer.append("cpu", cpu_rows(tick, cores=4, system=index))
        writer.append("samples", sample_rows(tick, [(0, 1, "a", 1), (1, 2, "b", 2)]))
        writer.append("processes", {"time": [tick.start], "pid": [1], "comm": ["a"], "cmdline": ["a --b"]})
        kind = "incident" if index % 8 == 0 else "line"
        event = {
            "time": [tick.start],
            "source": ["kernel-log"],
            "kind": [kind],
            "severity": ["info"],
            "text": ["hello"],
        }
        writer.append("events", event)
        writer.append("losses", loss_row(tick, 1))
        writer.commit(tick)
    writer._sealer.close()
    shutil.copytree(directory / "writing", directory / "whole")
    writer.close()
    return directory / "whole"


def damage(directory: Path, chance: random.Random) -> str:
    """Damage one file, or exchange two; returns what was done."""
    files = sorted(path for path in directory.rglob("*") if path.suffix in (".parquet", ".arrows"))
    victim = chance.choice(files)
    if chance.random() < 0.1:
        other = chance.choice([path for path in files if path.suffix == victim.suffix])
        content, others = victim.read_bytes(), other.read_bytes()
        victim.write_bytes(others)
        other.write_bytes(content)
        return f"swapped {victim} and {other}"
    how = chance.choice(DAMAGES)
    victim.write_bytes(how(bytearray(victim.read_bytes()), chance))
    return f"{how.__name__} {victim}"


def run_cases(whole: Path, work: Path, seeds: range, log: Path) -> None:
    """In a child: damage a copy for each seed and run some commands on it. The log says how far it came."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    with log.open("w", buffering=1) as said, Path(os.devnull).open("w") as nothing:
        # Where a traceback goes.
        os.dup2(said.fileno(), 2)
        for seed in seeds:
            directory = work / str(seed)
            shutil.copytree(whole, directory)
            chance = random.Random(seed)
            done = damage(directory, chance)
            for command in chance.sample(COMMANDS, 3):
                said.write(f"{seed} {done}: {command}\n")
                signal.alarm(LONGEST_S)
                output = ["-o", str(work / "out.folded")] if command == "flame" else []
                # An error that is one sentence is an answer.
                with redirect_stdout(nothing), redirect_stderr(nothing), suppress(ExhumeError):
                    assert main([command, "--dir", str(directory), *output]) in range(4)
            said.write(f"{seed} {done}: record\n")
            if chance_of_sealing(seed):
                recorder(directory).close()
                assert leftovers(directory) == []
            signal.alarm(0)
            shutil.rmtree(directory)


def chance_of_sealing(seed: int) -> bool:
    """A recorder that seals what was left starts a process of its own, which takes a while."""
    return seed % 10 == 0


def in_child(whole: Path, work: Path, seeds: range) -> tuple[int | None, str]:
    """Run cases in a forked child; returns its exit code, and what it did last."""
    log = work / f"log-{seeds.start}"
    child = multiprocessing.get_context("fork").Process(target=run_cases, args=(whole, work, seeds, log))
    child.start()
    child.join()
    return child.exitcode, log.read_text()


@pytest.mark.slow
def test_no_damage_crashes_hangs_or_escapes(whole: Path, tmp_path: Path) -> None:
    began, first = time.monotonic(), SEED
    while first < SEED + CASES or time.monotonic() - began < SECONDS:
        seeds = range(first, first + CASES_A_CHILD)
        code, log = in_child(whole, tmp_path, seeds)
        assert code == 0, f"ended with {code}: {log[-3000:]}"
        first += CASES_A_CHILD
    sys.stderr.write(f"{first - SEED} cases in {time.monotonic() - began:.0f} s\n")
