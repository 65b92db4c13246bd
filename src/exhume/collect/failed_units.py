"""The units of systemd that failed."""

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import BusError
from exhume.collect.systemd.units import open_units


def failed_units(root: NodeRoot | None = None) -> list[str]:
    """Their names. Raises OSError, with the reason, where systemd doesn't run or doesn't answer."""
    try:
        units, _ = open_units(root or NodeRoot())
        try:
            return sorted(row.name for row in units.listed().values() if row.active == "failed")
        finally:
            units.close()
    except BusError as error:
        raise OSError(str(error)) from None
