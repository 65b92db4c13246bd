"""Record this node and serve its page on loopback: `exhume` without a command.

The recorder and the page's server are two processes that meet only in the recording: the server has no privileges, and
its end does not end the recorder.
"""

import subprocess
import sys
import threading
from argparse import Namespace
from typing import IO

from exhume.cli.args import log_target, value_of
from exhume.cli.commands.record import record
from exhume.model.isolation import isolated_environment, isolated_python
from exhume.model.settings import DIR, LISTEN, LOG
from exhume.present.terminal.status import Status


def run(options: Namespace) -> int:
    LISTEN.from_environment()  # refuse a bad address before anything starts
    target = log_target(options)
    log = target.level if target.file is None else f"{target.level}:{target.file}"
    command = isolated_python("exhume.cli.page", value_of(options, DIR), LISTEN.text())
    # On a terminal the server's lines go into the status, which is redrawn in place and would overwrite them.
    live = sys.stdout.isatty()
    # An own session: Ctrl-C is for the recorder, which ends the server after sealing.
    page = subprocess.Popen(
        [*command, "--open"] if live else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if live else None,
        stderr=subprocess.STDOUT if live else None,
        start_new_session=True,
        env={**isolated_environment(), LOG.variable: log},
    )

    def show_page(status: Status) -> None:
        if page.stdout is not None:
            threading.Thread(target=_forward, args=(page.stdout, status), daemon=True).start()

    try:
        return record(options, show_page)
    finally:
        # The server ends when this pipe does, also after kill -9 of the recorder.
        assert page.stdin is not None
        page.stdin.close()
        page.wait()


def _forward(lines: IO[bytes], status: Status) -> None:
    """Show the lines of the server in the status: its address, or why there is no page."""
    for line in lines:
        status.announce(line.decode(errors="replace").rstrip("\n"))
