"""The page's server and its privileges: it runs as an ordinary user, if necessary with CAP_DAC_READ_SEARCH."""

import contextlib
import ctypes
import errno
import os
import secrets
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Self

from exhume.cli.terminal import say
from exhume.model.errors import ExhumeError, UsageError, os_reason
from exhume.model.settings import LISTEN, TOKEN, is_loopback

if TYPE_CHECKING:
    from exhume.present.web.guard import Rules
    from exhume.present.web.source import Source

_CAP_DAC_READ_SEARCH = 2
_PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 8, 38
_VERSION_3 = 0x20080522


def become(user: int, group: int) -> None:
    """Switch to another user permanently; requires root."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def become_reader(user: int, group: int) -> bool:
    """Switch to another user and keep only CAP_DAC_READ_SEARCH. Returns False, with nothing changed, if this root
    lacks that capability itself, as in some containers."""
    if not permitted() >> _CAP_DAC_READ_SEARCH & 1 or _libc().prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0:
        return False
    become(user, group)
    kept = 1 << _CAP_DAC_READ_SEARCH
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    # The effective, permitted and inheritable sets: first the low 32 bits of each, then the high ones.
    data = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    if _libc().capset(header, data) != 0:
        # The effective capabilities are gone already, so what follows can only fail: better than keeping more than
        # intended.
        raise OSError(ctypes.get_errno(), "capabilities could not be dropped")
    return True


def permitted() -> int:
    """The permitted capabilities of this process as a bit mask."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            return int(line.split()[1], 16)
    return 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


NOBODY = 65534
# (uid_t) -1, which setresuid(2) interprets as no change.
NO_ID = 2**32 - 1


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where to serve, and who may open the page."""

    host: str
    port: int
    token: str | None
    names: tuple[str, ...]
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @classmethod
    def of(
        cls, listen: str, token: str | None, names: Sequence[str], tls_cert: Path | None, tls_key: Path | None
    ) -> Self:
        """Parse the options. Raises UsageError for an invalid address."""
        host, port = LISTEN.read(listen)
        check_certificate(tls_cert, tls_key)
        given = TOKEN.read(token or "")
        if given is None and not is_loopback(host):
            given = secrets.token_urlsafe(24)
        return cls(host, port, given, tuple(name.lower() for name in names), tls_cert, tls_key)

    @property
    def secure(self) -> bool:
        return self.tls_cert is not None

    def link(self, port: int) -> str:
        """The URL to open; it contains the token if one is required."""
        shown = "localhost" if self.host == "127.0.0.1" else f"[{self.host}]" if ":" in self.host else self.host
        if self.host in ("0.0.0.0", "::"):
            shown = socket.gethostname()
        token = f"/?token={self.token}" if self.token else "/"
        return f"{'https' if self.secure else 'http'}://{shown}:{port}{token}"

    def rules(self, users: Collection[int]) -> "Rules":
        """The guard's rules: allow requests for this machine's own names and addresses; without a token, only from
        processes of these users."""
        from exhume.present.web.guard import LOOPBACK_NAMES, Rules

        own = [f"[{self.host}]" if ":" in self.host else self.host.lower(), *self.names]
        if self.host in ("0.0.0.0", "::"):
            own += [socket.gethostname().lower(), *_addresses()]
        hosts = frozenset([*LOOPBACK_NAMES, *own])
        return Rules(hosts, self.token, self.secure, users=None if self.token else users)


def check_certificate(tls_cert: Path | None, tls_key: Path | None) -> None:
    """Reject a certificate that would fail at the first connection, or that needs a passphrase. Raises UsageError."""
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together: give both")
    if tls_cert is None or tls_key is None:
        return
    for file in (tls_cert, tls_key):
        if not os.access(file, os.R_OK):
            raise UsageError(f"{file} can't be read; --tls-cert and --tls-key take PEM files")
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls_cert, tls_key, password=lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise UsageError(
            f"{tls_cert} and {tls_key} are not a certificate and its key without a passphrase, both PEM: {reason}"
        ) from None


def serve(
    source: "Source",
    options: ServerOptions,
    *,
    open_browser: bool,
    after_fork: Callable[[], None] | None = None,
    package: str = "exhume.present.web",
) -> None:
    """Serve until a signal arrives: a recording, or the source that another package's application and handlers read (a
    path, or an address on another machine). `after_fork` may start threads."""
    listener = listen(options.host, options.port)
    users = (0, starter())
    # Before anything is forked, so that workers inherit the reduced privileges.
    tls_files = [file for file in (options.tls_cert, options.tls_key) if file is not None]
    from exhume.present.web.source import RecordingSource

    if isinstance(source, RecordingSource):
        compared = [] if source.compared is None else [source.compared, *source.compared.iterdir()]
        drop_root(source.directory, [*tls_files, *compared])
    else:
        drop_root(source if isinstance(source, Path) else None, tls_files)
    from exhume.present.web.worker import Template

    # Fork before the server's own libraries are loaded: the workers load theirs concurrently.
    template = Template.fork(source, close=listener, package=package)
    try:
        if after_fork is not None:
            after_fork()
        from exhume.present.web.http_server import run_server
        from exhume.present.web.pool import WorkerPool

        pool = WorkerPool(template)
        app = import_module(f"{package}.app").create_app(source, options.rules(users), pool=pool)
        link = options.link(listener.getsockname()[1])
        print(f"exhume: {link}", flush=True)
        if options.token and not options.secure:
            say("exhume: without TLS the token can be read on the way; see --tls-cert, or go through an SSH tunnel")
        if open_browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            import webbrowser

            with contextlib.suppress(webbrowser.Error):
                webbrowser.open(link)
        run_server(app, pool, listener, options.tls_cert, options.tls_key)
    finally:
        template.stop()


def starter(environment: Mapping[str, str] = os.environ, user: int | None = None) -> int:
    """The user who started this program; with sudo, the user who called it. Must be called before root is dropped."""
    own = os.getuid() if user is None else user
    caller = environment.get("SUDO_UID", "")
    return int(caller) if own == 0 and caller.isascii() and caller.isdigit() else own


def drop_root(directory: Path | None, files: Sequence[Path]) -> None:
    """Drop root: continue as the user who called sudo, else as nobody, if that user may read the recording and the
    program itself (parts of which are loaded on demand). Otherwise keep one capability, for reading. Raises UsageError
    if the environment names no user."""
    if os.geteuid() != 0:
        return
    user, group = _user_id("SUDO_UID"), _user_id("SUDO_GID")
    hidden = _hidden_from(user, group, directory, files) if user else directory or Path("/")
    if hidden is None:
        become(user, group)
    elif not user or not become_reader(user, group):
        say(f"exhume: the page is served as root, since user {user} may not read {hidden}")


def _user_id(name: str) -> int:
    text = os.environ.get(name, str(NOBODY))
    if not text.isascii() or not text.isdigit() or int(text) >= NO_ID:
        raise UsageError(f"{name}={text!r} is not a user id: unset it, or start the server with sudo")
    return int(text)


def _hidden_from(user: int, group: int, directory: Path | None, files: Sequence[Path]) -> Path | None:
    """The first path that the server reads and the user may not; None if the user may read all of them."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(group)
    os.seteuid(user)
    try:
        needed = [Path(os.__file__), Path(__file__), *files, *([] if directory is None else [directory])]
        with contextlib.suppress(OSError):
            needed += [] if directory is None else directory.iterdir()
        return next((path for path in needed if not os.access(path, os.R_OK, effective_ids=True)), None)
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named (base_events.py, _set_nodelay). Without it the second
    # part of an answer waits until the client has acknowledged the first, up to 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ExhumeError(f"port {port} is taken; choose another with --listen {host}:PORT (0 for any)") from None
        raise ExhumeError(f"can't listen on {host}:{port}: {os_reason(error)}") from None
    return listener


def _addresses() -> list[str]:
    """This machine's addresses, as they appear in requests."""
    with contextlib.suppress(OSError):
        found = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
        return sorted(f"[{each}]" if ":" in each else each for each in found)
    return []
