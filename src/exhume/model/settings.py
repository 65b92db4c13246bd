"""The registry of settings. Flags, `EXHUME_*` environment variables and docs/settings.md all come from here."""

import grp
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from exhume.model.errors import UsageError
from exhume.model.times import parse_duration, parse_size

SYSTEM_DIRECTORY = Path("/var/lib/exhume")
DEFAULT_GROUP = "exhume"
LOG_LEVELS = ("debug", "info", "warning", "error")
MIN_TOKEN = 16
_SAMPLES_A_SECOND = "number of samples a second on each core"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class LogTarget:
    """Which messages are logged, and to which file; None is stderr."""

    level: str
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Setting(Generic[T_co]):
    """One setting. `default` is written as a user would write it; `shown_default` describes a computed one. A switch
    has no `metavar`. Settings without a flag come from the environment alone."""

    name: str
    metavar: str
    parse: Callable[[str], T_co]
    default: str
    help: str
    shown_default: str = ""
    has_flag: bool = True

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return "EXHUME_" + self.name.upper().replace("-", "_")

    def read(self, text: str) -> T_co:
        """Parse a value; the error names the setting."""
        try:
            return self.parse(text)
        except UsageError as error:
            where = f"{self.flag} (or {self.variable})" if self.has_flag else self.variable
            raise UsageError(f"{where}: {error}") from None

    def text(self, environment: Mapping[str, str] | None = None) -> str:
        """The value without a flag, as it is written: the variable's, else the default."""
        source = os.environ if environment is None else environment
        return source.get(self.variable) or self.default

    def from_environment(self, environment: Mapping[str, str] | None = None) -> T_co:
        """The value without a flag."""
        return self.read(self.text(environment))


def _directory(text: str) -> Path:
    return Path(text).expanduser() if text else default_directory()


def _optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """A value that may be left out."""
    return lambda text: parse(text) if text else None


def _at_least(least: str, parse: Callable[[str], int]) -> Callable[[str], int]:
    """A value with a lower bound."""

    def read(text: str) -> int:
        if text.strip().startswith("-") or parse(text) < parse(least):
            raise UsageError(f"{text!r} is too little: write {least} or more")
        return parse(text)

    return read


def _limit(parse: Callable[[str], int]) -> Callable[[str], int | None]:
    """A bound that `none` removes."""
    return lambda text: None if text == "none" else parse(text)


def _between(least: int, most: int, what: str) -> Callable[[str], int]:
    """A whole number between two."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
            raise UsageError(f"{text!r} is not a {what}: write one between {least} and {most}")
        return int(text)

    return read


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 100:
        raise UsageError(f"{text!r} is not a share of one core: write a percentage between 0.1% and 100%")
    return value / 100


def _color(text: str) -> str:
    if text not in ("auto", "always", "never"):
        raise UsageError(f"{text!r} is not a choice for colours: write auto, always or never")
    return text


def _group(text: str) -> int | None:
    """The id of a group by its name; without a name, of the group `exhume` where there is one."""
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


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535 or not host:
        raise UsageError(f"{text!r} is not an address: write HOST:PORT, such as 127.0.0.1:8420 or [::1]:8420")
    return host, int(port)


def _token(text: str) -> str:
    if len(text) < MIN_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"a token needs {MIN_TOKEN} printable characters or more, without blanks; omit it to get a random one"
        )
    return text


def _log(text: str) -> LogTarget:
    level, _, file = text.partition(":")
    if level.lower() not in LOG_LEVELS:
        raise UsageError(f"{level!r} is not a log level: write debug, info, warning or error, or LEVEL:FILE")
    return LogTarget(level.lower(), Path(file).expanduser() if file else None)


DIR = Setting(
    "dir",
    "DIR",
    _directory,
    "",
    "Directory of the recording.",
    shown_default="/var/lib/exhume as root, else $XDG_STATE_HOME/exhume (~/.local/state/exhume)",
)
FOR = Setting(
    "for",
    "DURATION",
    _optional(_at_least("1s", parse_duration)),
    "",
    "Stop recording after this long, at least 1s.",
    shown_default="until stopped",
)
RATE = Setting("rate", "HZ", _between(1, 10_000, _SAMPLES_A_SECOND), "97", "Stack samples a second on each core.")
MAX_SIZE = Setting(
    "max-size",
    "SIZE",
    _limit(_at_least("1M", parse_size)),
    "5G",
    "Maximum size of the recording; the oldest segments are removed first. At least 1M, 'none' for no bound.",
)
MAX_AGE = Setting(
    "max-age",
    "DURATION",
    _limit(_at_least("1m", parse_duration)),
    "7d",
    "Age at which segments are removed. At least 1m, 'none' for no bound.",
)
CPU_BUDGET = Setting(
    "cpu-budget",
    "PERCENT",
    _percent,
    "8%",
    "CPU that the recorder may use, as a share of one core; it lowers its rate to keep it.",
)
MEMORY_BUDGET = Setting(
    "memory-budget",
    "SIZE",
    _at_least("64M", parse_size),
    "150M",
    "Memory that the recorder may use, at least 64M; it drops its caches to keep it.",
)
NICE = Setting(
    "nice",
    "NICE",
    _between(-20, 19, "nice value"),
    "-20",
    "Priority of the recorder, -20 to 19; a negative one takes root, and keeps it recording on a starved node.",
)
GROUP = Setting(
    "group",
    "GROUP",
    _group,
    "",
    "Group whose members may read the recording; 'none' for root alone.",
    shown_default="the group exhume where there is one, else none",
)
KEEP_SECRETS = Setting(
    "keep-secrets", "", _switch, "0", "Record command lines with the passwords, tokens and keys that are in them."
)
LISTEN = Setting(
    "listen", "ADDR", _address, "127.0.0.1:8420", "Address and port of the page; port 0 is any that is free."
)
TOKEN = Setting(
    "token",
    "TEXT",
    _optional(_token),
    "",
    "Token that opens the page from other machines, 16 characters or more.",
    shown_default="a random one where it listens beyond loopback",
)
COLOR = Setting(
    "color", "WHEN", _color, "auto", "Colours: auto (on a terminal, unless NO_COLOR is set), always or never."
)
UTC = Setting("utc", "", _switch, "0", "Read and show times in UTC instead of the local zone.")
LOG = Setting(
    "log",
    "LEVEL[:FILE]",
    _log,
    "warning",
    "Log level (debug, info, warning or error), and a file to log to instead of stderr; -v is info, --debug is debug.",
    has_flag=False,
)

_RECORDER = (FOR, RATE, MAX_SIZE, MAX_AGE, CPU_BUDGET, MEMORY_BUDGET, NICE, GROUP, KEEP_SECRETS)
SETTINGS: tuple[Setting[object], ...] = (DIR, *_RECORDER, LISTEN, TOKEN, COLOR, UTC, LOG)

# Variables that exhume sets for its own processes; they are not settings.
INTERNAL_VARIABLES = {"EXHUME_LAB_RUN": "marks the processes of a lab run, so that they can be removed after a crash"}


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """What a recorder needs to know. Durations are nanoseconds, sizes bytes, the CPU budget a share of one core, the
    group an id; None is no bound, or no group."""

    directory: Path
    duration_ns: int | None = None
    rate_hz: int = 97
    max_bytes: int | None = None
    max_age_ns: int | None = None
    cpu_budget: float = 0.08
    memory_budget: int = 150 << 20
    nice: int = -20
    group: int | None = None
    keep_secrets: bool = False


def default_directory(environment: Mapping[str, str] | None = None, user: int | None = None) -> Path:
    """The default of --dir: the system's directory for root, else the user's state directory."""
    if (os.geteuid() if user is None else user) == 0:
        return SYSTEM_DIRECTORY
    source = os.environ if environment is None else environment
    state = source.get("XDG_STATE_HOME", "")
    # The XDG base directory specification has relative paths ignored.
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "exhume"


def settings_table() -> str:
    """The table of docs/settings.md."""
    lines = ["| flag | variable | value | default | what it does |", "|---|---|---|---|---|"]
    for entry in SETTINGS:
        flag = f"`{entry.flag}`" if entry.has_flag else "none"
        default = entry.shown_default or f"`{entry.default}`"
        lines.append(f"| {flag} | `{entry.variable}` | {entry.metavar or 'yes or no'} | {default} | {entry.help} |")
    return "\n".join(lines) + "\n"
