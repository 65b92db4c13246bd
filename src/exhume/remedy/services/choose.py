"""Which service a TARGET means: a unit by its name, a container by its manager and its name or id."""

from collections.abc import Iterable, Sequence

from exhume.model.audit import Audit, Judged, Manager, Needed
from exhume.model.errors import UsageError
from exhume.model.remedy import Unasked
from exhume.remedy.services.chosen import Chosen
from exhume.remedy.services.controls import Controls
from exhume.remedy.services.names import STOPPABLE, check_unit_name, is_unit_name
from exhume.remedy.services.refuse import unit_as_it_stands

# What a shortened id has to have at least.
_SHORT_ID = 12


def unneeded(audit: Audit) -> tuple[list[Chosen], list[Unasked]]:
    """What is done about when nothing is named, the worst first: services that are in trouble and that nothing on the
    node needs, by more than that they never worked. The others have to be named, and are told with the reason."""
    useless = [each for each in audit.services if each.troubled and each.need.needed is Needed.NO]
    taken = [Chosen(each.service, each) for each in useless if each.surely_useless]
    return taken, [Unasked(each.service.key, each.need.why) for each in useless if not each.surely_useless]


def manager_of(target: str) -> Manager | None:
    """The manager that a target names before its colon; None for a unit."""
    word, colon, _ = target.partition(":")
    known = [each for each in Manager if each is not Manager.SYSTEMD and each.value == word]
    return known[0] if colon and known else None


def check_target(target: str, controls: Controls) -> None:
    """Raises ExhumeError where nothing of that name can be meant, or its manager can't be reached."""
    manager = manager_of(target)
    if manager is None:
        unit_named(target)
        controls.systemd()
    elif manager is not Manager.CRI:
        controls.engine(manager)


def unit_named(target: str) -> str:
    """The unit that a target names; a service where it names no kind. Raises UsageError."""
    return check_unit_name(target if _has_kind(target) else f"{target}.service")


def choose(target: str, judged: Sequence[Judged], controls: Controls) -> Chosen:
    """The service that a target means, with what is known of it. Raises UsageError where there is none."""
    manager = manager_of(target)
    if manager is not None:
        name = target.partition(":")[2]
        found = _container(name, [each for each in judged if each.service.manager is manager], target)
        return Chosen(found.service, found)
    name = unit_named(target)
    state = controls.systemd().unit_state(name)
    # An alias stands for the unit behind it.
    name = state.get("id") or name
    units = (each for each in judged if each.service.manager is Manager.SYSTEMD and each.service.id == name)
    known = next(units, None)
    if known is not None:
        return Chosen(known.service, known)
    return Chosen(unit_as_it_stands(name, state))


def _container(name: str, judged: Iterable[Judged], target: str) -> Judged:
    fitting = [
        each
        for each in judged
        if name in (each.service.name, each.service.id) or (len(name) >= _SHORT_ID and each.service.id.startswith(name))
    ]
    if not fitting:
        raise UsageError(f"there is no container {target}; exhume audit --all lists them")
    if len({each.service.id for each in fitting}) > 1:
        raise UsageError(f"{target} fits several containers; name one by its id")
    return fitting[0]


def _has_kind(target: str) -> bool:
    return is_unit_name(target) or target.rpartition(".")[2] in STOPPABLE
