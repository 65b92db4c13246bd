"""`exhume event add`: one datagram to the recorder's socket."""

import os
import socket
from argparse import Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import value_of, zone_of
from exhume.model.clock import SystemClock
from exhume.model.errors import ExhumeError, NoData, UsageError, os_reason
from exhume.model.job_event import DEFAULT_SOCKET, BadEvent, JobEvent
from exhume.model.settings import AUTO, EVENTS_SOCKET
from exhume.model.times import Reference, parse_moment

# As the recorder takes them.
MAX_AGE_NS = 24 * 3600 * 1_000_000_000
_PATIENCE_S = 3.0


def run(options: Namespace) -> int:
    now = SystemClock().wall_ns()
    at = parse_moment(options.at, Reference(now, now, now, zone_of(options)))
    if not now - MAX_AGE_NS <= at <= now + 1_000_000_000:
        raise UsageError(f"--at {options.at}: not within the last day")
    attributes = {}
    for given in options.attr:
        name, equals, value = given.partition("=")
        if not equals:
            raise UsageError(f"--attr {given}: write it as NAME=VALUE")
        attributes[name] = value
    try:
        event = JobEvent(options.kind, options.text, at, options.node, attributes)
        send([event], socket_of(options))
    except BadEvent as error:
        raise UsageError(str(error)) from None
    return exit_codes.OK


def socket_of(options: Namespace) -> Path:
    """The socket that the options name. Raises UsageError for none."""
    path = value_of(options, EVENTS_SOCKET)
    if path is None:
        raise UsageError("--events-socket none takes no events; name the socket of the recorder")
    return DEFAULT_SOCKET if path == AUTO else path


def send(events: list[JobEvent], path: Path) -> None:
    """Hand events to the recorder; it takes them in with its next ticks. Raises NoData where none listens, ExhumeError,
    BadEvent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        # The kernel queues some datagrams; for more of them, the recorder's next tick has to be waited for.
        sender.settimeout(_PATIENCE_S)
        try:
            sender.connect(os.fspath(path))
            for event in events:
                sender.send(event.encode())
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoData(
                f"no recorder takes events at {path}; start one with exhume install, or with exhume record "
                f"--events-socket {path}"
            ) from None
        except PermissionError:
            raise ExhumeError(f"{path} is for root and the members of its group; run as one of them") from None
        except TimeoutError:
            raise ExhumeError(
                f"the recorder at {path} takes no more events at the moment; see exhume health, and try again"
            ) from None
        except OSError as error:
            raise ExhumeError(f"{path} can't be used: {os_reason(error)}") from None
