"""`exhume event ray`: failures of a running Ray, each reported once."""

from argparse import Namespace

from exhume.cli import exit_codes
from exhume.cli.commands.event.add import MAX_AGE_NS, send, socket_of
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import say
from exhume.interop.ray import RayError, RayFailure, RayState
from exhume.model.clock import NANOS, SystemClock
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.times import format_moment, parse_duration
from exhume.present.events_view import visible


def run(options: Namespace) -> int:
    state = RayState(options.address)
    every = parse_duration(options.every)
    if every < NANOS:
        raise UsageError(f"--every {options.every}: at least 1s")
    seen: set[str] = set()
    report(state.failures(), seen, options)
    if not options.follow:
        return exit_codes.OK
    with stopped_by_signals() as stop:
        while not stop.wait(every / NANOS):
            try:
                report(state.failures(), seen, options)
            except ExhumeError as error:
                # Ray or the recorder may be restarted; what could not be reported is tried again.
                say(f"exhume: {error}" if isinstance(error, RayError) else f"exhume: not reported: {error}")
    return exit_codes.OK


def report(failures: list[RayFailure], seen: set[str], options: Namespace) -> None:
    """Report those that are not seen yet, and are of the last day."""
    now = SystemClock().wall_ns()
    for failure in failures:
        if failure.id in seen:
            continue
        if failure.event.at is None or now - MAX_AGE_NS < failure.event.at <= now:
            if not options.dry_run:
                send([failure.event], socket_of(options))
            at = now if failure.event.at is None else failure.event.at
            print(f"{format_moment(at, digits=0)} {failure.event.kind} {visible(failure.event.line())}", flush=True)
        seen.add(failure.id)
