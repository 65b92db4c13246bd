"""Names for kernel addresses: loaded when first needed, again when the kernel has grown new code."""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from exhume.collect.host import Host
from exhume.collect.perf.symbols.frame import KERNEL, Frame, make_frame
from exhume.collect.perf.symbols.kallsyms import BPF_MODULE, KERNEL_MODULE, KernelTable, kallsyms_hidden, load_kallsyms
from exhume.model.errors import Missing
from exhume.model.memory import give_back

_RELOAD_AFTER_S = 60.0
_MAX_UNKNOWN = 4096


class KernelSymbols:
    """Functions of the kernel, its modules and BPF programs."""

    def __init__(self, host: Host, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._clock = clock
        self._table: KernelTable | None = None
        self._loaded_at = 0.0
        self._changed = False
        self._frames: dict[int, Frame] = {}
        self._unknown: set[int] = set()
        self.generation = 0
        self.missing: Missing | None = self._look_for_names()

    @property
    def nbytes(self) -> int:
        return self._table.nbytes if self._table else 0

    def changed(self) -> None:
        """A module or BPF program came or went: what was loaded may name the wrong one."""
        self._changed = True

    def functions(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        """The number of each address's function, -1 for none. Numbers change with the generation."""
        return self._fresh_table().find(addresses)

    def frames(self, addresses: npt.NDArray[np.uint64]) -> list[Frame]:
        """A frame for each address."""
        table = self._fresh_table()
        at = table.find(addresses)
        if self._worth_reloading(addresses, at):
            table = self._load()
            at = table.find(addresses)
            if len(self._unknown) > _MAX_UNKNOWN:
                self._unknown.clear()
            self._unknown.update(addresses[at < 0].tolist())
        frames = self._frames
        result: list[Frame] = []
        for index, address in zip(at.tolist(), addresses.tolist(), strict=True):
            if index < 0:
                result.append(make_frame(KERNEL, KERNEL_MODULE, f"0x{address:x}"))
                continue
            frame = frames.get(index)
            if frame is None:
                frame = frames[index] = make_frame(KERNEL, *table.symbol(index))
            result.append(frame)
        return result

    def _fresh_table(self) -> KernelTable:
        if self._table is None or (self._changed and self._age() > 1.0):
            return self._load()
        return self._table

    def _worth_reloading(self, addresses: npt.NDArray[np.uint64], at: npt.NDArray[np.intp]) -> bool:
        """Whether something is unknown that the last load didn't already fail to find, or lies in a BPF
        program, which another may have replaced."""
        if self._age() <= _RELOAD_AFTER_S:
            return False
        if not self._unknown.issuperset(addresses[at < 0].tolist()):
            return True
        frames = self._frames
        return any((frame := frames.get(index)) and frame.module == BPF_MODULE for index in at[at >= 0].tolist())

    def _age(self) -> float:
        return self._clock() - self._loaded_at

    def _load(self) -> KernelTable:
        # The old table goes first: two at once would double the peak.
        self._table = None
        self._frames.clear()
        self._changed = False
        try:
            table = load_kallsyms(f"{self._host.proc}/kallsyms")
        except OSError:
            table = KernelTable(np.empty(0, np.uint64), np.empty(0, np.uint32), b"", hidden=False)
        self.missing = self._look_for_names()
        give_back()
        self._table = table
        self.generation += 1
        self._loaded_at = self._clock()
        return table

    def _look_for_names(self) -> Missing | None:
        """What is missing for names: a look at the first symbols, so that it can be told before any is needed."""
        try:
            hidden = kallsyms_hidden(f"{self._host.proc}/kallsyms")
        except OSError as error:
            reason = f"kallsyms can't be read ({error.strerror})"
            return Missing("kernel symbols", reason, "needs a kernel with CONFIG_KALLSYMS")
        return Missing("kernel symbols", "the kernel hides its addresses", self._remedy()) if hidden else None

    def _remedy(self) -> str:
        try:
            with open(f"{self._host.proc}/sys/kernel/kptr_restrict", "rb") as setting:  # noqa: PTH123
                restrict = setting.read().strip()
        except OSError:
            restrict = b""
        if restrict == b"2":
            return "set kernel.kptr_restrict to 1 and run with CAP_SYSLOG"
        return "run with CAP_SYSLOG, or set kernel.kptr_restrict and kernel.perf_event_paranoid to 0"
