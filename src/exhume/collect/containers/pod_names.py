"""Pod and container ids -> the names that people know them by, from the directories that kubelet keeps for logs.

`/var/log/pods/<namespace>_<pod>_<uid>/` is there before a pod's first process, and
`/var/log/containers/<pod>_<namespace>_<container>-<id>.log` from a container's start on, so no API has to be called.
Only their names are read, and only when an id turns up that isn't known: a node without pods is never looked at.
"""

import os
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from exhume.procfs.host import Host

# A node has hundreds; directories of pods that are long gone may pile up, and must not make a tick long.
MOST_ENTRIES = 4096
# Once more for a directory that looks unchanged: its time goes by the kernel's tick, so that what was made in the same
# one as the last change that was seen has not changed it.
_LOOKS_PER_CHANGE = 2

_NAME = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_POD = re.compile(
    rf"(?P<namespace>{_NAME})_(?P<pod>{_NAME})_(?P<uid>[0-9a-f]{{8}}(?:-?[0-9a-f]{{4}}){{3}}-?[0-9a-f]{{12}})"
)
_LOG = re.compile(rf"(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<container>{_NAME})-(?P<id>[0-9a-f]{{64}})\.log")


class PodName(NamedTuple):
    """`pod` is namespace/name, `container` is namespace/name/container; None where the node doesn't have it."""

    pod: str | None
    container: str | None


class PodNames:
    """What the pods of this node and their containers are called."""

    def __init__(self, host: Host) -> None:
        # In a container the node's own files are behind its first process, as far as we may look there.
        places = (host.logs, host.proc / "1/root/var/log")
        self._pods = _Listing([place / "pods" for place in places], pod_of_directory)
        self._containers = _Listing([place / "containers" for place in places], container_of_log)

    def of(self, pod: str, container: str | None, tick: int) -> PodName:
        """The names for a pod's uid and the id of a container in it. Each directory is listed once a tick at most."""
        called = self._containers.get(container, tick) if container is not None else None
        name = self._pods.get(pod, tick)
        if name is None and called is not None:
            # Kubelets before 1.14 named the directories of pods by their uid alone.
            name = called.rpartition("/")[0]
        return PodName(name, called)


class _Listing:
    """The names in a directory by the id in each, listed again when an id is missing and the directory has changed."""

    def __init__(self, places: Sequence[Path], parse: Callable[[str], tuple[str, str] | None]) -> None:
        self._places = places
        self._parse = parse
        self._names: dict[str, str] = {}
        self._tick = -1
        self._changed: tuple[Path, int] | None = None
        self._looks = 0

    def get(self, key: str, tick: int) -> str | None:
        found = self._names.get(key)
        if found is None and tick != self._tick:
            self._tick = tick
            self._look()
            found = self._names.get(key)
        return found

    def _look(self) -> None:
        changed = self._last_change()
        if changed is None:
            return
        if changed != self._changed:
            self._changed, self._looks = changed, 0
        if self._looks < _LOOKS_PER_CHANGE:
            self._looks += 1
            self._names = self._listed(changed[0])

    def _last_change(self) -> tuple[Path, int] | None:
        """The first of the places that is there, and when something was put into it or taken out."""
        for place in self._places:
            try:
                return place, place.stat().st_mtime_ns
            except OSError:
                continue
        return None

    def _listed(self, directory: Path) -> dict[str, str]:
        try:
            with os.scandir(directory) as entries:
                parsed = [self._parse(entry.name) for entry in islice(entries, MOST_ENTRIES)]
        except OSError:
            return self._names
        return dict(each for each in parsed if each is not None)


def pod_of_directory(name: str) -> tuple[str, str] | None:
    """`<namespace>_<pod>_<uid>` -> the uid and namespace/pod."""
    match = _POD.fullmatch(name)
    return (match["uid"], f"{match['namespace']}/{match['pod']}") if match else None


def container_of_log(name: str) -> tuple[str, str] | None:
    """`<pod>_<namespace>_<container>-<id>.log` -> the id and namespace/pod/container."""
    match = _LOG.fullmatch(name)
    return (match["id"], f"{match['namespace']}/{match['pod']}/{match['container']}") if match else None
