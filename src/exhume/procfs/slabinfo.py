"""Objects in use in one slab cache, from /sys/kernel/slab (mm/slub.c) or /proc/slabinfo (mm/slab_common.c)."""

import os

from exhume.procfs.host import Host, ProcFile


def active_objects(content: bytes, cache: bytes) -> int | None:
    """Objects in use in a slab cache; None when it was merged into another (mm/slab_common.c, find_mergeable)."""
    start = content.find(b"\n" + cache + b" ")
    if start < 0:
        return None
    fields = content[start : content.find(b"\n", start + 1)].split(None, 2)
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None


class SlabCounter:
    """Counts the objects of one slab cache repeatedly.

    The cache's own file in sysfs costs microseconds. /proc/slabinfo counts the objects of every cache for the same
    result: milliseconds, and much longer if each cache has a copy per memory cgroup (before Linux 5.9).
    """

    def __init__(self, host: Host, cache: str) -> None:
        self._cache = os.fsencode(cache)
        directory = host.sys / "kernel/slab" / cache
        self._objects: ProcFile | None = ProcFile(directory / "objects", single=True)
        # A cache that others were merged into would include theirs; and a kernel may have no sysfs for slabs at all.
        aliases = ProcFile(directory / "aliases").read_or_none()
        if aliases is None or aliases.strip() != b"0" or self._objects.read_or_none() is None:
            self._objects = None
        self._slabinfo = ProcFile(host.proc / "slabinfo")
        self.readable = self._objects is not None or self._slabinfo.read_or_none() is not None

    @property
    def path(self) -> str:
        return (self._objects or self._slabinfo).path

    def count(self) -> int | None:
        """Objects in use now; None when they cannot be counted."""
        if self._objects is None:
            return active_objects(self._slabinfo.read_or_none() or b"", self._cache)
        fields = (self._objects.read_or_none() or b"").split(None, 1)
        return int(fields[0]) if fields and fields[0].isdigit() else None

    def close(self) -> None:
        for file in (self._objects, self._slabinfo):
            if file is not None:
                file.close()
