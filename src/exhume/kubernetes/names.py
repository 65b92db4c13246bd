"""What the API knows of this node and its pods: labels of the node, and what keeps each pod alive.

Runs in the child process. Of a pod's owners the topmost is taken: a ReplicaSet belongs to a Deployment, a Job may
belong to a CronJob, a RayCluster to a RayService. Only kinds that are known to be in between are read: others are the
top.
"""

import time
from collections.abc import Mapping
from typing import Any

import httpx2
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.core_v1 import Node, Pod

from exhume.collect.containers.owner import Workload, WorkloadKind, reference_of, workload_of
from exhume.collect.sources.pod_owners import PodOwner

# Of owners, in one job: a node has a hundred pods, of fewer owners. The rest is for the next job.
MOST_READS = 64
PODS_AT_A_TIME = 100
# A slow API: the rest is for the next job too.
PATIENCE_S = 8.0
# Kinds that belong to others, and what their objects are called in paths.
_IN_BETWEEN = {("apps", "ReplicaSet"): "replicasets", ("batch", "Job"): "jobs", ("ray.io", "RayCluster"): "rayclusters"}
# Deeper than any: RayService, RayCluster, pod.
_MOST_LEVELS = 4
# The same answer for each pod of an owner: it may not be read, or is gone by now.
_HIDDEN = (401, 403, 404)
# A static pod is in the API as a copy, whose uid is its own; the pod's cgroup has this one
# (pkg/kubelet/types/pod_update.go, ConfigMirrorAnnotationKey).
_MIRROR = "kubernetes.io/config.mirror"
# What fleets are compared by, with the labels that clouds and installers use for it; the first that is there counts.
NODE_LABELS: Mapping[str, tuple[str, ...]] = {
    "zone": ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    "region": ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    "instance-type": ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
    "pool": (
        "eks.amazonaws.com/nodegroup",
        "karpenter.sh/nodepool",
        "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool",
        "alpha.eksctl.io/nodegroup-name",
        "doks.digitalocean.com/node-pool",
        "kops.k8s.io/instancegroup",
        "agentpool",
        "pool",
    ),
    "image": ("eks.amazonaws.com/nodegroup-image", "kubernetes.azure.com/node-image-version"),
}
_MOST_LABEL = 200


def labels_of(node: Node) -> dict[str, str]:
    """The node's labels that say where it is and what it is made of; without a label for the image, its system."""
    given = (node.metadata.labels if node.metadata else None) or {}
    found = {}
    for name, keys in NODE_LABELS.items():
        value = next((given[key] for key in keys if given.get(key)), None)
        if value:
            found[name] = value[:_MOST_LABEL]
    system = node.status.nodeInfo.osImage if node.status and node.status.nodeInfo else ""
    if system and "image" not in found:
        found["image"] = system[:_MOST_LABEL]
    return found


class NameReader:
    """Reads the owners of this node's pods; `found` grows meanwhile."""

    def __init__(self, client: Client, node: str) -> None:
        self._client, self._node = client, node
        self._above: dict[tuple[str, ...], Any] = {}
        self.reads = 0
        self.found: list[PodOwner] = []

    def read(self, known: frozenset[str]) -> int:
        """Find the owners of the pods that are not known; returns how many are left. Raises what the client does."""
        left, deadline = 0, time.monotonic() + PATIENCE_S
        pods = self._client.list(Pod, namespace="*", fields={"spec.nodeName": self._node}, chunk_size=PODS_AT_A_TIME)
        for pod in pods:
            metadata = pod.metadata
            if metadata is None or not metadata.name or not metadata.uid:
                continue
            uid = (metadata.annotations or {}).get(_MIRROR) or metadata.uid
            if uid in known:
                continue
            if self.reads >= MOST_READS or time.monotonic() > deadline:
                left += 1
                continue
            name = f"{metadata.namespace}/{metadata.name}"
            self.found.append(PodOwner(uid, name, self._owner(name, metadata)))
        return left

    def _owner(self, pod: str, metadata: Any) -> str:
        """The topmost owner; by the pod's labels where that in between can't be read."""
        namespace, _, name = pod.partition("/")
        if _MIRROR in (metadata.annotations or {}):
            return Workload(WorkloadKind.STATIC_POD, namespace, name).reference
        owner = _controller(metadata)
        if owner is None:
            return Workload(WorkloadKind.POD, namespace, name).reference
        for _ in range(_MOST_LEVELS):
            above = self._owner_of(namespace, owner)
            if above is None:
                break
            owner = above
        if owner.kind == "ReplicaSet" and self._is_hidden(namespace, owner):
            return workload_of(pod, metadata.labels or {}, {}).reference
        return reference_of(owner.apiVersion, owner.kind, owner.name)

    def _owner_of(self, namespace: str, owner: Any) -> Any | None:
        """What an owner belongs to; None for the top, and where it can't be read."""
        resource = _resource(owner)
        if resource is None:
            return None
        key = _key(namespace, owner)
        if key not in self._above:
            self.reads += 1
            try:
                metadata = self._client.get(resource, owner.name, namespace=namespace).metadata
                if metadata is None or metadata.name != owner.name:
                    raise ValueError(f"another object than {owner.kind} {owner.name}")
                self._above[key] = _controller(metadata)
            except (ApiError, httpx2.HTTPStatusError) as error:
                # Of a kind that the server does not know the answer is text.
                code = error.status.code if isinstance(error, ApiError) else error.response.status_code
                if code not in _HIDDEN:
                    raise
                self._above[key] = _Hidden
        found = self._above[key]
        return None if found is _Hidden else found

    def _is_hidden(self, namespace: str, owner: Any) -> bool:
        return self._above.get(_key(namespace, owner)) is _Hidden


class _Hidden:
    """Stands for an owner that may not be read, or is gone."""


def _key(namespace: str, owner: Any) -> tuple[str, ...]:
    return namespace, owner.apiVersion, owner.kind, owner.name


def _controller(metadata: Any) -> Any | None:
    """The one of an object's owners that looks after it."""
    owners = (metadata.ownerReferences if metadata else None) or ()
    return next((each for each in owners if each.controller), None)


def _resource(owner: Any) -> Any | None:
    """How to read an owner that may belong to another; None for one that is the top, as far as we know."""
    group, _, version = owner.apiVersion.rpartition("/")
    plural = _IN_BETWEEN.get((group, owner.kind))
    # Without a type: nothing but its metadata matters.
    return create_namespaced_resource(group, version, owner.kind, plural) if plural is not None else None
