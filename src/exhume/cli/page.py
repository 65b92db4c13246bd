"""The page's server next to a recorder: waits for the recording, serves it, and exits with the recorder."""

import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.log import configure_logging
from exhume.cli.server import ServerOptions, serve
from exhume.cli.terminal import say
from exhume.model.errors import ExhumeError
from exhume.model.settings import LOG, TOKEN

WAIT_S = 30.0


def main(directory: Path, listen: str, *, open_browser: bool) -> int:
    """Serve a recording that is about to begin."""
    until = time.monotonic() + WAIT_S
    while not (directory / "recorder.lock").exists() and time.monotonic() < until:
        # stdin becomes readable only at EOF: nothing is ever written to it.
        if select.select([0], [], [], 0.05)[0]:
            return exit_codes.OK
    watch = threading.Thread(target=_end_with_the_recorder, daemon=True)
    try:
        options = ServerOptions.of(listen, TOKEN.text(), (), None, None)
        serve(directory, options, open_browser=open_browser, after_fork=watch.start)
    except ExhumeError as error:
        say(f"exhume: the page is not served: {error}")
        return exit_codes.ERROR
    return exit_codes.OK


def _end_with_the_recorder() -> None:
    """Terminate at EOF on stdin, a pipe from the recorder, which the kernel closes however the recorder ends."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    configure_logging(LOG.from_environment())
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], open_browser="--open" in sys.argv[3:]))
