"""Access control: loopback without a token, anything else with one; and what a browser may do with the answers.

Another site must not read a recording through the browser of a user who may: requests for other host names are refused
(DNS rebinding), and so are requests that another site sends.
"""

import hmac
from collections.abc import Collection
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "exhume-token"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
METHODS = ("GET", "HEAD")
STREAM = "/api/live"
# Browsers do not send SameSite=Strict cookies when a link on another site is followed (in a chat, in a ticket). A page
# that reloads itself, with its fragment, is this site's own request, and gets them.
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
    """`hosts` are the names (without port) that requests may be for; empty: any. `token` is required where it is set;
    `secure` means that the page is served by TLS."""

    hosts: Collection[str] = LOOPBACK_NAMES
    token: str | None = None
    secure: bool = False


class Guard:
    """ASGI middleware in front of everything."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._host(headers) or self._site(headers)
        if refusal is not None:
            await JSONResponse({"detail": refusal}, 403, headers=HEADERS)(scope, receive, send)
            return
        if scope["method"] not in METHODS:
            detail = "this server only reads: send GET or HEAD"
            await JSONResponse({"detail": detail}, 405, headers={**HEADERS, "allow": ", ".join(METHODS)})(
                scope, receive, send
            )
            return
        if self._rules.token is not None and scope["path"] == RELOAD:
            await Response(RELOAD_SCRIPT, media_type="text/javascript", headers=HEADERS)(scope, receive, send)
            return
        if self._rules.token is not None and (not self._has_token(headers) or _token_in(scope)):
            await self._require_token(scope, receive, send)
            return
        # HEAD is answered as GET, and uvicorn drops the body. A stream has no end.
        if scope["method"] == "HEAD" and scope["path"] != STREAM:
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, _with_headers(send))

    def _host(self, headers: Headers) -> str | None:
        name = _name(headers.get("host", ""))
        if not self._rules.hosts or name in self._rules.hosts:
            return None
        return (
            f"this page is not {name[:100]!r}: open it by the address that exhume serve printed, or add it with --name"
        )

    def _site(self, headers: Headers) -> str | None:
        """Browsers send where a request comes from; other programs send nothing, and are allowed."""
        site = headers.get("sec-fetch-site")
        origin = headers.get("origin")
        navigating = headers.get("sec-fetch-mode") == "navigate"
        if site in ("cross-site", "same-site") and not navigating:
            return "cross-site request refused: only this page may send requests"
        if origin is not None and _netloc(origin) != headers.get("host"):
            return "cross-site request refused: only this page may send requests"
        return None

    def _has_token(self, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        return self._is_token(cookie.value if cookie else "") or self._is_token(bearer)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), (self._rules.token or "").encode())

    async def _require_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The link with the token is opened once; from then on a cookie has it, and the address bar does not."""
        given = _token_in(scope)
        if not self._is_token(given):
            if not given and _arrived_by_link(Headers(scope=scope)):
                page = f'<!doctype html><title>exhume</title><script src="{RELOAD}"></script>opening the page ...'
                await HTMLResponse(page, 401, headers=HEADERS)(scope, receive, send)
                return
            detail = "a token is needed: open the link that exhume serve printed, which has it at its end"
            await JSONResponse({"detail": detail}, 401, headers=HEADERS)(scope, receive, send)
            return
        answer = RedirectResponse("/" + scope["path"].lstrip("/"), 303, headers=HEADERS)
        answer.set_cookie(COOKIE, given, httponly=True, samesite="strict", secure=self._rules.secure)
        await answer(scope, receive, send)


def _arrived_by_link(headers: Headers) -> bool:
    foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    return foreign and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _token_in(scope: Scope) -> str:
    """The token in an address; empty where there is none."""
    query: bytes = scope.get("query_string", b"")
    return dict(parse_qsl(query.decode(errors="replace"))).get("token", "")


def _netloc(origin: str) -> str | None:
    """The host and port of an Origin header; None where it is malformed."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
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
