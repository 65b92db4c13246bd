"""The audit of a node: read every service manager, gather the facts that the rules need, and judge."""

from collections.abc import Callable
from dataclasses import replace

from exhume.collect.audit.facts import gather_facts
from exhume.collect.containers.owner import Workload
from exhume.collect.containers.services import container_services
from exhume.collect.containers.unit_starts import unit_starts, with_their_units
from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.units import read_services
from exhume.diagnose.audit.agents import questions, recognise
from exhume.diagnose.audit.judge import audit
from exhume.model.audit import Audit, Manager, Service, ServiceList, merge_lists
from exhume.model.clock import NANOS, Window
from exhume.model.errors import NoData
from exhume.store.read.recording import Recording

HOURS = 24.0
# Pod owners are recorded again every hour.
_OWNERS_NS = 2 * 3600 * NANOS
Progress = Callable[[str, float], None]


def take_audit(
    root: NodeRoot,
    *,
    hours: float = HOURS,
    recording: Recording | None = None,
    note: str = "",
    progress: Progress = lambda stage, share: None,
) -> Audit:
    """Audit a node. Raises NoData if no service manager is reachable. `note` says why there is no recording."""
    looks = _looks(root, hours, progress)
    spoke = tuple(manager for manager, look in looks if look.services or not look.blind_spots)
    seen = merge_lists(look for _, look in looks)
    seen = ServiceList(with_recorded_owners(seen.services, recording), seen.blind_spots)
    tied = with_their_units(seen.services, unit_starts(root, seen.services))
    seen = ServiceList(tied.services, [*seen.blind_spots, *tied.blind_spots])
    if not seen.services:
        reasons = "; ".join(dict.fromkeys(seen.blind_spots)) or "neither systemd nor a container runtime runs here"
        raise NoData(f"there is nothing to audit: {reasons}")
    progress("looking at what they need", 0.8)
    checks = {service.key: questions(entry) for service in seen.services if (entry := recognise(service)) is not None}
    facts = gather_facts(root, seen.services, checks)
    if note:
        seen.blind_spots.append(note)
    progress("judging", 0.95)
    return audit(seen, facts, recording, tuple(dict.fromkeys(spoke)))


def with_recorded_owners(services: list[Service], recording: Recording | None) -> list[Service]:
    """The services with the pod owners that the cluster's API reported: container labels carry less information."""
    span = recording.span() if recording is not None and any(service.pod for service in services) else None
    if recording is None or span is None:
        return services
    pods = recording.pods(Window(span.until - _OWNERS_NS, span.until)).values()
    owners = {pod.name: pod.owner for pod in pods if pod.sure and pod.owner}
    return [_with_owner(service, owners.get(service.pod or "")) for service in services]


def _with_owner(service: Service, owner: str | None) -> Service:
    if owner is None or service.pod is None:
        return service
    return replace(service, owner=str(Workload.parse(service.pod, owner)), workload=owner)


def _looks(root: NodeRoot, hours: float, progress: Progress) -> list[tuple[Manager, ServiceList]]:
    """The services of each manager; none for a manager that isn't present."""
    progress("reading systemd", 0.1)

    def waiting(method: str, share: float) -> None:
        progress(*((f"waiting for systemd ({method})", share) if share < 1.0 else ("reading systemd", 0.1)))

    looks = [(Manager.SYSTEMD, read_services(root, hours, waiting))]
    progress("reading container runtimes", 0.5)
    return [*looks, *container_services(root, hours)]
