"""Who a cgroup belongs to: the container or the unit of the path, and what a container was called in the recording."""

import re
from dataclasses import dataclass, replace

import numpy as np

from exhume.collect.containers.identity import identify
from exhume.diagnose.evidence.builder import aim
from exhume.diagnose.evidence.case import Case
from exhume.model.finding import Culprit, Evidence, Finding, Link, Remedy, Role

# Units that run whatever was started by hand are nobody's to disable.
_UNIT = re.compile(r"/(?P<unit>[^/]+\.service)(?=/|$)")
_SHARED_UNITS = re.compile(r"(?:user@\d+|session-.*|init|containerd|docker|crio|kubelet|dbus.*)\.service")
SHORT_ID = 12
_PODMAN = "podman"
# A container may have been started long before it made trouble.
_NAMES_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Named:
    """A container's name and image, and the event that told them."""

    name: str
    image: str | None
    at: int
    kind: str
    text: str

    @property
    def evidence(self) -> Evidence:
        return Evidence("events", "text", "last", self.text, self.at, self.at + 1, match=(("kind", self.kind),))


@dataclass(frozen=True, slots=True)
class CgroupOwner:
    """What a cgroup path leads to: a container (with its name and image where the recording has them) or a unit."""

    container: str | None = None
    runtime: str | None = None
    pod: str | None = None
    name: str | None = None
    image: str | None = None
    unit: str | None = None
    evidence: tuple[Evidence, ...] = ()
    # What Kubernetes calls them: namespace/pod, and namespace/pod/container. Runtimes don't go by these.
    pod_name: str | None = None
    name_in_pod: str | None = None

    @property
    def words(self) -> str:
        """Who it is, for a sentence; empty for nobody."""
        if self.container is not None:
            name = self.name_in_pod or self.name
            called = f"{name} " if name else ""
            image = f", image {self.image}" if self.image else ""
            around = f" of pod {self.pod_name}" if self.pod_name and not self.name_in_pod else ""
            return f"container {called}({self.container[:SHORT_ID]}{image}){around}"
        if self.unit is not None:
            return f"unit {self.unit}"
        return f"pod {self.pod_name or self.pod}" if self.pod is not None else ""

    @property
    def target(self) -> str:
        """What a command has to name."""
        if self.container is not None:
            return self.name or self.container[:SHORT_ID]
        return self.unit or self.pod_name or self.pod or ""


def owner_of(case: Case, cgroup: str | None) -> CgroupOwner:
    """Who the cgroup of a path belongs to."""
    if not cgroup:
        return CgroupOwner()
    identity = identify(cgroup)
    if identity is not None and identity.container is not None:
        named = container_names(case).get(identity.container)
        whose = replace(
            CgroupOwner(identity.container, identity.runtime, identity.pod),
            pod_name=case.pod_names.get(identity.pod or ""),
            name_in_pod=case.names_in_pods.get(identity.container),
        )
        return (
            whose if named is None else replace(whose, name=named.name, image=named.image, evidence=(named.evidence,))
        )
    units = [match["unit"] for match in _UNIT.finditer(cgroup) if not _SHARED_UNITS.fullmatch(match["unit"])]
    pod = identity.pod if identity else None
    return CgroupOwner(pod=pod, unit=units[-1] if units else None, pod_name=case.pod_names.get(pod or ""))


def container_names(case: Case) -> dict[str, Named]:
    """What containers were called, by their id, as far as it was recorded up to the end of the focus."""
    rows = case.recorded("events", _NAMES_S)
    if not len(rows):
        return {}
    known = rows.where(np.array([name is not None for name in rows.texts("container_name")], np.bool_))
    columns = ("wall", "kind", "container", "container_name", "image", "text")
    return {row[2]: Named(row[3], row[4], row[0], row[1], row[5]) for row in known.listed(*columns) if row[2]}


def stop_remedies(remedies: tuple[Remedy, ...], whose: CgroupOwner) -> tuple[Remedy, ...]:
    """The remedies of the table that fit: those against a container, a unit or a pod only where it is one, and aimed at
    it; all others as they are."""
    # A path below a pod doesn't tell docker from containerd; what Kubernetes starts, it also starts again.
    by_docker = whose.runtime == "docker" or (whose.runtime is None and whose.pod is None)
    of_engine = whose.container is not None and (by_docker or whose.runtime == _PODMAN)
    of_another = whose.container is not None and not of_engine
    of_unit = whose.container is None and whose.unit is not None
    kinds = {
        "stop-container": of_engine,
        "see-container-log": of_engine,
        "stop-cri-container": of_another,
        "see-cri-container-log": of_another,
        "disable-unit": of_unit,
        "see-unit-log": of_unit,
        "slow-restarts": of_unit,
        "see-restarts": whose.container is None and whose.unit is None,
    }
    chosen: list[Remedy] = []
    for each in remedies:
        if each.id not in kinds:
            chosen.append(each)
        elif kinds[each.id]:
            chosen += aim((for_engine(each, whose),), whose.target)
    return tuple(chosen)


def for_engine(remedy: Remedy, whose: CgroupOwner) -> Remedy:
    """The remedy with the words of the engine that has the container: Podman takes what Docker does."""
    return replace(remedy, command=remedy.command.replace("docker", _PODMAN)) if whose.runtime == _PODMAN else remedy


def fit_remedies(remedies: tuple[Remedy, ...], whose: CgroupOwner, target: str) -> tuple[Remedy, ...]:
    """The same, with all others aimed at what the finding is about."""
    return tuple(each if each.target else aim((each,), target)[0] for each in stop_remedies(remedies, whose))


def with_names(case: Case, finding: Finding) -> Finding:
    """The finding with the names of its culprit's container and pod; the pod's is told in the chain where nothing in
    the finding says it yet."""
    culprit = _named(case, finding.culprit)
    finding = replace(finding, culprit=culprit)
    told = (finding.summary, *(link.text for link in finding.chain))
    if culprit.pod_name is None or culprit.comm is None or any(culprit.pod_name in text for text in told):
        return finding
    who = culprit.comm if culprit.pid is None else f"{culprit.comm} (pid {culprit.pid})"
    where = f"container {culprit.container_name}" if culprit.container_name else f"pod {culprit.pod_name}"
    link = Link(Role.CULPRIT, case.focus.since, f"{who} runs in {where}", _told_by(case, culprit))
    # Behind what is already told of the culprit, before what it comes from.
    at = sum(each.role is not Role.ROOT_CAUSE for each in finding.chain)
    return replace(finding, chain=(*finding.chain[:at], link, *finding.chain[at:]))


def _named(case: Case, culprit: Culprit) -> Culprit:
    pod, container = culprit.pod, culprit.container
    called = None
    if container is not None:
        called = case.names_in_pods.get(container)
        if called is None and (docker := container_names(case).get(container)) is not None:
            called = docker.name
    return replace(culprit, container_name=called, pod_name=case.pod_names.get(pod) if pod is not None else None)


def _told_by(case: Case, culprit: Culprit) -> tuple[Evidence, ...]:
    """The row that told the name, where the recording still reaches back to it."""
    rows = case.now("processes").matching("pod_name", culprit.pod_name or "")
    span = case.recording.span()
    if not len(rows) or span is None:
        return ()
    at = int(np.max(rows.wall))
    if not span.since <= at < span.until:
        return ()
    match = (("pod", culprit.pod or ""),)
    return (Evidence("processes", "pod_name", "last", culprit.pod_name or "", at, at + 1, match=match),)


def process_words(culprit: Culprit) -> str:
    """The process of a culprit: its name and number, its name alone where several have it, or that they are many."""
    if culprit.comm is None:
        return "many processes"
    return culprit.comm if culprit.pid is None else f"{culprit.comm} (pid {culprit.pid})"
