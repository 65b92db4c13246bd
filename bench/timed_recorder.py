"""`exhume record` with clocks around what metrics and the Kubernetes integration add to it.

    python -m bench.timed_recorder CLOCKS record ARGS...

Every second it appends a line of JSON to the file CLOCKS (see `Clocks`): CPU seconds so far of the observers in the
recorder's own thread, of the threads that only these options start, and of the children that diagnose and report.
"""

import json
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exhume.cli.main import main
from exhume.kubernetes.reporter import KubernetesReporter
from exhume.notify.incidents import ChildDiagnosis, Notifier
from exhume.notify.webhook import WebhookSink
from exhume.present.metrics.observer import MetricsObserver

# By the names of their threads.
_THREADS = ("metrics", "notify-")
OBSERVERS, DIAGNOSES, REPORTS, WEBHOOKS = "observers", "diagnoses", "reports", "webhooks"


class Clocks:
    """CPU seconds and numbers of calls by what they were spent for."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def around(self, what: str, function: Callable[..., Any], clock: Callable[[], float]) -> Callable[..., Any]:
        """The function, with the time of a clock while it runs added."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = clock()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[what] += clock() - began
                self.calls[what] += 1

        return timed

    def write(self) -> None:
        threads = [each for each in threading.enumerate() if each.name.startswith(_THREADS)]
        spent = sum(time.clock_gettime(time.pthread_getcpuclockid(each.ident or 0)) for each in threads)
        line = {"seconds": {**self.seconds, "threads": spent}, "calls": self.calls}
        with self._file.open("a") as lines:
            lines.write(json.dumps(line) + "\n")


def children_seconds() -> float:
    """CPU seconds of the children that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def put_clocks(clocks: Clocks) -> None:
    for observer in (MetricsObserver, KubernetesReporter, Notifier):
        observer.observe = clocks.around(OBSERVERS, observer.observe, time.thread_time)  # type: ignore[method-assign]
    # Children of several kinds that run at the same time are counted for each.
    ChildDiagnosis.__call__ = clocks.around(DIAGNOSES, ChildDiagnosis.__call__, children_seconds)  # type: ignore[method-assign]
    KubernetesReporter._run = clocks.around(REPORTS, KubernetesReporter._run, children_seconds)  # type: ignore[method-assign]
    WebhookSink._post = clocks.around(WEBHOOKS, WebhookSink._post, children_seconds)  # type: ignore[method-assign]
    last = Notifier.observe

    def observe(*args: Any) -> None:
        last(*args)
        # The last of the observers: what it takes to write is in none of the clocks.
        clocks.write()

    Notifier.observe = observe  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    put_clocks(Clocks(Path(sys.argv[1])))
    sys.exit(main(sys.argv[2:]))
