"""What the arguments of a comparison stand for: files, recordings, bundles, this node, or groups of a lake."""

from pathlib import Path

from exhume.cli.commands.inventory import read_node
from exhume.fleet.attributes import attributes_of
from exhume.fleet.compare import Side
from exhume.model.clock import NANOS
from exhume.model.errors import ExhumeError, NoData, UsageError, os_reason
from exhume.model.inventory import SECTIONS, Inventory
from exhume.model.inventory.codec import MOST_BYTES, inventory_of
from exhume.model.text import duration
from exhume.store.read.bundle import SUFFIX
from exhume.store.read.inventory import inventory_at
from exhume.store.read.recording import Recording

THIS_NODE = (".", "node")


def read_sides(a: str, b: str, lake: str | None, endpoint: str | None = None) -> tuple[Side, Side]:
    """Read both sides; `endpoint` is that of the lake's object store. Raises UsageError for an argument of no known
    kind, and NoData for a side without an inventory."""
    if lake is not None:
        return _groups(a, b, lake, endpoint)
    one, other = (_inventory(each) for each in (a, b))
    # Label the sides with the names of the nodes, if these differ.
    labels = (one.node, other.node) if one.node != other.node else _distinct(a, b)
    return _side(labels[0], one), _side(labels[1], other)


def _groups(a: str, b: str, lake: str, endpoint: str | None) -> tuple[Side, Side]:
    for each in (a, b):
        if not all(each.partition("=")):
            raise UsageError(f"{each!r} is not a group: with --lake write KEY=VALUE, for example zone=us-east-1a")
    # Imported here, because it loads DuckDB.
    from exhume.fleet.groups import read_groups

    one, other = read_groups(lake, (a, b), endpoint)
    return one, other


def _distinct(a: str, b: str) -> tuple[str, str]:
    names = tuple("this node" if each in THIS_NODE else Path(each).name or each for each in (a, b))
    return ("A", "B") if names[0] == names[1] else (names[0], names[1])


def _inventory(given: str) -> Inventory:
    if given in THIS_NODE:
        return read_node(Path("/"))
    path = Path(given)
    if path.is_dir() or given.endswith(SUFFIX):
        return _recorded(path)
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        group = "; groups of nodes need --lake" if "=" in given else ""
        raise UsageError(f"{given} can't be read: {os_reason(error)}{group}") from None
    if text.startswith(b"PK"):
        return _recorded(path)
    try:
        found = inventory_of(text)
    except ValueError as error:
        raise ExhumeError(f"{given} is not an inventory: {error}; write one with exhume inventory --json") from None
    if all(getattr(found, section) is None for section in SECTIONS):
        raise NoData(f"{given} is an inventory without any section")
    return found


def _recorded(path: Path) -> Inventory:
    recording = Recording.open(path)
    try:
        found = inventory_at(recording)
    finally:
        recording.close()
    if found is None:
        raise NoData(f"{path} has no inventory: it is recorded some seconds after the start, by this version and later")
    return found


def _side(label: str, inventory: Inventory) -> Side:
    up = inventory.boot.uptime_s if inventory.boot is not None else None
    return Side.of_node(label, attributes_of(inventory), "" if up is None else f"up {duration(int(up * NANOS))}")
