"""Access control: loopback without a token, everything else with a token; and what a browser may do with the
responses.

Another site must not read a recording through the browser of an authorised user, so requests for other host names (DNS
rebinding) and cross-site requests are refused. A recording shows what other users of the node may not see: command
lines, and the kernel log if kernel.dmesg_restrict is set. On loopback the kernel knows which user owns each end of a
connection, so no password or token is needed.
"""

import asyncio
import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exhume.procfs.net_tcp import owner_of_connection

COOKIE = "exhume-token"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
METHODS = ("GET", "HEAD")
STREAM = "/api/live"
# Browsers do not send SameSite=Strict cookies when a link on another site (a chat, a ticket) is followed. A page that
# reloads itself, with its fragment, makes a same-site request, which includes them.
RELOAD, RELOAD_SCRIPT = "/again.js", 'location.replace(location.pathname + "?" + location.hash);'
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Rules:
    """`hosts` are the host names (without port) that requests may use; empty: any. If `token` is set, it is required.
    `secure` means that the page is served over TLS. With `users`, only requests from processes of these users are
    answered."""

    hosts: Collection[str] = LOOPBACK_NAMES
    token: str | None = None
    secure: bool = False
    users: Collection[int] | None = None


class Guard:
    """ASGI middleware that guards the whole application."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = await self._answer(scope)
        if answer is not None:
            await answer(scope, receive, _with_headers(send))
            return
        # HEAD is handled as GET, and uvicorn drops the body. A stream would never end, so it is excluded.
        if scope["method"] == "HEAD" and not scope["path"].endswith(STREAM):
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, _with_headers(send))

    async def _answer(self, scope: Scope) -> Response | None:
        """The response to a request that is refused; None for one that is allowed."""
        headers = Headers(scope=scope)
        if not await self._is_user(scope):
            only = "this page is for root and the user who started it"
            return _problem(403, f"{only}; ask them for a link: exhume serve --token makes one")
        name = _name(headers.get("host", ""))
        if self._rules.hosts and name not in self._rules.hosts:
            shown = f"this page is not {name[:100]!r}"
            return _problem(403, f"{shown}: open it by the address that exhume serve printed, or add it with --name")
        if _is_from_other_site(headers):
            return _problem(403, "cross-site request refused: only this page may send requests")
        if scope["method"] not in METHODS:
            return _problem(405, "this server only reads: send GET or HEAD", {"allow": ", ".join(METHODS)})
        if self._rules.token is None:
            return None
        if scope["path"] == RELOAD:
            return Response(RELOAD_SCRIPT, media_type="text/javascript")
        return self._token_answer(scope, headers)

    async def _is_user(self, scope: Scope) -> bool:
        if self._rules.users is None:
            return True
        client, server = scope.get("client"), scope.get("server")
        if client is None or server is None:
            return False
        # Runs in a thread: the connection table is long on a node with many connections.
        return await asyncio.to_thread(owner_of_connection, client[:2], server[:2]) in self._rules.users

    def _token_answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Exchange the token in the link for a cookie, so that the address bar no longer shows it."""
        given = dict(parse_qsl(scope.get("query_string", b"").decode(errors="replace"))).get("token", "")
        if not given and self._has_token(headers):
            return None
        if self._is_token(given):
            answer = RedirectResponse("/" + scope["path"].lstrip("/"), 303)
            answer.set_cookie(COOKIE, given, httponly=True, samesite="strict", secure=self._rules.secure)
            return answer
        fetch = tuple(headers.get(f"sec-fetch-{name}") for name in ("mode", "dest"))
        if not given and _is_foreign(headers) and fetch == ("navigate", "document"):
            page = f'<!doctype html><title>exhume</title><script src="{RELOAD}"></script>opening the page ...'
            return HTMLResponse(page, 401)
        return _problem(401, "a token is needed: open the link that exhume serve printed, which has it at its end")

    def _has_token(self, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        return self._is_token(cookie.value if cookie else "") or self._is_token(bearer)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), (self._rules.token or "").encode())


def _problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"detail": detail}, status, headers=headers)


def _is_from_other_site(headers: Headers) -> bool:
    """Whether another site sent the request. Browsers state the origin of a request; other programs do not, and are
    allowed."""
    if _is_foreign(headers) and headers.get("sec-fetch-mode") != "navigate":
        return True
    try:
        return "origin" in headers and urlsplit(headers["origin"]).netloc != headers.get("host")
    except ValueError:
        return True


def _is_foreign(headers: Headers) -> bool:
    return headers.get("sec-fetch-site") in ("cross-site", "same-site")


def _name(host: str) -> str:
    """The host name in a Host header, without the port."""
    if host.startswith("["):
        return host[: host.find("]") + 1].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            found = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                found.setdefault(name, value)
            found.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers
