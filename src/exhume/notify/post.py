"""Post a body to a URL. Run as a program, it is the child that posts one webhook: it reads the job as JSON from stdin
and writes the result as JSON to stdout."""

import json
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict
from email.message import Message
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from exhume import __version__
from exhume.model.settings import is_loopback
from exhume.notify.outbox import Delivery

TIMEOUT_S = 8.0
# A limit for servers that trickle bytes: each read is in time, but the whole answer is not.
ALARM_S = 15
# The answer is ignored, but reading it to the end lets the connection close cleanly.
READ_BYTES = 4096
_TOO_MANY = 429
_RETRIED = (408, 409, 425, _TOO_MANY)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: they would carry the token and the report to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Trust(NamedTuple):
    """The accepted certificates: those signed by an authority in `ca_file`, instead of those of the system. `setting`
    is where a user configures that file."""

    ca_file: Path | None = None
    setting: str = "SSL_CERT_FILE"


SYSTEM = Trust()


@lru_cache(maxsize=4)
def _opener(ca_file: Path | None, changed: int, loopback: bool) -> urllib.request.OpenerDirector:
    """Build an opener. Cached until the file `changed`: reading the system's CA certificates takes 20 ms of CPU."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if loopback:
        # Requests to this machine may be unencrypted: a proxy from the environment must not get them and the token.
        handlers.append(urllib.request.ProxyHandler({}))
    context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    return urllib.request.build_opener(*handlers, urllib.request.HTTPSHandler(context=context))


def post(
    url: str,
    token: str | None,
    body: bytes,
    timeout_s: float = TIMEOUT_S,
    more_headers: Mapping[str, str] | None = None,
    *,
    trust: Trust = SYSTEM,
) -> Delivery:
    """Post a body, as JSON unless the headers say otherwise. Certificates are verified, including the host name, before
    anything is sent."""
    headers = {"Content-Type": "application/json", "User-Agent": f"exhume/{__version__}", **(more_headers or {})}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        request = urllib.request.Request(url, body, headers, method="POST")
        changed = 0 if trust.ca_file is None else trust.ca_file.stat().st_mtime_ns
        opener = _opener(trust.ca_file, changed, is_loopback(urlsplit(url).hostname or ""))
        with opener.open(request, timeout=timeout_s) as answer:
            answer.read(READ_BYTES)
            return Delivery(True, code=answer.status)
    except urllib.error.HTTPError as error:
        with error:
            retry = error.code in _RETRIED or error.code >= 500
            problem = f"the receiver answered {error.code} {error.reason}{_detail(error)}"
            retry_after = _retry_after(error.headers)
            return Delivery(False, retry=retry, problem=problem, retry_after_s=retry_after, code=error.code)
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return Delivery(False, retry=True, problem=_failure(reason, trust))
    except ValueError as error:
        return Delivery(False, problem=f"the request can't be made: {error}")


def _failure(reason: object, trust: Trust) -> str:
    """Explain why there was no answer. Certificates are verified in the handshake, so nothing was sent then."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        remedy = f"name the authority that signed it with {trust.setting}"
        return f"the receiver's certificate is not valid ({reason.verify_message}), nothing was sent; {remedy}"
    if isinstance(reason, ssl.SSLError) and trust.ca_file is not None and reason.library in ("X509", "PEM"):
        return f"{trust.ca_file} is not a file of certificates (PEM); see {trust.setting}"
    if isinstance(reason, FileNotFoundError) and trust.ca_file is not None:
        return f"{trust.ca_file} does not exist; see {trust.setting}"
    return f"no connection: {reason}"


def _detail(error: urllib.error.HTTPError) -> str:
    """The error that a hub gives in the body of a refusal: `{"error": "..."}`."""
    try:
        message = json.loads(error.read(READ_BYTES))["error"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return ""
    return f": {message[:300]}" if isinstance(message, str) and message.isprintable() else ""


def _retry_after(headers: Message) -> float:
    """Seconds of Retry-After; its other form, a date, is rare and is ignored."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


def main() -> None:
    signal.alarm(ALARM_S)
    job = json.load(sys.stdin)
    sys.stdout.write(json.dumps(asdict(post(job["url"], job["token"], job["body"].encode()))))


if __name__ == "__main__":
    main()
