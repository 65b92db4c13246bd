"""The registry of settings. Flags, `EXHUME_*` environment variables and docs/settings.md all come from here."""

import grp
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from exhume.model.errors import UsageError
from exhume.model.times import parse_duration, parse_size

SYSTEM_DIRECTORY = Path("/var/lib/exhume")
DEFAULT_GROUP = "exhume"
LOG_LEVELS = ("debug", "info", "warning", "error")
MIN_TOKEN = 16
_LABELS_LENGTH = 4096
# The socket that goes with the directory: only the service has one.
AUTO = Path("auto")
# What fits into a socket's address (sys/un.h).
_LONGEST_SOCKET = 107
_SAMPLES_A_SECOND = "number of samples a second on each core"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class LogTarget:
    """Which messages are logged, and to which file; None is stderr."""

    level: str
    file: Path | None = None

    def __str__(self) -> str:
        """As the setting is written."""
        return self.level if self.file is None else f"{self.level}:{self.file}"


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


def _socket_path(text: str) -> Path | None:
    if text == "none":
        return None
    if text == os.fspath(AUTO):
        return AUTO
    if not text.startswith("/") or len(os.fsencode(text)) > _LONGEST_SOCKET:
        raise UsageError(f"{text!r} is not an absolute path of at most {_LONGEST_SOCKET} bytes")
    return Path(text)


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


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    import ipaddress  # takes 5 ms, which most commands don't need

    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _token(text: str) -> str:
    if len(text) < MIN_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"a token needs {MIN_TOKEN} printable characters or more, without blanks; omit it to get a random one"
        )
    return text


def _node_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?", text, re.ASCII):
        raise UsageError(f"{text!r} is not a node name: write letters, digits, dots and dashes, such as node-1")
    return text


def _labels(text: str) -> Mapping[str, str]:
    """`KEY=VALUE`, several with commas between them."""
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    if len(text) > _LABELS_LENGTH or not text.isprintable() or not all(key and equals for key, equals, _ in pairs):
        raise UsageError(f"{text[:80]!r} are not labels: write KEY=VALUE, such as pool=batch,zone=eu-1a")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _metrics_token(text: str) -> str:
    return text if text in ("", "none") else _token(text)


def _collector(text: str) -> str:
    """The address of an OpenTelemetry collector, with the path that they have by default."""
    from urllib.parse import urlsplit

    try:
        url = urlsplit(text)
        if url.scheme not in ("http", "https") or not url.hostname or url.port == 0:
            raise ValueError
    except ValueError:
        example = "http://127.0.0.1:4318/v1/metrics"
        raise UsageError(f"{text!r} is not the address of a collector: write one such as {example}") from None
    return url.geturl() if url.path not in ("", "/") else url._replace(path="/v1/metrics").geturl()


def _url(text: str) -> str:
    found = re.match(r"https?://[^/?#@\s]+(?:[/?#]\S*)?$", text, re.ASCII)
    if not found or not text.isprintable():
        raise UsageError(
            f"{text!r} is not an address of a webhook: write http://... or https://..., without a password"
        )
    return text


def _lake(text: str) -> str:
    """Where summaries go: a hub, an object store or a directory. Without TLS a hub must be on this machine."""
    if text.startswith("http"):
        from urllib.parse import urlsplit

        found = urlsplit(_url(text))
        if found.scheme == "http" and not is_loopback(found.hostname or ""):
            raise UsageError(f"{text!r} would send the token in the clear: write https:// (http:// is for loopback)")
    elif not text.isprintable() or ("://" in text and not text.startswith(("s3://", "gs://"))):
        raise UsageError(f"{text!r} is neither a hub nor a lake: write https://..., s3://..., gs://... or a directory")
    return text


def _choice(what: str, *choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise UsageError(f"{text!r} is not a known {what}: write {', '.join(choices[:-1])} or {choices[-1]}")
        return text

    return read


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
NODE_NAME = Setting(
    "node-name",
    "NAME",
    _optional(_node_name),
    "",
    "Name of the node in the recording; in a pod the cluster's name for it (downward API, spec.nodeName).",
    shown_default="the host name",
)
NODE_LABELS = Setting(
    "node-labels",
    "KEY=VALUE,...",
    _labels,
    "",
    "Labels of the node in the recording, such as its pool and zone.",
    shown_default="none",
)
EVENTS_SOCKET = Setting(
    "events-socket",
    "PATH",
    _socket_path,
    "auto",
    "Unix socket for events of other programs (exhume event add), or none; auto: /run/exhume/events.sock for the "
    "service, none for other recorders.",
)
ON_INCIDENT = Setting(
    "on-incident",
    "CMD",
    _optional(str),
    "",
    "Shell command to run for each incident; it gets the diagnosis as JSON on standard input.",
    shown_default="none",
)
WEBHOOK = Setting(
    "webhook",
    "URL",
    _optional(_url),
    "",
    "URL that each incident is posted to, with its diagnosis.",
    shown_default="none",
)
WEBHOOK_FORMAT = Setting(
    "webhook-format",
    "FORMAT",
    _choice("format", "json", "slack", "alertmanager"),
    "json",
    "Body of the webhook: json, slack or alertmanager (API v2).",
)
WEBHOOK_TOKEN_FILE = Setting(
    "webhook-token-file",
    "FILE",
    _optional(lambda text: Path(text).expanduser()),
    "",
    "File with the bearer token of the webhook, read for each request.",
    shown_default="none",
)
WEBHOOK_TOKEN = Setting(
    "webhook-token",
    "TEXT",
    _optional(str),
    "",
    "Bearer token of the webhook; a flag could be read by others.",
    shown_default="none",
    has_flag=False,
)
PUSH = Setting(
    "push",
    "TARGET",
    _optional(_lake),
    "",
    "Where minute summaries, attributes and incidents go: a hub (https://...), s3://..., gs://... or a directory.",
    shown_default="nowhere",
)
PUSH_TOKEN_FILE = Setting(
    "push-token-file",
    "FILE",
    _optional(lambda text: Path(text).expanduser()),
    "",
    "File with this node's token for the hub, read for each request.",
    shown_default="none",
)
PUSH_TOKEN = Setting(
    "push-token",
    "TEXT",
    _optional(str),
    "",
    "This node's token for the hub; a flag could be read by others.",
    shown_default="none",
    has_flag=False,
)
PUSH_CA_FILE = Setting(
    "push-ca-file",
    "FILE",
    _optional(lambda text: Path(text).expanduser()),
    "",
    "File with the authority (PEM) that signed the hub's certificate.",
    shown_default="those of the system",
)
S3_ENDPOINT = Setting(
    "s3-endpoint",
    "URL",
    _optional(_url),
    "",
    "Address of an object store that is not the vendor's, for s3:// and gs://.",
    shown_default="the vendor's",
)
TO_TOKEN_FILE = Setting(
    "to-token-file",
    "FILE",
    _optional(lambda text: Path(text).expanduser()),
    "",
    "File with the bearer token for the server of --to.",
    shown_default="none",
)
TO_TOKEN = Setting(
    "to-token",
    "TEXT",
    _optional(str),
    "",
    "Bearer token for the server of --to; a flag could be read by others.",
    shown_default="none",
    has_flag=False,
)
KUBERNETES = Setting(
    "kubernetes", "", _switch, "0", "Report incidents to the Kubernetes API: node conditions and events."
)
CLEAR_AFTER = Setting(
    "clear-after",
    "DURATION",
    _at_least("10s", parse_duration),
    "5m",
    "How long it has to be quiet until a node condition clears, at least 10s.",
)
TAINT = Setting(
    "taint",
    "EFFECT",
    _choice("effect", "none", "PreferNoSchedule", "NoSchedule", "NoExecute"),
    "none",
    "Taint the node while it is starved: PreferNoSchedule, NoSchedule or NoExecute.",
)
TAINT_SHARE = Setting(
    "taint-share", "PERCENT", _percent, "10%", "Share of the nodes of a zone that may have the taint at the same time."
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
METRICS = Setting(
    "metrics",
    "ADDR",
    _optional(_address),
    "",
    "Address and port on which the recorder serves metrics, such as 127.0.0.1:9739.",
    shown_default="none are served",
)
METRICS_TOKEN = Setting(
    "metrics-token",
    "TEXT",
    _metrics_token,
    "",
    "Token that scrapes have to send, 16 characters or more; 'none' lets everyone scrape who reaches the address.",
    shown_default="none on loopback; elsewhere one is required",
)
OTLP = Setting(
    "otlp",
    "URL",
    _optional(_collector),
    "",
    "OpenTelemetry collector that metrics are pushed to every 15 s (OTLP over HTTP), such as http://127.0.0.1:4318.",
    shown_default="none are pushed",
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

_NODE = (NODE_NAME, NODE_LABELS)
_RECORDER = (FOR, RATE, MAX_SIZE, MAX_AGE, CPU_BUDGET, MEMORY_BUDGET, NICE, GROUP, KEEP_SECRETS, *_NODE, EVENTS_SOCKET)
_METRICS = (METRICS, METRICS_TOKEN, OTLP)
_NOTIFICATIONS = (
    *(ON_INCIDENT, WEBHOOK, WEBHOOK_FORMAT, WEBHOOK_TOKEN_FILE, WEBHOOK_TOKEN),
    *(KUBERNETES, CLEAR_AFTER, TAINT, TAINT_SHARE),
)
_PUSH = (PUSH, PUSH_TOKEN_FILE, PUSH_TOKEN, PUSH_CA_FILE, S3_ENDPOINT)
SETTINGS: tuple[Setting[object], ...] = (
    *(DIR, *_RECORDER, *_METRICS, *_NOTIFICATIONS, *_PUSH),
    *(LISTEN, TOKEN, TO_TOKEN_FILE, TO_TOKEN, COLOR, UTC, LOG),
)

# Variables that exhume sets for its own processes and for commands; they are not settings.
_OF_COMMANDS = ("NODE", "AT", "CAUSE", "SEVERITY", "VERDICT", "CONFIDENCE", "SUMMARY", "TRIGGER", "REPEATS")
INTERNAL_VARIABLES = {
    "EXHUME_LAB_RUN": "marks the processes of a lab run, so that they can be removed after a crash",
    **{f"EXHUME_{name}": "an incident's, for the command of --on-incident" for name in _OF_COMMANDS},
}


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
    node_name: str | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict)
    events_socket: Path | None = AUTO


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """Where incidents are reported. The duration is nanoseconds, the share 0 to 1."""

    on_incident: str | None = None
    webhook: str | None = None
    webhook_format: str = "json"
    webhook_token_file: Path | None = None
    webhook_token: str | None = None
    kubernetes: bool = False
    clear_after_ns: int = 300 * 10**9
    taint: str = "none"
    taint_share: float = 0.1


@dataclass(frozen=True, slots=True)
class PushSettings:
    """Where a node's summaries go, and how it shows who it is there."""

    target: str | None = None
    token_file: Path | None = None
    token: str | None = None
    ca_file: Path | None = None
    s3_endpoint: str | None = None


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
