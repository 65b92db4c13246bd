"""The last lines that a container wrote, as the engine kept them."""

from typing import Any

from exhume.collect.docker_engine import Engine, EngineError, container_path

_MOST_LINE = 400
_HEADER = 8


def log_tail(engine: Engine, told: dict[str, Any], lines: int) -> tuple[str, ...]:
    """The last lines of a container (`told` is what the engine tells of it), both outputs together; none where its logs
    go elsewhere. They hold whatever the container wrote: who shows them has to make them harmless."""
    path = container_path(str(told.get("Id", "")), "logs")
    try:
        written = engine.read(path, stdout=1, stderr=1, tail=lines)
    except EngineError:
        return ()
    if not (told.get("Config") or {}).get("Tty"):
        written = _unframed(written)
    text = written.decode("utf-8", "replace")
    return tuple(line.rstrip("\r")[:_MOST_LINE] for line in text.split("\n") if line.strip())[-lines:]


def health_lines(told: dict[str, Any]) -> tuple[str, ...]:
    """What the last health check that failed said, as a line; none where it went well, or there is none."""
    health = (told.get("State") or {}).get("Health") or {}
    last = next(reversed(health.get("Log") or []), None)
    if health.get("Status") != "unhealthy" or last is None:
        return ()
    said = " ".join(str(last.get("Output") or "").split()) or "nothing"
    streak = int(health.get("FailingStreak") or 0)
    line = f"health check ended with code {last.get('ExitCode')} ({streak} times in a row), and said: {said}"
    return (line[:_MOST_LINE],)


def _unframed(written: bytes) -> bytes:
    """Without a terminal each piece has a header: the output that it is from, three zeros, its length."""
    pieces = []
    at = 0
    while at + _HEADER <= len(written):
        if written[at] > 2 or written[at + 1 : at + 4] != b"\0\0\0":
            # Not framed after all.
            return written
        end = at + _HEADER + int.from_bytes(written[at + 4 : at + _HEADER], "big")
        pieces.append(written[at + _HEADER : end])
        at = end
    return b"".join(pieces)
