"""Write a profile as folded stacks: one line `comm;frame;frame weight` per stack, a format that many tools read.

The weight is in microseconds of CPU time, so samples taken at different rates stay comparable. With a baseline, a line
has both weights, baseline first, as difffolded.pl writes them.
"""

from collections.abc import Iterator, Sequence

from exhume.interop.tracks import Part
from exhume.store.read.flame_tree import FlameTree

# Characters that would end a frame or a line or be mistaken for the weight, and control characters that a terminal
# would interpret.
_CONTROLS = map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029))
_SEPARATORS = str.maketrans({";": ":", **dict.fromkeys(_CONTROLS, " ")})


def folded_lines(tree: FlameTree) -> Iterator[str]:
    """Yield one line for each distinct stack, in the order of the tree."""
    own, base_own = tree.self_weight.tolist(), tree.self_base_weight.tolist()
    names = [name.translate(_SEPARATORS) for name in tree.labels.names]
    parents, labels = tree.parent.tolist(), tree.label.tolist()
    paths = [""] * len(tree)
    for node in range(1, len(tree)):
        above = paths[parents[node]]
        paths[node] = f"{above};{names[labels[node]]}" if above else names[labels[node]]
        if tree.differential and (own[node] or base_own[node]):
            yield f"{paths[node]} {base_own[node]} {own[node]}"
        elif own[node]:
            yield f"{paths[node]} {own[node]}"


def render_folded(tree: FlameTree) -> str:
    """Render the whole file."""
    return "".join(f"{line}\n" for line in folded_lines(tree))


def render_folded_parts(parts: Sequence[Part]) -> str:
    """Render a file in which each core or thread is the outermost frame of its stacks."""
    return "".join(line for part in parts for line in _lines_of(part))


def _lines_of(part: Part) -> Iterator[str]:
    track, profile = part.track.name.translate(_SEPARATORS), part.profile
    comms = [comm.translate(_SEPARATORS) for comm in profile.comms]
    frames = [name.translate(_SEPARATORS) for name in profile.frames.names]
    stacks = [";".join(frames[each] for each in stack.tolist()) for stack in profile.stacks]
    columns = (profile.comm_index, profile.stack_index, profile.weights_us)
    for comm, stack, weight in zip(*(column.tolist() for column in columns), strict=True):
        below = f";{stacks[stack]}" if stacks[stack] else ""
        yield f"{track};{comms[comm]}{below} {weight}\n"
