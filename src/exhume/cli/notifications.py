"""The wiring of notifications: the sinks to which a recorder reports its incidents."""

import importlib.util
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.settings import KUBERNETES, TAINT, WEBHOOK_TOKEN_FILE, NotificationSettings

if TYPE_CHECKING:
    from exhume.collect.loop import TickObserver
    from exhume.collect.sources.pod_owners import PodOwners
    from exhume.kubernetes.reporter import KubernetesReporter
    from exhume.notify.incidents import Notifier
    from exhume.notify.report import Sink

# Time for deliveries in progress at shutdown: service managers do not wait long.
GRACE_S = 1.0
# A taint is added after a minute of starvation and removed after ten minutes of calm.
TAINT_AFTER_NS, TAINT_KEEP_NS = 60 * NANOS, 600 * NANOS


@dataclass(frozen=True, slots=True)
class Notifications:
    """The observers of the recorder's ticks; empty if there is nothing to report."""

    notifier: "Notifier | None" = None
    observers: "tuple[TickObserver, ...]" = ()
    kubernetes: "KubernetesReporter | None" = None

    @property
    def pod_owners(self) -> "PodOwners | None":
        """The owners of pods by the cluster's API, as they become known."""
        return self.kubernetes.pod_owners if self.kubernetes is not None else None

    def on_labels(self, take: "Callable[[Mapping[str, str]], None]") -> None:
        """Register a callback for the node's labels from the API; it is called in the recorder's thread."""
        if self.kubernetes is not None:
            self.kubernetes.on_labels = take

    def start(self, on_cause: Callable[[str], None] | None = None) -> None:
        """Start reporting; `on_cause` gets the cause of each diagnosed incident."""
        if self.notifier is not None:
            if on_cause is not None:
                self.notifier.on_cause = on_cause
            self.notifier.start()


@contextmanager
def notifications_for(
    settings: NotificationSettings, directory: Path, node_name: str | None, *, counted: bool
) -> Iterator[Notifications]:
    """The notifications that the settings name; they end with the recorder. If incidents are `counted` by cause, as
    metrics do, they are diagnosed even if there is no sink."""
    _check(settings)
    if not (counted or settings.on_incident or settings.webhook or settings.kubernetes):
        yield Notifications()
        return
    # Imported here: a recorder without notifications needs none of it.
    from exhume.notify.incidents import ChildDiagnosis, Notifier

    node = node_name or platform.node()
    sinks: list[Sink] = []
    if settings.on_incident:
        from exhume.notify.command import CommandSink

        sinks.append(CommandSink(settings.on_incident, directory))
    if settings.webhook:
        from exhume.notify.webhook import WebhookSink

        sinks.append(
            WebhookSink(settings.webhook, settings.webhook_format, settings.webhook_token_file, settings.webhook_token)
        )
    observers: list[TickObserver] = []
    reporter = None
    if settings.kubernetes:
        from exhume.kubernetes.reporter import KubernetesReporter
        from exhume.kubernetes.taint import TaintPolicy

        policy = None
        if settings.taint != "none":
            policy = TaintPolicy(settings.taint, settings.taint_share, TAINT_AFTER_NS, TAINT_KEEP_NS)
        reporter = KubernetesReporter(node, settings.clear_after_ns, policy)
        sinks.append(reporter)
        observers.append(reporter)
    notifier = Notifier(node, sinks, ChildDiagnosis(directory))
    try:
        yield Notifications(notifier, (*observers, notifier), reporter)
    finally:
        notifier.close(GRACE_S)


def _check(settings: NotificationSettings) -> None:
    """Reject settings that would fail only later, when an incident is reported."""
    file = settings.webhook_token_file
    if file is not None and not os.access(file, os.R_OK):
        raise UsageError(f"{WEBHOOK_TOKEN_FILE.flag}: {file} can't be read; create it, or grant access to it")
    if settings.taint != "none" and not settings.kubernetes:
        raise UsageError(f"{TAINT.flag} needs {KUBERNETES.flag}")
    if settings.kubernetes and importlib.util.find_spec("lightkube") is None:
        raise UsageError(f"{KUBERNETES.flag} needs the Kubernetes client: pip install 'exhume[kubernetes]'")
