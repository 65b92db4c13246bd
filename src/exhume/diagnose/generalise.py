"""Paths that differ only in ids and numbers -> one pattern, so that 70,000 of `docker/<id>` are one line."""

import re
from functools import lru_cache

_ID = re.compile(
    r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"  # a UUID, as systemd writes it too
    r"|(?=[a-f]*[0-9])[0-9a-f]{12,}"  # a container's id, whole or short
    r"|(?<![0-9A-Za-z])(?=[a-f]*[0-9])[0-9a-f]{8,11}(?![0-9A-Za-z])"
    r"|[0-9]+(?![0-9A-Za-z])"  # a number, unless a letter follows: k8s and s6 stay what they are
)
_REPEATED = re.compile(r"\*(?:[-_.:]?\*)+")


@lru_cache(maxsize=1 << 16)
def generalise(path: str) -> str:
    """The path with `*` for whatever numbers things."""
    return _REPEATED.sub("*", _ID.sub("*", path))
