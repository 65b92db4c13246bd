"""The file that a static pod is from: kubelet reads a directory of them on its node."""

import json
import re
from pathlib import Path

from exhume.collect.node_root import NodeRoot

# Where nothing is said: kubeadm's, and those of small distributions.
_USUAL = (
    "/etc/kubernetes/manifests",
    "/var/lib/rancher/k3s/agent/pod-manifests",
    "/var/lib/rancher/rke2/agent/pod-manifests",
)
_KUBELET = "/var/lib/kubelet/config.yaml"
_PATH = re.compile(r"^staticPodPath:\s*[\"']?([^\"'\s#]+)", re.MULTILINE)
_METADATA = re.compile(r"^metadata:[^\S\n]*(?:#.*)?\n((?:[ \t]+.*\n|[^\S\n]*\n|[^\S\n]*#.*\n)*)", re.MULTILINE)
_NAME = re.compile(r"^([ \t]+)name:\s*[\"']?([a-z0-9.-]+)", re.MULTILINE)
_MOST_BYTES = 1 << 20


def manifest_of(root: NodeRoot, pod: str) -> str | None:
    """What the node calls the manifest of a static pod (its name without the namespace); None where none fits."""
    fitting = [
        (told, path)
        for directory in _directories(root)
        for path in _files(root, directory)
        # The pod's name has the node's behind it.
        if (told := _name_in(_content(root.file(path)))) and pod.startswith(f"{told}-")
    ]
    # A name may begin with another pod's.
    return max(fitting, key=lambda each: len(each[0]))[1] if fitting else None


def _name_in(manifest: str) -> str | None:
    """The name of the pod that a manifest describes: in YAML the least indented one below its metadata."""
    if manifest.lstrip().startswith("{"):
        try:
            return str(json.loads(manifest)["metadata"]["name"])
        except (ValueError, KeyError, TypeError):
            return None
    below = _METADATA.search(manifest + "\n")
    names = _NAME.findall(below[1]) if below is not None else []
    return min(names, key=lambda each: len(each[0]))[1] if names else None


def _directories(root: NodeRoot) -> tuple[str, ...]:
    told = _PATH.search(_content(root.file(_KUBELET)))
    return (told[1].rstrip("/"),) if told is not None else _USUAL


def _files(root: NodeRoot, directory: str) -> list[str]:
    try:
        # Kubelet passes over hidden files as well.
        return sorted(f"{directory}/{path.name}" for path in root.file(directory).iterdir() if path.name[0] != ".")
    except OSError:
        return []


def _content(path: Path) -> str:
    try:
        # Opening anything else may take for ever.
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
