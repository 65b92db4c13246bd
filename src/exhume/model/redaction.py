"""Redact secrets in command lines: values of passwords, tokens and keys are replaced before they are recorded.

Only a name can identify a secret: a password that is an argument by itself stays.
"""

import re
from collections.abc import Iterable, Iterator

MASK = "***"
# Names with these suffixes: --password, DB_PASSWORD, keyStorePassword, x-api-key. If the name continues, as in
# --password-file or --token-ttl, the value is not a secret itself.
_NAME = (
    r"(?!--?no-)[\w.-]*(?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key|secret[-_]?key|"
    r"private[-_]?key|account[-_]?key|credentials?|bearer)"
)
_ASSIGNED = re.compile(rf"({_NAME}[=:])(?=.)", re.I | re.S)
_OPTION = re.compile(rf"(?=-){_NAME}", re.I)
# Anywhere in an argument: a query, a connection string, a header or a shell command. Matches only start where a name
# can begin, so that a long argument is not searched again from every character.
_VALUE = r"([^\s&;,\"']+|\"[^\"]*\"|'[^']*')"
_WITHIN = re.compile(rf"(?<![\w.-])({_NAME}[\"']?\s?[=:]\s?){_VALUE}", re.I)
_WITHIN_OPTION = re.compile(rf"(?<!\S)(?=-)({_NAME}\s+)(?!-){_VALUE}", re.I)
_URL = re.compile(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/]+@", re.I)
_HEADER = re.compile(r"\b(authorization\s*[:=]\s*(?:(?:basic|bearer|digest|token|negotiate)\s+)?)([^\s\"']+)", re.I)
_SCHEME = re.compile(r"(\bbearer\s+)([^\s\"']+)", re.I)
# Programs whose short option takes a password; elsewhere -p is a port or a path.
_SHORT = {
    "mysql": "-p",
    "mysqldump": "-p",
    "mysqladmin": "-p",
    "mariadb": "-p",
    "mariadb-dump": "-p",
    "sshpass": "-p",
    "redis-cli": "-a",
    "ldapsearch": "-w",
    "ldapmodify": "-w",
}
# These only take the value attached to the option: what follows `mysql -p` is a database.
_JOINED_ONLY = frozenset(("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"))


def redact(args: Iterable[str]) -> list[str]:
    """Replace secrets in the arguments of a command by `***`."""
    args = list(args)
    return list(_redacted(args, args[0].rpartition("/")[2] if args else ""))


def _redacted(args: list[str], program: str) -> Iterator[str]:
    short = _SHORT.get(program)
    follows = False
    for index, arg in enumerate(args):
        if follows and not (arg.startswith("--") and len(arg) > 2):
            follows = False
            yield MASK if arg else arg
            continue
        follows = False
        if index and short and arg.startswith(short) and not arg.startswith("--"):
            joined = len(arg) > len(short)
            follows = not joined and program not in _JOINED_ONLY
            yield short + MASK if joined else arg
        elif index and _OPTION.fullmatch(arg):
            follows = True
            yield arg
        elif found := _ASSIGNED.match(arg):
            yield found[1] + MASK
        else:
            yield redact_line(arg)


def redact_command(text: str) -> str:
    """Redact a command whose arguments were joined by spaces, as in recordings. Of a secret that contains spaces, only
    the first word is recognised."""
    return redact_line(" ".join(redact(text.split(" "))))


def redact_line(text: str) -> str:
    """Redact a command given as one line."""
    # Most arguments contain none of these characters, and looking for them is cheaper than matching the names.
    if not any(sign in text for sign in ("=", ":", " ")):
        return text
    text = _URL.sub(rf"\1{MASK}@", text)
    text = _HEADER.sub(rf"\1{MASK}", text)
    text = _SCHEME.sub(rf"\1{MASK}", text)
    text = _WITHIN.sub(rf"\1{MASK}", text)
    return _WITHIN_OPTION.sub(rf"\1{MASK}", text)
