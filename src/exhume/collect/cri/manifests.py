"""The file that a static pod is from: kubelet reads a directory of them on its node."""

import json
import re
from pathlib import Path

from exhume.collect.node_root import NodeRoot

_USUAL = "/etc/kubernetes/manifests"
_KUBELET = "/var/lib/kubelet/config.yaml"
_PATH = re.compile(r"^staticPodPath:\s*[\"']?([^\"'\s#]+)", re.MULTILINE)
_METADATA = re.compile(r"^metadata:[^\S\n]*(?:#.*)?\n((?:[ \t]+.*\n|[^\S\n]*\n|[^\S\n]*#.*\n)*)", re.MULTILINE)
_NAME = re.compile(r"^([ \t]+)name:\s*[\"']?([a-z0-9.-]+)", re.MULTILINE)
_MOST_BYTES = 1 << 20


def manifest_of(root: NodeRoot, pod: str) -> str | None:
    """What the node calls the manifest of a static pod (its name without the namespace); None where none fits."""
    directory = _directory(root)
    try:
        names = sorted(path.name for path in root.file(directory).iterdir())
    except OSError:
        return None
    for name in names:
        # Kubelet passes over those as well.
        if name.startswith("."):
            continue
        told = _name_in(_content(root.file(f"{directory}/{name}")))
        # The pod's name has the node's behind it.
        if told and pod.startswith(f"{told}-"):
            return f"{directory}/{name}"
    return None


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


def _directory(root: NodeRoot) -> str:
    told = _PATH.search(_content(root.file(_KUBELET)))
    return told[1].rstrip("/") if told is not None else _USUAL


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
