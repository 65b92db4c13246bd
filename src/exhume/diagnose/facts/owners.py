"""Owners of cgroups: the container, unit or pod of a path, with the names that the recording has for them."""

import re
from dataclasses import dataclass, replace

from exhume.collect.containers.identity import identify
from exhume.collect.containers.owner import Workload, WorkloadKind, describe_command, logs_command
from exhume.diagnose import messages
from exhume.diagnose.evidence.builder import aim
from exhume.diagnose.evidence.case import Case
from exhume.model.finding import Action, Culprit, Entity, EntityKind, Evidence, Finding, Link, Place, Remedy, Role

_UNIT = re.compile(r"/(?P<unit>[^/]+\.service)(?=/|$)")
_SHARED_UNITS = re.compile(r"(?:user@\d+|session-.*|init|containerd|docker|crio|kubelet|dbus.*)\.service")
SHORT_ID = 12
_PODMAN = "podman"
# Lower bound for a new limit of a throttled container, in cores.
_LEAST_LIMIT = 2


@dataclass(frozen=True, slots=True)
class CgroupOwner:
    """What a cgroup path belongs to: a container (with its name and image if recorded), a unit or a pod. Empty (false)
    if it belongs to none."""

    container: str | None = None
    runtime: str | None = None
    pod: str | None = None
    name: str | None = None
    image: str | None = None
    unit: str | None = None
    evidence: tuple[Evidence, ...] = ()
    # Kubernetes names: namespace/pod, and namespace/pod/container. Container runtimes don't use them.
    pod_name: str | None = None
    name_in_pod: str | None = None
    workload: Workload | None = None

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.container, self.unit, self.pod))

    def __str__(self) -> str:
        if self.container is not None:
            values = {
                "name": self.name_in_pod or self.name,
                "id": self.container[:SHORT_ID],
                "image": self.image,
                "pod": None if self.name_in_pod else self.pod_name,
                "workload": self.workload_label,
            }
            return messages.render("owner.container", values)
        if self.unit is not None:
            return messages.render("owner.unit", {"name": self.unit})
        if self.pod is None:
            return ""
        return messages.render("owner.pod", {"name": self.pod_name or self.pod, "workload": self.workload_label})

    @property
    def workload_label(self) -> str | None:
        """The controller of its pod; None if it is unknown or the pod itself."""
        known = self.workload is not None and self.workload.kind != WorkloadKind.POD
        return str(self.workload) if known else None

    @property
    def in_pod(self) -> str | None:
        """The container's name in its pod."""
        return self.name_in_pod.rpartition("/")[2] if self.name_in_pod else None

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The entities that a message about this owner names."""
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
        if self.pod_name is not None and self.unit is None:
            return self.name_in_pod or self.pod_name
        if self.container is not None:
            return self.name or self.container[:SHORT_ID]
        return self.unit or self.pod_name or self.pod or ""

    def without_container(self) -> "CgroupOwner":
        """The same owner without its container, for a container that is one of many alike."""
        return replace(self, container=None, name=None, image=None, evidence=())


NO_OWNER = CgroupOwner()


def is_shared_unit(unit: str) -> bool:
    """Whether a unit runs other programs' work, so that disabling it is never the remedy."""
    return _SHARED_UNITS.fullmatch(unit) is not None


def is_workload(cgroup: str) -> bool:
    """Whether a cgroup belongs to a single container, pod or unit, rather than holding several."""
    return identify(cgroup) is not None or bool(_UNIT.search(cgroup))


def owner_of(case: Case, cgroup: str | None) -> CgroupOwner:
    """The owner of a cgroup path."""
    if not cgroup:
        return CgroupOwner()
    identity = identify(cgroup)
    if identity is not None and identity.container is not None:
        named = case.container_names.get(identity.container)
        owner = CgroupOwner(
            identity.container, identity.runtime, identity.pod, name_in_pod=case.names_in_pods.get(identity.container)
        )
        owner = _with_pod(case, owner)
        if named is None or named.pod is not None:
            return replace(owner, image=named.image if named is not None else None)
        match = (("kind", named.kind),)
        quote = Evidence("events", "text", "last", named.text, named.at, named.at + 1, match=match)
        return replace(owner, name=named.name, image=named.image, evidence=(quote,))
    units = [match["unit"] for match in _UNIT.finditer(cgroup) if not is_shared_unit(match["unit"])]
    pod = identity.pod if identity else None
    return _with_pod(case, CgroupOwner(pod=pod, unit=units[-1] if units else None))


def _with_pod(case: Case, owner: CgroupOwner) -> CgroupOwner:
    """The owner with the name and the controller of its pod."""
    name = case.pod_names.get(owner.pod or "")
    if name is None and owner.name_in_pod is not None:
        name = owner.name_in_pod.rpartition("/")[0]
    if name is None:
        return owner
    return replace(owner, pod_name=name, workload=Workload.parse(name, case.pod_owners.get(owner.pod or "")))


def stop_remedies(remedies: tuple[Remedy, ...], owner: CgroupOwner) -> tuple[Remedy, ...]:
    """The catalogue's remedies that fit: those for a container, unit or pod only if the owner is one, aimed at it; all
    others unchanged."""
    # A path below a pod doesn't tell docker from containerd; and what Kubernetes starts, it also restarts.
    by_docker = owner.runtime == "docker" or (owner.runtime is None and owner.pod is None)
    of_engine = owner.container is not None and (by_docker or owner.runtime == _PODMAN)
    of_pod = owner.pod_name is not None and owner.unit is None
    of_engine = of_engine and not of_pod
    of_another = owner.container is not None and not of_engine and not of_pod
    of_unit = owner.container is None and owner.unit is not None
    kinds = {
        "stop-container": of_engine,
        "see-container-log": of_engine,
        "stop-cri-container": of_another,
        "see-cri-container-log": of_another,
        "disable-unit": of_unit,
        "see-unit-log": of_unit,
        "slow-restarts": of_unit,
        "see-restarts": owner.container is None and owner.unit is None and not of_pod,
        "raise-limit": not of_pod,
    }
    chosen: list[Remedy] = []
    for each in remedies:
        if each.id == "raise-limit" and not of_pod and owner:
            chosen += aim((_raise_limit(each, owner),), owner.target)
        elif each.place is Place.CLUSTER:
            chosen += [for_pod(each, owner)] if of_pod else []
        elif each.id not in kinds:
            chosen.append(each)
        elif kinds[each.id]:
            chosen += aim((for_engine(each, owner),), owner.target)
    return tuple(chosen)


def for_engine(remedy: Remedy, owner: CgroupOwner) -> Remedy:
    """The remedy for the container's engine: Podman has the same command line as Docker."""
    return replace(remedy, template=remedy.template.replace("docker", _PODMAN)) if owner.runtime == _PODMAN else remedy


def _raise_limit(remedy: Remedy, owner: CgroupOwner) -> Remedy:
    """The remedy with the command of the engine or of systemd, whichever set the memory limit."""
    if owner.container is None and owner.unit is not None:
        return replace(remedy, template="systemctl set-property {target} MemoryMax=SIZE")
    by_engine = owner.runtime in ("docker", _PODMAN, None) and owner.container is not None and owner.pod is None
    return for_engine(replace(remedy, template="docker update --memory SIZE {target}"), owner) if by_engine else remedy


def for_pod(remedy: Remedy, owner: CgroupOwner) -> Remedy:
    """A remedy of the catalogue with the kubectl command for the named pod and its controller. Advice only if there is
    no command for that kind of controller."""
    assert owner.pod_name is not None
    workload = owner.workload or Workload.parse(owner.pod_name, None)
    commands = {
        "see-pod-log": logs_command(owner.pod_name, owner.in_pod),
        "see-pod": describe_command(owner.pod_name),
        "stop-workload": next(iter(workload.stop_commands), ""),
        "raise-pod-limit": workload.limit_command(owner.in_pod, f"cpu={_LEAST_LIMIT}"),
        "raise-pod-memory": workload.limit_command(owner.in_pod, "memory=SIZE"),
    }
    command = commands[remedy.id]
    reversible = workload.stops_reversibly if remedy.id == "stop-workload" else remedy.reversible
    of_workload = remedy.id == "stop-workload"
    target = str(workload) if of_workload else owner.name_in_pod or owner.pod_name
    action = Action.RUN if command else Action.ADVISE
    return aim((replace(remedy, template=command, action=action, reversible=reversible),), target)[0]


def fit_remedies(remedies: tuple[Remedy, ...], owner: CgroupOwner, target: str) -> tuple[Remedy, ...]:
    """The fitting remedies for the owner, with all others aimed at `target`."""
    chosen = stop_remedies(remedies, owner)
    return tuple(each if each.target or each.place is Place.CLUSTER else aim((each,), target)[0] for each in chosen)


def with_names(case: Case, finding: Finding) -> Finding:
    """Return the finding with the names of its culprit's container and pod, and with a link for a pod that no link
    names yet."""
    culprit = finding.culprit
    pod, container = culprit.pod or "", culprit.container or ""
    docker = case.container_names.get(container)
    name = case.names_in_pods.get(container, docker.name if docker is not None else None)
    owner = _with_pod(case, CgroupOwner(pod=culprit.pod, name_in_pod=case.names_in_pods.get(container)))
    reference = owner.workload.reference if owner.workload_label and owner.workload is not None else None
    culprit = replace(culprit, container_name=name, pod_name=case.pod_names.get(pod), owner=reference)
    named = culprit.pod_name is not None and finding.names(culprit.pod_name, EntityKind.POD)
    chain = finding.chain
    if culprit.pod_name is not None and culprit.comm is not None and not named:
        values = {"who": culprit.process, "container": culprit.container_name, "pod": culprit.pod_name}
        values |= {"workload": owner.workload_label}
        code = "owner.runs-in"
        text = messages.render(code, values)
        link = Link(Role.CULPRIT, case.focus.since, text, _quote_name(case, culprit), code, culprit.entities)
        # After the other links about the culprit, before the root causes.
        at = sum(each.role is not Role.ROOT_CAUSE for each in chain)
        chain = (*chain[:at], link, *chain[at:])
    # List an entity once if it is now known by its name.
    ids = {(each.kind, each.id) for each in culprit.entities}
    rest = [each for each in finding.entities if (each.kind, each.id) not in ids]
    return replace(finding, culprit=culprit, chain=chain, entities=(*culprit.entities, *rest))


def _quote_name(case: Case, culprit: Culprit) -> tuple[Evidence, ...]:
    """The row with the name, if the recording still reaches back to it."""
    rows = case.now("processes").matching("pod_name", culprit.pod_name or "")
    at, span = rows.span[1] - 1, case.recording.span()
    if not len(rows) or span is None or not span.contains(at):
        return ()
    match = (("pod", culprit.pod or ""),)
    return (Evidence("processes", "pod_name", "last", culprit.pod_name or "", at, at + 1, match=match),)
