"""A frame: the name of a sampled address. Its id is a hash of that name, so recordings merge by id."""

from array import array
from dataclasses import dataclass, field
from hashlib import blake2b

KERNEL = "kernel"
USER = "user"
JIT = "jit"
# The module of code that is neither in a file nor in a perf map.
ANONYMOUS = "[anon]"


@dataclass(frozen=True, slots=True)
class Frame:
    """One function as shown to users. `kind` is kernel, user or jit. A `deferred` frame may be renamed later; one with
    `patience` is likely to have its name within that many ticks."""

    kind: str
    module: str
    name: str
    id: int
    deferred: bool = field(default=False, compare=False)
    patience: int = field(default=0, compare=False)
    # Whether the address will keep its meaning: code generated at run time may move, or get its name later.
    settled: bool = field(default=True, compare=False)


def make_frame(kind: str, module: str, name: str, *, deferred: bool = False, patience: int = 0) -> Frame:
    """A frame with its id: the 64-bit hash of kind, module and name."""
    settled = not (deferred or patience) and kind != JIT and module != ANONYMOUS
    digest = blake2b(f"{kind}\0{module}\0{name}".encode(), digest_size=8).digest()
    return Frame(kind, module, name, int.from_bytes(digest, "little"), deferred, patience, settled)


def stack_id(frames: tuple[Frame, ...]) -> int:
    """The 64-bit hash of a stack's frame ids, root first."""
    ids = array("Q", [frame.id for frame in frames])
    return int.from_bytes(blake2b(ids.tobytes(), digest_size=8).digest(), "little")
