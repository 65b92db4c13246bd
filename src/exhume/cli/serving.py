"""The page's server at work: its address, who may open it, and dropping what it needs no longer. Shared by `exhume
serve` and bare `exhume`."""

import contextlib
import errno
import ipaddress
import logging
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from exhume.cli.rights import become, become_reader
from exhume.cli.terminal import say
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.settings import LISTEN, TOKEN

if TYPE_CHECKING:
    from types import FrameType

    from exhume.present.web.guard import Rules

NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Serving:
    """Where to serve, and to whom."""

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
        """Raises UsageError for an address that makes no sense."""
        host, port = LISTEN.read(listen)
        if (tls_cert is None) != (tls_key is None):
            raise UsageError("--tls-cert and --tls-key go together: give both")
        for file in (tls_cert, tls_key):
            if file is not None and not os.access(file, os.R_OK):
                raise UsageError(f"{file} can't be read; --tls-cert and --tls-key take PEM files")
        given = TOKEN.read(token or "")
        if given is None and not _is_loopback(host):
            given = secrets.token_urlsafe(24)
        return cls(host, port, given, tuple(name.lower() for name in names), tls_cert, tls_key)

    @property
    def secure(self) -> bool:
        return self.tls_cert is not None

    def link(self, port: int) -> str:
        """What to open; the token is in it where one is needed."""
        shown = "localhost" if self.host == "127.0.0.1" else f"[{self.host}]" if ":" in self.host else self.host
        if self.host in ("0.0.0.0", "::"):
            shown = socket.gethostname()
        token = f"/?token={self.token}" if self.token else "/"
        return f"{'https' if self.secure else 'http'}://{shown}:{port}{token}"

    def rules(self) -> "Rules":
        """Whom the guard lets in: requests for this machine's own names and addresses."""
        from exhume.present.web.guard import LOOPBACK_NAMES, Rules

        own = [f"[{self.host}]" if ":" in self.host else self.host.lower(), *self.names]
        if self.host in ("0.0.0.0", "::"):
            own += [socket.gethostname().lower(), *_addresses()]
        return Rules(hosts=frozenset([*LOOPBACK_NAMES, *own]), token=self.token, secure=self.secure)


def serve(directory: Path, serving: Serving, *, open_browser: bool) -> None:
    """Serve until a signal comes."""
    from exhume.present.web.peer import ROOT, PeerCheck, starter

    listener = _listen(serving.host, serving.port)
    users = (ROOT, starter())
    # Before anything is forked: processes get the rights that are left.
    give_up_root(directory, [file for file in (serving.tls_cert, serving.tls_key) if file is not None])
    from exhume.present.web.opened import Opened

    opened = Opened(directory)
    opened.read_ahead()
    from exhume.present.web import working

    working.start(opened)
    import uvicorn

    from exhume.present.web.opening import Opening

    class Ending(uvicorn.Server):
        """Ends when a signal comes, and tells streams that would go on, so that browsers see an end and no error. The
        second signal waits for nobody."""

        def handle_exit(self, sig: int, frame: "FrameType | None") -> None:
            opening.stop()
            # Questions that are cut off now are no errors.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            self.force_exit = self.should_exit
            self.should_exit = True

    def failed() -> None:
        server.should_exit = True

    opening = Opening(opened, serving.rules(), failed)
    server = Ending(
        uvicorn.Config(
            opening if serving.token else PeerCheck(opening, users),
            # None: its loggers propagate to ours.
            log_config=None,
            access_log=False,
            server_header=False,
            ssl_certfile=serving.tls_cert,
            ssl_keyfile=serving.tls_key,
            timeout_graceful_shutdown=2,
            lifespan="on",
            ws="none",
        )
    )
    link = serving.link(listener.getsockname()[1])
    print(f"exhume: {link}", flush=True)
    if serving.token and not serving.secure:
        say("exhume: without TLS the token can be read on the way; see --tls-cert, or go through an SSH tunnel")
    if open_browser and _has_screen():
        _open_browser(link)
    try:
        server.run(sockets=[listener])
        opening.check()
    finally:
        opened.readers.stop()


def give_up_root(directory: Path, files: Sequence[Path]) -> None:
    """A server needs no root: it goes on as whoever called sudo, else as nobody, if they may read the recording and the
    program itself (parts of which are loaded when they are needed). If they may not, it keeps one right of root's: to
    read."""
    if os.geteuid() != 0:
        return
    user, group = (_number(os.environ.get(name, "")) for name in ("SUDO_UID", "SUDO_GID"))
    hidden = _hidden_from(user, group, directory, files) if user else directory
    if hidden is None:
        become(user, group)
    elif not user or not become_reader(user, group):
        say(f"exhume: the page is served as root, since user {user} may not read {hidden}")


def _number(text: str) -> int:
    """A user or group that sudo names; nobody's number where it names none."""
    return int(text) if text.isascii() and text.isdigit() else NOBODY


def _hidden_from(user: int, group: int, directory: Path, files: Sequence[Path]) -> Path | None:
    """The first of what the server reads that somebody may not; None where they may read all."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(group)
    os.seteuid(user)
    try:
        needed = [Path(os.__file__), Path(__file__), *files, directory]
        with contextlib.suppress(OSError):
            needed += directory.iterdir()
        return next((path for path in needed if not os.access(path, os.R_OK, effective_ids=True)), None)
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ExhumeError(f"port {port} is taken; choose another with --listen {host}:PORT (0 for any)") from None
        raise ExhumeError(f"can't listen on {host}:{port}: {(error.strerror or str(error)).lower()}") from None
    return listener


def _addresses() -> list[str]:
    """This machine's addresses, as requests name them."""
    with contextlib.suppress(OSError):
        found = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
        return sorted(f"[{each}]" if ":" in each else each for each in found)
    return []


def _open_browser(link: str) -> None:
    import webbrowser

    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(link)


def _has_screen() -> bool:
    """Whether a browser can be shown to the user."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
