"""Webhooks: reports posted to a URL by a short-lived child, the only process that loads HTTP and TLS code."""

import json
from pathlib import Path

from exhume.model.isolation import isolated_python
from exhume.notify.child import child_environment, run_child
from exhume.notify.formats import FORMATS
from exhume.notify.outbox import Backoff, Delivery, OutboxSink
from exhume.notify.report import Report

CHILD_TIMEOUT_S = 20.0


class WebhookSink(OutboxSink):
    """Posts each report. The token is read for each request, so that token rotation works."""

    def __init__(
        self,
        url: str,
        form: str = "json",
        token_file: Path | None = None,
        token: str | None = None,
        *,
        timeout_s: float = CHILD_TIMEOUT_S,
        backoff: Backoff | None = None,
    ) -> None:
        self._url, self._body, self._token_file, self._token = url, FORMATS[form], token_file, token
        self._timeout_s = timeout_s
        super().__init__("--webhook", self._post, backoff)

    def _post(self, report: Report) -> Delivery:
        token = self._token
        if self._token_file is not None:
            try:
                token = self._token_file.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                return Delivery(False, retry=True, problem=f"the token can't be read from {self._token_file}: {error}")
        # Passed on stdin: arguments and the environment are visible to other processes.
        job = {"url": self._url, "token": token, "body": self._body(report).decode()}
        try:
            done = run_child(
                isolated_python("exhume.notify.post"),
                json.dumps(job).encode(),
                timeout_s=self._timeout_s,
                cancel=self._cancel,
                environment=child_environment(),
            )
        except OSError as error:
            return Delivery(False, retry=True, problem=f"a process can't be started: {error}")
        return delivery_of(done.code, done.output, f"no answer within {self._timeout_s:.0f} s")


def delivery_of(code: int | None, output: bytes, late: str) -> Delivery:
    """Parse what the child printed about its request."""
    if code is None:
        return Delivery(False, retry=True, problem=late)
    try:
        found = json.loads(output)
        return Delivery(
            bool(found["delivered"]), bool(found["retry"]), str(found["problem"]), float(found["retry_after_s"])
        )
    except (ValueError, KeyError, TypeError):
        return Delivery(False, retry=True, problem=f"the process that delivers ended with code {code}")
