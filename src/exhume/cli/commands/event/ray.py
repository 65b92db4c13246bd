"""`exhume event ray`: failures of a running Ray, each reported once."""

from argparse import Namespace

from exhume.cli import exit_codes
from exhume.cli.commands.event.add import MAX_AGE_NS, send, socket_of
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import say
from exhume.interop.ray import RayError, RayState
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
    report(state, seen, options)
    if not options.follow:
        return exit_codes.OK
    with stopped_by_signals() as stop:
        while not stop.wait(every / NANOS):
            try:
                report(state, seen, options)
            except ExhumeError as error:
                # Ray or the recorder may be restarted; what could not be reported is tried again.
                say(f"exhume: {error}" if isinstance(error, RayError) else f"exhume: not reported: {error}")
    return exit_codes.OK


def report(state: RayState, seen: set[str], options: Namespace) -> None:
    """Report those that are not seen yet, and are of the last day: each for every node on which it happened."""
    now = SystemClock().wall_ns()
    fresh = [each for each in state.failures() if each.id not in seen]
    # Asked only where there is something to place: each of these answers is as large as the cluster.
    recent = [each for each in fresh if each.event.at is None or now - MAX_AGE_NS < each.event.at <= now]
    hosts = state.hosts() if recent else {}
    for failure in recent:
        events = state.with_tasks(failure).events(hosts)
        if not options.dry_run:
            send(events, socket_of(options))
        for event in events:
            at = format_moment(now if event.at is None else event.at, digits=0)
            print(f"{at} {event.kind} {visible(event.line())}", flush=True)
        seen.add(failure.id)
    seen.update(each.id for each in fresh)
