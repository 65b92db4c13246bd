"""What the API knows of this node and its pods: the node's labels, and the workload that owns each pod.

Runs in the child process. The topmost owner of a pod is used: a ReplicaSet belongs to a Deployment, a Job may belong
to a CronJob, a RayCluster to a RayService. Only kinds known to be intermediate are read; all others count as topmost.
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

# Owners read per job: a node has a hundred pods with fewer owners. The rest is left for the next job.
MOST_READS = 64
PODS_AT_A_TIME = 100
# With a slow API, the rest is left for the next job too.
PATIENCE_S = 8.0
# Intermediate kinds, and their resource names in API paths.
_IN_BETWEEN = {("apps", "ReplicaSet"): "replicasets", ("batch", "Job"): "jobs", ("ray.io", "RayCluster"): "rayclusters"}
# No chain is deeper: RayService, RayCluster, pod.
_MOST_LEVELS = 4
# The owner may not be read or no longer exists; the answer is the same for all of its pods.
_HIDDEN = (401, 403, 404)
# The API's copy of a static pod (mirror pod) has a uid of its own; the pod's cgroup has the one in this annotation
# (pkg/kubelet/types/pod_update.go, ConfigMirrorAnnotationKey).
_MIRROR = "kubernetes.io/config.mirror"
# The attributes by which fleets are compared, with the labels that clouds and installers use; the first one present
# wins.
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
    """The node's labels for its location and configuration; if no label names the image, the operating system is
    used."""
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
    """Reads the owners of this node's pods; `found` grows while it runs."""

    def __init__(self, client: Client, node: str) -> None:
        self._client, self._node = client, node
        self._above: dict[tuple[str, ...], Any] = {}
        self.reads = 0
        self.found: list[PodOwner] = []

    def read(self, known: frozenset[str]) -> int:
        """Find the owners of unknown pods; returns how many are left. Raises the client's exceptions."""
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
        """The topmost owner; derived from the pod's labels if an intermediate owner can't be read."""
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
        """The owner of an owner; None if it is topmost or can't be read."""
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
                # For a kind that the server does not know, the response is plain text.
                code = error.status.code if isinstance(error, ApiError) else error.response.status_code
                if code not in _HIDDEN:
                    raise
                self._above[key] = _Hidden
        found = self._above[key]
        return None if found is _Hidden else found

    def _is_hidden(self, namespace: str, owner: Any) -> bool:
        return self._above.get(_key(namespace, owner)) is _Hidden


class _Hidden:
    """Marks an owner that may not be read or no longer exists."""


def _key(namespace: str, owner: Any) -> tuple[str, ...]:
    return namespace, owner.apiVersion, owner.kind, owner.name


def _controller(metadata: Any) -> Any | None:
    """The controlling owner of an object."""
    owners = (metadata.ownerReferences if metadata else None) or ()
    return next((each for each in owners if each.controller), None)


def _resource(owner: Any) -> Any | None:
    """The resource type for reading an intermediate owner; None for an owner that counts as topmost."""
    group, _, version = owner.apiVersion.rpartition("/")
    plural = _IN_BETWEEN.get((group, owner.kind))
    # A generic resource is enough: only its metadata matters.
    return create_namespaced_resource(group, version, owner.kind, plural) if plural is not None else None
