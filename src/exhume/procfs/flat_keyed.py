"""The kernel's flat keyed files (cgroup.stat, memory.stat, meminfo): a name and a number on each line."""


def parse_flat_keyed(content: bytes) -> dict[bytes, int]:
    """Numbers by name; lines of another shape are left out."""
    found: dict[bytes, int] = {}
    for line in content.splitlines():
        name, _, rest = line.partition(b" ")
        value = rest.split(None, 1)[0] if rest.strip() else b""
        if value.isdigit():
            found[name.rstrip(b":")] = int(value)
    return found
