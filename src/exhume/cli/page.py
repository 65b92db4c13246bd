"""The page's server beside a recorder: waits for the recording, serves it, and ends when the recorder does."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.log import configure_logging
from exhume.cli.serving import Serving, serve
from exhume.cli.terminal import say
from exhume.model.errors import ExhumeError
from exhume.model.settings import LOG, TOKEN

WAIT_S = 30.0


def main(directory: Path, listen: str, *, open_browser: bool) -> int:
    """Serve a recording that is about to begin."""
    threading.Thread(target=_end_with_the_recorder, daemon=True).start()
    until = time.monotonic() + WAIT_S
    while not (directory / "recorder.lock").exists() and time.monotonic() < until:
        time.sleep(0.05)
    try:
        serve(directory, Serving.of(listen, TOKEN.text(), (), None, None), open_browser=open_browser)
    except ExhumeError as error:
        say(f"exhume: the page is not served: {error}")
        return exit_codes.ERROR
    return exit_codes.OK


def _end_with_the_recorder() -> None:
    """Standard input is a pipe of the recorder's: it ends with it, however that ends."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    configure_logging(LOG.from_environment())
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], open_browser="--open" in sys.argv[3:]))
