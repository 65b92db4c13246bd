"""Show this node live: cores and their stalls, what runs and what waits, incidents as they happen.

It reads what a running recorder writes, and collects nothing itself. Piped, it prints one frame.
"""

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from datetime import tzinfo

import pyarrow as pa

from exhume.cli import exit_codes
from exhume.cli.args import add_json, add_setting, option, value_of, zone_of
from exhume.cli.commands.top.screen import Screen
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import dir_args, say
from exhume.model.settings import COLOR, DIR, UTC
from exhume.present.terminal.console import console, width_of
from exhume.present.terminal.top import PRINTED_LINES, Ink, TopPrinter, View
from exhume.present.top_view import TABLES, LiveNode, Order, TopFrame, top_json
from exhume.store.read.recording import Recording
from exhume.store.read.tail import Tail
from exhume.store.write.lock import being_recorded

EVERY_S = 1.0
# How long the first tick is waited for, and names of containers are looked for in what was recorded before.
FIRST_TICK_S, NAMES_S = 5.0, 0.3
_LOOK_S = 0.1
# A recorder that made no tick for so long may have ended.
_CHECK_AFTER_S = 2.0
QUIT, HELP = ("q", "Q"), ("?", "h")
SORT, GROUPS, FILTER, PAUSE = "s", "g", "/", ("p", " ")
ENTER, ESCAPE, ERASE = ("\n", "\r"), "\x1b", ("\x7f", "\b")


def add_options(parser: ArgumentParser) -> None:
    add_setting(parser, DIR, "-d")
    option(parser, "--once", "Print one frame and end.")
    orders = [str(order) for order in Order]
    about = "cpu, wait (for a core, or stopped by a quota) or kernel (CPU time in the kernel)."
    option(parser, "--sort ORDER", about, default=orders[0], choices=orders)
    option(parser, "--filter TEXT", "Only what has this text in its name, number, container or pod.", default="")
    add_json(parser)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    # Next to starved work: one thread is enough.
    pa.set_cpu_count(1)
    directory = value_of(options, DIR)
    recording = Recording.open(directory)
    if not being_recorded(recording.directory):
        say(f"exhume: no recorder is running in {directory}; start one with exhume record{dir_args(directory)}")
        return exit_codes.NO_DATA
    follower = Follower(recording)
    view = View(Order(options.sort), options.filter)
    try:
        if not follower.wait():
            say(f"exhume: the recorder of {directory} has not finished a tick yet; try again in a few seconds")
            return exit_codes.NO_DATA
        if options.json:
            print(json.dumps(top_json(follower.frame(view), zone_of(options))))
        elif options.once or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
            _print(follower, view, value_of(options, COLOR), zone_of(options))
        else:
            _watch(follower, view, TopPrinter(Ink(value_of(options, COLOR)), zone_of(options)))
    finally:
        follower.close()
    return exit_codes.OK


class Follower:
    """The node of a recording that grows."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._tail = Tail(recording.directory, TABLES)
        self._node = LiveNode()
        self._ticked = time.monotonic()

    def wait(self) -> bool:
        """Wait for the first tick; False where none comes."""
        until = time.monotonic() + FIRST_TICK_S
        while not self.poll() and time.monotonic() < until:
            time.sleep(_LOOK_S)
        return self._node.wall is not None

    def poll(self) -> bool:
        """Take in what was added; whether a tick was."""
        before = self._node.wall
        for segment, rows in self._tail.poll():
            if self._node.wall is None and "anchors" in rows:
                self._recording.refresh()
                self._node.take_past(self._recording, segment)
                self._name_containers()
            self._node.take(segment, rows)
        if ticked := self._node.wall != before:
            self._ticked = time.monotonic()
        return ticked

    def _name_containers(self) -> None:
        """Docker's names are recorded when a container starts, which may be long ago."""
        until, names = time.monotonic() + NAMES_S, dict[str, str]()
        for segment in reversed(self._recording.segments):
            names = {**self._recording.container_names_of(segment), **names}
            if time.monotonic() > until:
                break
        self._node.name_containers(names)

    def frame(self, view: View) -> TopFrame:
        """The node as the user wants to see it; the view says whether its recorder still works."""
        view.late_s = time.monotonic() - self._ticked
        view.stopped = view.late_s > _CHECK_AFTER_S and not being_recorded(self._recording.directory)
        facts = self._tail.facts
        return self._node.frame(facts.node if facts is not None else "", view.order, view.match)

    def close(self) -> None:
        self._tail.close()


def _print(follower: Follower, view: View, color: str, zone: tzinfo | None) -> None:
    printer = TopPrinter(Ink(color), zone)
    for line in printer.lines(follower.frame(view), view, width_of(console(color)), PRINTED_LINES, keys=False):
        print(line)


def _watch(follower: Follower, view: View, printer: TopPrinter) -> None:
    """Draw each second, and after each key, until it is ended."""
    with stopped_by_signals() as stop, Screen() as screen:
        due = time.monotonic() + EVERY_S
        frame = follower.frame(view)
        while not stop.is_set() and screen.open:
            screen.draw(printer.lines(frame, view, *screen.size))
            pressed = screen.wait(stop, None if view.paused else due - time.monotonic())
            if not all(press(view, key) for key in pressed):
                return
            if not view.paused and time.monotonic() >= due:
                follower.poll()
                due = time.monotonic() + EVERY_S
            # A paused view can still be sorted and filtered.
            frame = follower.frame(view)


def press(view: View, key: str) -> bool:
    """Apply a key to the view; returns False if the key ends the program."""
    if view.typed is not None:
        _type(view, key)
    elif key in QUIT:
        return False
    elif key in HELP:
        view.help = not view.help
    elif key == SORT:
        orders = list(Order)
        view.order = orders[(orders.index(view.order) + 1) % len(orders)]
    elif key == GROUPS:
        view.containers = not view.containers
    elif key in PAUSE:
        view.paused = not view.paused
    elif key == FILTER:
        view.typed = view.match
    elif key == ESCAPE:
        view.match, view.help = "", False
    return True


def _type(view: View, key: str) -> None:
    """Handle a key while the filter is being typed; the filter takes effect at once."""
    typed = view.typed or ""
    if key in ENTER:
        view.typed = None
        return
    if key == ESCAPE:
        view.typed, view.match = None, ""
        return
    if key in ERASE:
        typed = typed[:-1]
    elif key.isprintable():
        typed += key
    view.typed = view.match = typed
