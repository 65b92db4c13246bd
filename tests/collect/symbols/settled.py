"""Names that come later: looks something up until nothing is on its way any more."""

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.files import FileSymbols, Views
from exhume.collect.symbols.frame import Frame
from exhume.collect.symbols.mappings import AddressSpace
from exhume.collect.symbols.perf_map import JitSymbols
from exhume.collect.symbols.symbolizer import Batch, Symbolizer

ROUNDS = 4
LONG_S = 60.0


def file_frames(symbols: FileSymbols, views: Views, offsets: list[int]) -> list[Frame]:
    for _ in range(ROUNDS):
        frames = symbols.frames(views, offsets)
        if not any(frame.patience for frame in frames):
            break
        symbols.poll()
        symbols.queue.wait(LONG_S)
    return frames


def users_frames(symbolizer: Symbolizer, batch: Batch) -> list[list[Frame]]:
    for _ in range(ROUNDS):
        frames = symbolizer.users(batch)
        if not any(frame.patience for each in frames for frame in each):
            break
        symbolizer.wait(LONG_S)
    return frames


def user_frames(symbolizer: Symbolizer, space: AddressSpace, addresses: npt.NDArray[np.uint64]) -> list[Frame]:
    return users_frames(symbolizer, [(space, addresses)])[0]


def jit_frames(symbols: JitSymbols, space: AddressSpace, addresses: list[int]) -> list[Frame | None]:
    symbols.frames(space, addresses)
    symbols.queue.wait(LONG_S)
    return symbols.frames(space, addresses)[0]
