"""The inventory of a node: every section that can be read, and the reason for each one that cannot."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from exhume.collect.inventory.files import NodeFiles, Unreadable
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Service
from exhume.model.clock import SystemClock
from exhume.model.inventory import Inventory, Missing, Reason, assemble

# The module of each section's reader. They are imported on demand: some take longer to import than to read what has
# changed.
_MODULES = {
    **dict.fromkeys(("os", "image", "hardware", "kernel"), "system"),
    "packages": "packages",
    **dict.fromkeys(("sysctls", "limits", "mounts"), "system"),
    **dict.fromkeys(("modules", "nics"), "devices"),
    "cgroups": "system",
    **dict.fromkeys(("units", "containers"), "services"),
    "cloud": "system",
    # Last, since it is derived from the units.
    "boot": "services",
}
READ_SECTIONS = tuple(_MODULES)


@dataclass(frozen=True, slots=True)
class Section:
    """A section that was read, or None, and what is missing from it."""

    name: str
    value: Any
    missing: tuple[Missing, ...] = field(default=())


def read_sections(
    root: NodeRoot, names: Collection[str] = READ_SECTIONS, progress: Callable[[str, float], None] = lambda *_: None
) -> list[Section]:
    """Read these sections. Reading one never fails: its value is None then, and the reason is recorded with it."""
    found: list[Section] = []
    units: Sequence[Service] | None = None
    wanted = [name for name in READ_SECTIONS if name in names]
    for number, name in enumerate(wanted):
        progress(f"reading {name}", number / len(wanted))
        read = reader_of(name)
        found.append(_read(root, name, partial(read, units=units) if name == "boot" else read))
        if name == "units":
            units = found[-1].value
    return found


def reader_of(section: str) -> Callable[..., Any]:
    """The function that reads a section; it raises Unreadable, or OSError."""
    module = import_module(f"exhume.collect.inventory.{_MODULES[section]}")
    found: Callable[..., Any] = getattr(module, f"read_{section}")
    return found


def _read(root: NodeRoot, name: str, read: Callable[[NodeFiles], Any]) -> Section:
    files = NodeFiles(root, name)
    try:
        return Section(name, read(files), tuple(files.missing))
    except Unreadable as error:
        files.note("", error.reason, error.detail)
    except PermissionError as error:
        files.note("", Reason.PERMISSION, f"{error.filename or name} may not be read; run as root")
    except OSError as error:
        files.note("", Reason.FAILED, f"{error.filename or name}: {error.strerror or error}")
    return Section(name, None, tuple(files.missing))


def take_inventory(
    root: NodeRoot, labels: Mapping[str, str] | None = None, progress: Callable[[str, float], None] = lambda *_: None
) -> Inventory:
    """The current inventory of a node; `labels` are the names that its operator and its cluster give it."""
    taken_at = SystemClock().wall_ns()
    sections = read_sections(root, progress=progress)
    values = {each.name: each.value for each in sections}
    return assemble(root.node_name, taken_at, values, [part for each in sections for part in each.missing], labels)
