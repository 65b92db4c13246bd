"""The tokens of a hub: one per node, stored as hashes, added and revoked while the hub runs."""

import fcntl
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from exhume.fleet.batch import is_node_name
from exhume.model.errors import ExhumeError, UsageError, os_reason
from exhume.model.ownership import PRIVATE_DIRECTORY, PRIVATE_FILE

_VERSION = 1
_FILE, _LOCK = "tokens.json", "tokens.lock"
_PREFIX = "exf_"
# How often a hub checks whether the file changed: a revoked token is refused after this long.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class NodeToken:
    """The token of a node. It has 256 random bits, so a fast hash is sufficient: guessing is infeasible."""

    node: str
    sha256: str
    added_at: int


class Tokens:
    """The tokens in a directory."""

    def __init__(self, directory: Path) -> None:
        self._path, self._directory = directory / _FILE, directory
        self._nodes: dict[str, str] = {}
        self._changed: tuple[int, int] | None = None
        self._looked = float("-inf")

    def add(self, node: str) -> str:
        """Create a token for a node; only the return value has it in clear text. An earlier token of the node becomes
        invalid. Raises UsageError."""
        if not is_node_name(node):
            raise UsageError(f"{node!r} is not the name of a node: letters, digits and . _ - : @, 253 at most")
        token = _PREFIX + secrets.token_urlsafe(32)
        with self._changing() as known:
            known[node] = NodeToken(node, _hash(token), int(time.time()))
        return token

    def revoke(self, node: str) -> bool:
        """Revoke a node's token; returns whether there was one."""
        with self._changing() as known:
            return known.pop(node, None) is not None

    def listed(self) -> list[NodeToken]:
        return sorted(self._read().values(), key=lambda each: each.node)

    def node_of(self, token: str) -> str | None:
        """The node that a token belongs to; None if the token is invalid."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._refresh()
        return self._nodes.get(_hash(token))

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._nodes, self._changed = {}, None
            return
        changed = status.st_mtime_ns, status.st_ino
        if changed != self._changed:
            self._nodes = {each.sha256: each.node for each in self._read().values()}
            self._changed = changed

    def _read(self) -> dict[str, NodeToken]:
        try:
            found = json.loads(self._path.read_text())
            if found["version"] != _VERSION:
                raise ValueError("another version")
            return {each["node"]: NodeToken(**each) for each in found["tokens"]}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ExhumeError(f"the tokens in {self._path} can't be read: {error}; restore the file") from error

    @contextmanager
    def _changing(self) -> "Iterator[dict[str, NodeToken]]":
        """Serialise changes; the file is replaced atomically."""
        try:
            _make_directory(self._directory)
            lock = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
            try:
                _give_to_owner(lock, self._directory)
                fcntl.flock(lock, fcntl.LOCK_EX)
                known = self._read()
                yield known
                staged = self._path.with_suffix(".new")
                staged.unlink(missing_ok=True)
                fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
                with os.fdopen(fd, "w") as file:
                    _give_to_owner(fd, self._directory)
                    json.dump({"version": _VERSION, "tokens": [asdict(each) for each in known.values()]}, file)
                    file.flush()
                    os.fsync(fd)
                staged.replace(self._path)
            finally:
                os.close(lock)
        except OSError as error:
            raise ExhumeError(f"the tokens in {self._path} can't be changed: {os_reason(error)}") from error


def _make_directory(directory: Path) -> None:
    """Create the directory of a hub, for the owner of the one that it is in. Raises OSError."""
    if directory.is_dir():
        return
    directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _give_to_owner(fd, directory.parent)
    finally:
        os.close(fd)


def _give_to_owner(fd: int, directory: Path) -> None:
    """Give an open file to the owner of its directory: root adds tokens to a hub that runs as another user, which has
    to read them. A link to another file stays what it is. Raises OSError."""
    owner, known = directory.stat(), os.fstat(fd)
    alone = stat.S_ISDIR(known.st_mode) or (stat.S_ISREG(known.st_mode) and known.st_nlink == 1)
    if os.geteuid() == 0 and alone and known.st_uid == 0 and owner.st_uid != 0:
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
