"""Taking an audit: asks every manager of services, gathers what the rules have to know, and has it judged."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.collect.audit.facts import gather_facts
from exhume.collect.containers.units import with_their_units
from exhume.collect.node_root import NodeRoot
from exhume.collect.services import Seen, together
from exhume.collect.systemd.commands import unit_starts
from exhume.diagnose.audit.agents import questions, recognise
from exhume.diagnose.audit.judge import audit
from exhume.model.audit import Audit, Manager
from exhume.model.errors import NoData

if TYPE_CHECKING:
    from exhume.store.read.recording import Recording

HOURS = 24.0
Progress = Callable[[str, float], None]


def take_audit(
    root: NodeRoot,
    *,
    hours: float = HOURS,
    recording: "Recording | None" = None,
    note: str = "",
    progress: Progress = lambda stage, share: None,
) -> Audit:
    """The audit of a node. Raises NoData where no manager of services can be asked. `note` is why there is no
    recording, where one was meant."""
    looks = _looks(root, hours, progress)
    spoke = tuple(manager for manager, look in looks if look.services or not look.blind_spots)
    seen = together(look for _, look in looks)
    tied = with_their_units(seen.services, unit_starts(root, seen.services))
    seen = Seen(tied.services, [*seen.blind_spots, *tied.blind_spots])
    if not seen.services:
        reasons = "; ".join(dict.fromkeys(seen.blind_spots)) or "neither systemd nor a container runtime runs here"
        raise NoData(f"there is nothing to audit: {reasons}")
    progress("looking at what they need", 0.8)
    asked = {service.key: questions(entry) for service in seen.services if (entry := recognise(service)) is not None}
    facts = gather_facts(root, seen.services, asked)
    if note:
        seen.blind_spots.append(note)
    progress("judging", 0.95)
    return audit(seen, facts, recording, tuple(dict.fromkeys(spoke)))


def open_recording(root: NodeRoot, directory: Path, given: bool) -> "tuple[Recording | None, str]":
    """The recording that tells costs: of this very boot, and only asked for by name when the node is seen from
    elsewhere. The sentence says why there is none, where one was given."""
    from exhume.diagnose.zombie_report import RecordedBoot

    if not given and not root.is_here:
        return None, ""
    found = RecordedBoot(root.host, directory)
    return found.recording, f"{found.note}: costs are those of live cgroups" if given and found.note else ""


def _looks(root: NodeRoot, hours: float, progress: Progress) -> list[tuple[Manager, Seen]]:
    """What each manager says; one that isn't there says nothing."""
    from exhume.collect.containers.services import container_looks
    from exhume.collect.systemd.units import read_services

    progress("asking systemd", 0.1)
    looks = [(Manager.SYSTEMD, read_services(root, hours))]
    progress("asking container runtimes", 0.5)
    return [*looks, *container_looks(root, hours)]
