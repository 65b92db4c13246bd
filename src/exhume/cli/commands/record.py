"""Record this node until it is stopped.

Ctrl-C, SIGTERM or a closed terminal seals the recording and prints what was recorded, lost and spent.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_recorder_options, add_setting, recorder_settings, value_of, zone_of
from exhume.cli.log import log_lines_to
from exhume.cli.recorder import node_recorder
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import dir_args, say
from exhume.model.clock import MILLIS, SystemClock, read_boot_id
from exhume.model.settings import COLOR, UTC
from exhume.present.terminal.status import Status, status_for, summary_lines
from exhume.store.format.names import boot_part
from exhume.store.read.index import sealed_segments


def add_options(parser: ArgumentParser) -> None:
    add_recorder_options(parser)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    return record(options)


def record(options: Namespace, on_start: Callable[[Status], None] = lambda status: None) -> int:
    """Record until the time is over or a signal comes. `on_start` gets the status once it is shown."""
    settings = recorder_settings(options)
    directory = settings.directory
    began_ms = SystemClock().monotonic_ns() // MILLIS
    with stopped_by_signals() as stop, node_recorder(settings) as recorder:
        # A closed terminal, a pipe without a reader or a full disk under the log is no reason to stop recording.
        with suppress(OSError):
            if recorder.tightened:
                say(f"exhume: {directory} was readable by other users; now it is not, see --group")
            for missing in recorder.missing:
                say(f"source unavailable: {missing}")
        status = status_for(value_of(options, COLOR), str(directory), zone_of(options))
        on_start(status)
        with log_lines_to(status.note):
            summary = recorder.run(stop, status.tick)
    try:
        for line in summary_lines(summary, str(directory), _size_on_disk(directory, began_ms)):
            print(line)
        print(f"next: exhume {'incidents' if summary.incidents else 'cores'}{dir_args(directory)}")
        sys.stdout.flush()
    except OSError:
        # The recording is sealed. The interpreter must not fail when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_codes.OK


def _size_on_disk(directory: Path, began_ms: int) -> int:
    """Size of the segments of this recorder; the directory may hold those of an earlier one."""
    boot = boot_part(read_boot_id())
    mine = (s for s in sealed_segments(directory) if s.name.boot == boot and s.name.start_ms >= began_ms)
    return sum(segment.size() for segment in mine)
