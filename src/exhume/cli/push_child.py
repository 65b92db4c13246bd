"""The wiring of pushes: a low-priority process next to the recorder, which exits with it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.model.errors import ExhumeError, UsageError
from exhume.model.isolation import isolated_environment, isolated_python
from exhume.model.process import first_to_end, usual_priority
from exhume.model.settings import LOG, PUSH_CA_FILE, PUSH_TOKEN_FILE, LogTarget, PushSettings

if TYPE_CHECKING:
    from exhume.fleet.push import Pusher
    from exhume.fleet.spool import Spool

NICE = 10
# Time at shutdown to push what was sealed last: service managers do not wait long, and the spool keeps unsent data.
GRACE_S = 5.0


def open_pusher(settings: PushSettings, directory: Path, spool: "Spool", first_ns: int | None = None) -> "Pusher":
    """Create the pusher. Raises ExhumeError if the recording or the target can't be used."""
    from exhume.fleet.lake import Lake
    from exhume.fleet.push import FIRST_NS, BundleChild, HubTarget, LakeTarget, Pusher, Target, node_name
    from exhume.store.read.recording import Recording

    assert settings.target is not None
    target: Target
    if settings.target.startswith("http"):
        target = HubTarget(settings.target, settings.token, settings.token_file, settings.ca_file)
    else:
        node = node_name(Recording(directory).facts.node)
        target = LakeTarget(Lake.open(settings.target, settings.s3_endpoint), node)
    return Pusher(
        directory, spool, target, bundles=BundleChild(directory), first_ns=FIRST_NS if first_ns is None else first_ns
    )


def check_push(settings: PushSettings) -> None:
    """Reject settings that would fail only later. Raises UsageError."""
    for setting, file in ((PUSH_TOKEN_FILE, settings.token_file), (PUSH_CA_FILE, settings.ca_file)):
        if file is not None and not os.access(file, os.R_OK):
            raise UsageError(f"{setting.flag}: {file} can't be read; create it, or grant access to it")


@contextmanager
def push_next_to_recorder(settings: PushSettings, directory: Path, log: LogTarget) -> Iterator[None]:
    """If requested, push the recording from a separate process while it is recorded."""
    if settings.target is None:
        yield
        return
    check_push(settings)
    child = subprocess.Popen(
        isolated_python("exhume.cli.push_child", directory.absolute()),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # A new session: Ctrl-C is for the recorder only.
        start_new_session=True,
        env={**isolated_environment(), LOG.variable: str(log)},
    )
    usual_priority(child.pid)
    assert child.stdin is not None
    try:
        with suppress(BrokenPipeError):
            # Settings are passed on stdin, because other users can read arguments.
            child.stdin.write(json.dumps(asdict(settings), default=os.fspath).encode() + b"\n")
            child.stdin.flush()
        yield
    finally:
        # The child exits when this pipe is closed, even after kill -9 of the recorder.
        with suppress(BrokenPipeError):
            child.stdin.close()
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def main(directory: Path) -> int:
    """Push a recording that is about to begin, until EOF on stdin."""
    import logging

    from exhume.cli.log import configure_logging

    configure_logging(LOG.from_environment())
    given = json.loads(sys.stdin.buffer.readline() or b"{}")
    for name in ("token_file", "ca_file"):
        if given.get(name):
            given[name] = Path(given[name])
    settings = PushSettings(**given)
    os.nice(NICE)
    first_to_end(os.getpid())
    stop = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(stop,), daemon=True).start()
    log = logging.getLogger(__name__)
    warned = False
    while True:
        try:
            _push(settings, directory, stop)
            return 0
        except ExhumeError as error:
            # The recorder has not started yet, or the target is not available.
            (log.info if warned else log.warning)("push: %s; tried again", error)
            warned = True
        if stop.wait(30.0):
            return 2


def _push(settings: PushSettings, directory: Path, stop: threading.Event) -> None:
    import pyarrow as pa

    from exhume.fleet.spool import Spool
    from exhume.store.format.names import LOCK_NAME, PUSH_NAME

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    while not (directory / LOCK_NAME).exists():
        if stop.wait(0.2):
            return
    # The recording's facts are written with the first tick.
    stop.wait(3.0)
    spool = Spool(directory / PUSH_NAME)
    try:
        open_pusher(settings, directory, spool).follow(stop)
    finally:
        spool.close()


def _wait_for_the_end(stop: threading.Event) -> None:
    """Request a stop at EOF on stdin, a pipe from the recorder, which the kernel closes however the recorder ends."""
    while os.read(0, 4096):
        pass
    stop.set()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
