"""/proc/slabinfo (mm/slab_common.c, cache_show)."""


def active_objects(content: bytes, cache: bytes) -> int | None:
    """Objects in use in a slab cache; None when it was merged into another (mm/slab_common.c, find_mergeable)."""
    start = content.find(b"\n" + cache + b" ")
    if start < 0:
        return None
    fields = content[start : content.find(b"\n", start + 1)].split(None, 2)
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None
