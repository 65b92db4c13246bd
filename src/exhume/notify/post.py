"""Posts a body to a URL. As a program it is the child that posts one webhook: the job as JSON on standard input, how it
ended as JSON on standard output."""

import json
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict
from email.message import Message
from http.client import HTTPException
from typing import Any

from exhume import __version__
from exhume.notify.outbox import Delivery

TIMEOUT_S = 8.0
# For a server that sends a byte now and then: each read is in time, all of them are not.
ALARM_S = 15
# The answer is of no interest; a connection whose answer is read to the end is closed in order.
READ_BYTES = 4096
_TOO_MANY = 429
_RETRIED = (408, 409, 425, _TOO_MANY)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token and the report to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post(
    url: str,
    token: str | None,
    body: bytes,
    timeout_s: float = TIMEOUT_S,
    more_headers: Mapping[str, str] | None = None,
) -> Delivery:
    """Post a body, as JSON unless the headers say otherwise; certificates are verified against the system's
    authorities."""
    headers = {"Content-Type": "application/json", "User-Agent": f"exhume/{__version__}", **(more_headers or {})}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    opener = urllib.request.build_opener(
        _NoRedirect(), urllib.request.HTTPSHandler(context=ssl.create_default_context())
    )
    try:
        request = urllib.request.Request(url, body, headers, method="POST")
        with opener.open(request, timeout=timeout_s) as answer:
            answer.read(READ_BYTES)
            return Delivery(True)
    except urllib.error.HTTPError as error:
        with error:
            retry = error.code in _RETRIED or error.code >= 500
            problem = f"the receiver answered {error.code} {error.reason}"
            return Delivery(False, retry=retry, problem=problem, retry_after_s=_retry_after(error.headers))
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        what = "its certificate is not valid" if isinstance(reason, ssl.SSLCertVerificationError) else "no connection"
        return Delivery(False, retry=True, problem=f"{what}: {reason}")
    except ValueError as error:
        return Delivery(False, problem=f"the request can't be made: {error}")


def _retry_after(headers: Message) -> float:
    """Seconds of Retry-After; its other form, a date, is rare and counts as none."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


def main() -> None:
    signal.alarm(ALARM_S)
    job = json.load(sys.stdin)
    sys.stdout.write(json.dumps(asdict(post(job["url"], job["token"], job["body"].encode()))))


if __name__ == "__main__":
    main()
