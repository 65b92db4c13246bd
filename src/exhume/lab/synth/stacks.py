"""The stacks of a synthetic node: thousands, drawn from the call paths of its programs and its kernel."""

import tomllib
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from itertools import pairwise
from random import Random

import numpy as np

from exhume.lab.synth.kernel_paths import (
    FAULTS,
    IDLE,
    INTERRUPTS,
    KERNEL_THREADS,
    SYSCALL,
    SYSCALLS,
    ZOMBIE_WALK,
    paths,
)
from exhume.lab.synth.workload import ROLES, Program, Role, quantile_table

Frame = tuple[str, str, str]

# The cpu state that a sample of the stack counts as.
USER, SYSTEM, SOFTIRQ = 0, 1, 2

# Drawing a stack by popularity is one lookup in a table with this many equal parts.
QUANTILES = 16_384
# Number of distinct addresses sampled in a library without symbols.
STRIPPED_PLACES = 48
# A path is drawn again, up to this many times, until it ends in the kernel or in the program, as requested.
TRIES = 60


@cache
def _modules() -> dict[str, str]:
    """The paths of libraries by their short names."""
    modules: dict[str, str] = _user_paths()["modules"]
    return modules


@cache
def call_rules() -> dict[str, tuple[str, ...]]:
    """The call paths of each rule; a thread's own rule has the thread's name after a slash."""
    content = _user_paths()
    rules = {name: paths(text) for name, text in content["rules"].items()}
    return rules | {f"/{comm}": rules[name] for comm, name in content["roots"].items()}


@cache
def _user_paths() -> dict[str, dict[str, str]]:
    return tomllib.loads((files("exhume.lab.synth") / "user_paths.toml").read_text(encoding="utf-8"))


def hash_of(*parts: bytes) -> int:
    return int.from_bytes(blake2b(b"\0".join(parts), digest_size=8).digest(), "little")


class Catalogue:
    """All frames and stacks. Stack i is frames[flat[offsets[i]:offsets[i + 1]]], root first.

    `draw[r, q]` is the stack at quantile q of role r. `kind` is USER, SYSTEM or SOFTIRQ for each stack.
    """

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        frame_index: dict[Frame, int] = {}
        stack_index: dict[tuple[int, ...], int] = {}
        kinds: list[int] = []

        def add(frames: list[Frame], kind: int) -> int:
            stack = tuple(frame_index.setdefault(frame, len(frame_index)) for frame in frames)
            place = stack_index.setdefault(stack, len(stack_index))
            if place == len(kinds):
                kinds.append(kind)
            return place

        self.draw = np.empty((len(ROLES), QUANTILES), np.uint32)
        for row, role in enumerate(ROLES):
            drawn = [add(*_stack_of(role, rng)) for _ in range(role.stacks)]
            stacks, popularity = np.unique(np.array(drawn, np.uint32), return_counts=True)
            self.draw[row] = stacks[quantile_table(popularity.astype(np.float64), QUANTILES)]
        kubelet = next(role.program for role in ROLES if role.comm == "kubelet")
        reader = _user(_expand("$numa-stat-read", rng), kubelet, rng)
        self.zombie_walk = np.array([add(reader + _kernel(path, rng), SYSTEM) for path in ZOMBIE_WALK], np.int64)
        self.kind = np.array(kinds, np.uint8)
        self.frames = list(frame_index)
        self.frame_ids = np.array([hash_of(*(part.encode() for part in frame)) for frame in self.frames], np.uint64)
        self.flat = np.concatenate([np.array(stack, np.int64) for stack in stack_index])
        self.offsets = np.cumsum([0, *map(len, stack_index)], dtype=np.int64)
        spans = [self.frame_ids[self.flat[start:end]] for start, end in pairwise(self.offsets)]
        self.stack_ids = np.array([hash_of(span.tobytes()) for span in spans], np.uint64)


def _stack_of(role: Role, rng: Random) -> tuple[list[Frame], int]:
    """Draw one stack of the role, and the state that it counts as."""
    if role.program.kernel:
        return _kernel_thread_stack(role.comm, rng)
    roll, in_kernel = rng.random(), role.program.in_kernel
    enters = 0.02 + 0.25 * in_kernel <= roll < in_kernel
    path = _path_of(role.comm, enters, rng)
    if path[-1].startswith("@"):
        *path, group = path
        kernel = f"{SYSCALL} {_pick(SYSCALLS[group[1:]], rng)}"
        return _user(path, role.program, rng) + _kernel(kernel, rng), SYSTEM
    user = _user(path, role.program, rng)
    if roll < 0.02:
        return user + _kernel(_pick(INTERRUPTS, rng), rng), SOFTIRQ
    if roll < 0.02 + 0.25 * in_kernel:
        return user + _kernel(_pick(FAULTS, rng), rng), SYSTEM
    return user, USER


def _path_of(comm: str, enters: bool, rng: Random) -> list[str]:
    """Draw a call path of a thread: one that enters the kernel or one that doesn't, if it has both."""
    for _ in range(TRIES):
        path = _expand(_pick(call_rules()[f"/{comm}"], rng), rng)
        if path[-1].startswith("@") == enters:
            break
    return path


def _expand(path: str, rng: Random) -> list[str]:
    """The functions of a path, with its rules expanded."""
    tokens: list[str] = []
    for token in path.split():
        tokens += _expand(_pick(call_rules()[token[1:]], rng), rng) if token.startswith("$") else [token]
    return tokens


def _user(path: list[str], program: Program, rng: Random) -> list[Frame]:
    frames: list[Frame] = []
    for token in path:
        picked = _pick(token.split("|"), rng)
        library, mark, name = picked.partition("!")
        if not mark:
            frames.append(("user", program.path, picked))
        elif library == "py":
            frames.append(("jit", "perf-map", f"py::{name}"))
        elif library == "jit":
            method = name.rpartition("::")
            frames.append(("jit", "perf-map", f"L{method[0].replace('.', '/')};::{method[2]}"))
        elif name == "+":
            # A stripped library: its functions have no names, and the recording doesn't invent any.
            offset, module = rng.randrange(STRIPPED_PLACES) * 0x4930 + 0x21A0, _modules()[library]
            frames.append(("user", module, f"{module.rpartition('/')[2]}+{offset:#x}"))
        else:
            frames.append(("user", _modules()[library], name))
    return frames


def _kernel_thread_stack(comm: str, rng: Random) -> tuple[list[Frame], int]:
    if comm == "swapper":
        # Interrupts on an idle core: the idle loop is below them, but their work counts as work.
        return _kernel(f"{IDLE} {_pick(INTERRUPTS, rng)}", rng), SOFTIRQ
    frames = _kernel(_pick(KERNEL_THREADS[comm], rng), rng)
    if rng.random() < 0.15:
        frames += _kernel(_pick(INTERRUPTS, rng), rng)
    return frames, SOFTIRQ if comm == "ksoftirqd" else SYSTEM


def _kernel(path: str, rng: Random) -> list[Frame]:
    parts = [_pick(place.split("|"), rng).rpartition(":") for place in path.split()]
    return [("kernel", f"[{module or 'kernel'}]", name) for module, _, name in parts]


def _pick(choices: tuple[str, ...] | list[str], rng: Random) -> str:
    # Earlier choices are more likely: one multiplication instead of a weighted draw.
    return choices[int(len(choices) * rng.random() * rng.random())]
