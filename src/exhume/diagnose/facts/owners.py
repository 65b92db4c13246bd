"""Owners of cgroups: the container, unit or pod of a path, with the names that the recording has for them."""

import re
from dataclasses import dataclass, replace

from exhume.collect.containers.identity import identify
from exhume.diagnose import messages
from exhume.diagnose.evidence.builder import aim
from exhume.diagnose.evidence.case import Case
from exhume.model.finding import Culprit, Entity, EntityKind, Evidence, Finding, Link, Remedy, Role

_UNIT = re.compile(r"/(?P<unit>[^/]+\.service)(?=/|$)")
# Units that run other programs' work: disabling them is never the remedy.
_SHARED_UNITS = re.compile(r"(?:user@\d+|session-.*|init|containerd|docker|crio|kubelet|dbus.*)\.service")
SHORT_ID = 12
_PODMAN = "podman"
# A container may have been started long before it caused trouble.
_NAMES_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ContainerName:
    """A container's name and image, and the event that has them."""

    name: str
    image: str | None
    at: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class CgroupOwner:
    """What a cgroup path belongs to: a container (with its name and image where the recording has them), a unit or a
    pod. Empty (false) where it belongs to none."""

    container: str | None = None
    runtime: str | None = None
    pod: str | None = None
    name: str | None = None
    image: str | None = None
    unit: str | None = None
    evidence: tuple[Evidence, ...] = ()
    # Kubernetes' names: namespace/pod, and namespace/pod/container. Container runtimes don't use them.
    pod_name: str | None = None
    name_in_pod: str | None = None

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.container, self.unit, self.pod))

    def __str__(self) -> str:
        if self.container is not None:
            values = {
                "name": self.name_in_pod or self.name,
                "id": self.container[:SHORT_ID],
                "image": self.image,
                "pod": None if self.name_in_pod else self.pod_name,
            }
            return messages.render("owner.container", values)
        if self.unit is not None:
            return messages.render("owner.unit", {"name": self.unit})
        return messages.render("owner.pod", {"name": self.pod_name or self.pod}) if self.pod is not None else ""

    @property
    def entities(self) -> tuple[Entity, ...]:
        """What a sentence with this owner names."""
        found = []
        if self.container is not None:
            name = self.name_in_pod or self.name or self.container[:SHORT_ID]
            found.append(Entity(EntityKind.CONTAINER, self.container, name))
        elif self.unit is not None:
            found.append(Entity(EntityKind.UNIT, self.unit, self.unit))
        if self.pod is not None and (self.container is None or self.pod_name is not None) and self.unit is None:
            found.append(Entity(EntityKind.POD, self.pod, self.pod_name or self.pod))
        return tuple(found)

    @property
    def target(self) -> str:
        """What a command has to name."""
        if self.container is not None:
            return self.name or self.container[:SHORT_ID]
        return self.unit or self.pod_name or self.pod or ""

    def without_container(self) -> "CgroupOwner":
        """The same owner, where the container is one of many that are alike."""
        return replace(self, container=None, name=None, image=None, evidence=())


def owner_of(case: Case, cgroup: str | None) -> CgroupOwner:
    """The owner of a cgroup path."""
    if not cgroup:
        return CgroupOwner()
    identity = identify(cgroup)
    if identity is not None and identity.container is not None:
        named = container_names(case).get(identity.container)
        owner = CgroupOwner(
            identity.container,
            identity.runtime,
            identity.pod,
            pod_name=case.pod_names.get(identity.pod or ""),
            name_in_pod=case.names_in_pods.get(identity.container),
        )
        if named is None:
            return owner
        match = (("kind", named.kind),)
        quote = Evidence("events", "text", "last", named.text, named.at, named.at + 1, match=match)
        return replace(owner, name=named.name, image=named.image, evidence=(quote,))
    units = [match["unit"] for match in _UNIT.finditer(cgroup) if not _SHARED_UNITS.fullmatch(match["unit"])]
    pod = identity.pod if identity else None
    return CgroupOwner(pod=pod, unit=units[-1] if units else None, pod_name=case.pod_names.get(pod or ""))


def container_names(case: Case) -> dict[str, ContainerName]:
    """Names of containers by id, as recorded up to the end of the focus."""
    rows = case.recorded("events", _NAMES_S).listed("container", "container_name", "image", "wall", "kind", "text")
    return {number: ContainerName(name, *rest) for number, name, *rest in rows if number and name is not None}


def stop_remedies(remedies: tuple[Remedy, ...], owner: CgroupOwner) -> tuple[Remedy, ...]:
    """The remedies of the catalogue that fit: those for a container, a unit or a pod only where the owner is one, and
    aimed at it; all others as they are."""
    # A path below a pod doesn't distinguish docker from containerd; what Kubernetes starts, it also restarts.
    by_docker = owner.runtime == "docker" or (owner.runtime is None and owner.pod is None)
    of_engine = owner.container is not None and (by_docker or owner.runtime == _PODMAN)
    of_another = owner.container is not None and not of_engine
    of_unit = owner.container is None and owner.unit is not None
    kinds = {
        "stop-container": of_engine,
        "see-container-log": of_engine,
        "stop-cri-container": of_another,
        "see-cri-container-log": of_another,
        "disable-unit": of_unit,
        "see-unit-log": of_unit,
        "slow-restarts": of_unit,
        "see-restarts": owner.container is None and owner.unit is None,
    }
    chosen: list[Remedy] = []
    for each in remedies:
        if each.id not in kinds:
            chosen.append(each)
        elif kinds[each.id]:
            chosen += aim((for_engine(each, owner),), owner.target)
    return tuple(chosen)


def for_engine(remedy: Remedy, owner: CgroupOwner) -> Remedy:
    """The remedy for the engine that has the container: Podman's command line is Docker's."""
    return replace(remedy, template=remedy.template.replace("docker", _PODMAN)) if owner.runtime == _PODMAN else remedy


def fit_remedies(remedies: tuple[Remedy, ...], owner: CgroupOwner, target: str) -> tuple[Remedy, ...]:
    """The same, with all others aimed at what the finding is about."""
    return tuple(each if each.target else aim((each,), target)[0] for each in stop_remedies(remedies, owner))


def with_names(case: Case, finding: Finding) -> Finding:
    """The finding with the names of its culprit's container and pod, and a link for a pod that none names yet."""
    culprit = finding.culprit
    pod, container = culprit.pod or "", culprit.container or ""
    docker = container_names(case).get(container)
    name = case.names_in_pods.get(container, docker.name if docker is not None else None)
    culprit = replace(culprit, container_name=name, pod_name=case.pod_names.get(pod))
    named = culprit.pod_name is not None and finding.names(culprit.pod_name, EntityKind.POD)
    chain = finding.chain
    if culprit.pod_name is not None and culprit.comm is not None and not named:
        values = {"who": culprit.process, "container": culprit.container_name, "pod": culprit.pod_name}
        code = "owner.runs-in"
        text = messages.render(code, values)
        link = Link(Role.CULPRIT, case.focus.since, text, _quote_name(case, culprit), code, culprit.entities)
        # After the other links about the culprit, before the root causes.
        at = sum(each.role is not Role.ROOT_CAUSE for each in chain)
        chain = (*chain[:at], link, *chain[at:])
    # An entity that is known by its name now is listed once.
    ids = {(each.kind, each.id) for each in culprit.entities}
    rest = [each for each in finding.entities if (each.kind, each.id) not in ids]
    return replace(finding, culprit=culprit, chain=chain, entities=(*culprit.entities, *rest))


def _quote_name(case: Case, culprit: Culprit) -> tuple[Evidence, ...]:
    """The row that has the name, where the recording still reaches back to it."""
    rows = case.now("processes").matching("pod_name", culprit.pod_name or "")
    at, span = rows.span[1] - 1, case.recording.span()
    if not len(rows) or span is None or not span.contains(at):
        return ()
    match = (("pod", culprit.pod or ""),)
    return (Evidence("processes", "pod_name", "last", culprit.pod_name or "", at, at + 1, match=match),)
