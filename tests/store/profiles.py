"""Profiles written by hand, for the tests of the flame graphs."""

import numpy as np
from hypothesis import strategies as st

from exhume.store.read.flame_tree import FlameTree, build_tree
from exhume.store.read.profile import StackProfile
from exhume.store.read.stacks import FrameTable

Frame = tuple[str, str, str]
HOSTILE = [
    "<script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "</script><script>alert(1)//",
    "</title><g onload='alert(1)'>",
    "<!-- -->",
    "<!--data-->",
    "\"quoted\" 'single' & more",
    "a;b;c",
    "two\nlines\r\nthree",
    "nul\0 escape\x1b[31m",
    "naïve λ 名前 \U0001f525",
    "\ud800 lone",
    "operator<<(std::ostream&)",
    "\u2028separator",
    "",
]
names = st.text(min_size=0, max_size=12) | st.sampled_from(HOSTILE)
hostile_rows = st.dictionaries(
    st.lists(names, min_size=1, max_size=4).map(tuple), st.integers(1, 9), min_size=1, max_size=8
)


def frame(text: str) -> Frame:
    """`k:name` is a kernel frame, `j:name` a compiled one, anything else a frame of libc."""
    if text.startswith("k:"):
        return "kernel", "[kernel]", text[2:]
    if text.startswith("j:"):
        return "jit", "perf-map", text[2:]
    return "user", "/usr/lib/libc.so.6", text


def profile(
    rows: dict[tuple[str, ...], int], *, weight_us: int = 10_000, blind_spots: list[str] | None = None
) -> StackProfile:
    """`{("comm", "frame", "k:frame"): samples}`; each sample stands for `weight_us`."""
    comms = list(dict.fromkeys(path[0] for path in rows))
    frames = list(dict.fromkeys(frame(name) for path in rows for name in path[1:]))
    stacks = list(dict.fromkeys(path[1:] for path in rows))
    counts = np.array(list(rows.values()), np.int64)
    return StackProfile(
        comms=comms,
        frames=FrameTable([f[0] for f in frames], [f[1] for f in frames], [f[2] for f in frames]),
        stack_offsets=np.cumsum([0, *map(len, stacks)]),
        stack_frames=np.array([frames.index(frame(name)) for stack in stacks for name in stack], np.int64),
        comm_index=np.array([comms.index(path[0]) for path in rows], np.int64),
        stack_index=np.array([stacks.index(path[1:]) for path in rows], np.int64),
        counts=counts,
        weights_us=counts * weight_us,
        blind_spots=blind_spots or [],
    )


def random_profile(stacks: int, seed: int = 1, names: int = 900, comms: int = 40) -> StackProfile:
    """A busy node's variety: stacks that share their beginnings, as real ones do."""
    random = np.random.default_rng(seed)
    made: list[np.ndarray] = [np.array([int(random.integers(names))])]
    for _ in range(stacks - 1):
        trunk = made[int(random.integers(len(made)))]
        keep = int(random.integers(1, len(trunk) + 1))
        made.append(np.concatenate([trunk[:keep], random.integers(0, names, int(random.integers(1, 12)))])[:90])
    kernel = random.random(names) < 0.5
    counts = random.geometric(0.2, stacks)
    return StackProfile(
        comms=[f"worker-{index}" for index in range(comms)],
        frames=FrameTable(
            ["kernel" if k else "user" for k in kernel],
            ["[kernel]" if k else "/usr/bin/app" for k in kernel],
            [f"{'k' if k else 'u'}_function_{index}" for index, k in enumerate(kernel)],
        ),
        stack_offsets=np.cumsum([0, *map(len, made)]),
        stack_frames=np.concatenate(made),
        comm_index=random.integers(0, comms, stacks),
        stack_index=np.arange(stacks),
        counts=counts,
        weights_us=counts * 10_309,
    )


def trees(rows: dict[tuple[str, ...], int]) -> tuple[FlameTree, FlameTree]:
    """The tree of stacks alone, and against a baseline of one stack with all hostile names."""
    return build_tree(profile(rows)), build_tree(profile(rows), profile({("other", *HOSTILE): 3}))
