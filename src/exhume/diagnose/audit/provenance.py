"""Whether the order to run a service came with the base image or was given since, and how that is known."""

from datetime import UTC, datetime

from exhume.model.audit import FileFact, FirstBoot, Manager, NodeFacts, Origin, Provenance, Service
from exhume.model.clock import NANOS

# Presets are applied right after a first boot gave the machine its id: that is still the image's doing.
FIRST_BOOT_NS = NANOS


def provenance_of(service: Service, facts: NodeFacts) -> Provenance:
    """Where it is from. Units by their files and links; containers by when they were made."""
    if service.manager is not Manager.SYSTEMD:
        return _of_container(service, facts)
    file = facts.files.get(service.fragment or "")
    known = {"package": file.package if file else None, "enabled": service.enabled, "preset": service.preset}
    fragment, boot = service.fragment, facts.first_boot
    if not fragment:
        return Provenance(Origin.UNKNOWN, "systemd names no file that defines it", **known)
    if fragment.startswith("/run/"):
        return Provenance(Origin.RUNTIME, f"made while the machine runs: {fragment}", **known)
    if boot is None:
        return Provenance(Origin.UNKNOWN, "when this machine first ran is not known", **known)
    # The files that were written for it on this machine: those in /etc, which no new version of a package brings. A fix
    # that holds it back does not order it to run.
    own = [path for path in (fragment, *service.drop_ins) if path.startswith("/etc/") and path != service.held_back]
    written = [fact for path in own if (fact := facts.files.get(path)) is not None and fact.package is None]
    since = [fact for fact in written if _is_later(fact, boot)]
    if since:
        return Provenance(Origin.CONFIGURED, _made_since(since[0], boot), **known)
    links = [facts.files[path] for path in facts.links.get(service.key, ()) if path in facts.files]
    late = [fact for fact in links if _is_later(fact, boot)]
    if late and len(late) == len(links):
        return Provenance(Origin.CONFIGURED, f"enabled since the image: {_made_since(late[0], boot)}", **known)
    if file is None or file.changed is None:
        return Provenance(Origin.UNKNOWN, f"when {fragment} was made is not known", **known)
    if not links and _is_later(file, boot):
        if file.package is None:
            return Provenance(Origin.CONFIGURED, _made_since(file, boot), **known)
        why = f"package {file.package} was installed or upgraded since {_first(boot)}: which of them isn't known"
        return Provenance(Origin.UNKNOWN, why, **known)
    owned = f"package {file.package}" if file.package else file.path
    if links:
        preset = " by its preset" if service.preset == "enabled" else ""
        return Provenance(Origin.IMAGE, f"{owned}, enabled{preset} before {_first(boot)}", **known)
    return Provenance(Origin.IMAGE, f"{owned} is older than {_first(boot)}", **known)


def _of_container(service: Service, facts: NodeFacts) -> Provenance:
    by, boot = f" by {service.owner}" if service.owner else "", facts.first_boot
    if service.manager is Manager.CRI:
        return Provenance(Origin.CONFIGURED, f"ordered{by} through Kubernetes")
    if service.created is None:
        return Provenance(Origin.UNKNOWN, "its manager does not report when it was created")
    made = f"made on {_day(service.created)}{by}"
    if boot is None:
        return Provenance(Origin.UNKNOWN, f"{made}; when this machine first ran is not known")
    if service.created <= boot.at:
        return Provenance(Origin.IMAGE, f"{made}, before {_first(boot)}")
    return Provenance(Origin.CONFIGURED, f"{made}, after {_first(boot)}")


def _is_later(fact: FileFact, boot: FirstBoot) -> bool:
    return fact.changed is not None and fact.changed > boot.at + FIRST_BOOT_NS


def _made_since(fact: FileFact, boot: FirstBoot) -> str:
    return f"{fact.path} is of {_day(fact.changed or 0)}, after {_first(boot)}"


def _first(boot: FirstBoot) -> str:
    return f"the first boot ({_day(boot.at)}, {boot.by})"


def _day(wall: int) -> str:
    return datetime.fromtimestamp(wall / NANOS, UTC).strftime("%Y-%m-%d %H:%M")
