"""A recorder at work: signals, status and the last words. Shared by `exhume record` and bare `exhume`."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from typing import Any

from exhume.cli.looking import directory_words
from exhume.cli.speaking import say, suggest
from exhume.cli.wiring import node_recorder
from exhume.model.stop import Stop
from exhume.present.status import summary_lines
from exhume.present.terminal.status import status_for


def record_node(values: Mapping[str, Any]) -> None:
    """Record with these settings (their names as in the registry) until the time is over or a signal comes."""
    zone = UTC if values["utc"] else None
    directory = values["dir"]
    with _stopped_by_signals() as stop, node_recorder(values) as recorder:
        for source in recorder.missing:
            say(f"missing: {source}")
        summary = recorder.run(stop, status_for(values["color"], str(directory), zone).tick)
    for line in summary_lines(summary, str(directory)):
        print(line)
    where = directory_words(directory)
    suggest(f"exhume incidents{where}" if summary.incidents else f"exhume cores{where}")


@contextmanager
def _stopped_by_signals() -> Iterator[Stop]:
    """SIGINT and SIGTERM ask for a stop: what is recorded gets sealed. A second one changes nothing, so that an
    impatient Ctrl-C can't leave the recording half sealed."""
    stop = Stop()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()
