"""systemd by systemctl's text, for nodes on which its bus can't be reached: it also knows a way of its own to systemd.

Names go after `--`, each as one word; no shell sees them.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from exhume.collect.systemd.asked import Listed, boot_ns
from exhume.collect.systemd.bus import BusError, BusSilent
from exhume.collect.systemd.facts import UnitFacts
from exhume.collect.systemd.program import Said, run

_PROGRAM = "systemctl"
_PATIENCE_S = 20.0
_MOST_BYTES = 32 << 20
# A command line has a limited length; names have up to 255 bytes.
_NAMES_AT_ONCE = 200
_PLAIN = ("--no-pager", "--no-legend", "--plain", "--full")


class SystemctlUnits:
    """As BusUnits, from text. Raises BusError where systemctl is missing or systemd doesn't answer it."""

    def __init__(self, program: str = _PROGRAM) -> None:
        self._program = program
        self._boot_ns = boot_ns()
        _ask(program, "show", "--no-pager", "--property=Version")

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
            told = _blocks(_ask(self._program, "show", "--no-pager", "--all", "--", *some))
            known |= {
                name: UnitFacts(facts, self._boot_ns)
                for name, facts in zip(some, told, strict=False)
                if facts.get("Id")
            }
        return known

    def _lines(self, *words: str) -> list[bytes]:
        return _ask(self._program, *words, *_PLAIN).lines


class SystemctlOrders:
    """Orders by systemctl, which waits for their jobs itself."""

    def __init__(self, program: str = _PROGRAM) -> None:
        self._program = program
        self._units = SystemctlUnits(program)

    def close(self) -> None:
        """Nothing stays open."""

    def job(self, verb: str, name: str, timeout: float, go_on: Callable[[float], bool] | None = None) -> str:
        """`go_on` is not asked: systemctl says nothing until it is over."""
        said = run([self._program, "--no-pager", "--no-ask-password", verb, "--", name], _MOST_BYTES, timeout)
        if not said.whole:
            raise BusSilent(f"{name} did not {verb} within {timeout:.0f} s; systemd goes on with it")
        # 5 is for a unit that isn't there: then there is nothing to stop.
        if not said.code or (verb == "stop" and said.code == 5):
            return "done"
        if verb == "start":
            return "dependency" if "dependency" in said.complaint else "failed"
        raise BusError(said.complaint or f"systemctl {verb} ended with code {said.code}")

    def reload(self) -> None:
        _ask(self._program, "daemon-reload", patience_s=90.0)

    def reset_failed(self, name: str) -> None:
        run([self._program, "--no-pager", "reset-failed", "--", name], _MOST_BYTES, _PATIENCE_S)

    def look(self, name: str) -> dict[str, object]:
        facts = self._units.facts([name]).get(name)
        return dict(facts.known) if facts is not None else {}


def _ask(program: str, *words: str, patience_s: float = _PATIENCE_S) -> Said:
    try:
        said = run([program, *words], _MOST_BYTES, patience_s)
    except FileNotFoundError:
        raise BusError(f"{program} is not installed") from None
    if not said.whole:
        raise BusSilent(f"{program} did not answer within {patience_s:.0f} s")
    if said.code and not said.lines:
        # Its first line tells; what follows is about its own ways to the bus.
        first = said.complaint.partition("\n")[0].rstrip(" .")
        raise BusError(f"{program} says: {first}" if first else f"{program} ended with code {said.code}")
    return said


def _blocks(said: Said) -> Sequence[dict[str, str]]:
    """`Key=value` lines, with an empty one between units."""
    blocks: list[dict[str, str]] = [{}]
    for line in said.lines:
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
