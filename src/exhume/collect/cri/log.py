"""The last lines of a container's log file, as the runtimes of Kubernetes write them."""

from pathlib import Path

_TAIL_BYTES = 64 << 10
_MOST_LINE = 400


def log_tail(path: Path, lines: int) -> tuple[str, ...]:
    """The last lines that it wrote; none where there is no such file. They hold whatever the container wrote: who shows
    them has to make them harmless."""
    try:
        # Opening anything else may take for ever.
        if not path.is_file():
            return ()
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            content = file.read(_TAIL_BYTES)
    except OSError:
        return ()
    said: list[str] = []
    part = ""
    for line in content.decode("utf-8", "replace").split("\n"):
        # <time> <stdout or stderr> <F for a full line, P for a part of one> <text>
        fields = line.split(" ", 3)
        if len(fields) < 4 or fields[1] not in ("stdout", "stderr"):
            continue
        part += fields[3]
        if not fields[2].startswith("P"):
            said.append(part.rstrip("\r")[:_MOST_LINE])
            part = ""
    if part:
        said.append(part[:_MOST_LINE])
    return tuple(line for line in said if line.strip())[-lines:]
