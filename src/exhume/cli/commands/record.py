"""Record this node until it is stopped.

Ctrl-C, SIGTERM or a closed terminal seals the recording and prints what was recorded, lost and spent.
"""

import os
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from exhume.cli import exit_codes
from exhume.cli.args import (
    NOTIFICATIONS,
    PUSHES,
    RECORDER,
    add_setting,
    log_target,
    notification_settings,
    push_settings,
    recorder_settings,
    value_of,
    zone_of,
)
from exhume.cli.log import log_lines_to
from exhume.cli.metrics import METRICS_SETTINGS, check_metrics_options, metrics_options, observe_metrics, takes_events
from exhume.cli.page_process import page_process
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import dir_args, say, wrapped
from exhume.model.clock import MILLIS, SystemClock
from exhume.model.settings import COLOR, DIR, LISTEN, UTC, RecorderSettings
from exhume.present.terminal.status import Status, status_for, summary_lines

if TYPE_CHECKING:
    from exhume.collect.symbols.opener_process import OpenerProcess


def add_options(parser: ArgumentParser) -> None:
    for setting in (*RECORDER, *METRICS_SETTINGS, *NOTIFICATIONS, *PUSHES, UTC):
        if not setting.has_flag:
            continue
        add_setting(parser, setting, *(["-d"] if setting is DIR else []))


def run(options: Namespace) -> int:
    """Without a command, the page of the recording is served too."""
    settings = recorder_settings(options)
    check_metrics_options(options)  # refuse a bad address before anything starts
    # The confined process is forked before the recorder loads, opens or starts anything else.
    from exhume.collect.symbols.opener_process import OpenerProcess

    opener = OpenerProcess.fork()
    if options.command is not None:
        return _record(options, settings, opener, None)
    with _page_server(options) as lines:
        return _record(options, settings, opener, lines)


def _record(
    options: Namespace, settings: RecorderSettings, opener: "OpenerProcess | None", page: IO[bytes] | None
) -> int:
    """Record until the time is over or a signal comes; the status shows the lines of `page`."""
    from exhume.cli.notifications import notifications_for
    from exhume.cli.push_child import push_next_to_recorder
    from exhume.cli.recorder import node_recorder, size_on_disk
    from exhume.collect.source_set import Inboxes
    from exhume.collect.sources.job_events import EventInbox

    directory = settings.directory
    began_ms = SystemClock().monotonic_ns() // MILLIS
    posted = EventInbox() if takes_events(options) else None
    with (
        stopped_by_signals() as stop,
        # Around the recorder: its last segment is pushed too.
        push_next_to_recorder(push_settings(options), directory, log_target(options)),
        # Around the recorder: what is being delivered goes on while the recording is sealed.
        notifications_for(
            notification_settings(options), directory, settings.node_name, counted=metrics_options(options) is not None
        ) as notifications,
        node_recorder(settings, opener, Inboxes(notifications.pod_owners, posted)) as recorder,
    ):
        notifications.on_labels(recorder.relabel)
        # A closed terminal, a pipe without a reader or a full disk under the log is no reason to stop recording.
        with suppress(OSError):
            if recorder.store.tightened:
                say(f"exhume: {directory} was readable by other users; now it is not, see --group")
            for missing in recorder.sources.missing:
                say(f"source unavailable: {missing}")
        status = status_for(value_of(options, COLOR), str(directory), zone_of(options))
        if page is not None:
            threading.Thread(target=_forward, args=(page, status), daemon=True).start()
        with log_lines_to(status.note), observe_metrics(options, recorder, posted) as metrics:
            notifications.start(None if metrics is None else metrics.count_finding)
            observers = notifications.observers if metrics is None else (metrics, *notifications.observers)
            summary = recorder.run(stop, status.tick, observers)
    try:
        live = sys.stdout.isatty()
        for line in summary_lines(summary, str(directory), size_on_disk(directory, began_ms)):
            print(wrapped(line) if live else line)
        print(f"next: exhume {'incidents' if summary.incidents else 'cores'}{dir_args(directory)}")
        sys.stdout.flush()
    except OSError:
        # The recording is sealed. The interpreter must not fail when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_codes.OK


@contextmanager
def _page_server(options: Namespace) -> Iterator[IO[bytes] | None]:
    """Serve the page next to the recorder; its end does not end the recorder. On a terminal, yields what it prints, for
    the status, which is redrawn in place and would overwrite it."""
    LISTEN.from_environment()  # refuse a bad address before anything starts
    live = sys.stdout.isatty()
    directory, log = value_of(options, DIR), log_target(options)
    with page_process(directory, LISTEN.text(), log, captured=live, open_browser=live) as page:
        yield page.stdout


def _forward(lines: IO[bytes], status: Status) -> None:
    """Show the lines of the server in the status: its address, or why there is no page."""
    for line in lines:
        status.announce(line.decode(errors="replace").rstrip("\n"))
