"""systemd through its own programs, where there is no bus: run with bounds on output and time."""

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from exhume.collect.systemd.bus import BusError, BusSilent
from exhume.collect.systemd.facts import Listed, UnitFacts, boot_ns
from exhume.model.process import usual_priority

_PART = 1 << 16
_MOST_COMPLAINTS = 1 << 12
# Their output has to be the same everywhere, and nothing may wait for a key.
_ENVIRONMENT = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "", "SYSTEMD_LOG_LEVEL": "err"}


@dataclass(frozen=True, slots=True)
class Output:
    """The lines that a program wrote, whether these are all of them, and what it complained of."""

    lines: list[bytes] = field(default_factory=list)
    whole: bool = True
    code: int = 0
    complaint: str = ""


def run(args: Sequence[str], most_bytes: int, patience_s: float, most_lines: int | None = None) -> Output:
    """What it says, up to these bounds: then it is stopped. Raises FileNotFoundError where there is no such program.

    The arguments go to the program as they are: no shell sees them.
    """
    with subprocess.Popen(
        args,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_ENVIRONMENT},
    ) as child:
        usual_priority(child.pid)
        try:
            output, complaint, whole = _listen(child, most_bytes, time.monotonic() + patience_s, most_lines)
        finally:
            child.kill()
        code = child.wait()
    *lines, rest = output.split(b"\n")
    if whole and rest:
        lines.append(rest)
    if most_lines is not None:
        lines = lines[:most_lines]
    return Output(lines, whole, code if whole else 0, complaint.decode(errors="replace").strip())


def _listen(
    child: subprocess.Popen[bytes], most_bytes: int, deadline: float, most_lines: int | None
) -> tuple[bytes, bytes, bool]:
    assert child.stdout is not None
    assert child.stderr is not None
    output, complaints = bytearray(), bytearray()
    streams = {child.stdout.fileno(): output, child.stderr.fileno(): complaints}
    # Not select: that knows no descriptors above 1,023.
    watch = select.poll()
    for stream in streams:
        watch.register(stream, select.POLLIN)
    seen = 0
    while streams:
        ready = watch.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            return bytes(output), bytes(complaints), False
        for stream, _ in ready:
            part = os.read(stream, _PART)
            if not part:
                del streams[stream]
                watch.unregister(stream)
                continue
            streams[stream].extend(part)
            seen += part.count(b"\n") if streams[stream] is output else 0
        del complaints[_MOST_COMPLAINTS:]
        if len(output) > most_bytes or (most_lines is not None and seen >= most_lines):
            return bytes(output), bytes(complaints), False
    # Both ends are closed: it is over, or as good as.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=max(1.0, deadline - time.monotonic()))
    return bytes(output), bytes(complaints), True


PROGRAM = "systemctl"
PATIENCE_S = 20.0
MOST_BYTES = 32 << 20
# A command line has a limited length; names have up to 255 bytes.
_NAMES_AT_ONCE = 200
_PLAIN = ("--no-pager", "--no-legend", "--plain", "--full")


class SystemctlUnits:
    """As BusUnits, from text. Raises BusError where systemctl is missing or systemd doesn't answer it."""

    def __init__(self, program: str = PROGRAM) -> None:
        self._program = program
        self._boot_ns = boot_ns()
        ask(program, "show", "--no-pager", "--property=Version")

    def close(self) -> None:
        """Nothing stays open."""

    def listed(self) -> dict[str, Listed]:
        rows = (line.decode(errors="replace").split() for line in self._lines("list-units", "--all"))
        return {row[0]: Listed(*row[:4]) for row in rows if len(row) >= 4}

    def enabled_files(self, kinds: Collection[str]) -> list[str]:
        states = "--state=enabled,enabled-runtime,linked,linked-runtime"
        lines = self._lines("list-unit-files", states, f"--type={','.join(kinds)}")
        return [line.split()[0].decode(errors="replace") for line in lines if line.strip()]

    def facts(self, names: Iterable[str]) -> dict[str, UnitFacts]:
        wanted = list(dict.fromkeys(names))
        known: dict[str, UnitFacts] = {}
        for start in range(0, len(wanted), _NAMES_AT_ONCE):
            some = wanted[start : start + _NAMES_AT_ONCE]
            shown = _blocks(ask(self._program, "show", "--no-pager", "--all", "--", *some))
            known |= {
                name: UnitFacts(facts, self._boot_ns)
                for name, facts in zip(some, shown, strict=False)
                if facts.get("Id")
            }
        return known

    def _lines(self, *args: str) -> list[bytes]:
        return ask(self._program, *args, *_PLAIN).lines


def ask(program: str, *args: str, patience_s: float = PATIENCE_S) -> Output:
    """Run systemctl and return its output. Raises BusError."""
    try:
        output = run([program, *args], MOST_BYTES, patience_s)
    except FileNotFoundError:
        raise BusError(f"{program} is not installed") from None
    if not output.whole:
        raise BusSilent(f"{program} did not answer within {patience_s:.0f} s")
    if output.code and not output.lines:
        # The reason is in its first line; what follows is about its own ways to the bus.
        first = output.complaint.partition("\n")[0].rstrip(" .")
        raise BusError(f"{program} says: {first}" if first else f"{program} ended with code {output.code}")
    return output


def _blocks(output: Output) -> Sequence[dict[str, str]]:
    """`Key=value` lines, with an empty one between units."""
    blocks: list[dict[str, str]] = [{}]
    for line in output.lines:
        key, equals, value = line.decode(errors="replace").partition("=")
        if equals:
            # A command that is set several times comes in several lines: the first one is the main one.
            before = blocks[-1].get(key)
            if before is None:
                blocks[-1][key] = value
            elif key.startswith("Exec"):
                blocks[-1][key] = f"{before}\n{value}"
        elif not line and blocks[-1]:
            blocks.append({})
    return blocks
