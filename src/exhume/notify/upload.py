"""Uploads: one request to a server, retried with back-off until it is accepted, rejected for good, or too late."""

import time
from collections.abc import Callable

from exhume.interop.receivers import HttpRequest
from exhume.model.errors import ExhumeError
from exhume.notify.outbox import Backoff, Delivery
from exhume.notify.post import post

MOST_ATTEMPTS = 6
ANSWER_S = 20.0
# For all attempts and the waits between them: as long as a person would watch.
DEADLINE_S = 120.0


class UploadFailed(ExhumeError):
    """A server did not accept an upload."""


def upload(
    request: HttpRequest,
    token: str | None,
    *,
    backoff: Backoff | None = None,
    report: Callable[[str], None] = lambda text: None,
    deadline_s: float = DEADLINE_S,
    answer_s: float = ANSWER_S,
) -> int:
    """Send a request and return the number of attempts it took. `report` gets a sentence about each failed one. Raises
    UploadFailed."""
    backoff = backoff or Backoff(first_s=1.0, longest_s=30.0)
    until = time.monotonic() + deadline_s
    headers = {"Content-Type": request.content_type, **request.headers}
    for attempt in range(1, MOST_ATTEMPTS + 1):
        tried = post(request.url, token, request.body, min(answer_s, max(0.1, until - time.monotonic())), headers)
        if tried.delivered:
            return attempt
        wait = backoff.next_s(tried.retry_after_s)
        if not tried.retry or attempt == MOST_ATTEMPTS or time.monotonic() + wait > until:
            raise _failed(tried, attempt)
        report(f"{tried.problem}; tried again in {wait:.0f} s")
        time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _failed(tried: Delivery, attempts: int) -> UploadFailed:
    times = "" if attempts == 1 else f", {attempts} times"
    return UploadFailed(f"the profile was not taken{times}: {tried.problem}")
