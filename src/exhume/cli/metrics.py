"""Metrics of the recorder: access to them, their server next to the recording, and pushes to a collector."""

import logging
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exhume.cli.args import value_of
from exhume.model.errors import UsageError
from exhume.model.settings import METRICS, METRICS_TOKEN, OTLP, Setting, is_loopback

if TYPE_CHECKING:
    from exhume.cli.recorder import NodeRecorder
    from exhume.collect.sources.job_events import EventInbox
    from exhume.present.metrics.observer import MetricsObserver
    from exhume.present.metrics.server import MetricsServer

METRICS_SETTINGS: tuple[Setting[Any], ...] = (METRICS, METRICS_TOKEN, OTLP)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Where to serve metrics; without a token, anyone who can reach the address may scrape."""

    host: str
    port: int
    token: str | None


def metrics_options(options: Namespace) -> MetricsOptions | None:
    """The settings of the metrics; None if none are served. Raises UsageError if anyone could scrape without that
    having been requested explicitly."""
    address, token = value_of(options, METRICS), value_of(options, METRICS_TOKEN)
    if address is None:
        return None
    host, port = address
    if not token and not is_loopback(host):
        raise UsageError(
            f"--metrics {host}:{port} can be reached from other machines: set {METRICS_TOKEN.variable} to a token, or"
            f" pass {METRICS_TOKEN.flag} none where others may scrape"
        )
    return MetricsOptions(host, port, None if token in ("", "none") else token)


def takes_events(options: Namespace) -> bool:
    """Whether job events are accepted on the metrics port: only with a token or on loopback, not from the whole
    network."""
    chosen = metrics_options(options)
    return chosen is not None and (chosen.token is not None or is_loopback(chosen.host))


def check_metrics_options(options: Namespace) -> None:
    """Raise UsageError for invalid settings."""
    metrics_options(options)
    value_of(options, OTLP)


@contextmanager
def observe_metrics(
    options: Namespace, recorder: "NodeRecorder", posted: "EventInbox | None" = None
) -> Iterator["MetricsObserver | None"]:
    """Serve and push the recorder's metrics, if requested; yields the observer for its ticks. Events posted by clients
    go into the inbox."""
    chosen, collector = metrics_options(options), value_of(options, OTLP)
    if chosen is None and collector is None:
        yield None
        return
    from exhume.present.metrics.observer import MetricsObserver

    cgroups = recorder.sources.cgroups
    memory = cgroups.v1 if cgroups is not None else None
    observer = MetricsObserver(recorder.facts, lambda: 0 if memory is None else memory.hierarchy_id)
    with ExitStack() as running:
        if chosen is not None:
            running.callback(_serve(chosen, observer, posted).close)
        if collector is not None:
            from exhume.present.metrics.otlp import OtlpPusher

            pusher = OtlpPusher(collector, observer.read, recorder.facts)
            pusher.start()
            running.callback(pusher.close)
        yield observer


def _serve(chosen: MetricsOptions, observer: "MetricsObserver", posted: "EventInbox | None") -> "MetricsServer":
    from exhume.present.metrics.exposition import RenderedMetrics
    from exhume.present.metrics.server import Access, MetricsServer

    access = Access(chosen.token, only_local_names=chosen.token is None and is_loopback(chosen.host))
    server = MetricsServer(chosen.host, chosen.port, RenderedMetrics(observer.read), access, posted)
    if server.problem is not None:
        _log.warning("%s", server.problem)
    server.start()
    return server
