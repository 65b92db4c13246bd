"""The stacks of a synthetic node: thousands of them, grown from its programs' vocabulary and the kernel's paths."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from exhume.lab.synth import kernel_paths as paths
from exhume.lab.synth import programs as languages
from exhume.lab.synth import vocabulary as words
from exhume.lab.synth.programs import Program

Frame = tuple[str, str, str]
U64Array = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]

# What a sample of the stack counts as in the cpu table.
USER, SYSTEM, SOFTIRQ = 0, 1, 2

# Popularity inside a program falls off like this; the tail keeps thousands of stacks alive.
ZIPF_EXPONENT = 1.15
# Drawing a stack by popularity is one look into a table of this many equal parts.
QUANTILES = 16_384
TREE_BRANCHES = 4
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All frames and stacks. Stack i is frames[flat[offsets[i]:offsets[i + 1]]], root first.

    `draw[p, q]` is the stack at quantile q of program p. `kind` is USER, SYSTEM or SOFTIRQ for each stack.
    """

    frames: list[Frame]
    frame_ids: U64Array
    flat: IntArray
    offsets: IntArray
    stack_ids: U64Array
    kind: npt.NDArray[np.uint8]
    draw: npt.NDArray[np.uint32]
    zombie_walk: IntArray


def hash_of(*parts: bytes) -> int:
    return int.from_bytes(blake2b(b"\0".join(parts), digest_size=8).digest(), "little")


class _Builder:
    def __init__(self) -> None:
        self.frames: dict[Frame, int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.kinds: list[int] = []

    def add(self, frames: Iterable[Frame], kind: int) -> int:
        stack = tuple(self.frames.setdefault(frame, len(self.frames)) for frame in frames)
        place = self.stacks.setdefault(stack, len(self.stacks))
        if place == len(self.kinds):
            self.kinds.append(kind)
        return place


def build_catalogue(programs: tuple[Program, ...], seed: int) -> Catalogue:
    rng = np.random.default_rng([seed, 1])
    builder = _Builder()
    draw = np.empty((len(programs), QUANTILES), np.uint32)
    kubelet_at = next(i for i, program in enumerate(programs) if program.comm == "kubelet")
    for row, program in enumerate(programs):
        tree: list[list[Frame]] = []
        stacks = sorted({builder.add(*_stack_of(program, tree, rng)) for _ in range(program.stacks)})
        popularity = np.arange(1, len(stacks) + 1, dtype=np.float64) ** -ZIPF_EXPONENT
        edges = np.cumsum(popularity / popularity.sum())
        order = rng.permutation(np.array(stacks, np.uint32))
        middle = (np.arange(QUANTILES) + 0.5) / QUANTILES
        draw[row] = order[np.minimum(np.searchsorted(edges, middle), len(stacks) - 1)]
    root = _go_stack(programs[kubelet_at], np.random.default_rng([seed, 2]))[:6]
    reader: list[Frame] = [
        ("user", programs[kubelet_at].path, "github.com/google/cadvisor/manager.(*containerData).housekeepingTick"),
        (
            "user",
            programs[kubelet_at].path,
            "github.com/opencontainers/runc/libcontainer/cgroups/fs.getPageUsageByNUMA",
        ),
        ("user", programs[kubelet_at].path, "syscall.Syscall"),
    ]
    walk = [builder.add(root + reader + _kernel(path, rng), SYSTEM) for path in paths.ZOMBIE_WALK]
    return _finish(builder, draw, walk)


def _finish(builder: _Builder, draw: npt.NDArray[np.uint32], walk: list[int]) -> Catalogue:
    frames = list(builder.frames)
    frame_ids = np.array([hash_of(*(part.encode() for part in frame)) for frame in frames], np.uint64)
    lengths = np.array([len(stack) for stack in builder.stacks], np.int64)
    flat = np.concatenate([np.array(stack, np.int64) for stack in builder.stacks])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    stack_ids = np.array([hash_of(frame_ids[flat[a:b]].tobytes()) for a, b in pairwise(offsets)], np.uint64)
    return Catalogue(
        frames, frame_ids, flat, offsets, stack_ids, np.array(builder.kinds, np.uint8), draw, np.array(walk, np.int64)
    )


def _stack_of(program: Program, tree: list[list[Frame]], rng: np.random.Generator) -> tuple[list[Frame], int]:
    """One stack of the program and what it counts as."""
    if program.language == languages.KERNEL:
        return _kernel_thread_stack(program, rng)
    user = _user_stack(program, tree, rng)
    roll = rng.random()
    if roll < 0.02:
        return user + _kernel(_pick(paths.INTERRUPTS, rng), rng), SOFTIRQ
    if roll < 0.02 + 0.25 * program.in_kernel:
        return user + _kernel(_pick(paths.FAULTS, rng), rng), SYSTEM
    if roll < program.in_kernel:
        group = paths.SYSCALLS[_pick(program.enters, rng)]
        return [*user, ("user", LIBC, "syscall"), *_kernel(f"{paths.SYSCALL} {_pick(group, rng)}", rng)], SYSTEM
    return user, USER


def _user_stack(program: Program, tree: list[list[Frame]], rng: np.random.Generator) -> list[Frame]:
    """Calls form a tree: most stacks leave an earlier one at some depth and go their own way from there."""
    fresh = _USER_STACKS[program.language](program, rng)
    if tree and rng.random() < 0.95:
        trunk = tree[int(rng.integers(len(tree)))]
        if rng.random() < 0.5:
            return trunk
        leaves_at = int(rng.integers(len(trunk) // 2, len(trunk)))
        fresh = trunk[:leaves_at] + fresh[-int(rng.integers(1, 4)) :]
    tree.append(fresh)
    return fresh


def _kernel_thread_stack(program: Program, rng: np.random.Generator) -> tuple[list[Frame], int]:
    if not program.enters:
        # Interrupts that arrive on an idle core: the idle loop is below them, and their work is still work.
        idle = "secondary_startup_64_no_verify start_secondary cpu_startup_entry do_idle cpuidle_idle_call default_idle"
        return _kernel(f"{idle} {_pick(paths.INTERRUPTS, rng)}", rng), SOFTIRQ
    kind = SOFTIRQ if program.comm == "ksoftirqd" else SYSTEM
    frames = _kernel(_pick(paths.KERNEL_THREADS[_pick(program.enters, rng)], rng), rng)
    if rng.random() < 0.15:
        frames += _kernel(_pick(paths.INTERRUPTS, rng), rng)
    return frames, kind


def _kernel(path: str, rng: np.random.Generator) -> list[Frame]:
    frames: list[Frame] = []
    for place in path.split():
        module, _, name = _pick(place.split("|"), rng).rpartition(":")
        frames.append(("kernel", f"[{module or 'kernel'}]", name))
    return frames


def _pick(choices: tuple[str, ...] | list[str], rng: np.random.Generator) -> str:
    # Earlier choices are likelier: one multiplication instead of a weighted draw.
    return choices[int(len(choices) * rng.random() * rng.random())]


def _depth(rng: np.random.Generator, typical: int) -> int:
    return max(2, int(rng.gamma(4.0, typical / 4.0)))


def _go_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    frames: list[Frame] = [("user", program.path, "runtime.goexit.abi0")]
    for _ in range(_depth(rng, 11)):
        name = f"{_pick(words.GO_PACKAGES, rng)}.{_pick(words.GO_TYPES, rng)}.{_pick(words.GO_METHODS, rng)}"
        frames.append(("user", program.path, name))
    frames.append(("user", program.path, _pick(words.GO_LEAVES, rng)))
    return frames


def _python_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    frames: list[Frame] = [("user", LIBC, "__libc_start_main"), ("user", program.path, "Py_RunMain")]
    for _ in range(_depth(rng, 6)):
        script = _pick(words.PYTHON_MODULES, rng)
        frames.append(("jit", "perf-map", f"py::{_pick(words.PYTHON_FUNCTIONS, rng)}:{script}"))
        frames += [("user", program.path, _pick(words.PYTHON_INTERPRETER, rng)) for _ in range(TREE_BRANCHES // 2)]
    return frames + _native_frames(rng, 5)


def _native_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    return [("user", LIBC, "start_thread"), ("user", program.path, "main"), *_native_frames(rng, 9, program.path)]


def _java_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    frames: list[Frame] = [("user", LIBC, "start_thread"), ("user", "/usr/lib/jvm/lib/libjvm.so", "JavaThread::run")]
    for _ in range(_depth(rng, 14)):
        package, method = _pick(words.JAVA_PACKAGES, rng), _pick(words.JAVA_METHODS, rng)
        frames.append(("jit", "perf-map", f"L{package.replace('.', '/')};::{method}"))
    return frames


def _native_frames(rng: np.random.Generator, typical: int, path: str | None = None) -> list[Frame]:
    frames: list[Frame] = []
    for _ in range(_depth(rng, typical)):
        library = path or _pick(words.NATIVE_LIBRARIES, rng)
        if library.endswith("550.54"):
            # A stripped library: its functions have no names, and the recording doesn't invent any.
            frames.append(("user", library, f"libcuda.so.550.54+{int(rng.integers(400)) * 0x930 + 0x21A0:#x}"))
            continue
        namespace, kind = _pick(words.NATIVE_NAMESPACES, rng), _pick(words.NATIVE_CLASSES, rng)
        frames.append(("user", library, f"{namespace}::{kind}::{_pick(words.NATIVE_METHODS, rng)}"))
    if rng.random() < 0.5:
        frames.append(("user", LIBC, _pick(words.NATIVE_LEAVES, rng)))
    return frames


_USER_STACKS = {
    languages.GO: _go_stack,
    languages.PYTHON: _python_stack,
    languages.NATIVE: _native_stack,
    languages.JAVA: _java_stack,
}
