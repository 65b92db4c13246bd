"""The registry of settings. Flags, `EXHUME_*` environment variables and docs/settings.md all come from here."""

import grp
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.model.errors import UsageError
from exhume.model.times import parse_duration, parse_size

SYSTEM_DIRECTORY = Path("/var/lib/exhume")
DEFAULT_GROUP = "exhume"


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of setting: how its flag names the value, and how the value is read."""

    metavar: str
    read: Callable[[str], Any]


def _directory(text: str) -> Path:
    return Path(text).expanduser() if text else default_directory()


def _optional(reader: Callable[[str], int]) -> Callable[[str], int | None]:
    """A value that need not be given."""

    def read(text: str) -> int | None:
        return reader(text) if text else None

    return read


def _at_least(least: str, reader: Callable[[str], int]) -> Callable[[str], int]:
    """A value that has to be this much for a recorder to work with."""

    def read(text: str) -> int:
        if text.strip().startswith("-") or reader(text) < reader(least):
            raise UsageError(f"{text!r} is too little: write {least} or more")
        return reader(text)

    return read


def _limit(reader: Callable[[str], int]) -> Callable[[str], int | None]:
    """A bound that can be taken off."""

    def read(text: str) -> int | None:
        return None if text == "none" else reader(text)

    return read


def _rate(text: str) -> int:
    return _between(text, 1, 10_000, "samples a second on each core")


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 100:
        raise UsageError(f"{text!r} is not a share of one core: write a percentage between 0.1% and 100%")
    return value / 100


def _between(text: str, least: int, most: int, what: str) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise UsageError(f"{text!r} is not a number of {what}: write one between {least} and {most}")
    return int(text)


def _color(text: str) -> str:
    if text not in ("auto", "always", "never"):
        raise UsageError(f"{text!r} is not a choice for colours: write auto, always or never")
    return text


def _nice(text: str) -> int:
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if not digits.isascii() or not digits.isdigit() or not -20 <= int(sign + digits) <= 19:
        raise UsageError(f"{text!r} is not a nice value: write one between -20 and 19")
    return int(sign + digits)


def _group(text: str) -> int | None:
    """The number of a group by its name; without one, the group `exhume` where there is one."""
    try:
        return None if text == "none" else grp.getgrnam(text or DEFAULT_GROUP).gr_gid
    except KeyError:
        if not text:
            return None
        raise UsageError(f"there is no group {text!r}: make it with groupadd, or write none") from None


def _switch(text: str) -> bool:
    if text.lower() not in ("", "0", "1", "false", "true", "no", "yes", "off", "on"):
        raise UsageError(f"{text!r} is neither yes nor no")
    return text.lower() in ("1", "true", "yes", "on")


DIRECTORY = Kind("DIR", _directory)
DURATION = Kind("DURATION", _optional(_at_least("1s", parse_duration)))
AGE_LIMIT = Kind("DURATION", _limit(_at_least("1m", parse_duration)))
SIZE_LIMIT = Kind("SIZE", _limit(_at_least("1M", parse_size)))
MEMORY = Kind("SIZE", _at_least("64M", parse_size))
RATE = Kind("HZ", _rate)
PERCENT = Kind("PERCENT", _percent)
NICE = Kind("NICE", _nice)
GROUP = Kind("GROUP", _group)
COLOR = Kind("WHEN", _color)
SWITCH = Kind("", _switch)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `default` is written as a person would write it; `shown_default` explains one that is worked out."""

    name: str
    kind: Kind
    default: str
    help: str
    shown_default: str = ""

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return "EXHUME_" + self.name.upper().replace("-", "_")

    def read(self, text: str) -> Any:
        """The value that a text stands for; the error names the setting."""
        try:
            return self.kind.read(text)
        except UsageError as error:
            raise UsageError(f"{self.flag} (or {self.variable}): {error}") from None

    def from_environment(self, environment: Mapping[str, str] | None = None) -> Any:
        """The value without a flag: the variable's, else the default."""
        source = os.environ if environment is None else environment
        return self.read(source.get(self.variable) or self.default)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "dir",
        DIRECTORY,
        "",
        "Directory of the recording.",
        shown_default="/var/lib/exhume as root, else $XDG_STATE_HOME/exhume (~/.local/state/exhume)",
    ),
    Setting("for", DURATION, "", "Stop recording after this long, at least 1s.", shown_default="until stopped"),
    Setting("rate", RATE, "97", "Stack samples a second on each core."),
    Setting(
        "max-size",
        SIZE_LIMIT,
        "5G",
        "Size that the recording may take; the oldest goes first. At least 1M, 'none' for no bound.",
    ),
    Setting("max-age", AGE_LIMIT, "7d", "Age at which recorded minutes are removed. At least 1m, 'none' for no bound."),
    Setting(
        "cpu-budget",
        PERCENT,
        "8%",
        "CPU that the recorder may use, as a share of one core; it keeps it by lowering its rate.",
    ),
    Setting(
        "memory-budget",
        MEMORY,
        "150M",
        "Memory that the recorder may use, at least 64M; it keeps it by dropping what it can look up again.",
    ),
    Setting(
        "nice",
        NICE,
        "-20",
        "Priority of the recorder, -20 to 19; a negative one takes root, and keeps it recording on a starved node.",
    ),
    Setting(
        "group",
        GROUP,
        "",
        "Group whose members may read the recording; 'none' for root alone.",
        shown_default="the group exhume where there is one, else none",
    ),
    Setting("keep-secrets", SWITCH, "0", "Record command lines with the passwords, tokens and keys that are in them."),
    Setting("color", COLOR, "auto", "Colours: auto (on a terminal, unless NO_COLOR is set), always or never."),
    Setting("utc", SWITCH, "0", "Read and show times in UTC instead of the local zone."),
)

_BY_NAME = {setting.name: setting for setting in SETTINGS}


def setting(name: str) -> Setting:
    """The setting of a name."""
    return _BY_NAME[name]


def default_directory(environment: Mapping[str, str] | None = None, user: int | None = None) -> Path:
    """Where a recording goes when nobody says: the system's place for root, else the user's state directory."""
    if (os.geteuid() if user is None else user) == 0:
        return SYSTEM_DIRECTORY
    source = os.environ if environment is None else environment
    state = source.get("XDG_STATE_HOME", "")
    # The XDG specification has relative paths ignored.
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "exhume"


def settings_table() -> str:
    """The table of docs/settings.md."""
    lines = ["| flag | variable | value | default | what it does |", "|---|---|---|---|---|"]
    for entry in SETTINGS:
        value = entry.kind.metavar or "yes or no"
        default = entry.shown_default or f"`{entry.default}`"
        lines.append(f"| `{entry.flag}` | `{entry.variable}` | {value} | {default} | {entry.help} |")
    return "\n".join(lines) + "\n"
