"""How often a pod's container was made anew, by the number of its last attempt."""

from collections.abc import Iterable
from pathlib import Path

from exhume.collect.cri.client import Cri


def cri_restarts(sockets: Iterable[Path], name: str) -> int:
    """Of a container that goes by namespace/pod/container; what is not there is not made anew. Raises CriError."""
    found = 0
    for socket in sockets:
        with Cri(socket) as runtime:
            pods = {each.id: f"{each.metadata.namespace}/{each.metadata.name}" for each in runtime.sandboxes()}
            numbers = [
                each.metadata.attempt
                for each in runtime.containers()
                if f"{pods.get(each.pod_sandbox_id, '')}/{each.metadata.name}" == name
            ]
        found = max(found, *numbers, 0)
    return found
